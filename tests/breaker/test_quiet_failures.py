"""Failures that cannot trip are counted without the lock, and decide as if each had been judged."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from types import FrameType, FunctionType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfopen import CallFailed, CircuitBreaker, CircuitOpenError, CountWindow, State, TimeWindow
from halfopen._core.counting import Counting
from halfopen._core.settings import MOST_ROOM, TripRules
from halfopen.testing import FakeClock
from tests.core.strategies import settings


def breaker_with(clock: FakeClock, **rules: Any) -> CircuitBreaker:
    rules = {"minimum_calls": 1, "failure_rate_threshold": None, "slow_call_rate_threshold": None, **rules}
    return CircuitBreaker("x", clock=clock, **rules)


def attempt(call: Callable[[], object]) -> None:
    try:
        call()
    except ValueError:
        return


def fails() -> None:
    raise ValueError


def quiet(breaker: CircuitBreaker) -> int:
    return len(breaker._circuit.state.quiet_failures)


@given(settings(), st.integers(0, 12), st.integers(0, 12), st.integers(0, 12), st.integers(0, 12), st.randoms())
def test_as_many_failures_as_there_is_room_for_trip_in_no_order(
    drawn: Any, successes: int, failures: int, slow: int, streak: int, chance: Any
) -> None:
    rules = TripRules(drawn)
    held = (successes + failures + slow, failures, slow, 0)
    streak = min(streak, failures)
    room = rules.room(held, streak)
    if rules.broken(held, streak) is not None or not rules.calm(held):
        return

    for _ in range(min(max(room, 0), 50)):
        if chance.random() < 0.3:
            successes, streak = successes + 1, 0
        failures, streak = failures + 1, streak + 1
        assert rules.broken((successes + failures + slow, failures, slow, 0), streak) is None


@pytest.mark.parametrize(
    ("rules", "room"),
    [
        ({"failure_rate_threshold": 0.5}, 8),
        ({"failure_rate_threshold": 0.45}, 7),
        ({"failure_rate_threshold": 0.46}, 8),
        ({"failure_count_threshold": 5}, 3),
        ({"consecutive_failures": 4}, 2),
        ({"failure_count_threshold": 10, "consecutive_failures": 2}, 0),
        ({"failure_rate_threshold": 0.5, "minimum_calls": 20}, 8),
        ({"failure_rate_threshold": 0.5, "minimum_calls": 21}, 0),
    ],
)
def test_a_full_window_has_room_for_one_failure_less_than_trips(rules: dict[str, Any], room: int) -> None:
    breaker = breaker_with(FakeClock(), **rules)
    made = TripRules(breaker.settings)

    assert room == made.room((20, 1, 0, 0), 1)


def test_the_failure_that_trips_is_the_one_that_tripped_when_all_were_judged() -> None:
    breaker = breaker_with(FakeClock(), window=CountWindow(100), failure_rate_threshold=0.3)
    for _ in range(100):
        breaker.call(int)

    for _ in range(29):
        attempt(lambda: breaker.call(fails))
    kept_quiet = quiet(breaker)
    before = breaker.state
    attempt(lambda: breaker.call(fails))

    assert 28 == kept_quiet
    assert [State.CLOSED, State.OPEN] == [before, breaker.state]
    assert 30 == breaker.history[-1].totals.failures


def test_successes_that_leave_a_time_window_leave_less_room() -> None:
    clock = FakeClock(0.0)
    breaker = breaker_with(clock, window=TimeWindow(10, 10), failure_rate_threshold=0.5)
    for _ in range(100):
        breaker.call(int)
    clock.advance(5.0)
    breaker.call(int)
    attempt(lambda: breaker.call(fails))  # finds room for 50
    clock.advance(5.0)
    breaker.call(int)

    attempt(lambda: breaker.call(fails))

    assert State.OPEN is breaker.state
    assert (4, 2, 0, 0) == breaker.history[-1].totals


def test_quiet_failures_are_seen_by_every_look() -> None:
    breaker = breaker_with(FakeClock(), consecutive_failures=100)

    for _ in range(10):
        attempt(lambda: breaker.call(fails))
    waiting = quiet(breaker)
    seen = breaker.snapshot()

    assert 9 == waiting
    assert (10, 10) == (seen.failures, seen.counters.failures)
    assert "ValueError" == seen.last_error


def test_a_row_of_quiet_failures_is_ended_by_a_quiet_success() -> None:
    breaker = breaker_with(FakeClock(), consecutive_failures=5)

    for _ in range(50):
        for _ in range(4):
            attempt(lambda: breaker.call(fails))
        breaker.call(int)
    for _ in range(50):
        for _ in range(4):
            attempt(lambda: breaker.call(fails))
        with breaker.acquire():
            pass
    before = breaker.state
    for _ in range(5):
        attempt(lambda: breaker.call(fails))

    assert [State.CLOSED, State.OPEN] == [before, breaker.state]


def test_whoever_listens_to_failures_hears_of_each_at_once() -> None:
    breaker = breaker_with(FakeClock(), consecutive_failures=100)
    attempt(lambda: breaker.call(fails))
    heard: list[object] = []
    breaker.subscribe(heard.append, CallFailed)

    for number in range(1, 6):
        attempt(lambda: breaker.call(fails))
        assert number == len(heard)


def test_an_exception_with_a_retry_after_is_judged() -> None:
    class Busy(ValueError):
        retry_after = 7.0

    def busy() -> None:
        raise Busy

    breaker = breaker_with(FakeClock(), consecutive_failures=100)
    for _ in range(3):
        attempt(lambda: breaker.call(busy))

    assert 0 == quiet(breaker)
    assert 3 == breaker.snapshot().failures


def test_a_large_window_has_no_more_room_than_the_bound() -> None:
    breaker = breaker_with(FakeClock(), failure_rate_threshold=0.5)

    assert MOST_ROOM == TripRules(breaker.settings).room((100_000, 1, 0, 0), 1)


def test_no_more_failures_are_held_than_the_bound() -> None:
    breaker = breaker_with(FakeClock(), window=CountWindow(10_000), failure_count_threshold=9_000)
    longest = 0
    for _ in range(3 * MOST_ROOM):
        attempt(lambda: breaker.call(fails))
        longest = max(longest, quiet(breaker))

    assert MOST_ROOM == longest
    assert 3 * MOST_ROOM == breaker.snapshot().failures


@contextmanager
def between(lines: Callable[[int], None], function: FunctionType = CircuitBreaker._failed) -> Iterator[None]:
    """Call *lines* with the number of each line that *function* is about to run."""

    def on_line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            lines(frame.f_lineno)
        return on_line

    def on_call(frame: FrameType, event: str, _: Any) -> Any:
        return on_line if frame.f_code is function.__code__ else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        yield
    finally:
        sys.settrace(before)


def lines_of_failing() -> list[int]:
    seen: list[int] = []
    breaker = breaker_with(FakeClock(), consecutive_failures=100)
    attempt(lambda: breaker.call(fails))
    with between(seen.append):
        attempt(lambda: breaker.call(fails))
    return seen


@pytest.mark.parametrize("place", range(len(lines_of_failing())))
def test_failures_that_end_at_the_same_moment_trip_together(place: int) -> None:
    """Whatever another thread has judged while one was about to be quiet, the limit holds."""
    limit = 12
    breaker = breaker_with(FakeClock(), failure_count_threshold=limit)
    attempt(lambda: breaker.call(fails))
    nested = [0]

    def another(line: int) -> None:
        nested[0] += 1
        if nested[0] == place + 1:
            sys.settrace(None)
            breaker.configure(failure_count_threshold=limit)  # takes the room away
            for _ in range(limit - 2):
                attempt(lambda: breaker.call(fails))

    with between(another):
        attempt(lambda: breaker.call(fails))

    assert State.OPEN is breaker.state
    assert limit == breaker.history[-1].totals.failures


def lines_of_settling() -> list[int]:
    seen: list[int] = []
    breaker = breaker_with(FakeClock(), consecutive_failures=100)
    attempt(lambda: breaker.call(fails))
    with between(seen.append, Counting.settle):
        attempt(breaker.acquire().failure)
    return seen


@pytest.mark.parametrize("place", range(len(lines_of_settling())))
def test_a_failure_told_while_another_is_judged_takes_its_room(place: int) -> None:
    limit = 12
    breaker = breaker_with(FakeClock(), failure_count_threshold=limit)
    attempt(lambda: breaker.call(fails))
    state = breaker._circuit.state
    room = state.room
    late = [next(room)]
    left: list[bool] = []
    nested = [0]

    def another_thread(line: int) -> None:
        """Append, and look whether the room is still the one that was entered."""
        nested[0] += 1
        if nested[0] == place + 1:
            state.quiet_failures.append((0, 0.0, ValueError))
            left.append(state.room is not room)

    with between(another_thread, Counting.settle):
        breaker.acquire().failure()
    if left[0]:
        breaker._crowded(state, 0.0)
    while breaker.state is State.CLOSED:
        attempt(lambda: breaker.call(fails))

    assert [True] == late
    assert limit == breaker.history[-1].totals.failures


def test_threads_that_fail_together_lose_no_failure_and_trip_at_the_limit() -> None:
    threads, limit = 8, 4000
    breaker = CircuitBreaker(
        "x", window=CountWindow(100_000), minimum_calls=1, failure_rate_threshold=None, failure_count_threshold=limit
    )
    breaker.call(int)
    raised = [0] * threads
    barrier = threading.Barrier(threads)

    def work(number: int) -> None:
        barrier.wait()
        for _ in islice(iter(int, 1), limit):
            try:
                breaker.call(fails)
            except ValueError:
                raised[number] += 1
            except CircuitOpenError:
                return

    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    seen = breaker.snapshot()

    assert State.OPEN is seen.state
    assert limit <= sum(raised) < limit + threads
    assert sum(raised) == seen.counters.failures + seen.counters.late_results
