"""A clock that moves only when told."""

from __future__ import annotations

import copy
import pickle
import threading
import time

import anyio
import pytest

from halfopen import CircuitBreaker, State
from halfopen.testing import FakeClock


def test_it_starts_where_it_is_told_and_stands_still() -> None:
    clock = FakeClock(start=5.0, wall=1000.0)

    assert (5.0, 1000.0) == (clock.monotonic(), clock.wall())
    time.sleep(0.002)
    assert (5.0, 1000.0) == (clock.monotonic(), clock.wall())


def test_advancing_moves_both_readings() -> None:
    clock = FakeClock(start=5.0, wall=1000.0)

    clock.advance(2.5)
    clock.advance(0.0)
    clock.advance_to(6.0)

    assert (7.5, 1002.5) == (clock.monotonic(), clock.wall())


@pytest.mark.parametrize("seconds", [-1.0, -1e-9, float("nan")])
def test_it_never_goes_backwards(seconds: float) -> None:
    clock = FakeClock(start=5.0)

    with pytest.raises(ValueError, match="at least 0"):
        clock.advance(seconds)

    assert 5.0 == clock.monotonic()


def test_a_step_of_the_calendar_changes_no_decision() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("x", clock=clock)
    breaker.trip(30.0)

    clock.step_wall(1e7)
    clock.step_wall(-2e7)
    look = breaker.snapshot()

    assert (State.OPEN, 30.0) == (look.state, look.remaining_wait)
    assert clock.wall() + 30.0 == look.next_trial_at


def test_sleeping_moves_it_and_is_remembered() -> None:
    clock = FakeClock()
    began = time.monotonic()

    clock.sleep(3600.0)
    clock.sleep(0.0)
    clock.sleep(-1.0)

    assert 3600.0 == clock.monotonic()
    assert [3600.0, 0.0, -1.0] == clock.sleeps
    assert time.monotonic() - began < 60


@pytest.mark.anyio
async def test_sleeping_in_a_task_moves_it_and_lets_others_run() -> None:
    clock = FakeClock()
    order: list[str] = []

    async def other() -> None:
        order.append("other")

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        await clock.asleep(3600.0)
        await clock.asleep(1.0)
        order.append("slept")

    assert ["other", "slept"] == order
    assert 3601.0 == clock.monotonic()


@pytest.mark.anyio
async def test_a_sleeping_task_can_be_cancelled() -> None:
    clock = FakeClock()

    with anyio.move_on_after(0) as scope:
        await clock.asleep(1.0)
        await clock.asleep(1.0)

    assert scope.cancelled_caught


def test_callbacks_run_in_the_order_in_which_they_are_due_each_at_its_time() -> None:
    clock = FakeClock()
    ran: list[tuple[str, float]] = []
    for name, due in (("c", 3.0), ("a", 1.0), ("b", 1.0), ("late", 9.0)):
        clock.call_at(due, lambda name=name: ran.append((name, clock.monotonic())))

    clock.advance(5.0)

    assert [("a", 1.0), ("b", 1.0), ("c", 3.0)] == ran
    assert 5.0 == clock.monotonic()


def test_a_callback_may_ask_to_be_called_again_and_may_move_the_clock() -> None:
    clock = FakeClock()
    ran: list[float] = []

    def again() -> None:
        ran.append(clock.monotonic())
        clock.call_at(clock.monotonic() + 1.0, again)

    clock.call_at(1.0, again)
    clock.call_at(2.5, lambda: clock.advance(0.25))
    clock.advance(3.0)

    assert [1.0, 2.0, 3.0] == ran
    assert 3.0 == clock.monotonic()


def test_a_callback_taken_back_does_not_run() -> None:
    clock = FakeClock()
    ran: list[str] = []
    taken_back = clock.call_at(1.0, lambda: ran.append("x"))

    taken_back.cancel()
    taken_back.cancel()
    clock.advance(2.0)
    taken_back.cancel()

    assert [] == ran


def test_a_callback_due_already_runs_at_the_next_move() -> None:
    clock = FakeClock(start=5.0)
    ran: list[float] = []

    clock.call_at(1.0, lambda: ran.append(clock.monotonic()))
    clock.advance(0.0)

    assert [5.0] == ran


def test_it_drives_the_timer_of_a_breaker() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("x", clock=clock, automatic_half_open=True, wait_in_open=5.0)
    breaker.trip()

    clock.advance(4.9)
    before = breaker._circuit.state.kind
    clock.advance(0.2)

    assert (State.OPEN, State.HALF_OPEN) == (before, breaker._circuit.state.kind)
    assert 5.0 == breaker.history[-1].at


def test_several_threads_may_move_it() -> None:
    clock = FakeClock()
    ran: list[int] = []
    for number in range(1000):
        clock.call_at(float(number), lambda number=number: ran.append(number))

    threads = [threading.Thread(target=lambda: [clock.advance_to(float(t)) for t in range(1000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert list(range(1000)) == sorted(ran)
    assert 999.0 == clock.monotonic()


def test_copies_live_in_the_same_time_and_pickles_go_on_alone() -> None:
    clock = FakeClock(start=5.0, wall=1000.0)
    pickled = pickle.loads(pickle.dumps(clock))

    assert clock is copy.copy(clock) is copy.deepcopy(clock)
    clock.advance(1.0)
    assert (5.0, 1000.0) == (pickled.monotonic(), pickled.wall())
