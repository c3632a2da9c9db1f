"""Sums and looks: what is counted, by whom it is heard, and what a snapshot makes of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from halfopen import ConfigError, HalfOpen, State
from halfopen._core.counters import Counters
from halfopen._core.outcomes import FAILURE, IGNORED, SUCCESS, Outcome
from halfopen._core.snapshots import read_saved
from halfopen.errors import Mistake
from tests.core.driving import Bench, half_open


class Durations:
    """A histogram that keeps all it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[Outcome, list[float]]] = []

    def add(self, outcome: Outcome, durations: Sequence[float]) -> None:
        self.heard.append((outcome, list(durations)))


def test_calls_are_counted_by_outcome_and_pace_and_their_durations_are_told() -> None:
    sums, durations = Counters(0.0), Durations()
    fresh = sums.last_error
    sums.durations = durations

    for slow in (True, True, False):
        sums.settled(SUCCESS, 1.0, slow, None)
        sums.settled(FAILURE, 2.0, slow, "KeyError")
    sums.settled(IGNORED, 3.0, True, "Ignored")
    sums.quiet_successes([0.1, 0.2])
    sums.quiet_failures([(0, 0.3, KeyError), (1, 0.4, ValueError)])

    assert (None, "ValueError") == (fresh, sums.last_error)
    assert (5, 5, 1, 2, 2) == (
        sums.successes, sums.failures, sums.ignored, sums.slow_successes, sums.slow_failures
    )  # fmt: skip
    assert [(SUCCESS, [1.0]), (FAILURE, [2.0])] * 3 + [
        (IGNORED, [3.0]), (SUCCESS, [0.1, 0.2]), (FAILURE, [0.3, 0.4])
    ] == durations.heard  # fmt: skip


def test_the_time_in_each_state_adds_up_with_the_present_stay() -> None:
    bench = Bench()
    bench.clock.advance(5.0)
    first = dict(bench.breaker.snapshot().counters.time_in_state)
    bench.breaker.trip()
    bench.clock.advance(2.0)
    second = dict(bench.breaker.snapshot().counters.time_in_state)
    bench.breaker.reset()
    bench.clock.advance(1.0)

    assert [{"closed": 5.0}, {"closed": 5.0, "open": 2.0}] == [first, second]
    assert {"closed": 6.0, "open": 2.0} == bench.breaker.snapshot().counters.time_in_state


def test_a_look_tells_every_rule_in_force() -> None:
    look = Bench(failure_count_threshold=5, consecutive_failures=4).breaker.snapshot()

    assert (5, 4, 0.5, 1.0) == (
        look.failure_count_threshold, look.consecutive_failures, look.failure_rate_threshold,
        look.slow_call_rate_threshold,
    )  # fmt: skip


def test_one_call_is_a_rate_where_one_is_enough_and_a_state_without_a_window_has_no_streak() -> None:
    bench = Bench(minimum_calls=1, failure_rate_threshold=1.0)
    before = bench.breaker.snapshot()
    bench.succeed()
    after = bench.breaker.snapshot()
    bench.go(State.OPEN)

    assert (None, 0.0, 0.0) == (before.failure_rate, after.failure_rate, after.slow_call_rate)
    assert 0 == bench.breaker.snapshot().streak


def test_what_is_no_snapshot_at_all_is_named() -> None:
    with pytest.raises(ConfigError) as wrong:
        read_saved(5)  # type: ignore[arg-type]

    allowed = "a Snapshot, or the data of its plain()"
    assert (Mistake("saved", 5, allowed, "wrong_type"),) == tuple(wrong.value.mistakes)


def test_moves_trial_calls_and_stays_are_summed_up() -> None:
    bench = Bench(half_open=HalfOpen(permitted_calls=3, failure_rate_threshold=0.9))
    for seconds in (5.0, 3.0):
        bench.clock.advance(seconds)
        bench.breaker.reset()
    bench.breaker.try_now()
    bench.fail(2)
    bench.succeed()
    bench.breaker.try_now()
    bench.fail()
    bench.succeed(2)

    counters = bench.breaker.snapshot().counters
    assert (2, 2) == (
        counters.transitions["closed", "closed", "manual"],
        counters.transitions["closed", "half_open", "manual"],
    )
    assert (8.0, 3, 3) == (counters.time_in_state["closed"], counters.trial_failures, counters.trial_successes)


def test_refusals_for_lack_of_trials_come_into_the_estimate() -> None:
    bench = half_open(permitted_calls=2)
    held = bench.begin(2)
    for _ in range(3):
        bench.refusal()

    for permit in held:
        permit.success()

    assert 1.5 == bench.breaker.snapshot().counters.estimated_false_rejections
