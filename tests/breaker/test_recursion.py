"""A call made from inside a trial call belongs to it, and to nobody else's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from halfopen import CircuitBreaker, CircuitOpenError, HalfOpen, State, in_trial
from halfopen._runtime import trials


def drive(coroutine: Any) -> Any:
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waited")


async def consume(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


Work = Callable[[], Any]


def styles(breaker: CircuitBreaker) -> dict[str, Callable[[Work], Any]]:
    """Return how to run something inside of a guarded call, by style."""

    async def arun(work: Work) -> Any:
        return work()

    def items(work: Work) -> Iterator[Any]:
        yield work()

    async def aitems(work: Work) -> AsyncIterator[Any]:
        yield work()

    def block(work: Work) -> Any:
        with breaker.acquire():
            return work()

    return {
        "decorator": breaker(lambda work: work()),
        "call": breaker.call,
        "coroutine": lambda work: drive(breaker(arun)(work)),
        "acall": lambda work: drive(breaker.acall(arun, work)),
        "generator": lambda work: next(iter([*breaker(items)(work)])),
        "async generator": lambda work: drive(consume(breaker(aitems)(work)))[0],
        "block": block,
    }


STYLES = ["decorator", "call", "coroutine", "acall", "generator", "async generator", "block"]


@pytest.fixture
def breaker(make: Any) -> CircuitBreaker:
    made: CircuitBreaker = make(State.HALF_OPEN, half_open=HalfOpen(permitted_calls=1, trial_timeout=1000.0))
    return made


@pytest.mark.parametrize("outer", STYLES)
@pytest.mark.parametrize("inner", STYLES)
def test_recursion_in_every_style_is_admitted_and_settles_once(
    breaker: CircuitBreaker, balanced: Any, outer: str, inner: str
) -> None:
    run = styles(breaker)

    got = run[outer](lambda: run[inner](lambda: run[outer](lambda: "deep")))

    look = balanced(breaker)
    assert "deep" == got
    assert State.CLOSED is look.state
    assert (1, 0, 1) == (look.counters.successes, look.counters.failures, look.counters.trial_successes)
    assert {} == look.counters.rejected
    assert not in_trial()


@pytest.mark.parametrize("outer", STYLES)
@pytest.mark.parametrize("inner", STYLES)
def test_a_failure_inside_that_is_handled_does_not_count(
    breaker: CircuitBreaker, balanced: Any, outer: str, inner: str
) -> None:
    run = styles(breaker)

    def fail() -> None:
        raise ValueError("inner")

    def handle() -> str:
        with pytest.raises(ValueError, match="inner"):
            run[inner](fail)
        return "handled"

    assert "handled" == run[outer](handle)
    look = balanced(breaker)
    assert (State.CLOSED, 0) == (look.state, look.counters.failures)


@pytest.mark.parametrize("outer", STYLES)
def test_inside_is_known_and_ends(breaker: CircuitBreaker, outer: str) -> None:
    run = styles(breaker)

    inside = run[outer](in_trial)

    assert (True, False) == (inside, in_trial())
    assert () == trials._ENCLOSING.get()  # not even as something that is over


def test_a_bare_permit_opens_no_inside(breaker: CircuitBreaker) -> None:
    permit = breaker.acquire()

    assert not in_trial()
    with pytest.raises(CircuitOpenError):
        breaker.call(int)
    permit.success()


def test_another_breaker_inside_has_trial_calls_of_its_own(breaker: CircuitBreaker, make: Any) -> None:
    other = make(State.HALF_OPEN, half_open=HalfOpen(permitted_calls=1))

    assert "x" == breaker.call(other.call, lambda: "x")

    assert (State.CLOSED, State.CLOSED) == (breaker.state, other.state)
    assert 0 == other.snapshot().counters.guests


def test_a_new_round_does_not_know_the_trial_calls_of_the_last(breaker: CircuitBreaker) -> None:
    breaker.try_now()
    with breaker.acquire():
        breaker.try_now()
        own = breaker.acquire()
        with pytest.raises(CircuitOpenError):
            breaker.acquire()
        own.success()

    look = breaker.snapshot()
    assert State.CLOSED is look.state
    assert 1 == look.counters.late_results


def test_the_consumer_of_a_generator_is_not_inside_of_it(breaker: CircuitBreaker) -> None:
    @breaker
    def items() -> Iterator[bool]:
        yield in_trial()
        yield in_trial()

    streaming = items()
    assert next(streaming)
    assert not in_trial()
    with pytest.raises(CircuitOpenError):
        breaker.call(int)
    assert [True] == list(streaming)
    assert State.CLOSED is breaker.state


def test_the_consumer_of_an_async_generator_is_not_inside_of_it(breaker: CircuitBreaker) -> None:
    @breaker
    async def items() -> AsyncIterator[bool]:
        yield in_trial()
        yield in_trial()

    async def consumer() -> None:
        seen = []
        async for item in items():
            seen.append(item)
            assert not in_trial()
            if breaker.state is State.HALF_OPEN:
                with pytest.raises(CircuitOpenError):
                    breaker.call(int)
        assert [True, True] == seen

    drive(consumer())
    assert State.CLOSED is breaker.state


def test_another_thread_is_outside(breaker: CircuitBreaker) -> None:
    outcomes: list[str] = []

    def other() -> None:
        outcomes.append(str(in_trial()))
        try:
            breaker.call(int)
        except CircuitOpenError as refused:
            outcomes.append(refused.reason)

    def work() -> None:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    breaker.call(work)

    assert ["False", "trial_budget"] == outcomes


@pytest.mark.anyio
async def test_tasks_started_inside_are_inside_and_others_are_not(breaker: CircuitBreaker, balanced: Any) -> None:
    outcomes: list[str] = []

    async def nested(name: str) -> None:
        await anyio.sleep(0)
        try:
            await breaker.acall(anyio.sleep, 0)
            outcomes.append(f"{name} admitted")
        except CircuitOpenError:
            outcomes.append(f"{name} refused")

    async def trial() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(nested, "child")
            group.start_soon(nested, "child")
            started.set()
            await let_go.wait()

    started, let_go = anyio.Event(), anyio.Event()
    guarded = breaker(trial)
    async with anyio.create_task_group() as group:
        group.start_soon(guarded)
        await started.wait()
        await nested("stranger")
        await anyio.wait_all_tasks_blocked()
        let_go.set()

    assert ["child admitted", "child admitted", "stranger refused"] == sorted(outcomes)
    assert State.CLOSED is breaker.state
    assert 1 == balanced(breaker).counters.successes


@pytest.mark.anyio
async def test_work_moved_to_a_thread_stays_inside(breaker: CircuitBreaker) -> None:
    async def trial() -> bool:
        return await anyio.to_thread.run_sync(lambda: breaker.call(in_trial))

    assert await breaker.acall(trial)
    assert State.CLOSED is breaker.state


def test_a_task_that_outlives_its_trial_call_is_outside(breaker: CircuitBreaker) -> None:
    async def scenario() -> list[Any]:
        over = asyncio.Event()

        async def straggler() -> Any:
            await over.wait()
            breaker.trip()
            inside = in_trial()
            try:
                return inside, breaker.call(int)
            except CircuitOpenError as refused:
                return inside, refused.reason

        async def trial() -> Any:
            return asyncio.create_task(straggler())

        task = await breaker.acall(trial)
        over.set()
        return [await task]

    assert [(False, "open")] == asyncio.run(scenario())


def test_an_interrupted_way_out_leaves_no_inside(breaker: CircuitBreaker, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(before: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(trials, "leave", interrupted)
    try:
        with breaker.acquire():
            pass
    except KeyboardInterrupt:
        pass
    monkeypatch.undo()

    assert not in_trial()
    assert "x" == breaker.call(lambda: "x")
    look = breaker.snapshot()
    assert (State.CLOSED, 0) == (look.state, look.counters.guests)


def test_ways_out_that_were_interrupted_pile_nothing_up(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    breaker = make(State.HALF_OPEN)
    monkeypatch.setattr(trials, "leave", lambda before: None)  # as if an interrupt had come before it

    for _ in range(9):
        with breaker.acquire():
            pass

    assert 1 == len(trials._ENCLOSING.get())
    trials._ENCLOSING.set(())


def test_blocks_in_generators_leave_their_consumer_where_it_was(breaker: CircuitBreaker) -> None:
    @contextmanager
    def session() -> Iterator[None]:
        with breaker.acquire():
            yield

    with session():
        assert in_trial()
        assert "x" == breaker.call(lambda: "x")
    assert not in_trial()
    assert State.CLOSED is breaker.state
