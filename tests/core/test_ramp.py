"""Traffic returns evenly, as the ramp says, and any trip rule ends it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfopen import Ramp, State
from tests.core.driving import Bench


def recovering(**ramp: float) -> Bench:
    return Bench(ramp=Ramp(**ramp)).go(State.RECOVERING)


def test_the_share_grows_by_the_formula() -> None:
    linear, quick, slow = Ramp(), Ramp(aggression=2.0), Ramp(aggression=0.5, start=0.01)

    assert [0.1, 0.1, 0.5, 1.0, 1.0] == [linear.share(t) for t in (0.0, 6.0, 30.0, 60.0, 90.0)]
    assert [0.5, 0.25] == [quick.share(15.0), slow.share(30.0)]
    assert 0.1 == linear.share(-5.0)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.33, 0.5, 0.77, 0.999])
def test_of_any_hundred_calls_in_a_row_just_the_share_passes(share: float) -> None:
    bench = recovering(duration=1e9, start=share)
    admitted = [bench.admitted(1) for _ in range(1000)]

    sums = {sum(admitted[start : start + 100]) for start in range(900)}

    assert all(abs(passed - 100 * share) <= 1 for passed in sums), sums


@given(st.floats(0.01, 1.0), st.floats(0.2, 5.0), st.lists(st.sampled_from((0.0, 0.01, 0.1, 1.0)), max_size=200))
def test_the_admitted_share_follows_the_ramp_within_one_call(
    start: float, aggression: float, pauses: list[float]
) -> None:
    ramp = Ramp(duration=60.0, start=start, aggression=aggression)
    bench = Bench(ramp=ramp).go(State.RECOVERING)
    owed, admitted = 0.0, 0

    for pause in pauses:
        bench.clock.advance(pause)
        if bench.state is not State.RECOVERING:
            break
        owed += ramp.share(bench.clock.monotonic())
        admitted += bench.admitted(1)

        assert abs(admitted - owed) <= 1 + 1e-9


def test_the_first_call_is_admitted() -> None:
    assert 1 == recovering(start=0.01).admitted(1)


def test_the_others_are_refused_as_recovering() -> None:
    bench = recovering(start=0.01)
    bench.admitted(1)

    refusal = bench.refusal()

    assert ("recovering", State.RECOVERING, None) == (refusal.reason, refusal.state, refusal.retry_after)


def test_a_finished_ramp_closes() -> None:
    bench = recovering(duration=60.0)

    bench.clock.advance(59.5)
    before = bench.state
    bench.clock.advance(0.5)

    assert [State.RECOVERING, State.CLOSED] == [before, bench.state]
    assert ("recovering>closed ramp_finished", 60.0) == (bench.moves[-1], bench.breaker.history[-1].at)


def test_recovering_has_a_fresh_window_and_the_same_trip_rules() -> None:
    bench = recovering(start=1.0)

    bench.fail(3)
    before = (bench.state, bench.window())
    bench.fail()

    assert [(State.RECOVERING, (3, 3, 0)), State.OPEN] == [before, bench.state]
    assert "recovering>open failure_rate" == bench.moves[-1]


def test_calls_of_the_ramp_are_late_when_it_is_finished() -> None:
    bench = recovering(start=1.0)
    held = bench.begin(4)
    bench.clock.advance(60.0)

    for permit in held:
        permit.failure()

    assert (State.CLOSED, (0, 0, 0)) == (bench.state, bench.window())


def test_the_share_is_shown() -> None:
    bench = recovering()
    bench.clock.advance(30.0)

    assert (0.5, None) == (bench.breaker.snapshot().admitted_share, Bench().breaker.snapshot().admitted_share)


def test_taking_the_ramp_away_closes() -> None:
    bench = recovering()

    bench.breaker.configure(ramp=None)

    assert State.CLOSED is bench.state


def test_of_a_hundred_calls_at_three_tenths_29_to_31_pass() -> None:
    bench = recovering(duration=1e9, start=0.3)

    assert all(29 <= bench.admitted(100) <= 31 for _ in range(50))
    assert math.isclose(0.3, bench.breaker.snapshot().admitted_share or 0.0)
