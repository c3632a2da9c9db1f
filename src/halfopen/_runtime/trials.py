"""Which trial calls the present thread or task is inside of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = ["enclosing", "in_trial", "inside"]

_ENCLOSING: ContextVar[tuple[Any, ...]] = ContextVar("halfopen_trials", default=())


def enclosing() -> tuple[Any, ...]:
    """Return the permits of the trial calls that enclose the present code, outermost first."""
    return _ENCLOSING.get()


def in_trial() -> bool:
    """Say whether the present code runs inside a trial call of any circuit breaker."""
    return any(not permit.settled for permit in _ENCLOSING.get())


def enter(permit: Any) -> tuple[Any, ...]:
    """Enter a trial call; return what `leave` wants."""
    before = _ENCLOSING.get()
    _ENCLOSING.set((*before, permit))
    return before


def leave(before: tuple[Any, ...]) -> None:
    """Leave a trial call. Set, not reset by token: a generator may end in another context than it began in."""
    _ENCLOSING.set(before)


@contextmanager
def inside(permit: Any) -> Iterator[None]:
    """Run a block inside the trial call of *permit*."""
    before = enter(permit)
    try:
        yield
    finally:
        leave(before)
