from __future__ import annotations

import asyncio
import math
from typing import Any

import anyio
import pytest

from halfopen._core.states import State
from halfopen.circuit_breaker import CircuitBreaker
from halfopen.errors import CallTimeoutError
from halfopen.retry import Retry
from halfopen.testing import FakeClock, put_into
from halfopen.timeout import DeadlinePassedError, Timeout, deadline, time_left

pytestmark = pytest.mark.anyio


def outcomes(timeout: Timeout) -> dict[str, int]:
    return {str(outcome): number for outcome, number in timeout.snapshot().calls.items() if number}


async def hang() -> None:
    await anyio.sleep(math.inf)


async def settle() -> None:
    """Let every other task come as far as it can."""
    for _ in range(20):
        await anyio.sleep(0)


async def test_a_call_within_its_time_returns() -> None:
    timeout = Timeout("bank", 500)

    @timeout
    async def fn() -> bool:
        await anyio.sleep(0)
        left = time_left()
        return left is not None and 400 < left <= 500

    assert await fn()
    assert None is time_left()
    assert {"success": 1} == outcomes(timeout)


async def test_a_hanging_call_is_cancelled_at_its_time() -> None:
    timeout = Timeout("bank", 0.01)
    cleaned = []

    async def fn() -> None:
        try:
            await hang()
        finally:
            cleaned.append(True)

    with pytest.raises(CallTimeoutError) as caught:
        await timeout.acall(fn)

    assert ("bank", 0.01, [True]) == (caught.value.name, caught.value.seconds, cleaned)
    assert {"timeout": 1} == outcomes(timeout)
    await anyio.sleep(0)


async def test_a_fake_clock_decides_when() -> None:
    clock = FakeClock()
    timeout = Timeout("bank", 60, clock=clock)
    errors = []

    async def caller() -> None:
        try:
            await timeout.acall(hang)
        except CallTimeoutError as error:
            errors.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(caller)
        await settle()
        clock.advance(59.9)
        await settle()
        assert [] == errors
        clock.advance(0.1)

    assert 1 == len(errors)


async def test_a_cancellation_from_outside_passes_through() -> None:
    timeout = Timeout("bank", 60)

    with anyio.move_on_after(0.01) as scope:
        await timeout.acall(hang)

    assert scope.cancelled_caught
    assert ({}, 1) == (outcomes(timeout), timeout.snapshot().interrupted)


@pytest.mark.parametrize(("outer", "inner", "name"), [(0.01, 60, "outer"), (60, 0.01, "inner")])
async def test_of_nested_timeouts_the_one_that_fired_says_so(outer: float, inner: float, name: str) -> None:
    around, within = Timeout("outer", outer), Timeout("inner", inner)

    with pytest.raises(CallTimeoutError) as caught:
        await around.acall(within.acall, hang)

    assert name == caught.value.name
    assert {("timeout" if name == "outer" else "failure"): 1} == outcomes(around)
    if name == "inner":
        assert {"timeout": 1} == outcomes(within)


async def test_after_an_inner_timeout_the_outer_block_goes_on() -> None:
    around, within = Timeout("outer", 5), Timeout("inner", 0.01)

    async def fn() -> str:
        with pytest.raises(CallTimeoutError):
            await within.acall(hang)
        await anyio.sleep(0)
        return "fine"

    assert "fine" == await around.acall(fn)


async def test_an_ambient_deadline_that_is_nearer_cancels_and_is_named() -> None:
    timeout = Timeout("bank", 60)

    with deadline(0.01, name="request"), pytest.raises(CallTimeoutError) as caught:
        await timeout.acall(hang)

    assert ("request", 0.01) == (caught.value.name, caught.value.seconds)
    assert {"timeout": 1} == outcomes(timeout)


async def test_with_no_time_left_the_call_is_not_made() -> None:
    timeout = Timeout("bank", 60)

    with deadline(0), pytest.raises(DeadlinePassedError):
        await timeout.acall(pytest.fail)

    assert 1 == timeout.snapshot().refused


async def test_a_retry_tries_again_what_timed_out_but_not_beyond_the_total() -> None:
    clock = FakeClock()
    began: list[float] = []
    ended: list[Exception] = []
    retry = Retry("bank", on=TimeoutError, attempts=99, backoff=1, clock=clock)
    total, each = Timeout("total", 10, clock=clock), Timeout("each", 3, clock=clock)

    async def fn() -> None:
        began.append(clock.monotonic())
        await hang()

    async def caller() -> None:
        try:
            await total.acall(retry.acall, each.acall, fn)
        except CallTimeoutError as error:
            ended.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(caller)
        while not ended:
            await settle()
            clock.advance(0.5)

    assert [0.0, 4.0, 8.0] == began
    assert {"timeout": 1} == outcomes(total)


async def test_a_timeout_is_a_failure_for_the_breaker_around_it() -> None:
    breaker = CircuitBreaker("bank", consecutive_failures=1)

    with pytest.raises(CallTimeoutError):
        await breaker.acall(Timeout("bank", 0.01).acall, hang)

    assert State.OPEN == breaker.state


async def test_a_trial_call_may_have_less_time() -> None:
    breaker = CircuitBreaker("bank")
    put_into(breaker, State.HALF_OPEN)

    with pytest.raises(CallTimeoutError) as caught:
        await breaker.acall(Timeout("bank", 60, trial=0.01).acall, hang)

    assert 0.01 == caught.value.seconds


async def test_the_calls_own_error_passes_through() -> None:
    timeout = Timeout("bank", 5)

    async def fails() -> None:
        await anyio.sleep(0)
        raise LookupError

    with pytest.raises(LookupError):
        await timeout.acall(fails)

    assert {"failure": 1} == outcomes(timeout)


async def test_a_call_that_will_not_be_cancelled_is_late_but_returns() -> None:
    timeout = Timeout("bank", 0.01)

    async def stubborn() -> str:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.03)
        return "late"

    result = None
    try:
        result = await timeout.acall(stubborn)
    except CallTimeoutError:
        assert {"timeout": 1} == outcomes(timeout)
    else:
        assert ("late", 1) == (result, timeout.snapshot().late)
    await anyio.sleep(0)


async def test_a_timer_that_fires_after_the_call_cancels_nobody() -> None:
    clock = FakeClock()
    timeout = Timeout("bank", 1, clock=clock)

    async def fn() -> str:
        clock.advance(2)  # due now, but the loop has no turn before the call is over
        return "done"

    assert "done" == await timeout.acall(fn)
    await settle()


# What only asyncio has: a cancellation is a number to be taken back ---------------------------------------------------


def _asyncio(main: Any) -> Any:
    return asyncio.run(main())


def test_own_time_and_an_outside_cancellation_at_once_is_a_cancellation() -> None:
    clock = FakeClock()
    timeout = Timeout("bank", 1, clock=clock)

    async def main() -> tuple[bool, int]:
        task = asyncio.ensure_future(timeout.acall(asyncio.sleep, 60))
        await asyncio.sleep(0)
        clock.advance(1)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled(), task.cancelling()

    assert (True, 1) == _asyncio(main)
    assert 1 == timeout.snapshot().interrupted


def test_the_bookkeeping_of_cancellations_is_left_as_it_was() -> None:
    timeout = Timeout("bank", 0.01)

    async def main() -> tuple[int, int]:
        task = asyncio.current_task()
        assert task is not None
        before = task.cancelling()
        with pytest.raises(CallTimeoutError) as caught:
            await timeout.acall(asyncio.sleep, 60)
        assert isinstance(caught.value.__cause__, asyncio.CancelledError)
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
        return before, task.cancelling()

    assert (0, 0) == _asyncio(main)


def test_asyncios_own_timeout_around_it_keeps_its_error() -> None:
    timeout = Timeout("bank", 60)

    async def main() -> None:
        async with asyncio.timeout(0.01):
            await timeout.acall(asyncio.sleep, 60)

    with pytest.raises(TimeoutError) as caught:
        _asyncio(main)

    assert not isinstance(caught.value, CallTimeoutError)


def test_a_task_group_inside_is_cancelled_as_a_whole() -> None:
    timeout = Timeout("bank", 0.01)
    cancelled = []

    async def child() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    async def fn() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(child())

    async def main() -> None:
        with pytest.raises(CallTimeoutError):
            await timeout.acall(fn)

    _asyncio(main)
    assert [1, 1, 1] == cancelled


@pytest.mark.parametrize("due", range(1, 8))
def test_whenever_it_fires_and_whenever_it_is_cancelled_the_answer_is_clear(due: int) -> None:
    for cancel_at in range(1, 8):
        clock = FakeClock()
        timeout = Timeout("bank", 1, clock=clock)

        async def fn() -> str:
            for _ in range(4):
                await asyncio.sleep(0)
            return "done"

        async def main(cancel_at: int = cancel_at, timeout: Timeout = timeout, clock: FakeClock = clock) -> str:
            task = asyncio.ensure_future(timeout.acall(fn))
            for step in range(1, 12):
                await asyncio.sleep(0)
                if step == due:
                    clock.advance(1)
                if step == cancel_at:
                    task.cancel()
            await asyncio.wait([task])
            if task.cancelled():
                return "cancelled"
            return "timeout" if isinstance(task.exception(), CallTimeoutError) else task.result()

        answer = _asyncio(main)
        snapshot = timeout.snapshot()

        assert answer in {"done", "cancelled", "timeout"}
        assert (answer == "cancelled") == (snapshot.interrupted == 1)
        assert (answer == "timeout") == (snapshot.calls["timeout"] == 1)
        assert (answer == "done") == (snapshot.calls["success"] == 1)
        if cancel_at < due and cancel_at <= 4:
            assert "cancelled" == answer
        if due + 1 < cancel_at and due <= 3:
            assert "timeout" == answer
