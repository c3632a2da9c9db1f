"""One breaker for many threads, event loops and processes."""

from __future__ import annotations

import asyncio
import copy
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from halfopen import CircuitBreaker, CircuitOpenError, CountWindow, Failures, HalfOpen, State, TimeWindow
from halfopen.testing import FakeClock

THREADS = 8
UNTRIPPABLE: dict[str, Any] = {
    "window": TimeWindow(60, 60),
    "failure_rate_threshold": None,
    "slow_call_rate_threshold": None,
    "failure_count_threshold": 10**9,
}
COUNT = {"window": CountWindow(100), "failure_count_threshold": 100}


@pytest.fixture(autouse=True)
def quick_switches() -> Iterator[None]:
    """Let threads take turns so often that every gap between two steps is hit."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def run_threads(work: Callable[[int], object], number: int = THREADS) -> None:
    failures: list[BaseException] = []
    start = threading.Barrier(number)

    def run(index: int) -> None:
        start.wait()
        try:
            work(index)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == failures


def check_no_count_is_lost(window: dict[str, Any], each: int) -> None:
    breaker = CircuitBreaker("counted", **{**UNTRIPPABLE, **window})

    @breaker
    def work(fails: bool) -> None:
        if fails:
            raise ValueError

    def calls(index: int) -> None:
        for number in range(each):
            if number % 100 == 0:
                with pytest.raises(ValueError):
                    work(True)
            else:
                work(False)

    run_threads(calls)

    counters = breaker.snapshot().counters
    failed = THREADS * (each // 100)
    assert (THREADS * each - failed, failed, 0, 0) == (
        counters.successes,
        counters.failures,
        counters.ignored,
        counters.late_results,
    )


@pytest.mark.parametrize("window", [COUNT, {}], ids=["count", "time"])
def test_eight_threads_lose_no_count(window: dict[str, Any]) -> None:
    check_no_count_is_lost(window, 50_000)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_eight_threads_times_a_million_calls_lose_no_count() -> None:
    check_no_count_is_lost(COUNT, 1_000_000)


def test_eight_threads_lose_no_count_of_any_style() -> None:
    breaker = CircuitBreaker("styles", **UNTRIPPABLE)
    each = 3000

    async def awork() -> None:
        return None

    def items() -> Iterator[int]:
        yield 1

    guarded_items = breaker(items)

    def calls(index: int) -> None:
        async def acalls() -> None:
            for _ in range(each):
                await breaker.acall(awork)

        asyncio.run(acalls())
        for _ in range(each):
            breaker.call(int)
            list(guarded_items())
            with breaker.acquire():
                pass
            breaker.acquire().success()
            breaker.acquire().ignore()
            breaker.acquire().failure()
            breaker.acquire()  # abandoned

    run_threads(calls)

    look = breaker.snapshot()
    total = THREADS * each
    assert (5 * total, total, total) == (look.counters.successes, look.counters.failures, look.counters.ignored)
    permits = look.counters.permits
    assert (5 * total, 4 * total, 0, 0, total) == (
        permits.issued,
        permits.settled,
        permits.in_flight,
        permits.expired,
        permits.abandoned,
    )


def test_eight_threads_lose_no_count_across_moves() -> None:
    breaker = CircuitBreaker("moving", **UNTRIPPABLE)
    each, over = 20_000, threading.Event()
    refused = [0] * THREADS
    work = breaker(lambda: None)

    def calls(index: int) -> None:
        for _ in range(each):
            try:
                work()
            except CircuitOpenError:
                refused[index] += 1

    def move() -> None:
        while not over.wait(0.002):
            breaker.trip()
            breaker.try_now()
            breaker.reset()
            breaker.observe()
            breaker.reset()

    mover = threading.Thread(target=move)
    mover.start()
    try:
        run_threads(calls)
    finally:
        over.set()
        mover.join()

    counters = breaker.snapshot().counters
    assert THREADS * each == counters.successes + counters.late_results + sum(refused)
    assert sum(refused) == sum(counters.rejected.values())
    assert 0 == counters.permits.in_flight


def test_two_threads_that_settle_one_permit_settle_it_once() -> None:
    breaker = CircuitBreaker("once", **UNTRIPPABLE)
    breaker.try_now()
    breaker.reset()
    rounds = 500
    barrier = threading.Barrier(2)
    permits = [breaker.acquire() for _ in range(rounds)]

    def settle(index: int) -> None:
        for permit in permits:
            barrier.wait()
            permit.failure() if index else permit.success()

    run_threads(settle, 2)

    counters = breaker.snapshot().counters
    assert rounds == counters.successes + counters.failures == counters.permits.settled
    assert 0 == counters.permits.in_flight


def test_a_call_holds_up_no_other() -> None:
    breaker = CircuitBreaker("parallel")
    inside = threading.Barrier(THREADS)

    # All threads are inside of the guarded call at once, or the barrier breaks.
    run_threads(lambda index: breaker.call(inside.wait, 60))

    assert THREADS == breaker.snapshot().counters.successes


def test_one_breaker_serves_several_event_loops_and_threads() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("loops", clock=clock, half_open=HalfOpen(permitted_calls=4), minimum_calls=4)
    reached: list[int] = []

    @breaker
    async def work(index: int) -> int:
        reached.append(index)
        await asyncio.sleep(0.001)
        return index

    def run(index: int) -> None:
        async def gather() -> list[Any]:
            return await asyncio.gather(*(work(index) for _ in range(20)), return_exceptions=True)

        asyncio.run(gather())

    breaker.trip(1.0)
    clock.advance(1.0)
    run_threads(run)

    look = breaker.snapshot()
    assert State.CLOSED is look.state
    assert 4 == look.counters.trial_successes
    assert len(reached) == look.counters.successes + look.counters.late_results
    assert THREADS * 20 == len(reached) + sum(look.counters.rejected.values())


def test_a_trio_run_and_an_asyncio_loop_share_a_breaker() -> None:
    import trio

    breaker = CircuitBreaker("both", minimum_calls=2)

    async def on_asyncio() -> str:
        await asyncio.sleep(0)
        return "asyncio"

    async def on_trio() -> str:
        await trio.lowlevel.checkpoint()
        return "trio"

    guarded_asyncio, guarded_trio = breaker(on_asyncio), breaker(on_trio)
    got: list[str] = []

    def run(index: int) -> None:
        got.append(trio.run(guarded_trio) if index % 2 else asyncio.run(guarded_asyncio()))

    run_threads(run, 4)

    assert ["asyncio"] * 2 + ["trio"] * 2 == sorted(got)
    assert 4 == breaker.snapshot().counters.successes


# Copies


def configured(clock: FakeClock | None = None) -> CircuitBreaker:
    return CircuitBreaker(
        "original",
        window=TimeWindow(10, 5),
        minimum_calls=3,
        wait_in_open=7.0,
        half_open=HalfOpen(permitted_calls=2),
        classify=Failures(on=OSError, ignore=KeyError),
        tags={"team": "edi"},
        clock=clock,
    )


COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda it: pickle.loads(pickle.dumps(it)),
    "old pickle": lambda it: pickle.loads(pickle.dumps(it, protocol=2)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_has_the_same_settings_and_a_fresh_state(how: str) -> None:
    original = configured()
    original.trip()
    held = threading.Thread(target=original._lock.acquire)
    held.start()
    held.join()  # whose lock stays held

    other = COPIES[how](original)

    assert original.settings == other.settings
    assert original.tags == other.tags
    assert "original" == other.name
    assert State.CLOSED is other.state
    for _ in range(3):
        with pytest.raises(OSError, match="x"):
            other.call(_fail)
    assert State.OPEN is other.state


def _fail() -> None:
    raise OSError("x")


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_on_a_fake_clock_works(how: str) -> None:
    clock = FakeClock(start=5.0)
    original = configured(clock)

    other = COPIES[how](original)
    other.trip(1.0)
    other._clock.advance(1.0)

    assert "x" == other.call(lambda: "x")
    assert State.HALF_OPEN is other.state


def test_a_deep_copy_of_what_holds_a_guarded_function_keeps_it() -> None:
    breaker = configured()
    holder = {"work": breaker(_fail)}

    other = copy.deepcopy(holder)

    assert other["work"] is holder["work"]


# Forks

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def in_child(work: Callable[[], object]) -> None:
    """Run something in a forked child, which must end well, and within a minute."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    until = time.monotonic() + 60
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            assert 0 == status
            return
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.005)


@pytest.fixture
def held_elsewhere() -> Iterator[Callable[[Any], None]]:
    """Let another thread hold a lock until the test is over."""
    release = threading.Event()
    threads: list[threading.Thread] = []

    def hold(lock: Any) -> None:
        holding = threading.Event()

        def run() -> None:
            with lock:
                holding.set()
                release.wait(60)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        assert holding.wait(60)

    yield hold
    release.set()
    for thread in threads:
        thread.join()


@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_works_though_the_lock_was_held(held_elsewhere: Callable[[Any], None]) -> None:
    breaker = configured()
    work = breaker(_fail)
    heard: list[object] = []
    breaker.subscribe(heard.append)
    breaker.trip()
    held_elsewhere(breaker._lock)
    held_elsewhere(breaker._bus._lock)
    heard.clear()

    def child() -> None:
        assert State.CLOSED is breaker.state
        for _ in range(3):
            with pytest.raises(OSError, match="x"):
                work()
        assert State.OPEN is breaker.state
        assert 0 == breaker.snapshot().counters.permits.in_flight
        assert heard
        pickle.loads(pickle.dumps(breaker))

    in_child(child)


@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("state", [State.CLOSED, State.HALF_OPEN])
def test_a_parents_permit_means_nothing_in_the_child(state: State, make: Any) -> None:
    breaker = make(state)
    held = [breaker.acquire() for _ in range(4)]

    def child() -> None:
        breaker.try_now()
        mine = breaker.acquire()
        held[0].success()
        held[1].failure()
        held[2].exception(ValueError())
        held.clear()
        look = breaker.snapshot()
        assert State.HALF_OPEN is look.state
        assert 1 == look.counters.permits.in_flight == look.counters.permits.issued
        assert 0 == look.counters.abandoned == look.counters.successes == look.counters.failures
        assert not mine.settled
        mine.success()
        assert 1 == breaker.snapshot().counters.trial_successes

    in_child(child)
    assert 4 == breaker.snapshot().counters.permits.in_flight
    held.clear()
    assert 4 == breaker.snapshot().counters.abandoned


@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_inside_of_a_trial_call_ends_well_in_both(make: Any) -> None:
    breaker = make(State.HALF_OPEN)

    with breaker.acquire():

        def child() -> None:
            assert "x" == breaker.call(lambda: "x")
            assert State.CLOSED is breaker.state

        in_child(child)
        assert "guest" == breaker.call(lambda: "guest")

    assert 1 == breaker.snapshot().counters.trial_successes


@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_the_timer_works_in_a_forked_child() -> None:
    breaker = CircuitBreaker("timed", wait_in_open=0.05, automatic_half_open=True)
    breaker.trip()

    def child() -> None:
        breaker.trip()
        until = time.monotonic() + 40
        while breaker._circuit.state.kind is not State.HALF_OPEN:
            assert time.monotonic() < until
            time.sleep(0.005)

    in_child(child)
