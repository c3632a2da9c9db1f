"""The metrics of a circuit breaker."""

from __future__ import annotations

from operator import attrgetter

from halfopen._core.states import State
from halfopen.instrumentation._metric import Metric, counter, gauge, histogram
from halfopen.instrumentation.enumerations import OUTCOMES, REASONS, REFUSALS, STATES, TRIPS, VERDICTS

__all__ = ["BREAKER_METRICS"]

_ONE_HOT = {state: tuple(int(state == other) for other in State) for state in State}
_P = "halfopen_circuit_breaker_"
_STATE = "circuit_breaker.state"

BREAKER_METRICS: tuple[Metric, ...] = (
    gauge(
        _P + "state", "1 for the present state, 0 for the others.",
        lambda look: _ONE_HOT[look.state],
        label=("state", STATES), otel="circuit_breaker.state", otel_unit="{breaker}", otel_labels=(_STATE,),
    ),
    gauge(
        _P + "state_entered_timestamp_seconds", "Unix time at which the present state began.",
        attrgetter("since"), otel="circuit_breaker.state_entered.timestamp", otel_unit="s",
    ),
    gauge(
        _P + "next_trial_timestamp_seconds",
        "Unix time from which the next call becomes a trial call; absent unless open, in the past while nobody calls.",
        attrgetter("next_trial_at"), otel="circuit_breaker.next_trial.timestamp", otel_unit="s",
    ),
    counter(
        _P + "transitions_total", "Moves between states, with the reason.", attrgetter("moves"),
        labels=("from", "to", "reason"), values=(STATES, STATES, REASONS), open_ended=True,
        otel="circuit_breaker.transitions", otel_unit="{transition}",
        otel_labels=("transition.from", "transition.to", "reason"),
    ),
    histogram(
        _P + "call_duration_seconds", "Durations of the calls let through; its count is the number of calls.",
        attrgetter("durations"),
        label=("outcome", OUTCOMES), otel="circuit_breaker.call.duration", otel_unit="s", otel_labels=("outcome",),
    ),
    counter(
        _P + "slow_calls_total", "Calls above the slow-call duration.",
        attrgetter("slow"),
        label=("outcome", VERDICTS), otel="circuit_breaker.slow_calls", otel_unit="{call}", otel_labels=("outcome",),
    ),
    counter(
        _P + "rejections_total", "Calls refused.", attrgetter("rejections"),
        labels=("reason",), values=(REFUSALS,), open_ended=True,
        otel="circuit_breaker.rejections", otel_unit="{call}", otel_labels=("reason",),
    ),
    counter(
        _P + "dry_run_openings_total",
        "Openings that an observed breaker would have made; absent if it was never observed.",
        attrgetter("dry_openings"), labels=("reason",), values=(TRIPS,), open_ended=True,
        otel="circuit_breaker.dry_run.openings", otel_unit="{opening}", otel_labels=("reason",),
    ),
    counter(
        _P + "dry_run_rejections_total",
        "About how many calls an observed breaker would have refused; absent if it was never observed.",
        attrgetter("dry_rejections"), otel="circuit_breaker.dry_run.rejections", otel_unit="{call}",
    ),
    gauge(
        _P + "window_calls", "Calls in the window, or in the round of trial calls.",
        lambda look: (look.held[0] - look.held[1], look.held[1]),
        label=("outcome", VERDICTS), otel="circuit_breaker.window.calls", otel_unit="{call}", otel_labels=("outcome",),
    ),
    gauge(
        _P + "failure_ratio", "Share of failed calls, 0 to 1; absent below the minimum number of calls.",
        lambda look: look.share(1), otel="circuit_breaker.failure.ratio", otel_unit="1",
    ),
    gauge(
        _P + "slow_call_ratio", "Share of slow calls, 0 to 1; absent below the minimum number of calls.",
        lambda look: look.share(2), otel="circuit_breaker.slow_call.ratio", otel_unit="1",
    ),
    gauge(
        _P + "failure_ratio_threshold", "Failure ratio that opens the circuit; absent without such a rule.",
        lambda look: look.settings.failure_rate_threshold,
        otel="circuit_breaker.failure.ratio.threshold", otel_unit="{threshold}",
    ),
    gauge(
        _P + "slow_call_ratio_threshold", "Slow-call ratio that opens the circuit; absent without such a rule.",
        lambda look: look.settings.slow_call_duration and look.settings.slow_call_rate_threshold,
        otel="circuit_breaker.slow_call.ratio.threshold", otel_unit="{threshold}",
    ),
    gauge(
        _P + "minimum_calls", "Calls in the window before a ratio is judged.",
        lambda look: look.settings.minimum, otel="circuit_breaker.minimum_calls", otel_unit="{call}",
    ),
    gauge(
        _P + "trial_calls_limit", "Trial calls of a half-open round.",
        lambda look: look.settings.half_open.permitted_calls,
        otel="circuit_breaker.trial_calls.limit", otel_unit="{call}",
    ),
    gauge(
        _P + "trial_calls_started", "Trial calls started in the present round; 0 unless half-open.",
        attrgetter("started"), otel="circuit_breaker.trial_calls.started", otel_unit="{call}",
    ),
    counter(
        _P + "trials_total", "Finished trial calls; an expired one has failed.",
        attrgetter("trials"),
        label=("outcome", VERDICTS), otel="circuit_breaker.trials", otel_unit="{call}", otel_labels=("outcome",),
    ),
    gauge(
        _P + "backoff_step", "Step of the backoff; 0 before the first opening.",
        attrgetter("step"), otel="circuit_breaker.backoff_step", otel_unit="{step}",
    ),
    counter(
        _P + "time_in_state_seconds_total", "Time spent in each state.",
        attrgetter("seconds"),
        label=("state", STATES), otel="circuit_breaker.time_in_state", otel_unit="s", otel_labels=(_STATE,),
    ),
    counter(
        _P + "estimated_false_rejections_total",
        "About how many refused calls would have succeeded; right in order of magnitude only.",
        attrgetter("estimate"),
        otel="circuit_breaker.estimated_false_rejections", otel_unit="{call}",
    ),
    counter(
        _P + "late_results_total", "Results of an earlier state or of an expired trial call; they change nothing.",
        attrgetter("late_results"), otel="circuit_breaker.late_results", otel_unit="{call}",
    ),
    counter(
        _P + "abandoned_permits_total", "Permits that were thrown away unsettled.",
        attrgetter("abandoned"),
        otel="circuit_breaker.abandoned_permits", otel_unit="{permit}",
    ),
)  # fmt: skip
