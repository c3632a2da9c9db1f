"""`automatic_half_open`: a timer does what otherwise the next caller would."""

from __future__ import annotations

import gc
import threading
import weakref

from halfopen import CircuitBreaker, CircuitTransitioned, CountWindow, HalfOpen, Ramp, State
from halfopen.testing import FakeClock
from tests.core.driving import Bench


def test_the_timer_moves_at_the_very_end_of_the_wait_without_a_call() -> None:
    bench = Bench(automatic_half_open=True)
    events = bench.listen(CircuitTransitioned)
    bench.fail(4)

    bench.clock.advance(29.5)
    before = len(events)
    bench.clock.advance(0.5)

    assert [1, 2] == [before, len(events)]
    assert ("open>half_open wait_elapsed", 30.0) == (bench.moves[-1], bench.breaker.history[-1].at)


def test_without_it_nothing_moves_by_itself() -> None:
    bench = Bench()
    bench.fail(4)

    bench.clock.advance(1e6)

    assert 1 == len(bench.breaker.history)


def test_the_timer_ends_leases_rounds_ramps_and_orders_too() -> None:
    rules = HalfOpen(permitted_calls=1, trial_timeout=5.0, max_duration=50.0)
    bench = Bench(automatic_half_open=True, half_open=rules, ramp=Ramp(duration=7.0))
    bench.fail(4)
    bench.clock.advance(30.0)
    held = bench.begin()
    bench.clock.advance(5.0 + 30.0 + 50.0 + 30.0)
    bench.succeed()
    bench.clock.advance(7.0)
    bench.breaker.force_open(3.0)
    bench.clock.advance(3.0)

    assert [
        "closed>open failure_rate", "open>half_open wait_elapsed", "half_open>open trial_expired",
        "open>half_open wait_elapsed", "half_open>open max_duration", "open>half_open wait_elapsed",
        "half_open>recovering trial_succeeded", "recovering>closed ramp_finished", "closed>forced_open manual",
        "forced_open>closed override_ended",
    ] == bench.moves  # fmt: skip
    assert [30.0, 35.0, 65.0, 115.0, 145.0, 145.0, 152.0, 152.0, 155.0] == [
        move.at for move in bench.breaker.history[1:]
    ]
    assert held


def test_a_timer_of_an_earlier_wait_does_not_act_on_a_later_one() -> None:
    bench = Bench(automatic_half_open=True)
    bench.fail(4)
    bench.clock.advance(20.0)
    bench.breaker.reset()
    bench.fail(4)

    bench.clock.advance(20.0)
    before = bench.state
    bench.clock.advance(10.0)

    assert [State.OPEN, State.HALF_OPEN] == [before, bench.state]


def test_switching_it_on_sets_the_timer() -> None:
    bench = Bench()
    bench.fail(4)
    bench.breaker.configure(automatic_half_open=True)

    bench.clock.advance(30.0)

    assert 2 == len(bench.breaker.history)


def test_the_timer_keeps_no_breaker_alive() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("bank", automatic_half_open=True, clock=clock)
    breaker.trip()
    gone = weakref.ref(breaker)

    del breaker
    gc.collect()
    clock.advance(100.0)

    assert gone() is None


def test_the_systems_clock_moves_it_too() -> None:
    breaker = CircuitBreaker(
        "bank", window=CountWindow(1), minimum_calls=1, wait_in_open=0.05, automatic_half_open=True
    )
    moved = threading.Event()
    breaker.subscribe(lambda event: event.new is State.HALF_OPEN and moved.set(), CircuitTransitioned)

    breaker.acquire().failure()

    assert moved.wait(60)
    opened, tried = breaker.history
    assert opened.at + 0.05 <= tried.at < opened.at + 10
