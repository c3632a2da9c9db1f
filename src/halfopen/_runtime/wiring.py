"""Which pipelines use a retry, and which breaker one of them told it to watch."""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from halfopen._runtime.forking import renew_after_fork

__all__ = ["users_of", "wire"]


class _Book:
    def __init__(self) -> None:
        self.users: WeakKeyDictionary[Any, WeakSet[Any]] = WeakKeyDictionary()
        self.wired: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._renew()

    def _renew(self) -> None:
        self.lock = threading.Lock()


_book = _Book()
renew_after_fork(_book)


def wire(user: object, retry: Any, around: Any) -> None:
    """
    Note that the pipeline *user* has *retry* in it, and let that watch the breaker *around* it, if there is one.

    A breaker that somebody named by hand stays; one that an earlier pipeline brought gives way.
    """
    with _book.lock:
        _book.users.setdefault(retry, WeakSet()).add(user)
        if around is not None and (retry.breaker is None or retry.breaker is _book.wired.get(retry)):
            retry.breaker = _book.wired[retry] = around


def users_of(retry: Any) -> list[Any]:
    """Return the living pipelines that have *retry* in them."""
    with _book.lock:
        return list(_book.users.get(retry, ()))
