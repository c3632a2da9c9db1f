"""Histograms of call durations, filled under the breaker's lock in batches."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from halfopen._core.histogram import DURATION_BUCKETS
from halfopen._core.outcomes import FAILURE, SUCCESS, Outcome

__all__ = ["Durations", "attach"]

_BOUNDS = DURATION_BUCKETS
_FIRST = DURATION_BUCKETS[0]
_CHUNK = 256
PEAK_KEPT = 60.0
"""Seconds; the longest call of the present and of the last stretch of this length counts as recent."""


class Durations:
    """The durations of one breaker's calls, by outcome."""

    __slots__ = ("_failures", "_ignored", "_successes", "_turned")

    def __init__(self) -> None:
        self._successes = _Counts()
        self._failures = _Counts()
        self._ignored = _Counts()
        self._turned: float | None = None

    def add(self, outcome: Outcome, durations: Sequence[float]) -> None:
        """Count finished calls by their durations in seconds."""
        # Not a mapping by outcome: to hash a member of an enumeration takes longer than all the rest.
        counts = self._successes if outcome is SUCCESS else self._failures if outcome is FAILURE else self._ignored
        if len(durations) > 1:
            counts.add(durations)
            return
        singles = counts.singles
        singles += durations
        if len(singles) >= _CHUNK:
            counts.fold()

    def take(self) -> list[list[float]]:
        """Return the numbers of each histogram, in the order of `Outcome`."""
        return [self._successes.take(), self._failures.take(), self._ignored.take()]

    def peaks(self, now: float) -> tuple[float, ...]:
        """Return the longest recent call of each outcome in seconds, 0 where there was none."""
        all_of_them = (self._successes, self._failures, self._ignored)
        if self._turned is None or now - self._turned >= PEAK_KEPT:
            stale = self._turned is not None and now - self._turned >= 2 * PEAK_KEPT
            for each in all_of_them:
                each.before = 0.0 if stale else each.peak
                each.peak = 0.0
            self._turned = now
        return tuple([max(each.peak, each.before) for each in all_of_them])


class _Counts:
    __slots__ = ("before", "counts", "peak", "singles", "taken", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BOUNDS) + 1)
        self.total = 0.0
        self.peak = self.before = 0.0
        self.singles: list[float] = []  # not yet counted
        self.taken: list[float] | None = None  # the numbers, until the next one is counted

    def take(self) -> list[float]:
        self.fold()
        if self.taken is None:
            self.taken = list(accumulate(self.counts))
            self.taken += (self.total, self.taken[-1])
        return self.taken

    def fold(self) -> None:
        if self.singles:
            singles, self.singles = self.singles, []
            self.add(singles)

    def add(self, durations: Sequence[float]) -> None:
        self.taken = None
        longest = max(durations)
        if longest > self.peak:
            self.peak = longest
        added = sum(durations)
        if (
            0 < added < math.inf
        ):  # a clock that steps back must not let the sum fall, nor one that knows no time ruin it
            self.total += added
        if longest <= _FIRST:
            self.counts[0] += len(durations)
        else:
            for begin in range(0, len(durations), _CHUNK):
                self._add_sorted(sorted(durations[begin : begin + _CHUNK]))

    def _add_sorted(self, durations: list[float]) -> None:
        # Looking for 11 bounds among 256 sorted durations is quicker than for 256 durations among 11 bounds.
        below = 0
        for place, bound in enumerate(_BOUNDS):
            upto = bisect_right(durations, bound, below)
            self.counts[place] += upto - below
            below = upto
            if below == len(durations):
                return
        self.counts[-1] += len(durations) - below


def attach(breaker: Any) -> Durations:
    """Return what counts a breaker's durations, attached to it if it was not yet; calls before are not in it."""
    counters = breaker._circuit.counters
    present = counters.durations
    if isinstance(present, Durations):
        return present
    with breaker._lock:
        counters = breaker._circuit.counters
        if not isinstance(counters.durations, Durations):
            counters.durations = Durations()
        return counters.durations
