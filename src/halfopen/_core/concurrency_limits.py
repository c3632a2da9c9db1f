"""
A limit on concurrent calls that follows latency.

By Little's law the calls in a service are its throughput times its latency. Beyond its capacity more concurrency buys
no throughput, only latency; so rising latency says that the limit is too high.

`Gradient2` after Netflix concurrency-limits, ``Gradient2Limit.java`` (Apache 2.0), and `Aimd` after its
``AIMDLimit.java``, the additive increase, multiplicative decrease of TCP (Chiu and Jain 1989). As in failsafe-go's
adaptive limiter, both learn from windows of calls, not from single ones.

Ours differs in three points. A window with a dropped call (a timeout, say) backs off under either algorithm. "Not
enough load to learn from" looks at the peak of the window, not at one instant. And what latency is normal rises five
times more slowly from windows at the limit: they are slow because of the limit, and learning from them at full speed
makes Gradient2 drift up for as long as the overload lasts (in the simulation of the tests, a service of capacity 30
that is always saturated: from 65 to 915 in 2,000 windows with Netflix's settings, from 41 to 57 with these).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from halfopen._core.checking import Checks

__all__ = ["AdaptiveLimit", "Aimd", "Gradient2", "LimitAlgorithm", "Sample"]


@dataclass(frozen=True, slots=True)
class Sample:
    """
    What one window saw.

    Attributes:
        latency: Mean seconds of the calls that count; None where there were only drops.
        peak: Most calls in flight at once.
        dropped: Whether a call was dropped for overload.
    """

    latency: float | None
    peak: int
    dropped: bool


class LimitAlgorithm(Protocol):
    """What turns one window into the next limit. It runs under the policy's lock, so it is ours."""

    def start(self) -> object:
        """Return the memory of a fresh limit."""
        ...

    def next_limit(self, memory: object, limit: float, sample: Sample) -> float:
        """Return the limit after *sample*; it is cut to the allowed range afterwards."""
        ...


class _Baseline:
    """Mean of the first ten windows, then an exponential average: what latency is normal."""

    __slots__ = ("count", "value")

    def __init__(self) -> None:
        self.count = 0
        self.value = 0.0

    def add(self, latency: float, windows: int, *, saturated: bool) -> float:
        self.count += 1
        weight = 1 / self.count if self.count <= min(10, windows) else 2 / (windows + 1)
        if saturated and self.count > 1 and latency > self.value:
            weight /= 5
        self.value += (latency - self.value) * weight
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient2:
    """
    Compare the latency of a window with the long-term one.

    ::

        gradient = max(0.5, min(1, tolerance × long / short))
        wanted   = limit × gradient + queue_size
        limit    = limit × (1 - smoothing) + wanted × smoothing

    where *short* is the mean latency of the window and *long* its exponential average over *long_window* windows,
    which learns a higher latency five times more slowly from windows whose peak was at the limit. When *long* is more
    than twice *short*, an overload is over and *long* is lowered by 5 % a window. A window whose peak stayed below half
    the limit cannot raise it. A window with a drop lowers it to at most limit × *backoff*.

    Args:
        tolerance: How many times the normal latency passes as normal, at least 1.
        queue_size: Slots the limit grows by while latency is normal, at least 1.
        smoothing: Share in (0, 1] of the way to the wanted limit that a window goes.
        long_window: Windows in the long-term average, 10 to 100,000.
        backoff: Share in (0, 1) that is left of the limit after a drop.
    """

    tolerance: float = 1.2
    queue_size: int = 4
    smoothing: float = 0.2
    long_window: int = 600
    backoff: float = 0.9

    def __post_init__(self) -> None:
        checks = Checks()
        checks.number("tolerance", self.tolerance)
        if not checks.mistakes and self.tolerance < 1:
            checks.wrong("tolerance", self.tolerance, "a number of at least 1")
        checks.whole("queue_size", self.queue_size, 1, 1_000_000)
        checks.share("smoothing", self.smoothing)
        checks.whole("long_window", self.long_window, 10, 100_000)
        _check_backoff(checks, self.backoff)
        checks.done()

    def start(self) -> object:
        """Return an empty baseline."""
        return _Baseline()

    def next_limit(self, memory: object, limit: float, sample: Sample) -> float:
        """Return the limit after *sample*."""
        assert isinstance(memory, _Baseline)
        backed_off = limit * self.backoff if sample.dropped else math.inf
        if sample.latency is None:
            return min(limit, backed_off)
        short = max(sample.latency, 1e-9)
        long = memory.add(short, self.long_window, saturated=sample.peak >= int(limit))
        if long > 2 * short:
            memory.value *= 0.95
        if sample.peak < limit / 2:
            return min(limit, backed_off)
        gradient = max(0.5, min(1.0, self.tolerance * long / short))
        wanted = limit * gradient + self.queue_size
        return min(limit * (1 - self.smoothing) + wanted * self.smoothing, backed_off)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aimd:
    """
    Grow by a step while all is well, shrink by a share when it is not.

    ::

        dropped or latency > slow_after:  limit = min(limit × backoff, limit - 1)
        peak ≥ limit / 2:                 limit = limit + increase

    Args:
        slow_after: Mean seconds of a window above which it counts as overloaded.
        increase: Slots gained in a good window, above 0.
        backoff: Share in (0, 1) that is left of the limit after a bad window.
    """

    slow_after: float
    increase: float = 1.0
    backoff: float = 0.9

    def __post_init__(self) -> None:
        checks = Checks()
        checks.seconds("slow_after", self.slow_after)
        checks.number("increase", self.increase)
        _check_backoff(checks, self.backoff)
        checks.done()

    def start(self) -> object:
        """Return no memory: the limit itself is all there is."""
        return None

    def next_limit(self, memory: object, limit: float, sample: Sample) -> float:
        """Return the limit after *sample*."""
        if sample.dropped or (sample.latency is not None and sample.latency > self.slow_after):
            return min(limit * self.backoff, limit - 1)
        if sample.peak >= limit / 2:
            return limit + self.increase
        return limit


def _check_backoff(checks: Checks, backoff: float) -> None:
    before = len(checks.mistakes)
    checks.share("backoff", backoff)
    if len(checks.mistakes) == before and backoff >= 1:
        checks.wrong("backoff", backoff, "a share in (0, 1)")


class AdaptiveLimit:
    """
    The limit itself, and the window that is filling.

    A window ends once it is *window* seconds old and holds *min_samples* outcomes.

    Attributes:
        limit: Calls that may run at once.
        exact: The limit before it is rounded down.
        in_use: Calls that run; kept by whoever holds the lock.
        peak: Most calls in flight at once in this window; kept likewise.
        updates: Windows so far.
    """

    in_use: int
    peak: int

    __slots__ = (
        "_algorithm", "_dropped", "_ends", "_latency", "_maximum", "_memory", "_min_samples", "_minimum", "_samples",
        "_timed", "_window", "exact", "in_use", "limit", "peak", "updates",
    )  # fmt: skip

    def __init__(
        self, algorithm: LimitAlgorithm, *, initial: int, minimum: int, maximum: int, window: float, min_samples: int
    ) -> None:
        self._algorithm = algorithm
        self._memory = algorithm.start()
        self._minimum = minimum
        self._maximum = maximum
        self._window = window
        self._min_samples = min_samples
        self._ends: float | None = None
        self.in_use = 0
        self.exact = float(initial)
        self.limit = initial
        self.updates = 0
        self._clear()

    def _clear(self) -> None:
        self._samples = 0
        self._timed = 0
        self._latency = 0.0
        self._dropped = False
        self.peak = self.in_use

    def record(self, now: float, latency: float) -> None:
        """Learn that a call ended well at *now* after *latency* seconds."""
        self._timed += 1
        self._latency += latency
        self._samples += 1
        if self._ends is None or now >= self._ends:
            self._look(now)

    def drop(self, now: float) -> None:
        """Learn that a call was dropped for overload at *now*."""
        self._dropped = True
        self._samples += 1
        if self._ends is None or now >= self._ends:
            self._look(now)

    def _look(self, now: float) -> None:
        if self._ends is None:
            self._ends = now + self._window
        elif self._samples >= self._min_samples:
            self._update()
            self._ends = now + self._window

    def _update(self) -> None:
        latency = self._latency / self._timed if self._timed else None
        wanted = self._algorithm.next_limit(self._memory, self.exact, Sample(latency, self.peak, self._dropped))
        self.exact = max(float(self._minimum), min(float(self._maximum), wanted))
        self.limit = int(self.exact)
        self.updates += 1
        self._clear()
