"""The four trip rules: when each says "open", and to the very call."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfopen import CountWindow, State, TimeWindow
from halfopen._core.settings import Settings, TripRules, exact_share
from halfopen._core.states import Reason
from tests.core.driving import SLOW, Bench


def test_a_rate_is_judged_from_the_minimum_on() -> None:
    bench = Bench(minimum_calls=4)

    bench.fail(3)
    before = bench.state
    bench.fail()

    assert [State.CLOSED, State.OPEN] == [before, bench.state]
    assert ["closed>open failure_rate"] == bench.moves


def test_a_rate_that_reaches_its_threshold_trips() -> None:
    bench = Bench(window=CountWindow(4), failure_rate_threshold=0.5)

    bench.succeed(2)
    bench.fail()
    before = bench.state
    bench.fail()

    assert [State.CLOSED, State.OPEN] == [before, bench.state]


def test_a_rate_below_its_threshold_does_not() -> None:
    bench = Bench(window=CountWindow(100), minimum_calls=100, failure_rate_threshold=0.5)

    bench.fail(49)
    bench.succeed(51)

    assert (State.CLOSED, (100, 49, 0)) == (bench.state, bench.window())


@pytest.mark.parametrize("percent", range(1, 101))
def test_n_of_100_reach_a_threshold_of_n_percent_exactly(percent: int) -> None:
    rules = TripRules(Settings(minimum_calls=100, failure_rate_threshold=percent / 100))

    assert Reason.FAILURE_RATE is rules.broken((100, percent, 0, 0), 0)
    assert rules.broken((100, percent - 1, 0, 0), 0) is None


def test_7_of_100_trip_at_a_threshold_of_7_percent() -> None:
    bench = Bench(window=CountWindow(100), minimum_calls=100, failure_rate_threshold=0.07)

    bench.succeed(93)
    bench.fail(6)
    before = bench.state
    bench.fail()

    assert 0.07 * 100 > 7
    assert [State.CLOSED, State.OPEN] == [before, bench.state]


@given(st.integers(1, 10**6), st.data())
def test_a_threshold_written_as_a_fraction_is_taken_for_that_fraction(whole: int, data: st.DataObject) -> None:
    part = data.draw(st.integers(1, whole))

    assert Fraction(part, whole) == Fraction(*exact_share(part / whole))


@given(st.floats(1e-9, 1.0))
def test_a_threshold_is_taken_for_the_best_short_fraction(threshold: float) -> None:
    short = Fraction(*exact_share(threshold))

    assert Fraction(threshold).limit_denominator(10**9) == short
    assert abs(short - Fraction(threshold)) < Fraction(1, 10**9)


def test_no_threshold_is_reached_by_nothing() -> None:
    part, whole = exact_share(None)

    assert all(failures * whole < part * calls for calls in (1, 10, 10**7) for failures in (0, calls))


def test_slow_calls_trip_by_their_own_rate() -> None:
    bench = Bench(slow_call_rate_threshold=0.75)

    bench.succeed(1)
    bench.succeed(2, spent=SLOW + 1)
    before = bench.state
    bench.succeed(1, spent=SLOW + 1)

    assert [State.CLOSED, State.OPEN] == [before, bench.state]
    assert ["closed>open slow_call_rate"] == bench.moves


def test_a_call_is_slow_only_above_the_limit() -> None:
    bench = Bench(slow_call_rate_threshold=0.25, minimum_calls=4)

    bench.succeed(4, spent=SLOW)
    fast = bench.window()
    bench.succeed(1, spent=SLOW + 1e-6)

    assert ((4, 0, 0), State.CLOSED, 1) == (fast, bench.state, bench.window()[2])


def test_without_a_slow_call_duration_nothing_is_slow() -> None:
    bench = Bench(slow_call_duration=None)

    bench.succeed(9, spent=1e9)

    assert (State.CLOSED, (9, 0, 0)) == (bench.state, bench.window())


def test_a_slow_call_below_the_minimum_has_the_next_successes_judged() -> None:
    bench = Bench(slow_call_rate_threshold=0.25)
    for _ in range(2):
        bench.breaker.call(int)
    bench.succeed(1, spent=SLOW + 1)

    bench.breaker.call(int)

    assert ["closed>open slow_call_rate"] == bench.moves


def test_a_slow_failure_counts_in_both_rates() -> None:
    by_failures = Bench(slow_call_rate_threshold=None)
    by_slowness = Bench(failure_rate_threshold=None, slow_call_rate_threshold=1.0)

    by_failures.fail(4, spent=SLOW + 1)
    by_slowness.fail(4, spent=SLOW + 1)

    assert ["closed>open failure_rate"] == by_failures.moves
    assert ["closed>open slow_call_rate"] == by_slowness.moves
    assert (4, 4, 4, 4) == tuple(by_failures.breaker.history[0].totals)


def test_the_failure_rate_speaks_first() -> None:
    bench = Bench(failure_count_threshold=4, consecutive_failures=4)

    bench.fail(4, spent=SLOW + 1)

    assert ["closed>open failure_rate"] == bench.moves


def test_so_many_failures_in_the_window_trip_without_a_minimum() -> None:
    bench = Bench(failure_rate_threshold=None, failure_count_threshold=2, minimum_calls=10)

    bench.fail()
    bench.succeed(5)
    before = bench.state
    bench.fail()

    assert [State.CLOSED, State.OPEN] == [before, bench.state]
    assert ["closed>open failure_count"] == bench.moves


def test_five_failures_in_ten_seconds() -> None:
    rules = {"failure_rate_threshold": None, "failure_count_threshold": 5}
    quick, calm = (Bench(window=TimeWindow(10, 10), **rules) for _ in range(2))

    for bench, pause in ((quick, 2.0), (calm, 3.0)):
        for _ in range(5):
            bench.fail()
            bench.clock.advance(pause)

    assert [State.OPEN, State.CLOSED] == [quick.state, calm.state]


def test_so_many_failures_in_a_row_trip_and_any_success_starts_again() -> None:
    bench = Bench(failure_rate_threshold=None, consecutive_failures=3, minimum_calls=10)

    bench.fail(2)
    bench.succeed()
    bench.fail(2)
    bench.ignore()
    before = (bench.state, bench.breaker.snapshot().streak)
    bench.fail()

    assert [(State.CLOSED, 2), State.OPEN] == [before, bench.state]
    assert ["closed>open consecutive"] == bench.moves


def test_a_quiet_success_starts_the_row_again() -> None:
    bench = Bench(failure_rate_threshold=None, consecutive_failures=2, minimum_calls=1)
    bench.fail()
    bench.succeed()
    bench.breaker.call(lambda: None)
    bench.fail()

    assert State.CLOSED is bench.state


def test_a_row_may_be_longer_than_the_window() -> None:
    bench = Bench(window=CountWindow(2), minimum_calls=1, failure_rate_threshold=None, consecutive_failures=5)

    bench.fail(4)
    before = bench.state
    bench.fail()

    assert [State.CLOSED, State.OPEN] == [before, bench.state]


def test_a_success_trips_when_the_minimum_is_reached() -> None:
    bench = Bench(minimum_calls=4)

    bench.fail(3)
    before = bench.state
    bench.succeed()

    assert [State.CLOSED, State.OPEN] == [before, bench.state]
    assert (4, 3, 0, 0) == tuple(bench.breaker.history[0].totals)


def test_a_success_trips_when_old_successes_have_left() -> None:
    bench = Bench(window=TimeWindow(10, 10), minimum_calls=4)
    bench.succeed(10)
    bench.clock.advance(5.0)
    bench.fail(5)
    bench.clock.advance(5.0)
    before = bench.state

    bench.succeed()

    assert [State.CLOSED, State.OPEN] == [before, bench.state]
    assert (6, 5, 0, 0) == tuple(bench.breaker.history[0].totals)


@pytest.mark.parametrize("between", ["look", "ignore", "nothing"])
def test_a_look_or_an_ignored_call_does_not_keep_a_success_from_tripping(between: str) -> None:
    bench = Bench(window=TimeWindow(10, 10), minimum_calls=4)
    bench.succeed(10)
    bench.clock.advance(5.0)
    bench.fail(5)
    bench.clock.advance(5.0)

    {"look": bench.breaker.snapshot, "ignore": bench.ignore, "nothing": int}[between]()
    bench.succeed()

    assert State.OPEN is bench.state


def test_a_threshold_that_was_lowered_trips_at_the_next_success() -> None:
    bench = Bench(failure_rate_threshold=0.9)
    bench.succeed(5)
    bench.fail(4)

    bench.breaker.configure(failure_rate_threshold=0.4)
    before = bench.state
    bench.succeed()

    assert [State.CLOSED, State.OPEN] == [before, bench.state]


def test_the_failure_that_opens_a_new_bucket_is_counted_before_judging() -> None:
    bench = Bench(window=TimeWindow(10, 10), minimum_calls=4)
    bench.fail(3)
    bench.clock.advance(1.0)

    bench.fail()

    assert (4, 4, 0, 0) == tuple(bench.breaker.history[0].totals)


def test_ignored_calls_are_no_evidence() -> None:
    bench = Bench()

    bench.ignore(50)
    bench.fail(3)

    assert (State.CLOSED, (3, 3, 0), 50) == (bench.state, bench.window(), bench.breaker.snapshot().counters.ignored)


def test_refusals_enter_no_rate() -> None:
    bench = Bench(half_open=Bench().breaker.settings.half_open)
    bench.fail(4)
    for _ in range(50):
        bench.refusal()
    bench.clock.advance(30.0)

    (trial,) = bench.begin()
    for _ in range(2):
        bench.begin()
    trial.success()

    assert (1, 0, 0) == bench.window()
    assert {"open": 50} == dict(bench.breaker.snapshot().counters.rejected)


def test_rates_are_shown_from_the_minimum_on() -> None:
    bench = Bench(minimum_calls=4)
    bench.succeed(2)
    bench.fail(1, spent=SLOW + 1)
    few = bench.breaker.snapshot()
    bench.succeed(1)
    enough = bench.breaker.snapshot()

    assert (None, None) == (few.failure_rate, few.slow_call_rate)
    assert (0.25, 0.25) == (enough.failure_rate, enough.slow_call_rate)


@pytest.mark.parametrize(
    ("window", "minimum"), [(CountWindow(100), 20), (CountWindow(5), 5), (TimeWindow(), 20), (CountWindow(20), 20)]
)
def test_the_default_minimum_is_20_or_a_smaller_count_window(window: CountWindow | TimeWindow, minimum: int) -> None:
    assert minimum == Settings(window=window).minimum


def test_the_defaults_open_at_half_failures_of_20_calls() -> None:
    from halfopen import CircuitBreaker

    breaker = CircuitBreaker("bank")
    for number in range(19):
        permit = breaker.acquire()
        permit.success() if number < 10 else permit.failure()
    before = breaker.state
    breaker.acquire().failure()

    assert [State.CLOSED, State.OPEN] == [before, breaker.state]


def test_all_calls_slower_than_a_minute_open_by_default() -> None:
    settings = Settings()

    assert (0.5, 1.0, 60.0, None, None, None) == (
        settings.failure_rate_threshold,
        settings.slow_call_rate_threshold,
        settings.slow_call_duration,
        settings.failure_count_threshold,
        settings.consecutive_failures,
        settings.forget_after,
    )


def test_the_smallest_threshold_is_one_of_a_thousand_million() -> None:
    assert [(1, 10**9)] * 2 == [exact_share(1e-12), exact_share(1e-300)]


@pytest.mark.parametrize("slow", [False, True])
def test_a_look_below_the_minimum_keeps_no_wrapped_success_from_tripping(slow: bool) -> None:
    bench = Bench(minimum_calls=4, failure_rate_threshold=None if slow else 0.5, slow_call_rate_threshold=0.5)
    (bench.succeed if slow else bench.fail)(2, spent=SLOW + 1 if slow else 0.0)
    bench.breaker.snapshot()

    bench.breaker.call(int)
    before = bench.state
    bench.breaker.call(int)

    assert [State.CLOSED, State.OPEN] == [before, bench.state]
