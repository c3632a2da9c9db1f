"""The picture that every page shows: objects by key, their differences, and the ring of recent patches."""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["Key", "Picture", "dumps"]

Key = tuple[str, ...]
"""``("process", id)``, ``("breaker", name)``, ``("member", name, id)``, ``("queue", name)`` or ``("store",)``."""

RING = 256
RING_BYTES = 2_000_000
"""Patches that are kept for pages that come back; beyond either bound a snapshot is the shorter way."""
EVENTS = 200


_NUMBER = re.compile(r"[0-9]{1,18}")


def dumps(data: Any) -> bytes:
    """Return JSON without spaces; a lone surrogate, which UTF-8 cannot hold, is escaped as JSON may."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "backslashreplace")


class Picture:
    """
    Objects by key, with a version that grows at every change.

    Ids of events are ``<start>-<version>``; after a restart of the server an old one is seen to be foreign.
    """

    def __init__(self, title: str = "", environment: str = "") -> None:
        self.start = f"{time.time_ns() // 1_000_000:x}"
        self.version = 0
        self.title = title
        self.environment = environment
        self.pages = {"watching": 0, "let_go": 0}
        self._objects: dict[Key, dict[str, Any]] = {}
        self._changes: list[list[Any]] = []
        self._events: deque[dict[str, Any]] = deque(maxlen=EVENTS)
        self._ring: deque[tuple[int, bytes]] = deque()
        self._ring_bytes = 0
        self._whole: tuple[int, bytes] | None = None

    def get(self, key: Key) -> dict[str, Any] | None:
        """Return an object; not to be changed."""
        return self._objects.get(key)

    def keys(self, kind: str) -> list[Key]:
        """Return the keys of one kind."""
        return [key for key in self._objects if key[0] == kind]

    def put(self, key: Key, fields: Mapping[str, Any]) -> bool:
        """Set the fields of an object; return whether any differs."""
        known = self._objects.get(key)
        if known is None:
            self._objects[key] = dict(fields)
            self._changes.append([*key, dict(fields)])
            return True
        changed = {name: value for name, value in fields.items() if name not in known or known[name] != value}
        if changed:
            known.update(changed)
            self._changes.append([*key, changed])
        return bool(changed)

    def drop(self, key: Key) -> None:
        """Take an object away."""
        if self._objects.pop(key, None) is not None:
            self._changes.append([*key, None])

    def event(self, event: dict[str, Any]) -> None:
        """Add to the list of what happened."""
        self._events.append(event)
        self._changes.append(["event", event])

    @property
    def changed(self) -> bool:
        """Whether a patch waits to be made."""
        return bool(self._changes)

    def patch(self) -> bytes:
        """Make one patch of all changes so far; return it as a server-sent event."""
        self.version += 1
        body = {"version": self.version, "base": self.version - 1, "time": _now(), "changes": self._changes}
        self._changes = []
        self._whole = None
        event = self._as_event("patch", dumps(body))
        self._remember(event)
        return event

    def _remember(self, event: bytes) -> None:
        self._ring.append((self.version, event))
        self._ring_bytes += len(event)
        while len(self._ring) > RING or self._ring_bytes > RING_BYTES:
            self._ring_bytes -= len(self._ring.popleft()[1])

    def since(self, last_id: str) -> list[bytes] | None:
        """Return the patches after an event id; None if it is foreign or too old."""
        start, _, counter = last_id.rpartition("-")
        if start != self.start or not _NUMBER.fullmatch(counter) or int(counter) > self.version:
            return None
        missing = self.version - int(counter)
        if missing > len(self._ring):
            return None
        return [event for version, event in self._ring if version > int(counter)]

    def snapshot_event(self) -> bytes:
        """Return the whole as a server-sent event."""
        return self._as_event("snapshot", self.snapshot())

    def snapshot(self) -> bytes:
        """Return everything as one JSON document, as of the last patch."""
        if self._whole is None or self._whole[0] != self.version or self._changes:
            self._whole = (self.version, dumps(self.document()))
        return self._whole[1]

    def document(self) -> dict[str, Any]:
        """Return everything as plain data."""
        breakers: dict[str, dict[str, Any]] = {
            key[1]: {**fields, "processes": []} for key, fields in self._of("breaker")
        }
        for key, fields in self._of("member"):
            if key[1] in breakers:
                breakers[key[1]]["processes"].append({"id": key[2], **fields})
        return {
            "version": self.version,
            "start": self.start,
            "time": _now(),
            "title": self.title,
            "environment": self.environment,
            "store": self._objects.get(("store",)),
            "processes": [{"id": key[1], **fields} for key, fields in self._of("process")],
            "breakers": [{"name": name, **fields} for name, fields in breakers.items()],
            "queues": [{"name": key[1], **fields} for key, fields in self._of("queue")],
            "events": list(self._events),
            "pages": self.pages,
        }

    def _of(self, kind: str) -> Iterable[tuple[Key, dict[str, Any]]]:
        return [(key, fields) for key, fields in self._objects.items() if key[0] == kind]

    def _as_event(self, name: str, data: bytes) -> bytes:
        return b"id: %s-%d\nevent: %s\ndata: %s\n\n" % (self.start.encode(), self.version, name.encode(), data)


def _now() -> float:
    return round(time.time(), 3)
