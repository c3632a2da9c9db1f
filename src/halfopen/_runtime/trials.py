"""Which calls the present thread or task is inside of, of those that not everybody may make: trial calls above all."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from halfopen._core.states import State

__all__ = ["enclosing", "in_trial", "inside"]

HAVE_AN_INSIDE = frozenset({State.HALF_OPEN, State.RECOVERING})
"""States that admit some calls only: what an admitted call does inside belongs to it, and is not refused again."""

Trial = tuple[Any, int]
"""The state object that admitted a call, and the serial number of its permit; never the permit: it has to end."""

_ENCLOSING: ContextVar[tuple[Trial, ...]] = ContextVar("halfopen_trials", default=())


def enclosing() -> tuple[Trial, ...]:
    """Return the calls that enclose the present code, belong here and are not settled, outermost first."""
    trials = _ENCLOSING.get()
    return tuple(trial for trial in trials if _unsettled(*trial)) if trials else trials


def _unsettled(state: Any, serial: int) -> bool:
    watch = state.circuit.outstanding.get(serial)
    return watch is not None and watch() is not None  # an interrupted trial call is over before that is noted


def in_trial() -> bool:
    """Say whether the present code runs inside a trial call of any circuit breaker."""
    return any(state.kind is State.HALF_OPEN for state, _ in enclosing())


def enter(state: Any, serial: int) -> tuple[Trial, ...] | None:
    """Enter a call; return what `leave` wants, None where there is no inside."""
    if state.kind not in HAVE_AN_INSIDE:
        return None
    before = enclosing()  # without those that an interrupt kept from being left
    _ENCLOSING.set((*before, (state, serial)))
    return before


def leave(before: tuple[Trial, ...] | None) -> None:
    """Leave a call. Set, not reset by token: a generator may end in another context than it began in."""
    if before is not None:
        _ENCLOSING.set(before)


@contextmanager
def inside(state: Any, serial: int) -> Generator[None, None, None]:
    """Run a block inside a call."""
    before = enter(state, serial)
    try:
        yield
    finally:
        leave(before)
