"""What to do after an attempt: try again in x seconds, or give up and say why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from halfopen._core.events import Event
from halfopen._core.histogram import HistogramSnapshot

__all__ = [
    "NOT_WANTED",
    "Again",
    "AttemptOutcome",
    "Failure",
    "GiveUp",
    "Limits",
    "RetryFinished",
    "RetryOutcome",
    "RetryScheduled",
    "RetrySnapshot",
    "may_retry",
    "schedule",
]


NOT_WANTED = "the error is not one to retry"


class RetryOutcome(StrEnum):
    """How a call under a `Retry` ended."""

    SUCCESS_FIRST = "success_first"
    SUCCESS_AFTER_RETRY = "success_after_retry"
    FAILED_NOT_RETRIED = "failed_not_retried"
    FAILED_EXHAUSTED = "failed_exhausted"
    FAILED_BUDGET = "failed_budget"
    FAILED_DEADLINE = "failed_deadline"


class AttemptOutcome(StrEnum):
    """How one attempt ended."""

    SUCCESS = "success"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """
    What bounds the attempts of one call.

    Attributes:
        attempts: So many at most, the first included; None for no limit.
        total: Seconds from the beginning of the first attempt within which the last must begin.
        retry_after_cap: Seconds to which a wait that the dependency asks for is cut.
    """

    attempts: int | None = 3
    total: float | None = None
    retry_after_cap: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """
    What is known about a failed attempt.

    Attributes:
        attempt: Its number, counted from 1.
        elapsed: Seconds since the first attempt began.
        time_left: Seconds until the ambient deadline, if there is one.
        wanted: The error, or the result, is one to retry.
        allowed: The call may be repeated (the idempotency guard).
        refused: A policy inside refused; the dependency was not asked.
        asked: Seconds that the dependency, or the refusal, asks to wait.
        forbidden: The dependency asks not to be tried again.
        suppressed: Why the breaker around the attempts wants no more of them; None if it does not mind.
    """

    attempt: int
    elapsed: float
    time_left: float | None = None
    wanted: bool = True
    allowed: bool = True
    refused: bool = False
    asked: float | None = None
    forbidden: bool = False
    suppressed: str | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """Try again in so many seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Let the caller have the error."""

    outcome: RetryOutcome
    reason: str


def may_retry(limits: Limits, failure: Failure) -> GiveUp | None:
    """Return why a failed attempt is not followed by another, whatever the delay; None if it may be."""
    left = _time_left(limits, failure)
    if left is not None and left <= 0:
        return GiveUp(RetryOutcome.FAILED_DEADLINE, "no time is left")
    refusal = _objection(failure, left)
    if refusal is not None:
        return GiveUp(RetryOutcome.FAILED_NOT_RETRIED, refusal)
    if limits.attempts is not None and failure.attempt >= limits.attempts:
        return GiveUp(RetryOutcome.FAILED_EXHAUSTED, f"{limits.attempts} attempts are allowed")
    return None


def schedule(limits: Limits, failure: Failure, delay: float) -> Again | GiveUp:
    """
    Return when to try again if the backoff says in *delay* seconds.

    The wait that the dependency asks for is a lower bound, itself cut to the cap. A refusal names the instant before
    which asking is vain, so there the cap decides whether to wait at all.
    """
    cap = limits.retry_after_cap
    if failure.asked is not None:
        if failure.refused and failure.asked > cap:
            return GiveUp(
                RetryOutcome.FAILED_NOT_RETRIED, f"the refusal lasts {failure.asked:.3g} s, the cap is {cap:g} s"
            )
        delay = max(delay, min(failure.asked, cap))
    left = _time_left(limits, failure)
    if left is not None and delay >= left:
        return GiveUp(RetryOutcome.FAILED_DEADLINE, f"a delay of {delay:.3g} s does not fit into the {left:.3g} s left")
    return Again(delay)


def _objection(failure: Failure, left: float | None) -> str | None:
    if not failure.wanted:
        return NOT_WANTED
    if failure.suppressed is not None:
        return failure.suppressed
    if failure.forbidden:
        return "the dependency asks not to be tried again"
    if not failure.allowed:
        return "the call must not be repeated"
    if failure.refused and failure.asked is None:
        return "the call was refused"
    if failure.refused and left is None:
        return "the call was refused, and no time budget says how long to wait for it"
    return None


def _time_left(limits: Limits, failure: Failure) -> float | None:
    if limits.total is None:
        return failure.time_left
    own = limits.total - failure.elapsed
    return own if failure.time_left is None else min(own, failure.time_left)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryScheduled(Event):
    """
    An attempt failed and another will follow.

    Attributes:
        attempt: The attempt that failed, counted from 1.
        delay: Seconds until the next.
        error: What it raised; None where a result was not good enough.
    """

    attempt: int
    delay: float
    error: Exception | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryFinished(Event):
    """
    A call under a retry has ended.

    Attributes:
        outcome: How.
        attempts: So many were made.
        seconds: From the beginning of the first attempt to the end of the last.
        reason: Why there was no further attempt; empty after a success.
    """

    outcome: RetryOutcome
    attempts: int
    seconds: float
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySnapshot:
    """
    A retry's counters since it was made; every outcome is present from the start.

    Attributes:
        name: The retry.
        calls: Finished calls by outcome.
        attempts: Attempts by outcome; amplification is their sum over the sum of calls.
        retries: Attempts that followed a failed one.
        delay_seconds: Sum of the delays that were slept or begun.
        interrupted: Calls that ended by cancellation, `KeyboardInterrupt` and the like.
        budget_tokens: Retries the budget would pay for now; None without a budget.
        attempts_per_call: Calls by how many attempts they took; interrupted ones are not among them.
        delays: The delays before further attempts.
    """

    name: str
    calls: Mapping[RetryOutcome, int]
    attempts: Mapping[AttemptOutcome, int]
    retries: int
    delay_seconds: float
    interrupted: int
    budget_tokens: float | None
    attempts_per_call: HistogramSnapshot
    delays: HistogramSnapshot
