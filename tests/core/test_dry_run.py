"""An observed circuit tells what it would have done: when it would have opened, and how many calls it would refuse."""

from __future__ import annotations

from typing import Any

from halfopen import HalfOpen, State, ThresholdExceeded, TimeWindow, exponential
from halfopen._core.states import Reason
from tests.core.driving import SLOW, Bench


def observed(**settings: Any) -> Bench:
    bench = Bench(half_open=HalfOpen(permitted_calls=2), **settings)
    bench.breaker.observe()
    return bench


def told(bench: Bench) -> tuple[dict[Reason, int], int]:
    """Return the openings by their reasons, and the refusals."""
    bench.breaker.snapshot()
    counters = bench.breaker._circuit.counters
    return dict(counters.dry_openings), counters.dry_refused


def test_calls_during_the_wait_would_have_been_refused() -> None:
    bench = observed()

    bench.succeed(3)
    before = told(bench)
    bench.fail(4)
    bench.succeed(2)
    bench.clock.advance(29.9)
    bench.fail(3)

    assert ({}, 0) == before
    assert ({Reason.FAILURE_RATE: 1}, 6) == told(bench)  # the third of six calls opened it
    assert State.METRICS_ONLY is bench.state


def test_trial_calls_would_have_closed_it_and_it_opens_again() -> None:
    bench = observed()
    bench.fail(4)
    bench.clock.advance(30.0)

    bench.succeed(2)
    bench.succeed(3)
    bench.fail(3)

    assert ({Reason.FAILURE_RATE: 2}, 0) == told(bench)


def test_a_failed_trial_call_is_no_opening_but_waits_again() -> None:
    bench = observed()
    bench.fail(4)
    bench.clock.advance(30.0)

    bench.fail()
    bench.succeed()

    assert ({Reason.FAILURE_RATE: 1}, 1) == told(bench)


def test_slow_calls_open_it_and_ignored_ones_do_not() -> None:
    slow, ignored = observed(failure_rate_threshold=None), observed()

    slow.succeed(4, spent=SLOW + 1)
    slow.succeed()
    ignored.ignore(9)

    assert ({Reason.SLOW_CALL_RATE: 1}, 1) == told(slow)
    assert ({}, 0) == told(ignored)


def test_the_dependencys_own_wait_counts() -> None:
    bench = observed()
    bench.fail(3)
    bench.fail(retry_after=100.0)
    bench.clock.advance(99.0)

    bench.succeed(2)
    bench.clock.advance(1.0)
    bench.succeed()

    assert ({Reason.FAILURE_RATE: 1}, 2) == told(bench)


def test_a_backoff_in_user_code_counts_as_the_default_without_jitter() -> None:
    own, spread = (
        observed(wait_in_open=lambda step, rng: 1e6),
        observed(wait_in_open=exponential(40, 2, 600, jitter=0.5)),
    )
    for bench, wait in ((own, 30.0), (spread, 40.0)):
        bench.fail(4)
        bench.clock.advance(wait - 0.5)
        bench.succeed()
        bench.clock.advance(0.5)
        bench.fail()
        bench.clock.advance(2 * wait - 0.5)
        bench.succeed()
        bench.clock.advance(0.5)
        bench.succeed()

    assert [({Reason.FAILURE_RATE: 1}, 2)] * 2 == [told(own), told(spread)]


def test_changed_settings_hold_for_it_as_well() -> None:
    bench = observed()
    bench.fail(2)

    bench.breaker.configure(minimum_calls=2, failure_rate_threshold=0.9)
    bench.fail()
    bench.fail()

    assert ({Reason.FAILURE_RATE: 1}, 1) == told(bench)


def test_each_time_it_is_observed_it_begins_anew_and_the_sums_go_on() -> None:
    bench = observed()
    bench.fail(4)
    bench.fail()

    bench.breaker.observe()
    bench.fail(3)
    bench.fail()

    assert ({Reason.FAILURE_RATE: 2}, 1) == told(bench)


def test_an_observed_circuit_judges_slow_calls_too() -> None:
    bench = observed(failure_rate_threshold=None)
    events = bench.listen(ThresholdExceeded)

    bench.succeed(4, spent=SLOW + 1)
    bench.succeed(2)

    assert (6, 0, 4) == bench.window()
    [exceeded] = events.of(ThresholdExceeded)
    assert (Reason.SLOW_CALL_RATE, (4, 0, 4, 0)) == (exceeded.reason, exceeded.totals)


def test_the_window_of_an_observed_circuit_ages_when_its_settings_change() -> None:
    bench = observed(window=TimeWindow(10, 10))
    bench.fail(1)
    bench.clock.advance(5.0)
    bench.succeed(2)
    bench.clock.advance(5.0)

    bench.breaker.configure(minimum_calls=3)

    assert (2, 0, 0) == bench.breaker._circuit.state.held()[:3]
