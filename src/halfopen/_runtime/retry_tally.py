"""What a retry counts."""

from __future__ import annotations

import threading
from types import MappingProxyType

from halfopen._core.attempts import AttemptOutcome, RetryOutcome, RetrySnapshot
from halfopen._core.histogram import Histogram, HistogramSnapshot
from halfopen._runtime.counting import Count

__all__ = ["Tally"]

ATTEMPT_BUCKETS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0)
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
        "attempts",
        "calls",
        "delays",
        "failed_attempts",
        "first_success",
        "interrupted",
        "retries",
    )

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant: a signal handler or a finalizer may come between
        self._first = Count()
        self.first_success = self._first.step
        self.calls = dict.fromkeys(RetryOutcome, 0)
        self.failed_attempts = self.retries = self.interrupted = 0
        self.delays = Histogram()
        self.attempts = Histogram(ATTEMPT_BUCKETS)  # of the calls that were not over at once

    def ended(self, outcome: RetryOutcome | None, attempts: int = 1) -> None:
        """Count the end of a call after so many attempts; None for one that was interrupted."""
        with self._lock:
            if outcome is None:
                self.interrupted += 1
            elif outcome is RetryOutcome.SUCCESS_FIRST:
                self.first_success()
            else:
                self.calls[outcome] += 1
                self.attempts.add(max(attempts, 1))

    def attempt_failed(self) -> None:
        """Count a failed attempt."""
        with self._lock:
            self.failed_attempts += 1

    def scheduled(self, delay: float) -> None:
        """Count a delay that begins."""
        with self._lock:
            self.retries += 1
            self.delays.add(delay)

    def snapshot(self, name: str, budget_tokens: float | None) -> RetrySnapshot:
        """Return the counters."""
        with self._lock:
            calls = dict(self.calls)
            calls[RetryOutcome.SUCCESS_FIRST] = self._first.value()
            failures = self.failed_attempts
            rest = (self.retries, self.interrupted)
            delays = self.delays.snapshot()
            attempts = self.attempts.snapshot()
        # Every successful attempt ends a call, so it needs no counter of its own.
        successes = sum(calls[outcome] for outcome in _SUCCESSES)
        return RetrySnapshot(
            name=name,
            calls=MappingProxyType(calls),
            attempts=MappingProxyType({AttemptOutcome.SUCCESS: successes, AttemptOutcome.FAILURE: failures}),
            retries=rest[0],
            delay_seconds=delays.sum,
            interrupted=rest[1],
            budget_tokens=budget_tokens,
            attempts_per_call=_with_first(attempts, calls[RetryOutcome.SUCCESS_FIRST]),
            delays=delays,
        )

    def after_fork(self) -> None:
        """Replace the lock that a thread of the parent may have held."""
        self._lock = threading.RLock()


def _with_first(attempts: HistogramSnapshot, calls: int) -> HistogramSnapshot:
    counts = (attempts.counts[0] + calls, *attempts.counts[1:])
    return HistogramSnapshot(attempts.bounds, counts, attempts.sum + calls)
