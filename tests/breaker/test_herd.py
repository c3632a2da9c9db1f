"""At the instant the wait ends 500 callers come at once: N reach the dependency, the others wait for nothing."""

from __future__ import annotations

import asyncio
import statistics
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from time import perf_counter
from typing import Any

import pytest

from halfopen import CircuitBreaker, CircuitOpenError, HalfOpen, State
from halfopen.testing import FakeClock

CALLERS = 500
ROUNDS = 40
N = 3
MICROSECOND = 1e-6


class Dependency:
    """Counts who reaches it, and keeps them until everybody else has been refused."""

    def __init__(self, refused_by_all: int) -> None:
        self.lock = threading.Lock()
        self.everybody = refused_by_all
        self.open_again()

    def open_again(self) -> None:
        self.reached = 0
        self.refusals: list[float] = []
        self.reasons: set[str] = set()
        self.all_refused = threading.Event()

    def arrive(self) -> None:
        with self.lock:
            self.reached += 1

    def refused(self, error: CircuitOpenError, seconds: float) -> None:
        self.refusals.append(seconds)
        self.reasons.add(error.reason)
        if len(self.refusals) >= self.everybody:
            self.all_refused.set()

    # Called by the guarded calls

    def work(self) -> int:
        self.arrive()
        assert self.all_refused.wait(60)
        return 1

    def items(self) -> Iterator[int]:
        yield self.work()

    async def awork(self) -> int:
        self.arrive()
        while not self.all_refused.is_set():
            await asyncio.sleep(0.0005)
        return 1

    async def aitems(self) -> AsyncIterator[int]:
        yield await self.awork()


def make_breaker(clock: FakeClock) -> CircuitBreaker:
    return CircuitBreaker("herd", clock=clock, wait_in_open=30.0, half_open=HalfOpen(permitted_calls=N))


def sync_callers(breaker: CircuitBreaker, dependency: Dependency) -> dict[str, Callable[[], object]]:
    def block() -> None:
        with breaker.acquire():
            dependency.work()

    guarded_items = breaker(dependency.items)
    return {
        "decorator": breaker(dependency.work),
        "block": block,
        "generator": lambda: list(guarded_items()),
        "call": lambda: breaker.call(dependency.work),
    }


def async_callers(breaker: CircuitBreaker, dependency: Dependency) -> dict[str, Callable[[], Awaitable[object]]]:
    async def block() -> None:
        with breaker.acquire():
            await dependency.awork()

    guarded_items = breaker(dependency.aitems)

    async def stream() -> list[int]:
        return [item async for item in guarded_items()]

    return {
        "decorator": breaker(dependency.awork),
        "block": block,
        "generator": stream,
        "acall": lambda: breaker.acall(dependency.awork),
    }


class Threads:
    """So many threads that make the same call in each round."""

    def __init__(self, number: int, others: int, dependency: Dependency) -> None:
        self.call: Callable[[], object] = int
        self.dependency = dependency
        self.start = threading.Barrier(number + others)
        self.end = threading.Barrier(number + others)
        self.over = False
        self.threads = [threading.Thread(target=self._run) for _ in range(number)]
        for thread in self.threads:
            thread.start()

    def _run(self) -> None:
        while True:
            self.start.wait(60)
            if self.over:
                return
            began = perf_counter()
            try:
                self.call()
            except CircuitOpenError as error:
                self.dependency.refused(error, perf_counter() - began)
            self.end.wait(60)

    def stop(self) -> None:
        self.over = True
        self.start.wait(60)
        for thread in self.threads:
            thread.join(60)


async def run_tasks(number: int, call: Callable[[], Awaitable[object]], dependency: Dependency) -> None:
    async def caller() -> None:
        began = perf_counter()
        try:
            await call()
        except CircuitOpenError as error:
            dependency.refused(error, perf_counter() - began)

    await asyncio.gather(*(caller() for _ in range(number)))


class Herd:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.breaker = make_breaker(self.clock)
        self.dependency = Dependency(CALLERS - N)
        self.medians: list[float] = []

    def open(self) -> None:
        self.breaker.trip(30.0)
        self.dependency.open_again()
        self.clock.advance(30.0)

    def check(self) -> None:
        assert N == self.dependency.reached
        assert CALLERS - N == len(self.dependency.refusals)
        assert {"trial_budget"} == self.dependency.reasons
        assert State.CLOSED is self.breaker.state
        self.medians.append(statistics.median(self.dependency.refusals))

    def verdict(self, record: Callable[[str, object], None]) -> None:
        # The best half of the rounds: in the others this machine had something else to do.
        typical = statistics.median(sorted(self.medians)[: ROUNDS // 2])
        record("refusal_microseconds", round(typical / MICROSECOND, 2))
        # Who waited for anybody would take thousands of times longer; on a slow machine everything takes longer.
        assert typical < max(10 * MICROSECOND, 40 * bare_refusal())


def bare_refusal() -> float:
    """Return the seconds that raising and catching the error takes here."""

    def refuse() -> None:
        raise CircuitOpenError("herd", "half_open", "trial_budget", None)

    seconds = []
    for _ in range(1000):
        began = perf_counter()
        with suppress(CircuitOpenError):
            refuse()
        seconds.append(perf_counter() - began)
    return statistics.median(seconds)


@pytest.mark.parametrize("style", ["decorator", "block", "generator", "call"])
def test_on_threads_only_n_reach_the_dependency(style: str, record_property: Any) -> None:
    herd = Herd()
    threads = Threads(CALLERS, 1, herd.dependency)
    threads.call = sync_callers(herd.breaker, herd.dependency)[style]

    try:
        for _ in range(ROUNDS):
            herd.open()
            threads.start.wait(60)
            threads.end.wait(60)
            herd.check()
    finally:
        threads.stop()

    herd.verdict(record_property)


@pytest.mark.parametrize("style", ["decorator", "block", "generator", "acall"])
def test_on_tasks_only_n_reach_the_dependency(style: str, record_property: Any) -> None:
    herd = Herd()
    call = async_callers(herd.breaker, herd.dependency)[style]

    async def rounds() -> None:
        for _ in range(ROUNDS):
            herd.open()
            await run_tasks(CALLERS, call, herd.dependency)
            herd.check()

    asyncio.run(rounds())

    herd.verdict(record_property)


@pytest.mark.parametrize("style", ["decorator", "block", "generator", "acall"])
def test_on_threads_and_tasks_at_once_only_n_reach_the_dependency(style: str, record_property: Any) -> None:
    herd = Herd()
    threads = Threads(CALLERS // 2, 1, herd.dependency)
    threads.call = sync_callers(herd.breaker, herd.dependency)["call" if style == "acall" else style]
    call = async_callers(herd.breaker, herd.dependency)[style]

    async def rounds() -> None:
        for _ in range(ROUNDS):
            herd.open()
            threads.start.wait(60)
            await run_tasks(CALLERS // 2, call, herd.dependency)
            threads.end.wait(60)
            herd.check()

    try:
        asyncio.run(rounds())
    finally:
        threads.stop()

    herd.verdict(record_property)
