"""When to send a second attempt, whether it can be afforded, and which answer counts."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Any

from halfopen._core.checking import Checks

__all__ = ["HedgeBudget", "Latencies", "Quantile", "Race", "Verdict"]


@dataclass(frozen=True, slots=True)
class Quantile:
    """
    Hedge once a call takes longer than most calls of late did.

    Args:
        share: The share in (0, 1) of recent calls that were faster: 0.95 hedges about every twentieth call.
        window: How many recent calls to look at, 10 to 10,000.
        minimum: How many must be known before anything is hedged, 1 to *window*.
        at_least: Seconds to wait at any rate, so that a very fast dependency is not asked twice over noise.

    Raises:
        ConfigError: A value is outside its range; all of them are named.
    """

    share: float = 0.95
    window: int = 200
    minimum: int = 20
    at_least: float = 0.001

    def __post_init__(self) -> None:
        checks = Checks()
        checks.share("share", self.share)
        if not checks.mistakes and self.share >= 1:
            checks.wrong("share", self.share, "a share in (0, 1)")
        checks.whole("window", self.window, 10, 10_000)
        checks.whole("minimum", self.minimum, 1, 10_000)
        checks.seconds("at_least", self.at_least, zero=True)
        if not checks.mistakes and self.minimum > self.window:
            checks.wrong("minimum", self.minimum, f"at most window ({self.window})", "conflict")
        checks.done()


class Latencies:
    """The nearest-rank quantile of the last durations."""

    __slots__ = ("_latest", "_quantile", "_sorted")

    def __init__(self, quantile: Quantile) -> None:
        self._quantile = quantile
        self._latest: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, seconds: float) -> None:
        """Learn how long a call took, or at least how long it had taken when it was given up."""
        self._latest.append(seconds)
        insort(self._sorted, seconds)
        if len(self._latest) > self._quantile.window:
            self._forget(self._latest.popleft())

    def _forget(self, seconds: float) -> None:
        ordered = self._sorted
        place = bisect_left(ordered, seconds)
        if len(ordered) == len(self._latest) + 1 and ordered[place : place + 1] == [seconds]:
            del ordered[place]
        else:  # something came between two steps
            self._sorted = sorted(self._latest)

    def value(self) -> float | None:
        """Return the quantile in seconds; None while too few durations are known."""
        count = len(self._sorted)
        if count < self._quantile.minimum:
            return None
        rank = math.ceil(self._quantile.share * count)
        return max(self._sorted[max(rank, 1) - 1], self._quantile.at_least)


class HedgeBudget:
    """
    Extra attempts as a share of calls: each call earns *share* of one, each extra attempt costs one.

    Earnings are capped, so that a quiet night does not pay for a storm. At any time extra attempts are at most
    1 + *share* × calls.
    """

    __slots__ = ("_cap", "_share", "_tokens")

    def __init__(self, share: float | None, cap: float = 10.0) -> None:
        self._share = share
        self._cap = cap
        self._tokens = 1.0

    def earn(self) -> None:
        """Count one call."""
        if self._share is not None:
            tokens = self._tokens + self._share
            self._tokens = tokens if tokens < self._cap else self._cap  # not `min`: nobody may come between

    def spend(self) -> bool:
        """Pay for an extra attempt; return False where the budget is used up."""
        if self._share is None:
            return True
        # Ten tenths are not one in float arithmetic.
        if self._tokens < 1.0 - 1e-9:
            return False
        tokens = self._tokens - 1.0
        self._tokens = tokens if tokens > 0.0 else 0.0
        return True


class Verdict(Enum):
    """How a race ended."""

    ANSWERED = "answered"
    FAILED = "failed"


class Race:
    """
    Attempts of one call, of which the first success counts.

    A failure ends the race only when nothing else runs: as long as another attempt is under way, it may still succeed.

    Attributes:
        verdict: None while the race is open.
        winner: The number of the attempt that answered, from 0.
        value: Its answer.
        errors: What the failed attempts raised, in the order in which they did.
    """

    __slots__ = ("errors", "running", "started", "value", "verdict", "winner")

    def __init__(self) -> None:
        self.started = 0
        self.running = 0
        self.verdict: Verdict | None = None
        self.winner: int | None = None
        self.value: Any = None
        self.errors: list[BaseException] = []

    def start(self) -> int:
        """Start an attempt; return its number."""
        number = self.started
        self.started += 1
        self.running += 1
        return number

    def succeed(self, number: int, value: Any) -> None:
        """Attempt *number* returned *value*."""
        self.running -= 1
        if self.verdict is None:
            self.verdict = Verdict.ANSWERED
            self.winner = number
            self.value = value

    def fail(self, error: BaseException, *, at_once: bool = False) -> None:
        """Let an attempt end with *error*; *at_once* ends the whole race, as an interrupt must."""
        self.running -= 1
        if self.verdict is not None:
            return
        if at_once:
            self.errors.insert(0, error)
        else:
            self.errors.append(error)
        if at_once or self.running == 0:
            self.verdict = Verdict.FAILED

    def drop(self) -> None:
        """Let an attempt end without an outcome, cancelled."""
        self.running -= 1
