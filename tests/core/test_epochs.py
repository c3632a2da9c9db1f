"""Late results are void, and a permit is settled exactly once."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import pytest

from halfopen import Ramp, State
from halfopen._core.outcomes import SUCCESS, Outcome
from tests.core.driving import Bench, half_open


@pytest.mark.parametrize("how", ["success", "failure", "ignore"])
@pytest.mark.parametrize("state", State)
def test_a_late_result_from_an_earlier_epoch_is_void(state: State, how: str) -> None:
    bench = Bench(ramp=Ramp())
    (permit,) = bench.begin()
    bench.go(state)
    events = bench.listen()
    before = (bench.state, bench.window(), len(bench.breaker.history), bench.breaker.snapshot().streak)

    getattr(permit, how)()

    assert before == (bench.state, bench.window(), len(bench.breaker.history), bench.breaker.snapshot().streak)
    assert ["LateResult"] == events.kinds
    assert 1 == bench.breaker.snapshot().counters.late_results


def test_a_late_result_tells_its_outcome_and_its_epoch() -> None:
    bench = Bench()
    (permit,) = bench.begin()
    bench.breaker.reset()
    events = bench.listen()
    bench.clock.advance(2.0)

    permit.failure()

    (late,) = events
    assert ("failure", 1, 2.0, "bank") == (late.outcome, late.epoch, late.at, late.name)


def test_successes_that_began_before_the_trip_do_not_close_the_circuit() -> None:
    bench = half_open(permitted_calls=1)
    bench.breaker.reset()
    early = bench.begin(5)
    bench.fail(4)
    bench.clock.advance(30.0)
    (trial,) = bench.begin()

    for permit in early:
        permit.success()

    assert State.HALF_OPEN is bench.state
    trial.success()
    assert State.CLOSED is bench.state


def test_failures_that_began_before_the_trip_do_not_reopen_or_prolong() -> None:
    bench = Bench()
    early = bench.begin(3)
    bench.fail(4)
    bench.clock.advance(29.0)
    early[0].failure()
    bench.clock.advance(1.0)

    (trial,) = bench.begin()
    early[1].failure()

    assert State.HALF_OPEN is bench.state
    trial.ignore()
    early[2].failure()
    assert (State.HALF_OPEN, 1) == (bench.state, bench.breaker.snapshot().step)


def test_a_late_trial_frees_no_permit_of_the_next_round() -> None:
    bench = half_open(permitted_calls=2)
    first, second = bench.begin(2)
    first.failure()
    bench.clock.advance(30.0)
    running = bench.begin(2)

    second.ignore()

    assert "trial_budget" == bench.refusal().reason
    assert [False, False] == [permit.settled for permit in running]


def test_a_call_of_a_closed_circuit_is_late_after_a_reset() -> None:
    bench = Bench()
    permits = bench.begin(4)
    bench.breaker.reset()

    for permit in permits:
        permit.failure()

    assert (State.CLOSED, (0, 0, 0)) == (bench.state, bench.window())
    assert 4 == bench.breaker.snapshot().counters.late_results


def test_settling_twice_changes_nothing() -> None:
    bench = Bench()
    (permit,) = bench.begin()

    permit.failure()
    permit.success()
    permit.failure()
    permit.ignore()

    assert (1, 1, 0) == bench.window()
    counters = bench.breaker.snapshot().counters
    assert (1, 0, 0, 0) == (counters.permits.settled, counters.late_results, counters.ignored, counters.abandoned)


def test_a_trial_settled_twice_counts_once() -> None:
    bench = half_open(permitted_calls=2)
    first, _second = bench.begin(2)

    first.success()
    first.success()

    assert (State.HALF_OPEN, (1, 0, 0)) == (bench.state, bench.window())


def test_a_lost_permit_of_a_closed_circuit_is_counted_as_abandoned() -> None:
    bench = Bench()

    bench.begin()
    gc.collect()

    permits = bench.breaker.snapshot().counters.permits
    assert (1, 0, 0, 1) == (permits.issued, permits.settled, permits.in_flight, permits.abandoned)
    assert (0, 0, 0) == bench.window()


def test_a_lost_trial_gives_its_permit_back() -> None:
    bench = half_open(permitted_calls=1)

    bench.begin()
    gc.collect()
    (trial,) = bench.begin()
    trial.success()

    counters = bench.breaker.snapshot().counters
    assert (State.CLOSED, 1, 1) == (bench.state, counters.abandoned, counters.ignored)


def test_lost_trials_end_a_round_without_verdict() -> None:
    bench = half_open(permitted_calls=1, max_ignored=2)

    bench.begin()
    bench.begin()
    bench.breaker.tick()

    assert "half_open>open inconclusive" == bench.moves[-1]


def test_the_balance_of_permits_adds_up() -> None:
    bench = half_open(permitted_calls=4, trial_timeout=10.0)
    expires, returned, stays, lost = bench.begin(4)
    returned.ignore()
    bench.clock.advance(5.0)
    del lost
    bench.breaker.tick()
    later = bench.begin(2)
    bench.clock.advance(5.0)
    bench.breaker.tick()

    permits = bench.breaker.snapshot().counters.permits
    assert [False, True] == [later[0].settled, expires.settled]
    assert (permits.issued, 4 + 4 + 2) == (
        permits.settled + permits.in_flight + permits.expired + permits.abandoned, permits.issued
    )  # fmt: skip
    assert (5, 1) == (permits.settled, permits.abandoned)
    assert stays is not None


def test_all_lost_permits_are_counted_and_lost_trials_as_ignored() -> None:
    bench = half_open(permitted_calls=1)
    for _ in range(3):
        bench.begin()
        bench.breaker.tick()
    bench.go(State.METRICS_ONLY)
    bench.breaker.observe(1e6)
    for _ in range(2):
        bench.begin()
        bench.breaker.tick()

    counters = bench.breaker.snapshot().counters
    assert (5, 3) == (counters.abandoned, counters.ignored)


def test_the_machine_says_whether_a_result_was_late() -> None:
    bench = Bench()
    circuit = bench.breaker._circuit
    state, report = circuit.state, (SUCCESS, 0.0, None, None)

    in_time = circuit.settle(state, 0, report, 0.0)
    bench.breaker.reset()

    assert [True, False] == [in_time, circuit.settle(state, 0, report, 0.0)]


def test_durations_of_all_recorded_calls_go_to_the_sink() -> None:
    bench = Bench()
    told: list[tuple[str, float]] = []

    class Sink:
        def add(self, outcome: Outcome, durations: Sequence[float]) -> None:
            told.extend((outcome.value, duration) for duration in durations)

    bench.breaker._circuit.counters.durations = Sink()
    bench.fail(1, spent=2.0)
    bench.breaker.call(bench.clock.advance, 0.5)
    bench.ignore()
    bench.breaker.snapshot()

    assert [("failure", 2.0), ("success", 0.5), ("ignored", 0.0)] == told


def test_a_refusal_is_no_permit() -> None:
    bench = half_open(permitted_calls=2)
    held = bench.begin(2)

    reasons = [bench.refusal().reason for _ in range(2)]

    permits = bench.breaker.snapshot().counters.permits
    assert (["trial_budget"] * 2, 2) == (reasons, len(held))
    assert (6, 4, 2) == (permits.issued, permits.settled, permits.in_flight)


def test_permits_of_a_closed_circuit_are_in_flight_until_they_end() -> None:
    bench = Bench()

    held = bench.begin(3)
    begun = bench.breaker.snapshot().counters.permits
    held[0].success()
    ended = bench.breaker.snapshot().counters.permits

    assert [(3, 0, 3), (3, 1, 2)] == [(sums.issued, sums.settled, sums.in_flight) for sums in (begun, ended)]
