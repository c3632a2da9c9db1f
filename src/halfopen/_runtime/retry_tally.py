"""What a retry counts."""

from __future__ import annotations

import threading
from types import MappingProxyType

from halfopen._core.attempts import AttemptOutcome, RetryOutcome, RetrySnapshot
from halfopen._runtime.counting import Count

__all__ = ["Tally"]

_SUCCESSES = (RetryOutcome.SUCCESS_FIRST, RetryOutcome.SUCCESS_AFTER_RETRY)


class Tally:
    """
    A retry's counters behind one lock, but for the commonest.

    Attributes:
        first_success: Counts a call that succeeded at its first attempt, without the lock.
    """

    __slots__ = (
        "_first",
        "_lock",
        "calls",
        "delay_seconds",
        "failed_attempts",
        "first_success",
        "interrupted",
        "retries",
    )

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first = Count()
        self.first_success = self._first.step
        self.calls = dict.fromkeys(RetryOutcome, 0)
        self.failed_attempts = self.retries = self.interrupted = 0
        self.delay_seconds = 0.0

    def ended(self, outcome: RetryOutcome | None) -> None:
        """Count the end of a call; None for one that was interrupted."""
        with self._lock:
            if outcome is None:
                self.interrupted += 1
            elif outcome is RetryOutcome.SUCCESS_FIRST:
                self.first_success()
            else:
                self.calls[outcome] += 1

    def attempt_failed(self) -> None:
        """Count a failed attempt."""
        with self._lock:
            self.failed_attempts += 1

    def scheduled(self, delay: float) -> None:
        """Count a delay that begins."""
        with self._lock:
            self.retries += 1
            self.delay_seconds += delay

    def snapshot(self, name: str, budget_tokens: float | None) -> RetrySnapshot:
        """Return the counters."""
        with self._lock:
            calls = dict(self.calls)
            calls[RetryOutcome.SUCCESS_FIRST] = self._first.value()
            failures = self.failed_attempts
            rest = (self.retries, self.delay_seconds, self.interrupted)
        # Every successful attempt ends a call, so it needs no counter of its own.
        successes = sum(calls[outcome] for outcome in _SUCCESSES)
        return RetrySnapshot(
            name=name,
            calls=MappingProxyType(calls),
            attempts=MappingProxyType({AttemptOutcome.SUCCESS: successes, AttemptOutcome.FAILURE: failures}),
            retries=rest[0],
            delay_seconds=rest[1],
            interrupted=rest[2],
            budget_tokens=budget_tokens,
        )

    def after_fork(self) -> None:
        """Replace the lock that a thread of the parent may have held."""
        self._lock = threading.Lock()
