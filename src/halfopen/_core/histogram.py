"""Durations counted in buckets, as Prometheus and OpenTelemetry want them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

__all__ = ["DURATION_BUCKETS", "Histogram", "HistogramSnapshot"]

DURATION_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class HistogramSnapshot:
    """
    A histogram at one moment.

    Attributes:
        bounds: Upper bounds of the buckets in seconds, each included; a last bucket without bound follows.
        counts: Observations of each bucket, not cumulative; one more than *bounds*.
        sum: Seconds of all observations together.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float

    @property
    def count(self) -> int:
        """All observations."""
        return sum(self.counts)


class Histogram:
    """Counts durations; whoever adds holds the lock."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...] = DURATION_BUCKETS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def snapshot(self, zeros: int = 0) -> HistogramSnapshot:
        """Return the counts, with *zeros* more observations of 0 s that nobody added one by one."""
        counts = (self._counts[0] + zeros, *self._counts[1:])
        return HistogramSnapshot(self._bounds, counts, self._sum)
