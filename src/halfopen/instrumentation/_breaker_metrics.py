"""The metrics of a circuit breaker."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from halfopen._core.settings import Settings
from halfopen._core.snapshots import Snapshot
from halfopen._core.states import AUTOMATIC, Reason, Refusal, State
from halfopen.instrumentation import _durations
from halfopen.instrumentation._metric import Labelled, Metric, counter, gauge, histogram, of
from halfopen.instrumentation.enumerations import OUTCOMES, REASONS, REFUSALS, REFUSALS_ALWAYS, STATES, VERDICTS

__all__ = ["BREAKER_METRICS", "BreakerLook", "look_at", "possible_moves"]


class BreakerLook(NamedTuple):
    """What the metrics of one breaker are read from."""

    snapshot: Snapshot
    settings: Settings
    durations: list[float]
    breaker: Any


def look_at(breaker: Any) -> BreakerLook:
    """Look at a breaker; its lock is held for the look, not for what is made of it."""
    snapshot = breaker.snapshot()
    return BreakerLook(snapshot, breaker.settings, _durations.read(breaker), breaker)


def possible_moves(settings: Settings) -> dict[tuple[str, str, str], int]:
    """
    Return the moves that a breaker with these settings is sure to count from the start, each with 0.

    Those are the automatic moves of the one table, as far as the settings allow them, and the orders among CLOSED,
    OPEN and HALF_OPEN. A move into or out of an override, a restored state, and a CLOSED breaker ordered to try
    trial calls get a series when they are first made: no alert counts them.
    """
    trials = settings.half_open
    rules = (
        settings.failure_rate_threshold is not None,
        settings.slow_call_rate_threshold is not None and settings.slow_call_duration is not None,
        settings.failure_count_threshold is not None,
        settings.consecutive_failures is not None,
    )
    return _moves(rules, settings.ramp is not None, trials.max_duration and trials.after_max_duration)


@lru_cache(maxsize=200)
def _moves(
    rules: tuple[bool, ...], ramp: bool, after_max_duration: float | State | None
) -> dict[tuple[str, str, str], int]:
    never = {Reason.OVERRIDE_ENDED, *(rule for rule, there in zip(_RULES, rules, strict=True) if not there)}

    def can_happen(old: State, new: State, why: Reason) -> bool:
        if why in never or (State.RECOVERING in (old, new) and not ramp):
            return False
        if why is Reason.MAX_DURATION:
            return new is after_max_duration
        return not (why is Reason.TRIAL_SUCCEEDED and new is State.CLOSED and ramp)

    moves = [(old, new, why) for (old, why), targets in AUTOMATIC.items() for new in targets]
    kept = [move for move in moves if can_happen(*move)] + list(_ORDERED)
    return {(old.value, new.value, why.value): 0 for old, new, why in kept}


_RULES = (Reason.FAILURE_RATE, Reason.SLOW_CALL_RATE, Reason.FAILURE_COUNT, Reason.CONSECUTIVE)
_ORDERED = (
    (State.CLOSED, State.OPEN, Reason.MANUAL),
    (State.HALF_OPEN, State.OPEN, Reason.MANUAL),
    (State.OPEN, State.CLOSED, Reason.MANUAL),
    (State.HALF_OPEN, State.CLOSED, Reason.MANUAL),
    (State.OPEN, State.HALF_OPEN, Reason.MANUAL),
)


def _transitions(look: BreakerLook) -> Labelled:
    # In this order: the keys are then the same objects in every look, and quick to compare.
    return {**possible_moves(look.settings), **look.snapshot.counters.transitions}  # type: ignore[dict-item]  # 3 labels


def _rejections(look: BreakerLook) -> Labelled:
    rejected, settings = look.snapshot.counters.rejected, look.settings
    numbers: dict[tuple[str, ...], float] = dict.fromkeys(_ALWAYS, 0)
    if settings.half_open.eligible is not None:
        numbers[_NOT_ELIGIBLE] = 0
    if settings.ramp is not None:
        numbers[_RECOVERING] = 0
    for reason, count in rejected.items():
        numbers[(reason,)] = count
    return numbers


_ALWAYS = tuple((reason,) for reason in REFUSALS_ALWAYS)
_NOT_ELIGIBLE = (Refusal.NOT_ELIGIBLE.value,)
_RECOVERING = (Refusal.RECOVERING.value,)
_ONE_HOT = {state: tuple(int(state == other) for other in STATES) for state in STATES}


def _started(look: BreakerLook) -> int:
    return sum(slot.status != "free" for slot in look.snapshot.trials)


_P = "halfopen_circuit_breaker_"
_STATE = "circuit_breaker.state"

BREAKER_METRICS: tuple[Metric, ...] = (
    gauge(
        _P + "state", "1 for the present state, 0 for the others.",
        lambda look: _ONE_HOT[look.snapshot.state.value],
        label=("state", STATES), otel="circuit_breaker.state", otel_unit="{breaker}", otel_labels=(_STATE,),
    ),
    gauge(
        _P + "state_entered_timestamp_seconds", "Unix time at which the present state began.",
        lambda look: look.snapshot.since, otel="circuit_breaker.state_entered.timestamp", otel_unit="s",
    ),
    gauge(
        _P + "next_trial_timestamp_seconds",
        "Unix time from which the next call becomes a trial call; absent unless open, in the past while nobody calls.",
        lambda look: look.snapshot.next_trial_at, otel="circuit_breaker.next_trial.timestamp", otel_unit="s",
    ),
    counter(
        _P + "transitions_total", "Moves between states, with the reason.", _transitions,
        labels=("from", "to", "reason"), values=(STATES, STATES, REASONS), open_ended=True,
        otel="circuit_breaker.transitions", otel_unit="{transition}",
        otel_labels=("transition.from", "transition.to", "reason"),
    ),
    histogram(
        _P + "call_duration_seconds", "Durations of the calls let through; its count is the number of calls.",
        lambda look: look.durations,
        label=("outcome", OUTCOMES), otel="circuit_breaker.call.duration", otel_unit="s", otel_labels=("outcome",),
    ),
    counter(
        _P + "slow_calls_total", "Calls above the slow-call duration.",
        lambda look: (look.snapshot.counters.slow_successes, look.snapshot.counters.slow_failures),
        label=("outcome", VERDICTS), otel="circuit_breaker.slow_calls", otel_unit="{call}", otel_labels=("outcome",),
    ),
    counter(
        _P + "rejections_total", "Calls refused.", _rejections,
        labels=("reason",), values=(REFUSALS,), open_ended=True,
        otel="circuit_breaker.rejections", otel_unit="{call}", otel_labels=("reason",),
    ),
    gauge(
        _P + "window_calls", "Calls in the window, or in the round of trial calls.",
        lambda look: (look.snapshot.calls - look.snapshot.failures, look.snapshot.failures),
        label=("outcome", VERDICTS), otel="circuit_breaker.window.calls", otel_unit="{call}", otel_labels=("outcome",),
    ),
    gauge(
        _P + "failure_ratio", "Share of failed calls, 0 to 1; absent below the minimum number of calls.",
        lambda look: look.snapshot.failure_rate, otel="circuit_breaker.failure.ratio", otel_unit="1",
    ),
    gauge(
        _P + "slow_call_ratio", "Share of slow calls, 0 to 1; absent below the minimum number of calls.",
        lambda look: look.snapshot.slow_call_rate, otel="circuit_breaker.slow_call.ratio", otel_unit="1",
    ),
    gauge(
        _P + "failure_ratio_threshold", "Failure ratio that opens the circuit; absent without such a rule.",
        lambda look: look.snapshot.failure_rate_threshold,
        otel="circuit_breaker.failure.ratio.threshold", otel_unit="{threshold}",
    ),
    gauge(
        _P + "slow_call_ratio_threshold", "Slow-call ratio that opens the circuit; absent without such a rule.",
        lambda look: None if look.snapshot.slow_call_duration is None else look.snapshot.slow_call_rate_threshold,
        otel="circuit_breaker.slow_call.ratio.threshold", otel_unit="{threshold}",
    ),
    gauge(
        _P + "minimum_calls", "Calls in the window before a ratio is judged.",
        lambda look: look.snapshot.minimum_calls, otel="circuit_breaker.minimum_calls", otel_unit="{call}",
    ),
    gauge(
        _P + "trial_calls_limit", "Trial calls of a half-open round.",
        lambda look: look.snapshot.trial_limit, otel="circuit_breaker.trial_calls.limit", otel_unit="{call}",
    ),
    gauge(
        _P + "trial_calls_started", "Trial calls started in the present round; 0 unless half-open.",
        _started, otel="circuit_breaker.trial_calls.started", otel_unit="{call}",
    ),
    counter(
        _P + "trials_total", "Finished trial calls; an expired one has failed.",
        lambda look: (look.snapshot.counters.trial_successes, look.snapshot.counters.trial_failures),
        label=("outcome", VERDICTS), otel="circuit_breaker.trials", otel_unit="{call}", otel_labels=("outcome",),
    ),
    gauge(
        _P + "backoff_step", "Step of the backoff; 0 before the first opening.",
        lambda look: look.snapshot.step, otel="circuit_breaker.backoff_step", otel_unit="{step}",
    ),
    counter(
        _P + "time_in_state_seconds_total", "Time spent in each state.",
        lambda look: of(look.snapshot.counters.time_in_state, STATES),
        label=("state", STATES), otel="circuit_breaker.time_in_state", otel_unit="s", otel_labels=(_STATE,),
    ),
    counter(
        _P + "estimated_false_rejections_total",
        "About how many refused calls would have succeeded; right in order of magnitude only.",
        lambda look: look.snapshot.counters.estimated_false_rejections,
        otel="circuit_breaker.estimated_false_rejections", otel_unit="{call}",
    ),
    counter(
        _P + "late_results_total", "Results of an earlier state or of an expired trial call; they change nothing.",
        lambda look: look.snapshot.counters.late_results, otel="circuit_breaker.late_results", otel_unit="{call}",
    ),
    counter(
        _P + "abandoned_permits_total", "Permits that were thrown away unsettled.",
        lambda look: look.snapshot.counters.permits.abandoned,
        otel="circuit_breaker.abandoned_permits", otel_unit="{permit}",
    ),
)  # fmt: skip
