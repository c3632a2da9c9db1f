"""Coroutines, async generators, blocks and permits on asyncio and on trio."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from halfopen import CircuitBreaker, CircuitOpenError, HalfOpen, State

pytestmark = pytest.mark.anyio
each_state = pytest.mark.parametrize("state", [State.CLOSED, State.HALF_OPEN, State.METRICS_ONLY])


@each_state
async def test_every_style_waits_and_returns(make: Any, counted: Any, balanced: Any, state: State) -> None:
    breaker = make(state)

    async def work(value: int) -> int:
        await anyio.sleep(0)
        return value

    async def stream(limit: int) -> AsyncIterator[int]:
        for number in range(limit):
            await anyio.sleep(0)
            yield number

    guarded, guarded_stream = breaker(work), breaker(stream)

    assert 1 == await guarded(1)
    assert 2 == await breaker.acall(work, 2)
    assert [0, 1, 2] == [item async for item in guarded_stream(3)]
    assert [0, 1] == [item async for item in breaker.call(stream, 2)]
    with breaker.acquire() as permit:
        permit.result(await work(3))
    breaker.acquire().success()

    assert (6, 0, 0) == counted(breaker)
    balanced(breaker)


@each_state
async def test_many_tasks_interleave(make: Any, balanced: Any, state: State) -> None:
    breaker = make(state, half_open=HalfOpen(permitted_calls=100))
    answers: list[int] = []

    @breaker
    async def work(value: int) -> int:
        await anyio.sleep(0)
        return value

    async def caller(value: int) -> None:
        answers.append(await work(value))

    async with anyio.create_task_group() as group:
        for value in range(100):
            group.start_soon(caller, value)

    assert list(range(100)) == sorted(answers)
    assert 100 == balanced(breaker).counters.successes


async def test_a_refused_call_never_suspends(make: Any) -> None:
    breaker = make(State.OPEN)
    ran: list[str] = []

    async def other() -> None:
        ran.append("other")

    @breaker
    async def work() -> None: ...

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        for call in (work, lambda: breaker.acall(work)):
            with pytest.raises(CircuitOpenError):
                await call()
        assert [] == ran


async def test_admission_happens_when_the_coroutine_runs_not_when_it_is_made(make: Any) -> None:
    breaker = make(State.CLOSED)

    @breaker
    async def work() -> str:
        return "ran"

    made = work()
    breaker.trip()
    with pytest.raises(CircuitOpenError):
        await made
    made = work()
    breaker.reset()

    assert "ran" == await made


@each_state
async def test_the_context_of_the_caller_is_the_one_of_the_call(make: Any, state: State) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    breaker = make(state)

    @breaker
    async def work() -> str:
        seen = variable.get()
        variable.set("from inside")
        return seen

    variable.set("from outside")

    assert "from outside" == await work()
    assert "from inside" == variable.get()


@each_state
async def test_a_task_group_that_fails_passes_its_group_on(make: Any, counted: Any, state: State) -> None:
    breaker = make(state)

    async def fail() -> None:
        raise ValueError("x")

    @breaker
    async def work() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(fail)
            await anyio.sleep_forever()

    with pytest.raises(ExceptionGroup) as raised:
        await work()

    assert raised.group_contains(ValueError, match="x")
    assert (0, 1, 0) == counted(breaker)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_asyncio_makes_tasks_of_guarded_coroutines(make: Any, counted: Any, anyio_backend: str) -> None:
    breaker = make(State.CLOSED)

    @breaker
    async def work(value: int) -> int:
        await asyncio.sleep(0)
        return value

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work(value)) for value in range(5)]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(breaker.acall(asyncio.sleep, 60), 0.001)

    assert list(range(5)) == [task.result() for task in tasks]
    assert (5, 0, 1) == counted(breaker)


async def test_a_breaker_of_another_loop_is_the_same_breaker(make: Any, anyio_backend: Any) -> None:
    breaker: CircuitBreaker = make(State.CLOSED)

    async def work() -> None:
        await anyio.sleep(0)

    guarded = breaker(work)
    await guarded()
    await anyio.to_thread.run_sync(lambda: anyio.run(guarded, backend="trio"))
    await anyio.to_thread.run_sync(lambda: anyio.run(guarded, backend="asyncio"))

    assert 3 == breaker.snapshot().counters.successes
