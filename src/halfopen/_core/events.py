"""What the listeners of a breaker are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from halfopen._core.outcomes import Outcome
from halfopen._core.states import Reason, Refusal, State
from halfopen._core.windows import Totals

__all__ = [
    "CallFailed",
    "CallIgnored",
    "CallRejected",
    "CallSucceeded",
    "CircuitTransitioned",
    "Event",
    "LateResult",
    "PolicyCreated",
    "PolicyEvicted",
    "ThresholdExceeded",
    "TrialExpired",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """
    Something that happened to a policy.

    Attributes:
        name: The policy.
        at: When, in seconds on the policy's monotonic clock.
    """

    name: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitTransitioned(Event):
    """
    The circuit moved.

    Attributes:
        old: The state that ended.
        new: The state that began.
        reason: Why.
        epoch: The number of the state that began; grows with every move.
        step: The backoff step, 0 before the first trip.
        totals: What the window, or the round of trial calls, held at the end of the old state.
        wait: Seconds the circuit will stay open; None unless it opened.
        note: The reason an order gave, if any.
        by: Who gave the order, if anybody.
        limit: What was reached, as it was set then: a share for the two rates, calls for FAILURE_COUNT, CONSECUTIVE
            and INCONCLUSIVE, seconds for TRIAL_EXPIRED and MAX_DURATION; None for every other reason.
        slow_call_duration: Seconds above which a call counted as slow then; None where none did.
    """

    old: State
    new: State
    reason: Reason
    epoch: int
    step: int
    totals: Totals
    wait: float | None = None
    note: str | None = None
    by: str | None = None
    limit: float | None = None
    slow_call_duration: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRejected(Event):
    """A call was refused; *retry_after* is in seconds, None where unknown."""

    state: State
    reason: Refusal
    retry_after: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _CallEnded(Event):
    state: State
    duration: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSucceeded(_CallEnded):
    """A call counted as success; *duration* in seconds, *slow* when above `slow_call_duration`."""

    slow: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFailed(_CallEnded):
    """A call counted as failure; *error* is the class of its exception, None for a bad result."""

    slow: bool
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallIgnored(_CallEnded):
    """A call gave no evidence; *error* is the class of its exception, if there was one."""

    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdExceeded(Event):
    """A METRICS_ONLY circuit would have opened; said once for each time it is observed."""

    reason: Reason
    totals: Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialExpired(Event):
    """A trial call did not report within its lease; *running* is its age in seconds."""

    epoch: int
    running: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LateResult(Event):
    """A call of an earlier epoch, or an expired trial call, reported; nothing was changed by it."""

    outcome: Outcome
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCreated(Event):
    """A registry has a new policy; *kind* is ``circuit_breaker``, ``retry`` …, *tags* are its tags."""

    kind: str
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEvicted(Event):
    """A registry let an idle keyed policy go, to make room for another key."""

    kind: str
    tags: Mapping[str, str]
