"""
The evidence: what the last calls, or the calls of the last seconds, were like.

Both windows keep running totals and remember only where those stood earlier: a count window at each bad
call, a time window at the start of each bucket. The window is then a difference of two totals. Nothing is
stored for a success, nothing has to be zeroed, and every update publishes the totals as one new tuple, so
that an interrupt between two steps can cost one call but never bends the sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from halfopen._core.checking import Checks

__all__ = ["CountWindow", "TimeWindow", "Totals", "Window", "make_window"]


class Totals(NamedTuple):
    """What a window holds: all calls, the failed ones, the slow ones, and those that were both."""

    calls: int
    failures: int
    slow: int
    slow_failures: int


_NOTHING = Totals(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class CountWindow:
    """
    Judge the last *size* calls.

    Args:
        size: A whole number of calls, 1 to 10,000,000.

    Raises:
        ConfigError: *size* is anything else.
    """

    size: int = 100

    def __post_init__(self) -> None:
        checks = Checks()
        checks.whole("size", self.size, 1, 10_000_000)
        checks.done()


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """
    Judge the calls of the last *seconds*, in *buckets* that leave the window whole.

    The window holds the present bucket and the *buckets* - 1 before it; buckets begin at whole multiples of their
    length on the clock.

    Args:
        seconds: Length in seconds, above 0.
        buckets: Into how many steps it is cut, 1 to 100,000.

    Raises:
        ConfigError: A value is outside its range; all of them are named.
    """

    seconds: float = 60.0
    buckets: int = 10

    def __post_init__(self) -> None:
        checks = Checks()
        checks.seconds("seconds", self.seconds)
        checks.whole("buckets", self.buckets, 1, 100_000)
        checks.done()


class CountedCalls:
    """The running form of a `CountWindow`."""

    __slots__ = ("_bad", "_head", "_size", "totals")

    def __init__(self, size: int) -> None:
        self._size = size
        self.totals = _NOTHING
        # (number of the call, totals before it), oldest first from _head on: a list is a tenth of a deque's memory.
        self._bad: list[tuple[int, Totals]] = []
        self._head = 0

    def advance(self, now: float) -> None:
        """Do nothing: time does not age counted calls."""

    def fresh_until(self, now: float) -> float:
        """Return when time alone changes the window: never."""
        return math.inf

    def successes(self, count: int) -> None:
        """Count *count* fast successes."""
        calls, failures, slow, both = self.totals
        self.totals = Totals(calls + count, failures, slow, both)
        self._evict()

    def add(self, failed: bool, slow: bool) -> None:
        """Count one call."""
        if not failed and not slow:
            self.successes(1)
            return
        before = self.totals
        self._bad.append((before.calls, before))
        calls, failures, slow_calls, both = before
        self.totals = Totals(calls + 1, failures + failed, slow_calls + slow, both + (failed and slow))
        self._evict()

    def window(self) -> Totals:
        """Return what the window holds now."""
        calls, failures, slow, both = self.totals
        if self._head >= len(self._bad):
            return Totals(min(calls, self._size), 0, 0, 0)
        gone = self._bad[self._head][1]
        return Totals(
            min(calls, self._size), failures - gone.failures, slow - gone.slow, both - gone.slow_failures
        )

    def _evict(self) -> None:
        bad, oldest = self._bad, self.totals.calls - self._size
        head = self._head
        while head < len(bad) and bad[head][0] < oldest:
            head += 1
        self._head = head
        # Cutting half the list at a time keeps the cost of a call constant on average.
        if head > 32 and head * 2 > len(bad):
            self._bad, self._head = bad[head:], 0


class TimedCalls:
    """The running form of a `TimeWindow`."""

    __slots__ = ("_buckets", "_marks", "_width", "totals")

    def __init__(self, seconds: float, buckets: int) -> None:
        self._buckets = buckets
        self._width = seconds / buckets
        self.totals = _NOTHING
        # (number of the bucket, totals at its start), oldest first.
        self._marks: list[tuple[float, Totals]] = []

    def advance(self, now: float) -> None:
        """Let the buckets that are too old at *now* go, and begin the present one."""
        marks = self._marks
        bucket = now // self._width
        if marks and bucket <= marks[-1][0]:
            return
        kept = bucket - self._buckets
        first = 0
        while first < len(marks) and marks[first][0] <= kept:
            first += 1
        self._marks = [*marks[first:], (bucket, self.totals)]

    def fresh_until(self, now: float) -> float:
        """Return when the present bucket ends."""
        bucket = max(now // self._width, self._marks[-1][0] if self._marks else -math.inf)
        return (bucket + 1) * self._width

    def successes(self, count: int) -> None:
        """Count *count* fast successes in the bucket that was begun last."""
        calls, failures, slow, both = self.totals
        self.totals = Totals(calls + count, failures, slow, both)

    def add(self, failed: bool, slow: bool) -> None:
        """Count one call in the bucket that was begun last."""
        calls, failures, slow_calls, both = self.totals
        self.totals = Totals(calls + 1, failures + failed, slow_calls + slow, both + (failed and slow))

    def window(self) -> Totals:
        """Return what the window holds, as of the last `advance`."""
        if not self._marks:
            return _NOTHING
        gone = self._marks[0][1]
        return Totals(*(total - before for total, before in zip(self.totals, gone, strict=True)))


Window = CountedCalls | TimedCalls


def make_window(spec: CountWindow | TimeWindow, now: float, held: Totals = _NOTHING) -> Window:
    """Return an empty running window, or one that begins with the calls of another."""
    window = CountedCalls(spec.size) if isinstance(spec, CountWindow) else TimedCalls(spec.seconds, spec.buckets)
    window.advance(now)
    good = held.calls - held.failures - held.slow + held.slow_failures
    for count, failed, slow in (
        (held.slow_failures, True, True),
        (held.failures - held.slow_failures, True, False),
        (held.slow - held.slow_failures, False, True),
    ):
        for _ in range(count):
            window.add(failed, slow)
    window.successes(good)
    return window
