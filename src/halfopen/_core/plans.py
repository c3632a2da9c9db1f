"""
What a pipeline is going to do, as data: its steps, and the mistakes in their order and numbers.

A step is what is known of one policy, outermost first in a plan. The rules below are asked of the whole plan; each
names the policies it is about and says why, with the numbers in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

__all__ = ["Finding", "Plan", "Step", "lint", "some"]

MADE_OFTEN = 20
"""So many breakers of one name in one process are made for each request, or for each test."""


@dataclass(frozen=True, slots=True)
class Finding:
    """
    A mistake in a pipeline.

    Attributes:
        code: Which, for machines: ``nested_retries``.
        message: What goes wrong and what to do instead, with the numbers in it.
        policies: The names of those it is about, outermost first.
    """

    code: str
    message: str
    policies: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """
    One policy of a plan. What a kind of policy does not have is left at its default.

    Attributes:
        kind: The policy's class.
        name: Its name.
        does: What it does, in a few words.
        attempts: How often it may call what is inside of it; infinite where only time ends it.
        sleeps: Seconds a `Retry` sleeps at most between all its attempts; infinite where nobody can know.
        waits: Seconds a call may wait to be let in.
        seconds: The limit of a `Timeout`.
        trial_seconds: Its limit for trial calls.
        total: Seconds within which the last attempt of a `Retry` begins.
        heeds_refusals: Whether a `Retry` was told what to do with refusals.
        holds: Whether it keeps a place for as long as the call runs.
        lease: Seconds after which a trial call of a `CircuitBreaker` counts as failed.
        made: How many breakers of this name the process has made.
        answers: Whether it puts an answer in the place of errors.
        answers_refusals: Whether refusals are among these: ``no``, ``named``, or ``swept`` up with all the others.
        watches: The breaker that a `Retry` was told to watch, where that is not the one around it.
        shared_with: Pipelines that use the same `Retry` under another breaker.
    """

    kind: str
    name: str
    does: str = ""
    attempts: float = 1
    sleeps: float = 0.0
    waits: float = 0.0
    seconds: float | None = None
    trial_seconds: float | None = None
    total: float | None = None
    heeds_refusals: bool = False
    holds: bool = False
    lease: float | None = None
    made: int = 1
    answers: bool = False
    answers_refusals: str = "no"
    watches: str | None = None
    shared_with: tuple[str, ...] = ()

    @property
    def refuses(self) -> bool:
        """Whether it may refuse a call."""
        return self.lease is not None or self.kind in ("Bulkhead", "RateLimiter", "AdaptiveConcurrency")

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


Plan = Sequence[Step]


def lint(plan: Plan) -> tuple[Finding, ...]:
    """Return the mistakes of a plan, in the order of the rules."""
    return tuple(finding for rule in RULES for finding in rule(plan))


def _pairs(plan: Plan, outer: Callable[[Step], bool], inner: Callable[[Step], bool]) -> Iterator[tuple[Step, Step]]:
    for place, first in enumerate(plan):
        if outer(first):
            yield from ((first, second) for second in plan[place + 1 :] if inner(second))


def _is_retry(step: Step) -> bool:
    return step.kind == "Retry" and step.attempts > 1


def _is_breaker(step: Step) -> bool:
    return step.lease is not None


def _finding(code: str, message: str, *steps: Step) -> Finding:
    return Finding(code, message, tuple(step.name for step in steps))


def _retry_outside_breaker(plan: Plan) -> Iterator[Finding]:
    for retry, breaker in _pairs(plan, _is_retry, _is_breaker):
        around = plan[: plan.index(retry)]
        timed = retry.total is not None or any(step.seconds is not None for step in around)
        if not timed and not retry.heeds_refusals:
            yield _finding(
                "retry_outside_breaker",
                f"{retry} is outside {breaker}: one call counts {_times(retry.attempts)} against the dependency, and "
                "when the circuit opens between two attempts the caller gets the refusal in place of the error. Put "
                "the retry inside the breaker; or give it total= to wait for the circuit, or ignore=CircuitOpenError",
                retry,
                breaker,
            )


def _timeout_beyond_lease(plan: Plan) -> Iterator[Finding]:
    for place, breaker in enumerate(plan):
        limits = [(step.seconds or 0.0, step) for step in plan[:place] if step.seconds is not None]
        limits += [(step.trial_seconds or 0.0, step) for step in plan[place + 1 :] if step.trial_seconds is not None]
        if breaker.lease is None or not limits:
            continue
        seconds, tightest = min(limits, key=lambda limit: limit[0])
        if seconds > breaker.lease:
            yield _finding(
                "timeout_beyond_lease",
                f"{tightest} lets a trial call run {seconds:g} s, but {breaker} counts it as failed after "
                f"{breaker.lease:g} s: a slow recovery is taken for an outage. Give the timeout "
                f"trial={breaker.lease:g} or less, or the breaker a longer HalfOpen(trial_timeout=…)",
                breaker,
                tightest,
            )


def _attempts_beyond_total(plan: Plan) -> Iterator[Finding]:
    for place, retry in enumerate(plan):
        if not _is_retry(retry) or retry.attempts == math.inf:
            continue
        each = [step for step in plan[place + 1 :] if step.seconds is not None]
        totals = [(step.seconds or 0.0, step) for step in plan[:place] if step.seconds is not None]
        totals += [(retry.total, retry)] if retry.total is not None else []
        if not each or not totals:
            continue
        inner = min(each, key=lambda step: step.seconds or 0.0)
        total, bound = min(totals, key=lambda limit: limit[0])
        needed = retry.attempts * (inner.seconds or 0.0)
        if needed > total:
            yield _finding(
                "attempts_beyond_total",
                f"{retry.attempts:g} attempts × {inner.seconds:g} s ({inner}) are {needed:g} s, more than the "
                f"{total:g} s that {bound} leaves for all of them: the last are cut short or never made. Allow "
                f"{total / retry.attempts:.3g} s for each, or fewer attempts",
                *dict.fromkeys((bound, retry, inner)),
            )


def _bulkhead_outside_retry(plan: Plan) -> Iterator[Finding]:
    for holder, retry in _pairs(plan, lambda step: step.holds, _is_retry):
        slept = "" if retry.sleeps in (0.0, math.inf) else f", up to {retry.sleeps:.3g} s a call,"
        yield _finding(
            "bulkhead_outside_retry",
            f"{holder} is outside {retry}: a call keeps its place while the retry sleeps{slept} and does nothing. "
            "Put it inside the retry, so that each attempt takes a place",
            holder,
            retry,
        )


def _nested_retries(plan: Plan) -> Iterator[Finding]:
    retries = [step for step in plan if _is_retry(step)]
    if len(retries) < 2:
        return
    product = math.prod(step.attempts for step in retries)
    sum_up = f" = {product:g}" if product < math.inf else ", without limit"
    yield _finding(
        "nested_retries",
        f"retries multiply: {' × '.join(some(step.attempts) for step in retries)}{sum_up} attempts for one call, "
        "most of them in an outage. Keep one",
        *retries,
    )


def _hedge_outside_retry(plan: Plan) -> Iterator[Finding]:
    for hedge, retry in _pairs(plan, lambda step: step.kind == "Hedge", _is_retry):
        yield _finding(
            "hedge_outside_retry",
            f"{hedge} is outside {retry}: {hedge.attempts:g} × {some(retry.attempts)} attempts for one call. Put it "
            "inside the retry, or keep one of them",
            hedge,
            retry,
        )


def _breaker_per_request(plan: Plan) -> Iterator[Finding]:
    for step in filter(_is_breaker, plan):
        if step.made >= MADE_OFTEN:
            yield _finding(
                "breaker_per_request",
                f"{step.made} breakers named {step.name!r} were made in this process: one that is made for each "
                "request never sees enough calls to open. Make it once, or ask a Registry for it",
                step,
            )


def _fallback_hides_refusals(plan: Plan) -> Iterator[Finding]:
    for place, step in enumerate(plan):
        refusing = next((inner for inner in plan[place + 1 :] if inner.refuses), None)
        if refusing is None or step.answers_refusals == "no":
            continue
        if step.answers_refusals == "swept":
            yield _finding(
                "fallback_hides_refusals",
                f"{step} answers every error, so also the refusals of {refusing}, and mistakes in the code: nobody "
                "who counts errors around this pipeline sees an open circuit. Name the errors, RejectedError among "
                "them if that is meant, and watch the rejections of the policies themselves",
                step,
                refusing,
            )
            continue
        # A fallback around a fallback is a chain; nothing there counts the answer.
        deceived = next((outer for outer in reversed(plan[:place]) if outer.kind != "Fallback"), None)
        if deceived is not None:
            yield _finding(
                "fallback_hides_refusals",
                f"{step} answers the refusals of {refusing}, and {deceived} around it takes these answers for calls "
                "that were made. Put the fallback outside",
                deceived,
                step,
                refusing,
            )


def _fallback_blinds(plan: Plan) -> Iterator[Finding]:
    def reacts(step: Step) -> bool:
        return _is_breaker(step) or _is_retry(step)

    for judge, fallback in _pairs(plan, reacts, lambda step: step.answers):
        what = "opens" if _is_breaker(judge) else "tries again"
        yield _finding(
            "fallback_blinds",
            f"{fallback} is inside {judge}, which sees good answers only and never {what}. Put the fallback outside",
            judge,
            fallback,
        )


def _shared_retry(plan: Plan) -> Iterator[Finding]:
    for retry in plan:
        if retry.shared_with:
            others = ", ".join(map(repr, retry.shared_with))
            yield _finding(
                "shared_retry",
                f"{retry} is used by pipeline {others} as well, under another breaker, and it can watch only one of "
                "them. Make one Retry for each pipeline; what they may share is the RetryBudget",
                retry,
            )
        elif retry.watches is not None:
            yield _finding(
                "retry_watches_another_breaker",
                f"{retry} was told to watch the breaker {retry.watches!r}, which is not the one around it here",
                retry,
            )


def _same_name(plan: Plan) -> Iterator[Finding]:
    ordered = sorted(plan, key=lambda step: (step.kind, step.name))
    for (kind, name), group in groupby(ordered, key=lambda step: (step.kind, step.name)):
        twins = list(group)
        if len(twins) > 1:
            yield _finding(
                "same_name",
                f"{len(twins)} policies are {kind} {name!r}: errors, metrics and logs cannot tell them apart",
                *twins,
            )


def _times(attempts: float) -> str:
    return "once for each attempt" if attempts == math.inf else f"up to {attempts:g} times"


def some(attempts: float) -> str:
    """Say how many attempts."""
    return "any number" if attempts == math.inf else f"{attempts:g}"


RULES: tuple[Callable[[Plan], Iterator[Finding]], ...] = (
    _retry_outside_breaker,
    _timeout_beyond_lease,
    _attempts_beyond_total,
    _bulkhead_outside_retry,
    _nested_retries,
    _hedge_outside_retry,
    _breaker_per_request,
    _fallback_hides_refusals,
    _fallback_blinds,
    _shared_retry,
    _same_name,
)
