"""What policies that many calls share show of themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from halfopen._core.histogram import HistogramSnapshot

__all__ = ["AdaptiveConcurrencySnapshot", "BulkheadSnapshot", "RateLimiterSnapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkheadSnapshot:
    """
    A bulkhead at one moment.

    Attributes:
        name: The bulkhead.
        limit: Calls that may run at once.
        in_use: Calls that run, those just woken included.
        waiting: Callers in line.
        max_waiting: Places in the line.
        admitted: Calls let through since it was made.
        waited: How many of them had to wait.
        rejections: Calls refused, by reason: ``full``, ``wait_timeout``.
        abandoned: Places that came back because their holder was thrown away without leaving.
        wait_seconds: How long the admitted calls had waited, 0 for most.
    """

    name: str
    limit: int
    in_use: int
    waiting: int
    max_waiting: int
    admitted: int
    waited: int
    rejections: Mapping[str, int]
    abandoned: int
    wait_seconds: HistogramSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveConcurrencySnapshot:
    """
    An adaptive limit at one moment.

    Attributes:
        name: The policy.
        limit: Calls that may run at once now.
        min_limit: Lowest limit it may come to.
        max_limit: Highest limit it may come to.
        in_use: Calls that run.
        admitted: Calls let through since it was made.
        measured: Calls the limit learned from.
        dropped: Calls that failed for overload, by the errors *dropped_on*.
        updates: How often the limit was worked out.
        rejections: Calls refused, by reason: ``full``.
    """

    name: str
    limit: int
    min_limit: int
    max_limit: int
    in_use: int
    admitted: int
    measured: int
    dropped: int
    updates: int
    rejections: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimiterSnapshot:
    """
    A rate limiter at one moment.

    Attributes:
        name: The rate limiter.
        rate: Permits in *per* seconds.
        per: Seconds.
        burst: Permits that may be used at once after a quiet time.
        available: Permits free now.
        waiting: Callers in line.
        admitted: Calls let through since it was made.
        waited: How many of them had to wait.
        rejections: Calls refused, by reason: ``rate``.
        wait_seconds: How long the admitted calls had waited, 0 for most.
    """

    name: str
    rate: float
    per: float
    burst: int
    available: int
    waiting: int
    admitted: int
    waited: int
    rejections: Mapping[str, int]
    wait_seconds: HistogramSnapshot
