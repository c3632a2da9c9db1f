"""The audit log: JSON lines, only ever appended to, on disk before an order is carried out."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from halfopen._runtime.late import logger
from halfopen.console._picture import dumps

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
        self._torn = False
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._open(self.path)
            self._entries.extend(self._read())

    def _open(self, path: Path) -> int:
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        size = os.lseek(file, 0, os.SEEK_END)
        self._torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
        if size == 0:
            _keep_name(path.parent)
        return file

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
        if self.path is None:
            return
        if self._file is None or _is_elsewhere(self._file, self.path):
            self.close()
            self._file = self._open(self.path)
        # A line that a crash or a full disk tore: the next one must not hang on to it.
        data = b"\n" * self._torn + dumps(line) + b"\n"
        written = os.write(self._file, data)
        self._torn = written != len(data)
        if self._torn:
            raise OSError(errno.ENOSPC, "the audit log took only part of a line")
        os.fsync(self._file)

    def entries(
        self, *, target: str | None = None, before: float | None = None, limit: int = 50
    ) -> list[dict[str, Any]]:
        """Return entries, newest first."""
        with self._lock:
            known = list(self._entries)
        if self.path is not None and len(known) == REMEMBERED and (before is not None or target is not None):
            with suppress(FileNotFoundError):  # it was moved away, and nothing was written since
                known = self._all(known)
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

    def _all(self, known: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found = {entry["id"]: entry for entry in self._read()} | {entry["id"]: entry for entry in known}
        return sorted(found.values(), key=lambda entry: entry["at"])

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
        """Close the file; another entry opens it again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _is_elsewhere(file: int, path: Path) -> bool:
    """Say whether the file was moved away, such as by logrotate."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return True
    here = os.fstat(file)
    return (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino)


def _keep_name(folder: Path) -> None:
    """Write a new file's name to disk, as its lines are."""
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
