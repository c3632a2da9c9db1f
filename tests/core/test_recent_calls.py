"""The window call by call: which letters, how many, of which state, and what each bucket holds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from halfopen import CircuitBreaker, CountWindow, TimeWindow
from halfopen.testing import FakeClock


def breaker_on(clock: FakeClock, **settings: Any) -> CircuitBreaker:
    return CircuitBreaker("bank", clock=clock, **{"slow_call_duration": 1.0, **settings})


def calls(breaker: CircuitBreaker, clock: FakeClock, letters: str) -> None:
    for letter in letters:
        permit = breaker.acquire()
        clock.advance(2.0 if letter in "sb" else 0.01)
        (permit.failure if letter in "fb" else permit.success)()


@pytest.mark.parametrize(("most", "shown"), [(200, "osfboof"), (7, "osfboof"), (4, "boof"), (1, "f"), (0, "")])
def test_each_call_of_a_count_window_has_its_letter(most: int, shown: str) -> None:
    clock = FakeClock()
    breaker = breaker_on(clock, window=CountWindow(20))

    calls(breaker, clock, "osfboof")
    look = breaker.recent_calls(most)

    assert look is not None
    assert (True, shown, ()) == (look.live, look.calls, look.buckets)


def test_calls_that_left_the_window_are_not_shown() -> None:
    clock = FakeClock()
    breaker = breaker_on(clock, window=CountWindow(5), minimum_calls=5, failure_rate_threshold=1.0)

    calls(breaker, clock, "fsfobooo")
    look = breaker.recent_calls()

    assert look is not None
    assert "obooo" == look.calls


def test_a_state_without_a_window_shows_the_last_one() -> None:
    clock = FakeClock()
    breaker = breaker_on(clock, consecutive_failures=2, wait_in_open=60.0)

    calls(breaker, clock, "oofof")
    breaker.acquire().failure()
    look = breaker.recent_calls()

    assert look is not None
    assert (False, "oofoff") == (look.live, look.calls)


def test_there_may_never_have_been_a_window() -> None:
    clock = FakeClock()
    breaker = breaker_on(clock)

    breaker.trip()
    breaker.try_now()

    assert breaker.recent_calls() is None


def test_a_time_window_tells_what_each_bucket_holds() -> None:
    clock = FakeClock(start=1000.0)
    breaker = breaker_on(clock, window=TimeWindow(30.0, buckets=3))

    calls(breaker, clock, "oof")
    clock.advance(10.0)
    calls(breaker, clock, "bo")
    look = breaker.recent_calls()
    clock.advance(30.0)
    later = breaker.recent_calls()

    assert look is not None
    assert later is not None
    assert (True, None) == (look.live, look.calls)
    assert [(3, 1, 0, 0), (2, 1, 1, 1)] == [tuple(bucket) for bucket in look.buckets]
    assert (0, 0, 0, 0) == tuple(map(sum, zip(*later.buckets, strict=True)))


def test_successes_that_were_not_judged_yet_are_in_it() -> None:
    clock = FakeClock()
    breaker = breaker_on(clock, window=CountWindow(10))

    for _ in range(4):
        breaker.call(int)
    look = breaker.recent_calls()

    assert look is not None
    assert "oooo" == look.calls


def test_a_moment_of_the_breakers_clock_has_a_unix_time() -> None:
    clock = FakeClock()
    breaker = breaker_on(clock)

    breaker.trip()
    clock.advance(90.0)

    assert clock.wall() - 90.0 == pytest.approx(breaker.unix_time(breaker.history[-1].at))


def fails() -> None:
    raise ValueError


def call(breaker: CircuitBreaker, letter: str) -> None:
    """Let one fast call end: a wrapped one that fails or succeeds, or one that holds a permit and succeeds."""
    if letter == "f":
        with pytest.raises(ValueError):
            breaker.call(fails)
    elif letter == "o":
        breaker.call(int)
    else:
        breaker.acquire().success()


@given(st.text("fop", max_size=30))
@example("oofpofffoopf")
@example("ofofofof")
def test_calls_that_were_not_judged_by_themselves_are_counted_in_their_order(letters: str) -> None:
    breaker = breaker_on(
        FakeClock(), window=CountWindow(100), minimum_calls=1, failure_rate_threshold=None, failure_count_threshold=90
    )

    for letter in "of" + letters:
        call(breaker, letter)
    look, shown = breaker.snapshot(), breaker.recent_calls()

    told = ("of" + letters).replace("p", "o")
    assert shown is not None
    assert told == shown.calls
    assert len(told) - len(told.rstrip("f")) == look.streak
    assert (len(told), told.count("f")) == (look.calls, look.failures)
    assert (told.count("o"), told.count("f")) == (look.counters.successes, look.counters.failures)


def test_failures_that_cannot_trip_are_not_judged_by_themselves() -> None:
    breaker = breaker_on(FakeClock(), failure_rate_threshold=None, failure_count_threshold=90, minimum_calls=1)

    for letter in "fofop":
        call(breaker, letter)
    state = breaker._circuit.state

    assert (1, 1, 1) == (len(state.quiet_failures), len(state.quiet_permits), len(state.quiet) - 1)
