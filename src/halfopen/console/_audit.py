"""The audit log: JSON lines, only ever appended to, on disk before an order is carried out."""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from halfopen._runtime.late import logger

__all__ = ["AuditLog"]

REMEMBERED = 2000
"""Entries kept in memory; older ones are read from the file when they are asked for."""


class AuditLog:
    """
    Who ordered what, when, where, why, until when, and what came of it.

    An entry is written and flushed to disk before its order is carried out; a second line then tells the states
    afterwards. So a crash between the two leaves an order without a result, never a result without an order.

    Args:
        path: The file; None keeps entries in memory only, until the process ends.

    Raises:
        OSError: The file cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = None if path is None else Path(path)
        self._lock = threading.Lock()
        self._entries: deque[dict[str, Any]] = deque(maxlen=REMEMBERED)
        self._file: int | None = None
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            self._entries.extend(self._read())
            self._end_torn_line()

    def _end_torn_line(self) -> None:
        assert self._file is not None
        size = os.lseek(self._file, 0, os.SEEK_END)
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")  # a crash tore the last line; the next one must not hang on to it

    def order(self, **facts: Any) -> dict[str, Any]:
        """
        Write an order down before it is carried out; return its entry.

        Raises:
            OSError: It is not on disk, so the order must not be carried out.
        """
        entry = {"id": uuid.uuid4().hex, "at": round(time.time(), 3), **facts}
        with self._lock:
            self._write(entry)
            self._entries.append(entry)
        return entry

    def result(self, entry: dict[str, Any], **facts: Any) -> dict[str, Any]:
        """Write down what came of an order; return the whole entry."""
        with self._lock:
            entry.update(facts)
            try:
                self._write({"result_of": entry["id"], **facts})
            except OSError:
                logger().exception("the result of order %s is not in the audit log", entry["id"])
        return entry

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is None:
            return
        data = json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        if os.write(self._file, data) != len(data):
            raise OSError("the audit log took only part of a line")
        os.fsync(self._file)

    def entries(
        self, *, target: str | None = None, before: float | None = None, limit: int = 50
    ) -> list[dict[str, Any]]:
        """Return entries, newest first."""
        with self._lock:
            known = list(self._entries)
        if self.path is not None and len(known) == REMEMBERED and (before is not None or target is not None):
            known = list(self._read())
        found: list[dict[str, Any]] = []
        for entry in reversed(known):
            if (target is None or entry.get("target") == target) and (before is None or entry["at"] < before):
                found.append(entry)
                if len(found) >= limit:
                    break
        return found

    def by_request(self, request_id: str) -> dict[str, Any] | None:
        """Return the entry of a request, if it was carried out before."""
        with self._lock:
            return next((entry for entry in reversed(self._entries) if entry.get("request_id") == request_id), None)

    def _read(self) -> Iterator[dict[str, Any]]:
        assert self.path is not None
        found: dict[str, dict[str, Any]] = {}
        with self.path.open("rb") as lines:
            for line in lines:
                try:
                    data = json.loads(line)
                    if "result_of" in data:
                        found.get(data.pop("result_of"), {}).update(data)
                    else:
                        found[data["id"]] = data
                except (ValueError, KeyError, TypeError, AttributeError):
                    continue  # a torn line
        return iter(found.values())

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
