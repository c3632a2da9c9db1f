"""
What mypy --strict and pyright strict must see of the breaker; checked, never run.

A comment that ignores an error keeps it: `warn_unused_ignores` and pyright's `reportUnnecessaryTypeIgnoreComment`
complain as soon as a wrong call is not seen as wrong any more.
"""
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
# pyright: reportUnusedCoroutine=false, reportUnusedFunction=false, reportUnusedClass=false

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar, assert_type

from halfopen import (
    Call,
    CallFailed,
    CircuitBreaker,
    CircuitOpenError,
    CircuitTransitioned,
    CountWindow,
    Event,
    Failures,
    HalfOpen,
    Outcome,
    Override,
    Permit,
    Ramp,
    Snapshot,
    State,
    TimeWindow,
    constant,
    exponential,
    failed_status,
)
from halfopen.testing import FakeClock, RecordedEvents, put_into, record_events
from halfopen.typing import Classified, Classifier, Clock, Policy

breaker = CircuitBreaker("typed")
T = TypeVar("T")


# Decorated functions keep their types


@breaker
def pay(amount: int, /, account: str, *, currency: str = "EUR") -> float:
    return float(amount)


@breaker
async def apay(amount: int, *, currency: str = "EUR") -> float:
    return float(amount)


@breaker
def rows(limit: int) -> Iterator[str]:
    yield "row"


@breaker
def talk(first: int) -> Generator[int, str, bytes]:
    got = yield first
    return got.encode()


@breaker
async def arows(limit: int) -> AsyncIterator[str]:
    yield "row"


@breaker
def generic(value: T, *rest: int, **more: str) -> list[T]:
    return [value]


class Bank:
    @breaker
    def method(self, amount: int) -> str:
        return str(amount)

    @breaker
    async def amethod(self, amount: int) -> str:
        return str(amount)

    @classmethod
    @breaker
    def open(cls, name: str) -> Bank:
        return cls()

    @staticmethod
    @breaker
    def rate(currency: str) -> float:
        return 1.0

    @property
    @breaker
    def balance(self) -> int:
        return 1


def functions() -> None:
    assert_type(pay(3, "account", currency="USD"), float)
    assert_type(pay(3, account="account"), float)
    assert_type(rows(3), Iterator[str])
    assert_type(talk(3), Generator[int, str, bytes])
    assert_type(arows(3), AsyncIterator[str])
    assert_type(generic("x", 1, 2, key="value"), list[str])

    pay("3", "account")  # type: ignore[arg-type]
    pay(3)  # type: ignore[call-arg]
    pay(amount=3, account="account")  # type: ignore[call-arg]
    pay(3, "account", currency=3)  # type: ignore[arg-type]
    pay(3, "account", "EUR")  # type: ignore[call-arg]
    pay(3, "account", nothing=1)  # type: ignore[call-arg]
    rows("3")  # type: ignore[arg-type]
    arows()  # type: ignore[call-arg]
    generic(1, "2")  # type: ignore[arg-type]


async def coroutines() -> None:
    # A decorated coroutine function still makes coroutines, not mere awaitables.
    coroutine: Coroutine[Any, Any, float] = apay(3)
    assert_type(await coroutine, float)
    assert_type(await apay(3), float)
    assert_type(asyncio.create_task(apay(3)), "asyncio.Task[float]")
    async with asyncio.TaskGroup() as group:
        assert_type(group.create_task(apay(3, currency="USD")), "asyncio.Task[float]")
    assert_type(asyncio.run(apay(3)), float)
    assert_type(await asyncio.gather(apay(1), apay(2)), tuple[float, float])
    assert_type([row async for row in arows(3)], list[str])

    await apay("3")  # type: ignore[arg-type]
    await apay()  # type: ignore[call-arg]
    await apay(3, currency=4)  # type: ignore[arg-type]


def methods(bank: Bank) -> None:
    assert_type(bank.method(3), str)
    coroutine: Coroutine[Any, Any, str] = bank.amethod(3)
    del coroutine
    assert_type(Bank.open("x"), Bank)
    assert_type(bank.rate("EUR"), float)
    assert_type(bank.balance, int)

    bank.method("3")  # type: ignore[arg-type]
    bank.method()  # type: ignore[call-arg]
    Bank.open(3)  # type: ignore[arg-type]
    Bank.rate(3)  # type: ignore[arg-type]


def made(fn: Callable[[int, str], bytes], afn: Callable[[int], Awaitable[bytes]]) -> None:
    assert_type(breaker(fn), Callable[[int, str], bytes])
    assert_type(breaker(afn), Callable[[int], Awaitable[bytes]])
    assert_type(breaker(partial(fn, 3)), "partial[bytes]")
    breaker(3)  # type: ignore[type-var]
    breaker("fn")  # type: ignore[type-var]


# call and acall


async def calls() -> None:
    assert_type(breaker.call(pay, 3, "account", currency="USD"), float)
    assert_type(breaker.call(rows, 3), Iterator[str])
    assert_type(breaker.call(Bank().method, 3), str)
    assert_type(breaker.call(lambda: 3), int)
    assert_type(await breaker.acall(apay, 3, currency="USD"), float)
    assert_type(asyncio.create_task(breaker.acall(apay, 3)), "asyncio.Task[float]")

    breaker.call(pay, "3", "account")  # type: ignore[arg-type]
    breaker.call(pay, 3)  # type: ignore[call-arg]
    breaker.call(pay, 3, "account", money=1)  # type: ignore[call-arg]
    breaker.call(3)  # type: ignore[arg-type]
    await breaker.acall(apay, "3")  # type: ignore[arg-type]
    await breaker.acall(pay, 3, "account")  # type: ignore[arg-type]


# Blocks and permits


def blocks() -> None:
    with breaker.acquire() as permit:
        assert_type(permit, Permit)
        assert_type(permit.settled, bool)
        assert_type(permit.trial, bool)
        assert_type(permit.began, float)
        permit.result(object())
    permit = breaker.acquire(Call(label="read"))
    permit.success()
    permit.failure(ValueError(), retry_after=3.0)
    permit.ignore()
    permit.exception(ValueError())
    manager: AbstractContextManager[Permit] = permit
    del manager

    breaker.acquire("read")  # type: ignore[arg-type]
    permit.failure(retry_after="3")  # type: ignore[arg-type]
    permit.exception("x")  # type: ignore[arg-type]
    permit.settled = True  # type: ignore[misc]


def reachable() -> int:
    """A block does not swallow, so what follows a return in it is never reached and nothing is missing here."""
    with breaker.acquire():
        return 3


# Construction


def settings() -> None:
    CircuitBreaker(
        "all",
        window=TimeWindow(60, 12),
        minimum_calls=20,
        failure_rate_threshold=None,
        slow_call_rate_threshold=0.9,
        slow_call_duration=2,
        failure_count_threshold=5,
        consecutive_failures=3,
        wait_in_open=exponential(30, 2, 600, jitter=0.1),
        forget_after=0,
        half_open=HalfOpen(permitted_calls=3, eligible=lambda call: call.label == "write"),
        ramp=Ramp(duration=60, start=0.1, aggression=1.0),
        classify=Failures(on=(OSError, lambda error: "ill" in str(error)), ignore=KeyError, result=failed_status),
        automatic_half_open=True,
        tags={"team": "edi"},
        clock=FakeClock(),
        rng=random.Random(1),
    )
    CircuitBreaker("window", window=CountWindow(10), wait_in_open=constant(3))
    CircuitBreaker("number", wait_in_open=3.5)
    CircuitBreaker("own", wait_in_open=lambda step, rng: step * rng.random())

    CircuitBreaker()  # type: ignore[call-arg]
    CircuitBreaker(3)  # type: ignore[arg-type]
    CircuitBreaker("x", CountWindow(10))  # type: ignore[call-arg]
    CircuitBreaker("x", window=10)  # type: ignore[arg-type]
    CircuitBreaker("x", failure_rate_threshold="50 %")  # type: ignore[arg-type]
    CircuitBreaker("x", wait_in_open="30")  # type: ignore[arg-type]
    CircuitBreaker("x", classify=Failures)  # type: ignore[arg-type]
    CircuitBreaker("x", unknown=1)  # type: ignore[call-arg]
    HalfOpen(3)  # type: ignore[call-arg]
    HalfOpen(eligible=lambda call: call.nothing)  # type: ignore[attr-defined]
    Failures(on=3)  # type: ignore[arg-type]


# Orders and looks


def orders() -> None:
    assert_type(breaker.force_open(until=3.0, reason="why", by="who"), Override)
    breaker.disable(until=timedelta(minutes=3))
    breaker.observe(until=datetime.now(UTC))
    with breaker.force_open() as override:
        assert_type(override, Override)
    breaker.trip(wait=3.0)
    breaker.trip()
    breaker.reset(reason="why")
    breaker.try_now(by="who")
    breaker.configure(minimum_calls=3)

    breaker.force_open(until="tomorrow")  # type: ignore[arg-type]
    breaker.trip("3")  # type: ignore[arg-type]


def looks() -> None:
    assert_type(breaker.state, State)
    assert_type(breaker.name, str)
    assert_type(breaker.snapshot(), Snapshot)
    assert_type(breaker.snapshot().remaining_wait, float | None)
    assert_type(breaker.history, tuple[CircuitTransitioned, ...])
    assert_type(breaker.explain(), str)
    breaker.restore(breaker.snapshot())
    breaker.restore(breaker.snapshot().plain())

    breaker.state = State.OPEN  # type: ignore[misc]
    print(breaker.nothing)  # type: ignore[attr-defined]


def errors(refused: CircuitOpenError) -> None:
    assert_type(refused.name, str)
    assert_type(refused.state, str)
    assert_type(refused.reason, str)
    assert_type(refused.retry_after, float | None)


# Listeners


def on_failure(event: CallFailed) -> None:
    assert_type(event.error, str | None)


def on_anything(event: Event) -> None:
    assert_type(event.at, float)


def listeners() -> None:
    leave = breaker.subscribe(on_failure, CallFailed)
    assert_type(leave, Callable[[], None])
    breaker.subscribe(on_anything)
    breaker.subscribe(on_anything, CallFailed, CircuitTransitioned)
    breaker.subscribe(lambda event: print(event.error), CallFailed)

    breaker.subscribe(on_failure, CircuitTransitioned)  # type: ignore[arg-type]
    breaker.subscribe(3)  # type: ignore[arg-type]
    breaker.subscribe(on_anything, int)  # type: ignore[arg-type, type-var]


# What users implement


class Mine:
    def of_exception(self, error: Exception, /) -> Classified:
        return Outcome.FAILURE, 3.0

    def of_result(self, value: Any, /) -> Classified:
        return Outcome.SUCCESS


class NotMine:
    def of_exception(self, error: Exception, /) -> int:
        return 3


def protocols() -> None:
    classifier: Classifier = Mine()
    classifier = Failures()
    clock: Clock = FakeClock()
    policy: Policy = breaker
    CircuitBreaker("x", classify=Mine(), clock=clock)
    assert_type(policy.call(pay, 3, "account"), float)
    coroutine: Coroutine[Any, Any, float] = policy(apay)(3)
    del coroutine
    del classifier

    CircuitBreaker("x", classify=NotMine())  # type: ignore[arg-type]
    CircuitBreaker("x", clock=3)  # type: ignore[arg-type]


# Testing tools


def tools() -> None:
    with record_events(breaker) as events:
        assert_type(events, RecordedEvents)
        assert_type(events.of(CallFailed), list[CallFailed])
        assert_type(events.kinds, list[str])
    assert_type(put_into(breaker, State.OPEN), CircuitBreaker)

    put_into(breaker, "open")  # type: ignore[arg-type]
    record_events(3)  # type: ignore[arg-type]
    FakeClock().advance("3")  # type: ignore[arg-type]
