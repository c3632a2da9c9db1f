"""A token bucket that lets retries be only a share of recent calls."""

from __future__ import annotations

__all__ = ["TokenBucket"]

_UNIT = 1_000_000
"""Parts of a token. Whole numbers, because thousands of float additions would drift above the promised share."""


class TokenBucket:
    """
    Every call pays in a share of a token, every retry takes out a whole one.

    At any time: retries ≤ burst + share × calls + per_second × seconds. What was saved is bounded by *burst*, so a
    quiet hour cannot pay for a storm. Guard it with a lock; it has none.

    Args:
        share: Tokens that a call pays in, 0 … 1.
        burst: Tokens the bucket holds at most, and holds at the start; at least 1.
        per_second: Tokens that come by themselves, for callers with little traffic.
        now: Present reading of the clock in seconds.
    """

    __slots__ = ("_full", "_parts", "_per_call", "_per_second", "_since")

    def __init__(self, share: float, burst: float, per_second: float, now: float) -> None:
        self._per_call = int(share * _UNIT)
        self._full = int(burst * _UNIT)
        self._per_second = per_second * _UNIT
        self._parts = self._full
        self._since = now

    @property
    def tokens(self) -> float:
        """Return how many retries the bucket would pay for, as of the last question."""
        return self._parts / _UNIT

    def pay_in(self) -> None:
        """Count one call."""
        parts = self._parts + self._per_call
        self._parts = parts if parts < self._full else self._full  # not `min`: nobody may come between

    def take(self, now: float) -> bool:
        """Take one token out for a retry; say whether there was one."""
        self.refill(now)
        if self._parts < _UNIT:
            return False
        self._parts -= _UNIT
        return True

    def refill(self, now: float) -> None:
        """Add what came by itself."""
        if not self._per_second:
            return
        gained = int((now - self._since) * self._per_second)
        if gained > 0:
            # Only the time that made whole parts is spent; else frequent questions would starve the bucket.
            self._since += gained / self._per_second
            parts = self._parts + gained
            self._parts = parts if parts < self._full else self._full
