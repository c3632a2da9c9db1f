"""The window call by call or bucket by bucket, for those who draw it."""

from __future__ import annotations

from dataclasses import dataclass

from halfopen._core.circuit import Circuit
from halfopen._core.counting import Counting
from halfopen._core.windows import CountedCalls, Totals

__all__ = ["RecentCalls", "recent_calls"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentCalls:
    """
    What a window holds, oldest first.

    Attributes:
        live: Whether it is the present state's; otherwise that of the last state that had one.
        calls: A letter for each call of a count window: ``o`` succeeded, ``s`` succeeded slowly, ``f`` failed,
            ``b`` failed slowly. None for a time window, which does not know its calls one by one.
        buckets: What each bucket of a time window holds; empty for a count window.
    """

    live: bool
    calls: str | None
    buckets: tuple[Totals, ...] = ()


def recent_calls(circuit: Circuit, now: float, most: int) -> RecentCalls | None:
    """Return what the window holds at *now*, of a count window at most the last *most* calls."""
    state, live = circuit.state, True
    if not isinstance(state, Counting):
        if not isinstance(circuit.retired, Counting):
            return None
        state, live = circuit.retired, False
        state.fold()
    else:
        circuit.fold(now)
    window = state.window
    if isinstance(window, CountedCalls):
        return RecentCalls(live=live, calls=window.letters(most))
    return RecentCalls(live=live, calls=None, buckets=window.by_bucket())
