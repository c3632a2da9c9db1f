from __future__ import annotations

import asyncio
import contextvars
import copy
import math
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from halfopen.errors import ConfigError
from halfopen.hedge import Hedge, Quantile
from halfopen.testing import FakeClock


def until(condition: Any) -> None:
    for _ in range(120_000):
        if condition():
            return
        threading.Event().wait(0.0005)
    raise AssertionError("it never came to that")


async def auntil(condition: Any) -> None:
    with anyio.fail_after(60):
        while not condition():
            await anyio.sleep(0.0005)


class Attempts:
    """A call whose attempts end as the test says: one event, result and error for each."""

    def __init__(self, *ends: Any) -> None:
        self.ends = ends
        self.doors = [threading.Event() for _ in ends]
        self.adoors: dict[int, anyio.Event] = {}
        self.started = 0
        self.cancelled: list[int] = []
        self.lock = threading.Lock()

    def _end(self, number: int) -> Any:
        end = self.ends[number]
        if isinstance(end, BaseException):
            raise end
        return end

    def __call__(self) -> Any:
        with self.lock:
            number = self.started
            self.started += 1
        assert self.doors[number].wait(60)
        return self._end(number)

    async def wait(self) -> Any:
        number = self.started
        self.adoors[number] = anyio.Event()
        self.started += 1
        try:
            await self.adoors[number].wait()
        except BaseException:
            self.cancelled.append(number)
            raise
        return self._end(number)


class Run:
    """A hedged call on a thread of its own."""

    def __init__(self, hedge: Hedge, fn: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, args=(hedge, fn), daemon=True)
        self.thread.start()

    def _run(self, hedge: Hedge, fn: Callable[[], Any]) -> None:
        try:
            self.result = hedge.call(fn)
        except BaseException as error:
            self.error = error

    def join(self) -> None:
        self.thread.join(60)
        assert not self.thread.is_alive()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def waiting(clock: FakeClock) -> bool:
    return any(timer[2]._callback for timer in clock._timers)


def test_a_call_that_answers_in_time_is_made_once(clock: FakeClock) -> None:
    hedge = Hedge("search", 0.2, clock=clock)

    assert [5, 5] == [hedge.call(int, "5"), hedge(lambda a, b: a + b)(2, 3)]

    seen = hedge.snapshot()
    assert (2, 0, {"primary": 2, "hedge": 0, "failed": 0}) == (seen.calls, seen.hedges, seen.outcomes)


def test_on_threads_the_second_attempt_wins_and_the_first_is_given_up(clock: FakeClock) -> None:
    hedge = Hedge("search", 0.2, clock=clock)
    attempts = Attempts("slow", "fast")
    run = Run(hedge, attempts)
    until(lambda: attempts.started == 1 and waiting(clock))

    clock.advance(0.19)
    assert 1 == attempts.started
    clock.advance(0.01)
    until(lambda: attempts.started == 2)
    attempts.doors[1].set()
    run.join()

    assert "fast" == run.result
    seen = hedge.snapshot()
    assert (1, {"primary": 0, "hedge": 1, "failed": 0}) == (seen.hedges, seen.outcomes)
    assert (1, 1) == (seen.given_up, seen.given_up_total)
    attempts.doors[0].set()
    until(lambda: hedge.snapshot().given_up == 0)


def test_on_threads_the_first_attempt_may_still_win(clock: FakeClock) -> None:
    hedge = Hedge("search", 0.2, clock=clock)
    attempts = Attempts("first", "second")
    run = Run(hedge, attempts)
    until(lambda: attempts.started == 1 and waiting(clock))
    clock.advance(0.2)
    until(lambda: attempts.started == 2)

    attempts.doors[0].set()
    run.join()

    assert "first" == run.result
    assert 1 == hedge.snapshot().outcomes["primary"]
    attempts.doors[1].set()


def test_if_all_attempts_fail_the_first_error_is_raised_with_a_note(clock: FakeClock) -> None:
    hedge = Hedge("search", 0.2, clock=clock)
    first = ValueError("first")
    attempts = Attempts(first, KeyError("second"))
    run = Run(hedge, attempts)
    until(lambda: attempts.started == 1 and waiting(clock))
    clock.advance(0.2)
    until(lambda: attempts.started == 2)

    attempts.doors[0].set()
    until(lambda: hedge._threads.running == 1)
    attempts.doors[1].set()
    run.join()

    assert first is run.error
    assert ["hedge 'search': attempt 2 failed too: KeyError('second')"] == first.__notes__
    assert 1 == hedge.snapshot().outcomes["failed"]


def test_an_error_before_the_delay_is_raised_at_once(clock: FakeClock) -> None:
    hedge = Hedge("search", 0.2, clock=clock)

    with pytest.raises(ValueError, match="invalid literal"):
        hedge.call(int, "x")

    assert (0, 1) == (hedge.snapshot().hedges, hedge.snapshot().outcomes["failed"])


def test_without_a_free_thread_a_call_is_made_plainly(clock: FakeClock) -> None:
    hedge = Hedge("search", 0.2, max_threads=1, clock=clock)
    attempts = Attempts("slow")
    run = Run(hedge, attempts)
    until(lambda: attempts.started == 1 and waiting(clock))

    assert threading.get_ident() == hedge.call(threading.get_ident)
    clock.advance(0.2)
    until(lambda: hedge.snapshot().skipped["no_thread"] == 1)
    attempts.doors[0].set()
    run.join()

    assert "slow" == run.result
    seen = hedge.snapshot()
    assert (0, 1) == (seen.hedges, seen.unhedged)


def test_hedges_stay_within_their_budget(clock: FakeClock) -> None:
    hedge = Hedge("search", 0.2, budget=0.1, clock=clock)
    for _ in range(9):
        hedge.call(int)
    started = []
    for _ in range(3):
        attempts = Attempts("slow", "fast")
        run = Run(hedge, attempts)
        until(lambda seen=attempts: seen.started == 1 and waiting(clock))
        skipped = hedge.snapshot().skipped["budget"]
        clock.advance(0.2)
        until(lambda seen=attempts, was=skipped: seen.started == 2 or hedge.snapshot().skipped["budget"] > was)
        for door in attempts.doors:
            door.set()
        run.join()
        started.append(attempts.started)

    assert [2, 2, 1] == started
    assert (2, 1) == (hedge.snapshot().hedges, hedge.snapshot().skipped["budget"])


def test_a_quantile_hedges_nothing_until_it_knows_enough(clock: FakeClock) -> None:
    hedge = Hedge("search", Quantile(0.9, minimum=10), clock=clock)

    for number in range(10):
        assert hedge.snapshot().delay is None
        hedge.call(clock.advance, 0.1 * number)

    assert pytest.approx(0.8) == hedge.snapshot().delay


@pytest.mark.anyio
async def test_the_slow_ones_stay_in_the_quantile_although_they_lost(clock: FakeClock) -> None:
    hedge = Hedge("search", Quantile(0.5, window=10, minimum=1), budget=None, clock=clock)
    await hedge.acall(self_advancing(clock, 1.0))

    for _ in range(9):
        attempts = Attempts("slow", "fast")
        async with anyio.create_task_group() as group:
            group.start_soon(hedge.acall, attempts.wait)
            await auntil(lambda seen=attempts: seen.started == 1 and waiting(clock))
            clock.advance(1.0)
            await auntil(lambda seen=attempts: seen.started == 2)
            attempts.adoors[1].set()

    assert 1.0 == pytest.approx(hedge.snapshot().delay)
    assert hedge._latencies is not None
    assert 10 == len(hedge._latencies._latest)
    assert {"primary": 1, "hedge": 9, "failed": 0} == hedge.snapshot().outcomes


def self_advancing(clock: FakeClock, seconds: float) -> Any:
    async def work() -> None:
        clock.advance(seconds)

    return work


def test_the_context_goes_with_the_attempts(clock: FakeClock) -> None:
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user")
    user.set("me")

    assert "me" == Hedge("search", 0.2, clock=clock).call(user.get)


def test_an_interrupt_in_an_attempt_reaches_the_caller(clock: FakeClock) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Hedge("search", 0.2, clock=clock).call(interrupted)


@pytest.mark.anyio
async def test_a_task_that_is_slow_is_hedged_and_cancelled_when_it_loses(clock: FakeClock) -> None:
    hedge = Hedge("search", 0.2, clock=clock)
    attempts = Attempts("slow", "fast")
    results: list[Any] = []

    async def call() -> None:
        results.append(await hedge.acall(attempts.wait))

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await auntil(lambda: attempts.started == 1 and waiting(clock))
        clock.advance(0.2)
        await auntil(lambda: attempts.started == 2)
        attempts.adoors[1].set()

    assert ["fast"] == results
    assert [0] == attempts.cancelled
    assert {"primary": 0, "hedge": 1, "failed": 0} == hedge.snapshot().outcomes


@pytest.mark.anyio
async def test_several_hedges_follow_one_another(clock: FakeClock) -> None:
    hedge = Hedge("search", 0.2, max_hedges=2, budget=None, clock=clock)
    attempts = Attempts("a", "b", "c")
    results: list[Any] = []

    async def call() -> None:
        results.append(await hedge.acall(attempts.wait))

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        for number in (1, 2, 3):
            await auntil(lambda count=number: attempts.started == count and (count == 3 or waiting(clock)))
            clock.advance(0.2)
        attempts.adoors[2].set()

    assert ["c"] == results
    assert [0, 1] == sorted(attempts.cancelled)
    assert 2 == hedge.snapshot().hedges


@pytest.mark.anyio
async def test_a_failed_attempt_waits_for_the_other_one(clock: FakeClock) -> None:
    hedge = Hedge("search", 0.2, clock=clock)
    attempts = Attempts(ValueError("first"), "second")
    results: list[Any] = []

    async def call() -> None:
        results.append(await hedge.acall(attempts.wait))

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await auntil(lambda: attempts.started == 1 and waiting(clock))
        clock.advance(0.2)
        await auntil(lambda: attempts.started == 2)
        attempts.adoors[0].set()
        await anyio.sleep(0.005)
        assert [] == results
        attempts.adoors[1].set()

    assert ["second"] == results


@pytest.mark.anyio
async def test_if_all_tasks_fail_the_first_error_is_raised_with_a_note(clock: FakeClock) -> None:
    hedge = Hedge("search", 0.2, clock=clock)
    first = ValueError("first")
    attempts = Attempts(first, KeyError("second"))
    errors: list[BaseException] = []

    async def call() -> None:
        try:
            await hedge.acall(attempts.wait)
        except ValueError as error:
            errors.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await auntil(lambda: attempts.started == 1 and waiting(clock))
        clock.advance(0.2)
        await auntil(lambda: attempts.started == 2)
        attempts.adoors[0].set()
        await anyio.sleep(0.005)
        attempts.adoors[1].set()

    assert [first] == errors
    assert ["hedge 'search': attempt 2 failed too: KeyError('second')"] == first.__notes__


@pytest.mark.anyio
async def test_cancelled_from_outside_it_cancels_every_attempt(clock: FakeClock) -> None:
    hedge = Hedge("search", 0.2, clock=clock)
    attempts = Attempts("a", "b")

    async with anyio.create_task_group() as group:
        group.start_soon(hedge.acall, attempts.wait)
        await auntil(lambda: attempts.started == 1 and waiting(clock))
        clock.advance(0.2)
        await auntil(lambda: attempts.started == 2)
        group.cancel_scope.cancel()

    assert [0, 1] == sorted(attempts.cancelled)
    assert {"primary": 0, "hedge": 0, "failed": 0} == hedge.snapshot().outcomes


def test_an_attempt_that_ends_cancelled_by_itself_cancels_the_call(clock: FakeClock) -> None:
    hedge = Hedge("search", 0.2, clock=clock)

    async def spoilt() -> None:
        raise asyncio.CancelledError

    async def main() -> None:
        with pytest.raises(asyncio.CancelledError):
            await hedge.acall(spoilt)

    asyncio.run(main())


@pytest.mark.anyio
async def test_on_the_system_clock_a_slow_call_is_hedged() -> None:
    hedge = Hedge("search", 0.005)
    started = []

    @hedge
    async def search() -> int:
        started.append(len(started))
        if len(started) == 1:
            await anyio.sleep_forever()
        return len(started)

    with anyio.fail_after(60):
        assert 2 == await search()


def test_on_the_system_clock_a_slow_thread_is_hedged() -> None:
    hedge = Hedge("search", 0.005)
    release = threading.Event()
    started = []

    def search() -> int:
        started.append(len(started))
        if len(started) == 1:
            release.wait(60)
        return len(started)

    assert 2 == hedge.call(search)
    release.set()


def test_a_coroutine_function_is_refused_by_call() -> None:
    async def pay() -> None: ...

    for delay in (1.0, Quantile()):
        with pytest.raises(TypeError, match="await acall"):
            Hedge("search", delay).call(pay)


def test_a_generator_cannot_be_hedged() -> None:
    def items() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="cannot guard the generator"):
        Hedge("search", 1.0)(items)


@pytest.mark.parametrize("wrong", [0, -1, math.nan, math.inf, True, "5"])
def test_settings_outside_of_their_range_are_refused_all_together(wrong: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Hedge("", wrong, max_hedges=wrong, budget=wrong, max_threads=wrong)

    assert ["name", "delay", "max_hedges", "budget", "max_threads"] == [
        mistake.path for mistake in caught.value.mistakes
    ]


def test_copies_and_pickles_are_fresh_and_work() -> None:
    hedge = Hedge("search", 0.5)
    hedge.call(int)

    for other in (pickle.loads(pickle.dumps(hedge)), copy.copy(hedge), copy.deepcopy(hedge)):
        assert 0 == other.snapshot().calls
        assert 5 == other.call(int, "5")
