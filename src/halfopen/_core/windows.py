"""
The evidence: what the last calls, or the calls of the last seconds, were like.

Both windows keep running totals and remember only where those stood earlier: a count window at each bad
call, a time window at the start of each bucket. The window is then a difference of two totals. Nothing is
stored for a success, nothing has to be zeroed, and every update publishes the totals as one new tuple, so
that an interrupt between two steps can cost one call but never bends the sums.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from halfopen._core.checking import Checks

__all__ = ["CountWindow", "Sums", "TimeWindow", "Totals", "Window", "converted", "make_window"]


class Totals(NamedTuple):
    """What a window holds: all calls, the failed ones, the slow ones, and those that were both."""

    calls: int
    failures: int
    slow: int
    slow_failures: int


# Inside, the same four numbers travel as a bare tuple, which costs a third of a named one.
Sums = tuple[int, int, int, int]

_NOTHING: Sums = (0, 0, 0, 0)

SHORTEST_BUCKET = 1e-9
"""Seconds; no clock tells shorter ones apart, and a length of 0 cannot be divided by."""


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
        if not checks.mistakes and self.seconds / self.buckets < SHORTEST_BUCKET:
            allowed = f"buckets of {self.seconds / self.buckets:g} s are shorter than a nanosecond"
            checks.wrong("buckets", self.buckets, allowed, "conflict")
        checks.done()


class CountedCalls:
    """The running form of a `CountWindow`."""

    __slots__ = ("_bad", "_size", "totals")

    def __init__(self, size: int) -> None:
        self._size = size
        self.totals = _NOTHING
        # (number of a bad call, totals before it), oldest first; made for the first one, as most breakers see none.
        self._bad: deque[tuple[int, Sums]] | None = None

    def advance(self, now: float) -> None:
        """Do nothing: time does not age counted calls."""

    def fresh_until(self, now: float) -> float:
        """Return when time alone changes the window: never."""
        return math.inf

    def successes(self, count: int) -> None:
        """Count *count* fast successes."""
        calls, failures, slow, both = self.totals
        self.totals = (calls + count, failures, slow, both)
        self._evict()

    def failures(self, count: int) -> None:
        """Count *count* fast failures."""
        calls, failures, slow, both = self.totals
        if self._bad is None:
            self._bad = deque()
        kept = range(max(0, count - self._size), count)  # those before leave the window at once
        self._bad.extend([(calls + n, (calls + n, failures + n, slow, both)) for n in kept])
        self.totals = (calls + count, failures + count, slow, both)
        self._evict()

    def add(self, failed: bool, slow: bool, now: float) -> Sums:
        """Count one call; return what the window holds then."""
        before = self.totals
        calls, failures, slow_calls, both = before
        if failed or slow:
            if self._bad is None:
                self._bad = deque()
            self._bad.append((calls, before))
        # Branches, because adding a bool to an int is the slow way to add 0 or 1.
        if failed:
            failures += 1
            if slow:
                both += 1
        if slow:
            slow_calls += 1
        calls += 1
        self.totals = (calls, failures, slow_calls, both)
        # What `_evict` and `window` do, without two calls.
        bad, size = self._bad, self._size
        if calls > size:
            oldest, calls = calls - size, size
            while bad and bad[0][0] < oldest:
                bad.popleft()
        if not bad:
            return (calls, 0, 0, 0)
        _, gone_failures, gone_slow, gone_both = bad[0][1]
        return (calls, failures - gone_failures, slow_calls - gone_slow, both - gone_both)

    def window(self) -> Sums:
        """Return what the window holds now."""
        calls, failures, slow, both = self.totals
        held = calls if calls < self._size else self._size
        if not self._bad:
            return (held, 0, 0, 0)
        _, gone_failures, gone_slow, gone_both = self._bad[0][1]
        return (held, failures - gone_failures, slow - gone_slow, both - gone_both)

    def letters(self, most: int) -> str:
        """Return at most *most* of the last calls, oldest first: ``o`` fine, ``s`` slow, ``f`` failed, ``b`` both."""
        shown = min(self.window()[0], most)
        first = self.totals[0] - shown
        letters = ["o"] * shown
        bad = list(self._bad or ())
        for (number, before), (_, after) in itertools.pairwise([*bad, (0, self.totals)]):
            if number >= first:
                failed, slow = after[1] > before[1], after[2] > before[2]
                letters[number - first] = "b" if failed and slow else "f" if failed else "s"
        return "".join(letters)

    def resized(self, size: int) -> CountedCalls:
        """Return a window of another size that holds as many of the last calls as fit."""
        calls, failures, slow, both = self.window()
        gone = (self.totals[0] - calls, self.totals[1] - failures, self.totals[2] - slow, self.totals[3] - both)
        new = CountedCalls(size)
        new.totals = (calls, failures, slow, both)
        if self._bad:
            new._bad = deque((number - gone[0], _less(before, gone)) for number, before in self._bad)
            new._evict()
        return new

    def _evict(self) -> None:
        bad = self._bad
        if bad:
            oldest = self.totals[0] - self._size
            while bad and bad[0][0] < oldest:
                bad.popleft()


def _less(one: Sums, other: Sums) -> Sums:
    return (one[0] - other[0], one[1] - other[1], one[2] - other[2], one[3] - other[3])


class TimedCalls:
    """The running form of a `TimeWindow`."""

    __slots__ = ("_buckets", "_marks", "_width", "totals")

    def __init__(self, seconds: float, buckets: int) -> None:
        self._buckets = buckets
        self._width = seconds / buckets
        self.totals = _NOTHING
        # (number of the bucket, totals at its start), oldest first.
        self._marks: list[tuple[float, Sums]] = []

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
        self.totals = (calls + count, failures, slow, both)

    def failures(self, count: int) -> None:
        """Count *count* fast failures in the bucket that was begun last."""
        calls, failures, slow, both = self.totals
        self.totals = (calls + count, failures + count, slow, both)

    def add(self, failed: bool, slow: bool, now: float) -> Sums:
        """Count one call in the bucket of *now*; return what the window holds then."""
        self.advance(now)
        calls, failures, slow_calls, both = self.totals
        if failed:
            failures += 1
            if slow:
                both += 1
        if slow:
            slow_calls += 1
        self.totals = (calls + 1, failures, slow_calls, both)
        return self.window()

    def window(self) -> Sums:
        """Return what the window holds, as of the last `advance`."""
        if not self._marks:
            return _NOTHING
        calls, failures, slow, both = self.totals
        gone_calls, gone_failures, gone_slow, gone_both = self._marks[0][1]
        return (calls - gone_calls, failures - gone_failures, slow - gone_slow, both - gone_both)

    def by_bucket(self) -> tuple[Totals, ...]:
        """Return what each bucket holds, oldest first, as of the last `advance`; empty ones may be missing."""
        marks = [*(before for _, before in self._marks), self.totals]
        return tuple(Totals(*_less(after, before)) for before, after in itertools.pairwise(marks))


Window = CountedCalls | TimedCalls


def make_window(spec: CountWindow | TimeWindow, now: float) -> Window:
    """Return an empty running window."""
    window = CountedCalls(spec.size) if isinstance(spec, CountWindow) else TimedCalls(spec.seconds, spec.buckets)
    window.advance(now)
    return window


def converted(window: Window, spec: CountWindow | TimeWindow, now: float) -> Window:
    """
    Return a running window of another size that holds the calls of *window*.

    A count window goes on with its last calls. Where the order of the calls is not known, the bad ones are taken for
    the oldest, and all of them for calls of the present bucket.
    """
    if isinstance(window, CountedCalls) and isinstance(spec, CountWindow):
        return window.resized(spec.size)
    calls, failures, slow_calls, both = window.window()
    new = make_window(spec, now)
    for times, failed, slow in ((both, True, True), (failures - both, True, False), (slow_calls - both, False, True)):
        for _ in range(times):
            new.add(failed, slow, now)
    new.successes(calls - failures - slow_calls + both)
    return new
