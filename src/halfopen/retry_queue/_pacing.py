"""How fast a lane may send: additive increase, multiplicative decrease; rates; spreading."""

from __future__ import annotations

import random
from dataclasses import dataclass

from ._rows import Outcome

__all__ = ["Rate", "fair_share", "next_window", "spread_delay"]


def next_window(window: int, limit: int, outcome: Outcome, *, slow: bool = False) -> int:
    """
    Return the send window after one outcome.

    A success adds one, so the window doubles per round; a failure or a slow call halves it. Never below 1 nor above
    *limit*.
    """
    if outcome == "ignored":
        return min(window, limit)
    if outcome == "failure" or slow:
        return max(1, min(window, limit) // 2)
    return min(window + 1, limit)


def spread_delay(recovered_lately: int, spread: float, rng: random.Random) -> float:
    """Return seconds a lane waits before it drains, when *recovered_lately* others have just closed as well."""
    return rng.uniform(0.0, spread) if recovered_lately else 0.0


def fair_share(free: int, lanes: int) -> int:
    """Return how many of the hub's *free* seats one of so many *lanes* may take in its turn."""
    return min(free, max(1, free // max(1, lanes)))


@dataclass(slots=True)
class Rate:
    """
    At most so many sends per second, with one second's worth of burst at most.

    Attributes:
        per_second: The limit; None: none.
        ready_at: Monotonic time from which the bucket is counted.
    """

    per_second: float | None
    ready_at: float = 0.0

    def allowed(self, now: float) -> int:
        """Return how many sends may begin at *now*."""
        if self.per_second is None:
            return 1_000_000
        burst = max(1.0, self.per_second)
        return int(min(burst, (now - self.ready_at) * self.per_second + 1e-9)) if now > self.ready_at else 0

    def take(self, count: int, now: float) -> None:
        """Note *count* sends begun at *now*."""
        if self.per_second is None or count <= 0:
            return
        burst = max(1.0, self.per_second)
        self.ready_at = max(self.ready_at, now - burst / self.per_second) + count / self.per_second

    def wait(self, now: float) -> float:
        """Return seconds until one send may begin."""
        if self.per_second is None:
            return 0.0
        return max(0.0, self.ready_at + 1 / self.per_second - now)
