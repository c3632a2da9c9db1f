"""Who holds leases: a file that a process keeps locked while it lives, so that others see at once when it has died."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import uuid
import weakref
from collections.abc import Container, Iterable
from pathlib import Path

if sys.platform != "win32":
    from fcntl import LOCK_EX, LOCK_NB, flock

    def _try_to_lock(file: int) -> bool:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except OSError:
            return False
        return True

else:

    def _try_to_lock(file: int) -> bool:
        return False  # its locks are not those of a file, but of a range of bytes, and mandatory


__all__ = ["FileOwner", "owner_of"]

_BY_FORK: weakref.WeakSet[FileOwner] = weakref.WeakSet()


def owner_of(process: str) -> str:
    """Return the owner in a process's name, ``owner.queue``, or in a token, ``boot:owner.queue:number``; or nothing."""
    parts = process.split(":")
    name = parts[1] if len(parts) == 3 else process
    return name.partition(".")[0] if "." in name else ""


class FileOwner:
    """
    This process as an owner of leases: a locked file in *directory*.

    The system gives the lock up when the process ends, however it ends, and never before: one that is stopped or stalls
    keeps it. Unlike a process number it means the same in every container.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._name: str | None = None
        self._held: int | None = None
        _BY_FORK.add(self)

    @property
    def name(self) -> str:
        """Name this process; an empty text where it cannot hold a lock, and its leases must run out by themselves."""
        with self._lock:
            if self._name is None:
                self._name = self._begin()
            return self._name

    def _begin(self) -> str:
        name = uuid.uuid4().hex[:16]
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            held = os.open(self._path(name), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError:
            return ""
        if not _try_to_lock(held):
            os.close(held)
            self.forget(name)
            return ""
        self._held = held
        return name

    def gone(self, names: Iterable[str]) -> frozenset[str]:
        """Return those of *names* whose process has ended."""
        return frozenset(name for name in names if name != self._name and self._is_gone(name))

    def _is_gone(self, name: str) -> bool:
        if not name.isalnum():
            return False
        try:
            looked = os.open(self._path(name), os.O_RDWR)
        except OSError:
            return False  # nobody can say
        try:
            return _try_to_lock(looked)
        finally:
            os.close(looked)

    def sweep(self, used: Container[str]) -> None:
        """Remove the files of those that are gone and are not *used* any more."""
        for path in list(self._directory.glob("*.owner")):
            if path.stem not in used and path.stem != self._name and self._is_gone(path.stem):
                self.forget(path.stem)

    def forget(self, name: str) -> None:
        """Remove the file of one that is gone."""
        with contextlib.suppress(OSError):
            self._path(name).unlink(missing_ok=True)

    def close(self) -> None:
        """Hold no lease any more."""
        with self._lock:
            if self._held is not None and self._name:
                self.forget(self._name)
                os.close(self._held)
            self._name = self._held = None

    def forked(self) -> None:
        """Let go of what the parent holds: with it in our hands its end would be seen by nobody."""
        self._lock = threading.Lock()
        if self._held is not None:
            os.close(self._held)
        self._name = self._held = None

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.owner"


def _forked() -> None:
    for owner in list(_BY_FORK):
        owner.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
