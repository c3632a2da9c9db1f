"""What the metrics of a breaker are read from: less than a snapshot, because a scrape looks at a thousand of them."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

from halfopen._core.counters import Counters, read
from halfopen._core.rounds import HalfOpenRound
from halfopen._core.settings import Settings
from halfopen._core.states import AUTOMATIC, Reason, Refusal, State
from halfopen._core.stays import Open
from halfopen._core.windows import Totals
from halfopen.instrumentation import _durations
from halfopen.instrumentation._metric import Labelled
from halfopen.instrumentation.enumerations import REFUSALS_ALWAYS

__all__ = ["TRIP_REASONS", "BreakerLook", "look_at", "possible_moves", "trip_rules"]


class BreakerLook(NamedTuple):
    """
    A breaker at one instant.

    Attributes:
        since, next_trial_at: Unix times to the millisecond, because two clocks are never read equally far apart; the
            second is None unless OPEN.
        held: The window, or the round of trial calls.
        judged: Whether its shares mean something.
        started: Trial calls of this round that were started.
        slow, trials: Successes and failures.
        moves, rejections: By the values of their labels, what has not happened yet with 0.
        dry_openings, dry_rejections: What it would have done; None if it was never observed.
        seconds: Time in each state, in the order of `State`.
        counts: What has counted the durations.
        now: The instant on the breaker's clock.
    """

    state: State
    since: float
    next_trial_at: float | None
    held: Totals
    judged: bool
    started: int
    step: int
    slow: tuple[int, int]
    trials: tuple[int, int]
    late_results: int
    abandoned: int
    estimate: float
    moves: Labelled
    rejections: Labelled
    dry_openings: Labelled | None
    dry_rejections: int | None
    seconds: tuple[float, ...]
    durations: list[list[float]]
    counts: _durations.Durations
    settings: Settings
    now: float

    def share(self, place: int) -> float | None:
        """Return a share of the calls held: at 1 the failures, at 2 the slow ones; None if it means nothing yet."""
        return self.held[place] / self.held[0] if self.judged else None


def look_at(breaker: Any) -> BreakerLook:
    """Look at a breaker; its lock is held for the look, not for what is made of it."""
    breaker.tick()
    counts = _durations.attach(breaker)
    now, wall = breaker._now(), breaker._clock.wall()
    with breaker._lock:
        circuit = breaker._circuit
        circuit.fold(now)
        state, sums, settings = circuit.state, circuit.counters, circuit.settings
        held = state.held()
        until = state.until if type(state) is Open else math.inf
        dry = state.kind is State.METRICS_ONLY or State.METRICS_ONLY in sums.seconds
        # By place: naming the fields would take as long as reading them.
        return BreakerLook(
            state.kind,
            round(state.entered + (wall - now), 3),
            None if until == math.inf else round(until + (wall - now), 3),
            held,
            0 < held[0] >= settings.minimum,
            len(state.finished) + len(state.trials) if type(state) is HalfOpenRound else 0,
            circuit.step,
            (sums.slow_successes, sums.slow_failures),
            (sums.trial_successes, sums.trial_failures),
            sums.late_results,
            sums.abandoned + read(circuit.lost),
            sums.estimate,
            _moves_of(sums, settings),
            _rejections_of(sums, settings),
            _dry_openings_of(sums, settings) if dry else None,
            sums.dry_refused if dry else None,
            _seconds_of(sums, state.kind, now),
            counts.take(),
            counts,
            settings,
            now,
        )


def _seconds_of(sums: Counters, present: State, now: float) -> tuple[float, ...]:
    spent = [0.0] * len(_PLACES)
    for state, seconds in sums.seconds.items():
        spent[_PLACES[state]] = seconds
    spent[_PLACES[present]] += now - sums.since
    return tuple(spent)


def _rejections_of(sums: Counters, settings: Settings) -> Labelled:
    known = _refusals(settings.half_open.eligible is not None, settings.ramp is not None)
    refused = sums.refusals()
    # In this order: the keys are then the same objects in every look, and quick to compare.
    return {**known, **{(reason.value,): count for reason, count in refused.items()}} if refused else known


@lru_cache
def _refusals(eligible: bool, ramp: bool) -> dict[tuple[str, ...], int]:
    more = [Refusal.NOT_ELIGIBLE.value] * eligible + [Refusal.RECOVERING.value] * ramp
    return {(reason,): 0 for reason in (*REFUSALS_ALWAYS, *more)}


def _dry_openings_of(sums: Counters, settings: Settings) -> Labelled:
    possible: dict[tuple[str, ...], float] = {
        (rule.value,): 0 for rule, there in zip(TRIP_REASONS, trip_rules(settings), strict=True) if there
    }
    return {**possible, **{(rule.value,): count for rule, count in sums.dry_openings.items()}}


def _moves_of(sums: Counters, settings: Settings) -> Labelled:
    known, moves = possible_moves(settings), sums.moves
    if not moves:
        return known
    return {**known, **{(old.value, new.value, why.value): count for (old, new, why), count in moves.items()}}


def possible_moves(settings: Settings) -> Labelled:
    """
    Return the moves that a breaker with these settings is sure to count from the start, each with 0.

    Those are the automatic moves of the one table, as far as the settings allow them, and the orders among CLOSED,
    OPEN and HALF_OPEN. A move into or out of an override, a restored state, and a CLOSED breaker ordered to try
    trial calls get a series when they are first made: no alert counts them.
    """
    trials = settings.half_open
    return _moves(trip_rules(settings), settings.ramp is not None, trials.max_duration and trials.after_max_duration)


def trip_rules(settings: Settings) -> tuple[bool, ...]:
    """Return which of `TRIP_REASONS` the settings can give."""
    return (
        settings.failure_rate_threshold is not None,
        settings.slow_call_rate_threshold is not None and settings.slow_call_duration is not None,
        settings.failure_count_threshold is not None,
        settings.consecutive_failures is not None,
    )


@lru_cache(maxsize=200)
def _moves(
    rules: tuple[bool, ...], ramp: bool, after_max_duration: float | State | None
) -> dict[tuple[str, ...], float]:
    never = {Reason.OVERRIDE_ENDED, *(rule for rule, there in zip(TRIP_REASONS, rules, strict=True) if not there)}

    def can_happen(old: State, new: State, why: Reason) -> bool:
        if why in never or (State.RECOVERING in (old, new) and not ramp):
            return False
        if why is Reason.MAX_DURATION:
            return new is after_max_duration
        return not (why is Reason.TRIAL_SUCCEEDED and new is State.CLOSED and ramp)

    moves = [(old, new, why) for (old, why), targets in AUTOMATIC.items() for new in targets]
    kept = [move for move in moves if can_happen(*move)] + list(_ORDERED)
    return {(old.value, new.value, why.value): 0 for old, new, why in kept}


TRIP_REASONS = (Reason.FAILURE_RATE, Reason.SLOW_CALL_RATE, Reason.FAILURE_COUNT, Reason.CONSECUTIVE)
_ORDERED = (
    (State.CLOSED, State.OPEN, Reason.MANUAL),
    (State.HALF_OPEN, State.OPEN, Reason.MANUAL),
    (State.OPEN, State.CLOSED, Reason.MANUAL),
    (State.HALF_OPEN, State.CLOSED, Reason.MANUAL),
    (State.OPEN, State.HALF_OPEN, Reason.MANUAL),
)
_PLACES = {state: place for place, state in enumerate(State)}
