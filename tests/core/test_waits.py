"""How long the circuit stays open: backoff, jitter, cap, flap memory, Retry-After."""

from __future__ import annotations

import random
from typing import Any

import pytest

from halfopen import CountWindow, HalfOpen, Ramp, State, constant, exponential
from halfopen._core.backoff import Constant, Exponential
from halfopen._core.settings import Settings
from tests.core.driving import Bench

ONE = {"window": CountWindow(1), "minimum_calls": 1, "half_open": HalfOpen(permitted_calls=1)}


def reopened(bench: Bench, times: int) -> list[float]:
    """Fail, and fail each trial call; return the waits."""
    bench.fail()
    waits = [bench.breaker.snapshot().remaining_wait or 0.0]
    for _ in range(times):
        bench.clock.advance(waits[-1])
        bench.fail()
        waits.append(bench.breaker.snapshot().remaining_wait or 0.0)
    return waits


def test_the_state_moves_at_the_very_end_of_the_wait() -> None:
    bench = Bench(**ONE)
    bench.fail()

    bench.clock.advance(29.999)
    refusal = bench.refusal()
    bench.clock.advance(30.0 - bench.clock.monotonic())
    bench.begin()

    assert ("open", 30.0 - 29.999) == (refusal.reason, refusal.retry_after)


def test_a_number_is_a_constant_wait() -> None:
    assert [30.0] * 5 == reopened(Bench(**ONE), 4)
    assert Constant(5.0) == constant(5.0)


def test_the_wait_doubles_up_to_the_cap() -> None:
    bench = Bench(**ONE, wait_in_open=exponential(30, 2, 600, jitter=0))

    assert [30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0] == reopened(bench, 6)


def test_the_default_wait_is_exponential_with_jitter() -> None:
    assert Exponential(30.0, 2.0, 600.0, 0.1) == Bench().breaker.settings.__class__().wait_in_open == exponential()


def test_a_cap_that_is_no_power_of_the_factor_is_met_exactly() -> None:
    wait = exponential(1, 3, 10, jitter=0)

    assert [1.0, 3.0, 9.0, 10.0, 10.0] == [wait(step, random.Random(0)) for step in range(1, 6)]


def test_a_factor_of_one_is_constant() -> None:
    wait = exponential(5, 1, 10, jitter=0)

    assert [5.0, 5.0] == [wait(step, random.Random(0)) for step in (1, 1000)]


def test_jitter_spreads_by_its_share_and_never_beyond_the_cap() -> None:
    wait, rng = exponential(30, 2, 600, jitter=0.1), random.Random(7)
    first = [wait(1, rng) for _ in range(2000)]
    last = [wait(20, rng) for _ in range(2000)]

    assert 27.0 <= min(first) < 27.1 and 32.9 < max(first) <= 33.0
    assert 540.0 <= min(last) < 541.0 and 599.0 < max(last) <= 600.0


def test_the_jitter_comes_from_the_breakers_own_chance() -> None:
    one, same, other = (Bench(**ONE, wait_in_open=exponential(), rng=random.Random(seed)) for seed in (1, 1, 2))

    waits = [reopened(bench, 3) for bench in (one, same, other)]

    assert waits[0] == waits[1] != waits[2]


@pytest.mark.parametrize("factor", [1.0, 1.0001, 2.0, 1e6])
def test_ten_thousand_reopens_overflow_nothing(factor: float) -> None:
    bench = Bench(**ONE, wait_in_open=exponential(0.001, factor, 2.0, jitter=0.5))

    waits = reopened(bench, 10_000)

    assert 10_001 == bench.breaker.snapshot().step
    assert 0.0005 <= min(waits) and max(waits) <= 2.0


def test_a_callable_is_told_the_step_and_the_chance() -> None:
    told: list[Any] = []
    rng = random.Random(3)

    def wait(step: int, chance: random.Random) -> float:
        told.append((step, chance))
        return 10.0 * step

    waits = reopened(Bench(**ONE, wait_in_open=wait, rng=rng), 2)

    assert [10.0, 20.0, 30.0] == waits
    assert [(1, rng), (2, rng), (3, rng)] == told


@pytest.mark.parametrize("answer", [float("nan"), float("inf"), -1.0, "5", None, True])
def test_a_callable_that_gives_no_seconds_is_replaced_by_the_default(answer: Any) -> None:
    bench = Bench(**ONE, wait_in_open=lambda step, rng: answer)

    bench.fail()

    assert 27.0 <= (bench.breaker.snapshot().remaining_wait or 0.0) <= 33.0


def test_the_wait_of_a_callable_is_in_the_transition() -> None:
    bench = Bench(**ONE, wait_in_open=lambda step, rng: 7.0)

    bench.fail()

    assert (7.0, 7.0) == (bench.breaker.history[-1].wait, bench.breaker.snapshot().wait)


@pytest.mark.parametrize("order", ["reset", "force_open", "try_now"])
def test_a_wait_that_is_computed_too_late_is_void(order: str) -> None:
    bench = Bench(**ONE, wait_in_open=lambda step, rng: getattr(bench.breaker, order)() or 5.0)

    bench.fail()

    first, second = bench.breaker.history
    assert (State.OPEN, None, "manual", second.new) == (first.new, first.wait, second.reason, bench.state)
    assert 0.0 == bench.breaker.snapshot().wait


def test_a_wait_that_is_computed_for_an_earlier_trip_is_void() -> None:
    waits = iter((100.0, 7.0))
    again = iter((True, False))

    def wait(step: int, rng: random.Random) -> float:
        seconds = next(waits)
        if next(again):
            bench.breaker.reset()
            bench.fail()
        return seconds

    bench = Bench(**ONE, wait_in_open=wait)
    bench.fail()

    assert 7.0 == bench.breaker.snapshot().remaining_wait


# Steps


def test_the_step_is_one_on_a_fresh_trip_and_grows_with_each_failed_round() -> None:
    bench = Bench(**ONE)

    reopened(bench, 3)

    assert [1, 1, 2, 2, 3, 3, 4] == [move.step for move in bench.breaker.history]


def test_trip_in_half_open_is_a_failed_round_and_in_open_repeats_the_step() -> None:
    bench = Bench(**ONE)
    bench.fail()
    bench.go(State.HALF_OPEN)

    bench.breaker.trip()
    bench.breaker.trip()

    assert [1, 1, 2, 2] == [move.step for move in bench.breaker.history]


def test_trip_with_a_wait_leaves_the_step() -> None:
    bench = Bench(**ONE, wait_in_open=exponential(30, 2, 600, jitter=0))
    bench.fail()
    bench.go(State.HALF_OPEN)

    bench.breaker.trip(wait=7.0)

    assert (1, 7.0, 7.0) == (
        bench.breaker.snapshot().step, bench.breaker.snapshot().remaining_wait, bench.breaker.history[-1].wait
    )  # fmt: skip


def test_trip_of_a_fresh_circuit_is_step_one() -> None:
    assert 1 == Bench().go(State.OPEN).breaker.snapshot().step


def test_trip_in_open_after_a_trip_with_a_wait_is_step_one() -> None:
    bench = Bench()

    bench.breaker.trip(wait=5.0)
    bench.breaker.trip()

    assert [0, 1] == [move.step for move in bench.breaker.history]


def test_an_inconclusive_round_after_try_now_is_step_one() -> None:
    bench = Bench(half_open=HalfOpen(max_ignored=1)).go(State.HALF_OPEN)

    bench.ignore()

    assert ("inconclusive", 1) == (bench.breaker.history[-1].reason, bench.breaker.snapshot().step)


def test_reset_forgets_the_step() -> None:
    bench = Bench(**ONE, forget_after=1e9)
    reopened(bench, 3)

    bench.breaker.reset()
    bench.fail()

    assert 1 == bench.breaker.snapshot().step


# Flap memory


def flap(stays_closed: float, **settings: Any) -> int:
    """Trip, recover, stay CLOSED that long, trip again; return the step."""
    bench = Bench(**ONE, **settings)
    bench.fail()
    bench.clock.advance(30.0)
    bench.succeed()
    bench.clock.advance(stays_closed)
    bench.fail()
    return bench.breaker.snapshot().step


@pytest.mark.parametrize(("stays_closed", "step"), [(0.0, 2), (29.999, 2), (30.0, 1), (1e6, 1)])
def test_a_circuit_that_flaps_goes_on_counting_unless_it_was_closed_for_the_last_wait(
    stays_closed: float, step: int
) -> None:
    assert step == flap(stays_closed)


@pytest.mark.parametrize(("stays_closed", "step"), [(4.999, 2), (5.0, 1)])
def test_the_memory_lasts_as_long_as_is_set(stays_closed: float, step: int) -> None:
    assert step == flap(stays_closed, forget_after=5.0)


def test_a_memory_of_zero_seconds_forgets_at_once() -> None:
    assert 1 == flap(0.0, forget_after=0.0)


@pytest.mark.parametrize("order", ["force_open", "disable", "observe", "try_now"])
def test_an_order_that_ends_a_long_closed_time_forgets_as_well(order: str) -> None:
    bench = Bench(**ONE)
    bench.fail()
    bench.clock.advance(30.0)
    bench.succeed()
    bench.clock.advance(30.0)

    getattr(bench.breaker, order)()
    bench.breaker.trip()

    assert 1 == bench.breaker.snapshot().step


def test_a_trip_out_of_the_ramp_counts_on() -> None:
    bench = Bench(**ONE, ramp=Ramp(duration=10.0, start=1.0), forget_after=0.0)
    bench.fail()
    bench.clock.advance(30.0)
    bench.succeed()
    bench.fail()

    assert ("recovering>open failure_rate", 2) == (bench.moves[-1], bench.breaker.snapshot().step)


# Retry-After


@pytest.mark.parametrize(("asked", "wait"), [(None, 30.0), (10.0, 30.0), (90.0, 90.0), (1e9, 600.0)])
def test_retry_after_of_the_tripping_call_is_a_lower_bound_up_to_the_cap(asked: float | None, wait: float) -> None:
    bench = Bench(**ONE)

    bench.fail(retry_after=asked)

    assert wait == bench.breaker.snapshot().remaining_wait


def test_no_retry_after_asks_for_nothing() -> None:
    bench = Bench(**ONE, wait_in_open=0.25)

    bench.fail()

    assert 0.25 == bench.breaker.snapshot().remaining_wait


def test_the_cap_is_that_of_the_backoff() -> None:
    short = Bench(**ONE, wait_in_open=exponential(1, 2, 50, jitter=0))
    long = Bench(**ONE, wait_in_open=1000.0)
    own = Bench(**ONE, wait_in_open=lambda step, rng: 5.0)
    for bench in (short, long, own):
        bench.fail(retry_after=10_000.0)

    assert [50.0, 1000.0, 600.0] == [bench.breaker.snapshot().remaining_wait for bench in (short, long, own)]


def test_a_callable_may_name_a_cap() -> None:
    class Own:
        cap = 70.0

        def __call__(self, step: int, rng: random.Random) -> float:
            return 5.0

    bench = Bench(**ONE, wait_in_open=Own())
    bench.fail(retry_after=10_000.0)

    assert 70.0 == bench.breaker.snapshot().remaining_wait


def test_retry_after_of_a_call_that_does_not_trip_is_nothing() -> None:
    bench = Bench(window=CountWindow(2), minimum_calls=2)

    bench.fail(retry_after=500.0)
    bench.fail()

    assert 30.0 == bench.breaker.snapshot().remaining_wait


def test_retry_after_of_a_failed_trial_counts_and_that_of_the_trip_is_forgotten() -> None:
    bench = Bench(**ONE)
    bench.fail(retry_after=500.0)
    bench.clock.advance(500.0)
    bench.fail(retry_after=90.0)
    first = bench.breaker.snapshot().remaining_wait
    bench.clock.advance(90.0)
    bench.fail()

    assert [90.0, 30.0] == [first, bench.breaker.snapshot().remaining_wait]


@pytest.mark.parametrize("hints", [(200.0, 100.0), (100.0, 200.0), (200.0, None), (None, 200.0)])
def test_the_longest_retry_after_of_a_round_counts(hints: tuple[float | None, ...]) -> None:
    rules = HalfOpen(permitted_calls=2, failure_rate_threshold=1.0)
    bench = Bench(half_open=rules, minimum_calls=2).go(State.HALF_OPEN)

    for hint in hints:
        bench.fail(retry_after=hint)

    assert 200.0 == bench.breaker.snapshot().remaining_wait


def test_retry_after_bounds_inconclusive_and_overlong_rounds_too() -> None:
    rules = {"permitted_calls": 3, "failure_rate_threshold": 1.0}
    ignored = Bench(half_open=HalfOpen(**rules, max_ignored=1)).go(State.HALF_OPEN)
    overlong = Bench(half_open=HalfOpen(**rules, max_duration=5.0)).go(State.HALF_OPEN)
    for bench in (ignored, overlong):
        bench.fail(retry_after=99.0)
    ignored.ignore()
    overlong.clock.advance(5.0)

    assert [99.0, 99.0] == [bench.breaker.snapshot().remaining_wait for bench in (ignored, overlong)]


def test_trip_with_a_wait_asks_nobody_else() -> None:
    bench = Bench(**ONE)

    bench.breaker.trip(wait=0.5)

    assert 0.5 == bench.breaker.snapshot().remaining_wait


# Time


def test_the_wait_runs_from_the_trip() -> None:
    bench = Bench()
    slow = bench.begin(2)
    bench.fail(3)
    bench.clock.advance(10.0)
    bench.fail(1)
    bench.clock.advance(25.0)

    for permit in slow:
        permit.failure()

    assert 5.0 == bench.breaker.snapshot().remaining_wait


@pytest.mark.parametrize("jump", [-1e6, 1e6])
def test_a_jump_of_the_calendar_changes_no_decision(jump: float) -> None:
    bench = Bench(**ONE)
    bench.fail()
    bench.clock.step_wall(jump)
    bench.clock.advance(29.0)
    before = bench.refusal().retry_after
    shown = bench.breaker.snapshot().next_trial_at

    bench.clock.advance(1.0)
    bench.begin()

    assert (1.0, 1_700_000_030.0 + jump) == (before, shown)


def test_a_constant_wait_is_a_cap_only_where_it_is_the_longer_one() -> None:
    assert [600.0, 600.0, 900] == [constant(seconds).cap for seconds in (5, 600, 900)]
    assert [600.0, 900] == [Settings(wait_in_open=wait).retry_after_cap for wait in (5.0, 900)]


def test_a_series_that_begins_below_a_second_is_cut_at_its_cap_only() -> None:
    wait = exponential(0.25, 2, 7, jitter=0)

    assert [0.25, 0.5, 1.0, 2.0, 4.0, 7.0] == [wait(step, random.Random(0)) for step in range(1, 7)]
