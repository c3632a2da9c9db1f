"""What pipelines are tied to: the retries they use and the breakers these watch, the functions and pipelines around."""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from halfopen._runtime.forking import renew_after_fork

__all__ = ["around", "functions_of", "note_function", "note_part", "rewire", "use", "users_of", "wire"]


class _Book:
    def __init__(self) -> None:
        self.users: WeakKeyDictionary[Any, WeakSet[Any]] = WeakKeyDictionary()
        self.wired: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self.around: WeakKeyDictionary[Any, WeakSet[Any]] = WeakKeyDictionary()
        self.functions: WeakKeyDictionary[Any, WeakSet[Any]] = WeakKeyDictionary()
        self._renew()

    def _renew(self) -> None:
        self.lock = threading.RLock()  # a signal handler may make a pipeline in the midst of it


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


def use(user: object, retry: Any, *, used: bool) -> None:
    """Note whether the pipeline *user* has *retry* in it."""
    with _book.lock:
        users = _book.users.setdefault(retry, WeakSet())
        (users.add if used else users.discard)(user)


def rewire(retry: Any, around: Any) -> None:
    """Let *retry* watch another breaker, or none, unless somebody named one by hand."""
    with _book.lock:
        wired = _book.wired.pop(retry, None)
        if retry.breaker is not None and retry.breaker is not wired:
            return
        retry.breaker = around
        if around is not None:
            _book.wired[retry] = around


def users_of(retry: Any) -> list[Any]:
    """Return the living pipelines that have *retry* in them."""
    with _book.lock:
        return list(_book.users.get(retry, ()))


def note_part(inner: object, outer: object) -> None:
    """Note that the pipeline *inner* is a part of *outer*."""
    with _book.lock:
        _book.around.setdefault(inner, WeakSet()).add(outer)


def around(inner: object) -> list[Any]:
    """Return the living pipelines that *inner* is a part of."""
    with _book.lock:
        return list(_book.around.get(inner, ()))


def note_function(pipeline: object, fn: object) -> None:
    """Note that *fn* goes through *pipeline*."""
    with _book.lock:
        _book.functions.setdefault(pipeline, WeakSet()).add(fn)


def functions_of(pipeline: object) -> list[Any]:
    """Return the living functions that go through *pipeline*."""
    with _book.lock:
        return list(_book.functions.get(pipeline, ()))
