"""The seven states, and the one table of the moves between them."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["AUTOMATIC", "ORDERS", "Reason", "Refusal", "State", "allowed_moves", "diagram"]


class State(StrEnum):
    """What a circuit breaker does with calls at present."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    RECOVERING = "recovering"
    FORCED_OPEN = "forced_open"
    DISABLED = "disabled"
    METRICS_ONLY = "metrics_only"


class Reason(StrEnum):
    """Why a circuit moved."""

    FAILURE_RATE = "failure_rate"
    SLOW_CALL_RATE = "slow_call_rate"
    FAILURE_COUNT = "failure_count"
    CONSECUTIVE = "consecutive"
    WAIT_ELAPSED = "wait_elapsed"
    TRIAL_SUCCEEDED = "trial_succeeded"
    TRIAL_FAILED = "trial_failed"
    TRIAL_EXPIRED = "trial_expired"
    INCONCLUSIVE = "inconclusive"
    MAX_DURATION = "max_duration"
    RAMP_FINISHED = "ramp_finished"
    MANUAL = "manual"
    OVERRIDE_ENDED = "override_ended"
    RESTORED = "restored"


class Refusal(StrEnum):
    """Why a call was refused."""

    OPEN = "open"
    TRIAL_BUDGET = "trial_budget"
    NOT_ELIGIBLE = "not_eligible"
    RECOVERING = "recovering"
    FORCED_OPEN = "forced_open"


_TRIPS = (Reason.FAILURE_RATE, Reason.SLOW_CALL_RATE, Reason.FAILURE_COUNT, Reason.CONSECUTIVE)
_OVERRIDES = (State.FORCED_OPEN, State.DISABLED, State.METRICS_ONLY)

# The moves a circuit makes by itself. A trigger with two lines under one state has a choice:
# a passed round leads to RECOVERING where a ramp is set, max_duration leads where the settings say.
AUTOMATIC: dict[tuple[State, Reason], tuple[State, ...]] = {
    **{(State.CLOSED, trip): (State.OPEN,) for trip in _TRIPS},
    (State.OPEN, Reason.WAIT_ELAPSED): (State.HALF_OPEN,),
    (State.HALF_OPEN, Reason.TRIAL_SUCCEEDED): (State.CLOSED, State.RECOVERING),
    (State.HALF_OPEN, Reason.TRIAL_FAILED): (State.OPEN,),
    (State.HALF_OPEN, Reason.TRIAL_EXPIRED): (State.OPEN,),
    (State.HALF_OPEN, Reason.INCONCLUSIVE): (State.OPEN,),
    (State.HALF_OPEN, Reason.MAX_DURATION): (State.OPEN, State.CLOSED),
    (State.RECOVERING, Reason.RAMP_FINISHED): (State.CLOSED,),
    **{(State.RECOVERING, trip): (State.OPEN,) for trip in _TRIPS},
    **{(override, Reason.OVERRIDE_ENDED): (State.CLOSED,) for override in _OVERRIDES},
}

# Orders are legal from every state; each leads to one.
ORDERS: dict[str, State] = {
    "trip": State.OPEN,
    "reset": State.CLOSED,
    "force_open": State.FORCED_OPEN,
    "disable": State.DISABLED,
    "observe": State.METRICS_ONLY,
    "try_now": State.HALF_OPEN,
}


def allowed_moves() -> frozenset[tuple[State, Reason, State]]:
    """Return every move of the table as (from, reason, to), orders and a restored snapshot included."""
    automatic = {(old, reason, new) for (old, reason), targets in AUTOMATIC.items() for new in targets}
    manual = {(old, Reason.MANUAL, new) for old in State for new in ORDERS.values()}
    restored = {(State.CLOSED, Reason.RESTORED, new) for new in State}
    return frozenset(automatic | manual | restored)


def diagram() -> str:
    """Print the automatic moves as a Mermaid state diagram; the documentation shows this text."""
    reasons: dict[tuple[State, State], list[str]] = {}
    for (old, reason), targets in AUTOMATIC.items():
        for new in targets:
            reasons.setdefault((old, new), []).append(reason.value)
    lines = ["stateDiagram-v2", "    [*] --> closed"]
    lines += [f"    {old} --> {new}: {', '.join(names)}" for (old, new), names in reasons.items()]
    lines += [f"    [*] --> {new}: {order}()" for order, new in ORDERS.items()]
    return "\n".join(lines) + "\n"
