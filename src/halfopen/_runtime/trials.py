"""Which trial calls the present thread or task is inside of."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = ["enclosing", "in_trial", "inside"]

Trial = tuple[Any, int]
"""The state object that admitted a trial call, and the serial number of its permit; never the permit: it has to end."""

_ENCLOSING: ContextVar[tuple[Trial, ...]] = ContextVar("halfopen_trials", default=())


def enclosing() -> tuple[Trial, ...]:
    """Return the trial calls that enclose the present code and are not settled, outermost first."""
    trials = _ENCLOSING.get()
    return tuple(trial for trial in trials if _unsettled(*trial)) if trials else trials


def _unsettled(state: Any, serial: int) -> bool:
    watch = state.circuit.outstanding.get(serial)
    return watch is not None and watch() is not None  # an interrupted trial call is over before that is noted


def in_trial() -> bool:
    """Say whether the present code runs inside a trial call of any circuit breaker."""
    return bool(enclosing())


def enter(state: Any, serial: int) -> tuple[Trial, ...]:
    """Enter a trial call; return what `leave` wants."""
    before = enclosing()  # without those that an interrupt kept from being left
    _ENCLOSING.set((*before, (state, serial)))
    return before


def leave(before: tuple[Trial, ...]) -> None:
    """Leave a trial call. Set, not reset by token: a generator may end in another context than it began in."""
    _ENCLOSING.set(before)


@contextmanager
def inside(state: Any, serial: int) -> Generator[None, None, None]:
    """Run a block inside a trial call."""
    before = enter(state, serial)
    try:
        yield
    finally:
        leave(before)
