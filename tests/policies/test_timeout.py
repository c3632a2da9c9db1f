from __future__ import annotations

import copy
import math
import pickle
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from halfopen._core.states import State
from halfopen._runtime.worker_threads import Job, WorkerThreads, _Worker
from halfopen.circuit_breaker import CircuitBreaker
from halfopen.errors import BulkheadFullError, CallTimeoutError, ConfigError
from halfopen.retry import Retry
from halfopen.testing import FakeClock, put_into
from halfopen.timeout import (
    DeadlinePassedError,
    Timeout,
    TimeoutFinished,
    TimeoutOutcome,
    check_deadline,
    deadline,
    time_left,
)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def outcomes(timeout: Timeout) -> dict[str, int]:
    return {str(outcome): number for outcome, number in timeout.snapshot().calls.items() if number}


def test_a_call_sees_the_time_it_has(clock: FakeClock) -> None:
    timeout = Timeout("bank", 5, clock=clock)

    @timeout
    def fn() -> float | None:
        clock.advance(2)
        return time_left()

    assert 3.0 == fn()
    assert None is time_left()
    assert {"success": 1} == outcomes(timeout)


def test_a_nearer_deadline_counts_and_a_farther_one_does_not(clock: FakeClock) -> None:
    timeout = Timeout("bank", 5, clock=clock)

    with deadline(2, clock=clock):
        assert 2.0 == timeout.call(time_left)
    with deadline(9, clock=clock):
        assert 5.0 == timeout.call(time_left)
        assert 9.0 == time_left()


def test_what_asks_for_the_time_is_told_that_it_is_up(clock: FakeClock) -> None:
    timeout = Timeout("bank", 5, clock=clock)

    def loop() -> None:
        while True:
            check_deadline()
            clock.advance(1)

    with pytest.raises(CallTimeoutError) as caught:
        timeout.call(loop)

    assert ("bank", 5.0, 5.0) == (caught.value.name, caught.value.seconds, clock.monotonic())
    assert {"timeout": 1} == outcomes(timeout)


def test_a_result_that_comes_late_is_returned_and_counted(clock: FakeClock) -> None:
    timeout = Timeout("bank", 5, clock=clock)

    assert None is timeout.call(clock.advance, 6)
    assert ({"success": 1}, 1) == (outcomes(timeout), timeout.snapshot().late)


def test_an_error_within_the_limit_is_a_failure_and_one_beyond_it_a_timeout(clock: FakeClock) -> None:
    timeout = Timeout("bank", 5, clock=clock)

    def fails(after: float) -> None:
        clock.advance(after)
        raise OSError

    for after in (4, 5):
        with pytest.raises(OSError):
            timeout.call(fails, after)

    assert {"failure": 1, "timeout": 1} == outcomes(timeout)


def test_an_interrupt_is_neither(clock: FakeClock) -> None:
    timeout = Timeout("bank", 5, clock=clock)

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        timeout.call(interrupted)

    assert ({}, 1) == (outcomes(timeout), timeout.snapshot().interrupted)


def test_with_no_time_left_the_call_is_not_made(clock: FakeClock) -> None:
    timeout = Timeout("bank", 5, clock=clock)

    with deadline(0, clock=clock, name="request"), pytest.raises(DeadlinePassedError) as caught:
        timeout.call(pytest.fail)

    assert "request" == caught.value.name
    assert ({}, 1) == (outcomes(timeout), timeout.snapshot().refused)


def test_a_breaker_outside_does_not_blame_the_dependency_for_a_deadline_that_had_passed(clock: FakeClock) -> None:
    breaker = CircuitBreaker("bank", clock=clock, consecutive_failures=1)
    timeout = Timeout("bank", 5, clock=clock)

    with deadline(0, clock=clock), pytest.raises(DeadlinePassedError):
        breaker.call(timeout.call, pytest.fail)

    assert State.CLOSED == breaker.state


def test_around_a_retry_it_bounds_the_whole_and_inside_each_attempt(clock: FakeClock) -> None:
    seen = []
    total, each = Timeout("total", 10, clock=clock), Timeout("each", 4, clock=clock)
    retry = Retry("bank", on=ConnectionError, attempts=9, backoff=1, clock=clock)

    def fn() -> None:
        seen.append(time_left())
        clock.advance(3)
        raise ConnectionError

    with pytest.raises(ConnectionError) as caught:
        total.call(retry.call, each.call, fn)

    assert [4.0, 4.0, 2.0] == seen
    assert "gave up after 3 attempts in 11.0 s (retry 'bank'): no time is left" in caught.value.__notes__


def test_a_trial_call_may_have_less_time(clock: FakeClock) -> None:
    breaker = CircuitBreaker("bank", clock=clock)
    timeout = Timeout("bank", 5, trial=0.5, clock=clock)

    usual = breaker.call(timeout.call, time_left)
    put_into(breaker, State.HALF_OPEN)
    trial = breaker.call(timeout.call, time_left)

    assert (5.0, 0.5) == (usual, trial)


def test_a_generator_is_refused_with_the_reason() -> None:
    def items() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="its consumer decides how long it runs"):
        Timeout("bank", 5)(items)


def test_a_coroutine_function_through_call_is_refused_instead_of_left_unguarded() -> None:
    async def fn() -> None: ...

    for worker_thread in (False, True):
        with pytest.raises(TypeError, match="await acall"):
            Timeout("bank", 5, worker_thread=worker_thread).call(fn)


def test_every_mistake_is_named_at_once() -> None:
    bad: Any = {"seconds": 0, "trial": "1", "worker_thread": 1, "max_threads": 0}

    with pytest.raises(ConfigError) as caught:
        Timeout("", **bad)

    assert ["name", *bad] == [mistake.path for mistake in caught.value.mistakes]


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, True, "5", None])
def test_seconds_is_a_positive_number(value: Any) -> None:
    with pytest.raises(ConfigError, match="seconds"):
        Timeout("bank", value)


def test_a_trial_limit_above_the_usual_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="meant to be tighter"):
        Timeout("bank", 1, trial=2)


def test_configure_changes_what_comes_and_keeps_what_was_counted(clock: FakeClock) -> None:
    timeout = Timeout("bank", 5, clock=clock)
    timeout.call(time_left)

    timeout.configure(seconds=7)
    with pytest.raises(ConfigError, match="secs: there is no such setting"):
        timeout.configure(secs=3)

    assert 7.0 == timeout.call(time_left)
    assert {"success": 2} == outcomes(timeout)


def test_every_counter_is_there_from_the_start() -> None:
    assert dict.fromkeys(TimeoutOutcome, 0) == Timeout("bank", 5).snapshot().calls


def test_events_tell_how_calls_ended(clock: FakeClock) -> None:
    timeout, events = Timeout("bank", 5, clock=clock), []
    timeout.subscribe(events.append, TimeoutFinished)

    timeout.call(clock.advance, 2)
    with pytest.raises(ZeroDivisionError):
        timeout.call(lambda: 1 / 0)

    assert [("success", 3.0), ("failure", 5.0)] == [(event.outcome, event.left) for event in events]


def test_a_copy_is_set_alike_and_fresh() -> None:
    timeout = Timeout("bank", 5, trial=1, worker_thread=True, max_threads=3)
    timeout.call(time_left)

    for other in (copy.copy(timeout), pickle.loads(pickle.dumps(timeout))):
        assert timeout.settings == other.settings
        assert {} == outcomes(other)


# Worker threads ------------------------------------------------------------------------------------------------------


class Hanging:
    """Functions that hang until released, on threads that can be waited for."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.ended = threading.Semaphore(0)

    def __call__(self) -> str:
        self.release.wait(60)
        self.ended.release()
        return "late"

    def finish(self, timeout: Timeout, calls: int) -> None:
        self.release.set()
        for _ in range(calls):
            assert self.ended.acquire(timeout=60)
        while timeout.snapshot().threads:
            time.sleep(0.001)


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    hanging = Hanging()
    yield hanging
    hanging.release.set()


def test_the_caller_leaves_a_hung_thread_behind(hanging: Hanging) -> None:
    timeout = Timeout("bank", 0.02, worker_thread=True)

    with pytest.raises(CallTimeoutError) as caught:
        timeout.call(hanging)

    snapshot = timeout.snapshot()
    assert ("bank", 0.02) == (caught.value.name, caught.value.seconds)
    assert ({"timeout": 1}, 1, 1) == (outcomes(timeout), snapshot.threads, snapshot.threads_given_up)

    hanging.finish(timeout, 1)
    assert (0, 0) == (timeout.snapshot().threads, timeout.snapshot().threads_given_up)


def test_threads_left_behind_are_bounded_and_the_next_call_is_refused(hanging: Hanging) -> None:
    timeout = Timeout("bank", 0.01, worker_thread=True, max_threads=2)
    for _ in range(2):
        with pytest.raises(CallTimeoutError):
            timeout.call(hanging)

    with pytest.raises(BulkheadFullError) as caught:
        timeout.call(pytest.fail)

    assert ("bank", 2) == (caught.value.name, caught.value.limit)
    assert ({"timeout": 2}, 1) == (outcomes(timeout), timeout.snapshot().refused)

    hanging.finish(timeout, 2)
    timeout.configure(seconds=10)
    assert "fine" == timeout.call(lambda: "fine")


def test_under_a_fake_clock_the_thread_is_left_when_that_clock_says_so(clock: FakeClock, hanging: Hanging) -> None:
    timeout = Timeout("bank", 60, worker_thread=True, clock=clock)
    left = threading.Event()

    def advance() -> None:
        # Again and again: the caller may not have begun to wait at the first time.
        while not left.wait(0.001):
            clock.advance(60)

    mover = threading.Thread(target=advance)
    mover.start()
    with pytest.raises(CallTimeoutError):
        timeout.call(hanging)
    left.set()
    mover.join()

    hanging.finish(timeout, 1)


def test_a_worker_thread_returns_raises_and_sees_the_callers_context() -> None:
    user: ContextVar[str] = ContextVar("user")
    user.set("ann")
    timeout = Timeout("bank", 1000, worker_thread=True)

    def fn() -> tuple[str, bool, bool]:
        left = time_left()
        return user.get(), left is not None and 900 < left <= 1000, threading.current_thread().daemon

    def fails() -> None:
        raise LookupError("no such bank")

    assert ("ann", True, True) == timeout.call(fn)
    with pytest.raises(LookupError, match="no such bank"):
        timeout.call(fails)
    assert {"success": 1, "failure": 1} == outcomes(timeout)


def test_calls_in_a_row_share_a_thread() -> None:
    timeout = Timeout("bank", 10, worker_thread=True)

    def fn() -> threading.Thread:
        return threading.current_thread()

    threads = set()
    for _ in range(5):
        threads.add(timeout.call(fn))
        while not timeout._threads._idle:
            time.sleep(0.001)

    assert 1 == len(threads)


def test_an_idle_thread_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfopen._runtime.worker_threads.IDLE_SECONDS", 0.01)
    timeout = Timeout("bank", 10, worker_thread=True)

    thread = timeout.call(threading.current_thread)
    thread.join(60)

    assert not thread.is_alive()
    assert "again" == timeout.call(lambda: "again")


def test_many_callers_on_few_idle_threads_all_get_their_own_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfopen._runtime.worker_threads.IDLE_SECONDS", 0.0005)
    timeout = Timeout("bank", 30, worker_thread=True, max_threads=4)
    wrong = []

    def work(who: int) -> None:
        for number in range(50):
            if (who, number) != timeout.call(lambda number=number: (who, number)):
                wrong.append((who, number))
            time.sleep(0.0005)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == wrong
    assert {"success": 200} == outcomes(timeout)
    assert 0 == timeout.snapshot().threads


def test_a_thread_that_is_chosen_just_as_its_idle_time_ends_takes_the_call() -> None:
    threads = WorkerThreads(2)
    jobs: list[Job | None] = []
    waits = []

    class Called:
        """A semaphore whose idle time ends in the very moment in which a call chooses the thread."""

        def acquire(self, timeout: float | None = None) -> bool:
            waits.append("idle" if timeout is not None else "certain")
            if timeout is None:
                return True
            if len(jobs) == 1:
                jobs.append(threads.submit(lambda: "second", "x"))
            return False

        def release(self) -> None: ...

    first = Job(threads, lambda: "first")
    worker = _Worker(threads, first)
    worker._called = Called()  # type: ignore[assignment]
    threads.running = 1
    jobs.append(first)

    worker._work()

    assert ["idle", "certain", "idle"] == waits
    assert ["first", "second"] == [job.outcome() for job in jobs if job is not None]
    assert 0 == threads.running
