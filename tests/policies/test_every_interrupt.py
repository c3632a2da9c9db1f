"""An interrupt wherever CPython can deliver one: nobody stays in line for ever, and no place is lost."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest

from halfopen._core.slots import Ticket
from halfopen.adaptive_concurrency import AdaptiveConcurrency
from halfopen.bulkhead import Bulkhead
from halfopen.errors import BulkheadFullError
from halfopen.hedge import Hedge
from halfopen.rate_limiter import RateLimiter
from halfopen.retry import Retry, attempt
from halfopen.timeout import Timeout, time_left
from tests.policies.interrupting import Interrupt, at_place

pytestmark = [
    pytest.mark.skipif(sys.implementation.name != "cpython", reason="counts CPython's places"),
    # What hits a finalizer is reported there and goes no further.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PATIENCE = 30.0


def interrupt() -> None:
    raise Interrupt


class Recorder:
    """Somebody in line who is woken, or not."""

    def __init__(self) -> None:
        self.woken = 0

    @classmethod
    def ticket(cls) -> Ticket:
        return Ticket(cls())

    def wake(self) -> bool:
        self.woken += 1
        return True


@contextmanager
def meanwhile(waiting: Callable[[], bool], then: Callable[[], object]) -> Iterator[None]:
    """Once *waiting()* is true, or the block is over, do *then* on another thread."""
    over = threading.Event()

    def run() -> None:
        end = time.monotonic() + PATIENCE
        while not (over.is_set() or waiting()):
            assert time.monotonic() < end
            time.sleep(0.0001)
        then()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def places(run: Callable[[int], bool], least: int = 15) -> None:
    """Call *run* with 0, 1, 2 … until it says that there is no such place; that it got far is part of the test."""
    number = 0
    while run(number):
        number += 1
    assert number > least


def block(policy: Any) -> None:
    with policy.acquire():
        pass


def call(policy: Any) -> None:
    policy.call(int)


styles = pytest.mark.parametrize("use", [call, block])


@styles
def test_one_interrupted_in_the_line_of_a_rate_limiter_wakes_who_stands_behind(use: Callable[[Any], None]) -> None:
    def run(number: int) -> bool:
        limiter: Any = RateLimiter("geo", 1e6, burst=1, max_wait=60)
        meter = limiter._meter
        ahead, behind = Recorder.ticket(), Recorder.ticket()
        meter.line_up(0.0, ahead, None)

        def go_on() -> None:
            meter.line_up(0.0, behind, None)
            meter._leave_line(ahead)

        with meanwhile(lambda: meter.line.waiting == 2, go_on):
            reached = at_place(number, lambda: use(limiter), interrupt)

        assert (number, behind, 1) == (number, meter.line.first(), meter.line.waiting)
        assert behind.waker.woken >= 1, number
        return reached

    places(run)


@styles
def test_one_interrupted_in_the_line_of_a_bulkhead_leaves_its_place_to_who_stands_behind(
    use: Callable[[Any], None],
) -> None:
    def run(number: int) -> bool:
        bulkhead: Any = Bulkhead("shop", 1, max_waiting=5)
        pool = bulkhead._pool
        holder, behind = Recorder.ticket(), Recorder.ticket()
        pool.enter(holder)

        def go_on() -> None:
            with pool.lock:
                pool.enter(behind)
            pool.let_go(holder)

        with meanwhile(lambda: pool.line.waiting == 1, go_on):
            reached = at_place(number, lambda: use(bulkhead), interrupt)

        gc.collect(1)
        pool.wake()
        assert (number, 1, 0, True) == (number, pool.in_use, pool.line.waiting, behind.granted)
        assert behind.waker.woken >= 1, number
        return reached

    places(run)


@styles
def test_one_interrupted_when_its_wait_is_over_leaves_the_line(use: Callable[[Any], None]) -> None:
    def run(number: int) -> bool:
        bulkhead: Any = Bulkhead("shop", 1, max_waiting=5, max_wait=0.0001)
        pool = bulkhead._pool
        holder, behind = Recorder.ticket(), Recorder.ticket()
        pool.enter(holder)

        def attempt() -> None:
            with suppress(BulkheadFullError):
                use(bulkhead)

        reached = at_place(number, attempt, interrupt)

        assert (number, 1, 0) == (number, pool.in_use, pool.line.waiting)
        pool.enter(behind)
        pool.let_go(holder)
        assert (number, True, 1) == (number, behind.granted, behind.waker.woken)
        return reached

    places(run)


@styles
@pytest.mark.parametrize("make", [lambda: Bulkhead("shop", 2), lambda: AdaptiveConcurrency("shop")])
def test_one_interrupted_anywhere_gives_its_place_back(make: Callable[[], Any], use: Callable[[Any], None]) -> None:
    def run(number: int) -> bool:
        policy = make()

        reached = at_place(number, lambda: use(policy), interrupt)

        gc.collect(1)
        assert (number, 0) == (number, policy.snapshot().in_use)
        return reached

    places(run, least=3)


@pytest.mark.parametrize(
    "make", [lambda: Timeout("t", 60, worker_thread=True, max_threads=1), lambda: Hedge("h", 60, max_threads=1)]
)
def test_one_interrupted_anywhere_loses_no_worker_thread(make: Callable[[], Any]) -> None:
    policy = make()
    policy.call(int)

    def run(number: int) -> bool:
        end = time.monotonic() + PATIENCE
        while policy._threads.running:
            assert time.monotonic() < end, number
            time.sleep(0.0001)

        def attempt() -> None:
            with suppress(RuntimeError):  # so a Thread's own start() answers to an interrupt in the midst of it
                policy.call(int)

        return at_place(number, attempt, interrupt)

    places(run)


@pytest.mark.parametrize(
    "use",
    [
        partial(Timeout("t", 60).call, int),
        partial(Timeout("t", 60, trial=30).call, int),
        partial(Timeout("t", 60, worker_thread=True).call, int),
    ],
    ids=["call", "with a trial's limit", "on a thread"],
)
def test_one_interrupted_anywhere_leaves_no_deadline_behind(use: Callable[[], object]) -> None:
    left: list[float | None] = []

    def attempt() -> None:
        try:
            with suppress(RuntimeError):
                use()
        finally:
            left.append(time_left())

    places(lambda number: at_place(number, attempt, interrupt), least=3)

    assert len(left) > 3
    assert {None} == set(left)


class Twice:
    """Fails at first, and notes what it was told at its last attempt."""

    def __init__(self) -> None:
        self.attempts: list[int] = []

    def __call__(self) -> None:
        self.attempts.append(attempt())
        if self.attempts[-1] == 1:
            raise ConnectionError


@pytest.mark.parametrize("total", [None, 60.0])
def test_one_interrupted_anywhere_leaves_no_attempt_behind(total: float | None) -> None:
    retry = Retry("r", attempts=3, on=ConnectionError, backoff=0.0, total=total)
    left: list[tuple[int, float | None]] = []
    reached: list[int] = []

    def use() -> None:
        dependency = Twice()
        try:
            retry.call(dependency)
        finally:
            left.append((attempt(), time_left()))
            reached.append(len(dependency.attempts))

    places(lambda number: at_place(number, use, interrupt))

    assert {0, 1, 2} == set(reached)
    assert {(1, None)} == set(left)
