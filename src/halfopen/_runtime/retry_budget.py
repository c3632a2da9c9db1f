"""The retry budget that callers share: the bucket behind a lock and a clock."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from halfopen._core.checking import Checks
from halfopen._core.retry_budget import TokenBucket
from halfopen._runtime.clock import SYSTEM_CLOCK, Clock
from halfopen._runtime.forking import renew_after_fork

__all__ = ["RetryBudget", "RetryBudgetSnapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryBudgetSnapshot:
    """
    A retry budget's state and counters.

    Attributes:
        tokens: Retries it would pay for now.
        calls: Calls that paid in.
        granted: Retries it paid for.
        denied: Retries it did not pay for.
    """

    tokens: float
    calls: int
    granted: int
    denied: int


class RetryBudget:
    """
    Let retries be at most a share of recent calls, whoever makes them; hand one object to all that share it.

    However many calls fail, retries ≤ burst + share × calls + per_second × seconds: an outage meets
    (1 + *share*) times the usual load, not *attempts* times.

    Args:
        share: Retries that every call pays for, in (0, 1].
        burst: Retries that can be saved up, and that are there at the start; at least 1.
        per_second: Retries that come by themselves; for callers so rare that a share of them is nothing.
        clock: Where not the system's.

    Raises:
        ConfigError: A value is outside its range; all of them are named.
    """

    __slots__ = ("__weakref__", "_bucket", "_calls", "_clock", "_denied", "_granted", "_lock", "_settings")

    def __init__(
        self, share: float = 0.2, *, burst: float = 10.0, per_second: float = 0.0, clock: Clock | None = None
    ) -> None:
        checks = Checks()
        checks.share("share", share)
        checks.number("burst", burst)
        checks.number("per_second", per_second, zero=True)
        if not checks.mistakes and burst < 1:
            checks.wrong("burst", burst, "a number of at least 1")
        checks.done()
        self._settings = (share, burst, per_second)
        self._clock = clock or SYSTEM_CLOCK
        self._bucket = TokenBucket(share, burst, per_second, self._clock.monotonic())
        self._renew()
        renew_after_fork(self)
        self._calls = self._granted = self._denied = 0

    @property
    def share(self) -> float:
        """Return the share of calls that may be retries."""
        return self._settings[0]

    def pay_in(self) -> None:
        """Count one call."""
        with self._lock:
            self._calls += 1
            self._bucket.pay_in()

    def take(self) -> bool:
        """Take out one retry; say whether it was there."""
        now = self._clock.monotonic()
        with self._lock:
            taken = self._bucket.take(now)
            self._granted += taken
            self._denied += not taken
        return taken

    def snapshot(self) -> RetryBudgetSnapshot:
        """Return state and counters."""
        now = self._clock.monotonic()
        with self._lock:
            self._bucket.refill(now)
            return RetryBudgetSnapshot(
                tokens=self._bucket.tokens, calls=self._calls, granted=self._granted, denied=self._denied
            )

    def _renew(self) -> None:
        # A thread of the parent may have held it.
        self._lock = threading.RLock()  # reentrant: a signal handler or a finalizer may come between

    def __repr__(self) -> str:
        share, burst, per_second = self._settings
        return f"RetryBudget({share:g}, burst={burst:g}, per_second={per_second:g})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _budget, (*self._settings, self._clock)


def _budget(share: float, burst: float, per_second: float, clock: Clock) -> RetryBudget:
    return RetryBudget(share, burst=burst, per_second=per_second, clock=clock)
