from __future__ import annotations

import asyncio
import copy
import math
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halfopen._core.slots import Ticket
from halfopen._runtime.deadline import deadline
from halfopen._runtime.meter import Meter
from halfopen.errors import ConfigError, RateLimitedError
from halfopen.rate_limiter import RateLimiter
from halfopen.testing import FakeClock


async def auntil(condition: Any) -> None:
    with anyio.fail_after(60):
        while not condition():
            await anyio.sleep(0.0005)


def until(condition: Any) -> None:
    for _ in range(120_000):
        if condition():
            return
        threading.Event().wait(0.0005)
    raise AssertionError("it never came to that")


class HeldClock(FakeClock):
    """Sleeping waits until somebody else advances the clock."""

    def sleep(self, seconds: float) -> None:
        woken = threading.Event()
        self.call_at(self.monotonic() + seconds, woken.set)
        self.sleeps.append(seconds)
        assert woken.wait(60)

    async def asleep(self, seconds: float) -> None:
        due = self.monotonic() + seconds
        self.sleeps.append(seconds)
        await auntil(lambda: self.monotonic() >= due)


def test_a_burst_passes_and_the_next_call_is_refused_with_the_exact_wait() -> None:
    clock = FakeClock(start=1000.0)
    limiter = RateLimiter("geo", 10, burst=2, clock=clock)
    assert [1, 2] == [limiter.call(int, text) for text in "12"]

    with pytest.raises(RateLimitedError) as caught:
        limiter.call(int)

    assert ("geo", 0.1) == (caught.value.name, pytest.approx(caught.value.retry_after))
    clock.advance(math.nextafter(caught.value.retry_after or 0.0, 0) - 1e-9)
    with pytest.raises(RateLimitedError):
        limiter.call(int)
    clock.advance_to(1000.0 + (caught.value.retry_after or 0.0))
    assert 3 == limiter.call(int, "3")
    assert {"rate": 2} == limiter.snapshot().rejections


@settings(max_examples=100, deadline=None)
@given(st.floats(0.1, 1000), st.floats(0.1, 100), st.integers(1, 5), st.lists(st.floats(0, 2), max_size=30))
def test_coming_back_after_retry_after_always_succeeds(rate: float, per: float, burst: int, gaps: list[float]) -> None:
    clock = FakeClock(start=12345.678)
    limiter = RateLimiter("geo", rate, per, burst=burst, clock=clock)

    for gap in gaps:
        clock.advance(gap * per / rate)
        try:
            limiter.call(int)
        except RateLimitedError as error:
            clock.advance(error.retry_after or 0.0)
            limiter.call(int)


def test_the_default_burst_is_what_the_rate_allows_in_one_period() -> None:
    clock = FakeClock()

    assert [5, 1, 1] == [RateLimiter("geo", rate, clock=clock).snapshot().burst for rate in (5, 1.9, 0.2)]


def test_a_caller_that_may_wait_sleeps_until_its_turn() -> None:
    clock = FakeClock()
    limiter = RateLimiter("geo", 10, burst=1, max_wait=1.0, clock=clock)

    for _ in range(4):
        limiter.call(int)

    assert [0.1, 0.1, 0.1] == [pytest.approx(seconds) for seconds in clock.sleeps]
    seen = limiter.snapshot()
    assert (4, 3, 0) == (seen.admitted, seen.waited, seen.waiting)
    assert (4, pytest.approx(0.3)) == (seen.wait_seconds.count, seen.wait_seconds.sum)


def test_a_wait_longer_than_allowed_is_refused_at_once_and_uses_nothing() -> None:
    clock = FakeClock()
    limiter = RateLimiter("geo", 1, burst=1, max_wait=0.5, clock=clock)
    limiter.call(int)

    with pytest.raises(RateLimitedError) as caught:
        limiter.call(int)

    assert 1.0 == caught.value.retry_after
    assert [] == clock.sleeps
    clock.advance(0.5)
    limiter.call(int)
    assert 1.0 == clock.monotonic()


def test_the_ambient_deadline_cuts_the_allowed_wait() -> None:
    clock = FakeClock()
    limiter = RateLimiter("geo", 1, burst=1, max_wait=100, clock=clock)
    limiter.call(int)

    with deadline(0.5, clock=clock), pytest.raises(RateLimitedError):
        limiter.call(int)
    with deadline(2, clock=clock):
        limiter.call(int)

    assert 1.0 == clock.monotonic()


def test_those_who_wait_are_counted_before_a_newcomer_may() -> None:
    clock = HeldClock()
    limiter = RateLimiter("geo", 1, burst=1, max_wait=2.5, clock=clock)
    limiter.call(int)
    threads = [threading.Thread(target=limiter.call, args=(int,)) for _ in range(2)]
    for number, thread in enumerate(threads, 1):
        thread.start()
        until(lambda count=number: limiter.snapshot().waiting == count)

    with pytest.raises(RateLimitedError) as caught:
        limiter.call(int)

    assert 3.0 == caught.value.retry_after
    for _ in range(2):
        until(lambda: any(timer[2]._callback for timer in clock._timers))
        clock.advance(1.0)
        count = limiter.snapshot
        until(lambda seen=count: seen().waiting < 2)
    for thread in threads:
        thread.join(60)
    assert 2.0 == clock.monotonic()


def test_a_newcomer_does_not_overtake_the_first_in_line_that_is_not_awake_yet() -> None:
    clock = HeldClock()
    limiter = RateLimiter("geo", 1, burst=1, max_wait=1.0, clock=clock)
    limiter.call(int)
    thread = threading.Thread(target=limiter.call, args=(int,))
    thread.start()
    until(lambda: limiter.snapshot().waiting == 1 and clock.sleeps)

    clock._now += 1.0
    limiter.configure(max_wait=0.5)
    with pytest.raises(RateLimitedError) as caught:
        limiter.call(int)

    assert 1.0 == caught.value.retry_after
    clock.advance(0)
    thread.join(60)


def test_one_that_has_its_permit_is_in_line_no_longer() -> None:
    meter = Meter(1, 1.0, 1)
    ticket = Ticket()
    assert meter.line_up(5.0, ticket, None) is None

    assert 0.0 == meter.take_turn(5.0, 5.0, ticket)

    assert 0 == meter.line.waiting


def test_threads_are_served_in_the_order_they_came() -> None:
    clock = HeldClock()
    limiter = RateLimiter("geo", 1, burst=1, max_wait=10, clock=clock)
    limiter.call(int)
    order: list[int] = []
    threads = []
    for who in range(10):
        threads.append(threading.Thread(target=limiter.call, args=(order.append, who)))
        threads[-1].start()
        until(lambda count=who + 1: limiter.snapshot().waiting == count)

    for count in range(1, 11):
        until(lambda count=count: len(clock.sleeps) == count)
        clock.advance(1.0)
        until(lambda count=count: len(order) == count)
    for thread in threads:
        thread.join(60)

    assert list(range(10)) == order


@pytest.mark.anyio
async def test_threads_and_tasks_are_served_in_one_order() -> None:
    clock = HeldClock()
    limiter = RateLimiter("geo", 1, burst=1, max_wait=10, clock=clock)
    limiter.call(int)
    order: list[int] = []

    async def note(who: int) -> None:
        order.append(who)

    async with anyio.create_task_group() as group:
        for who in range(10):
            if who % 2:
                group.start_soon(limiter.acall, note, who)
            else:
                group.start_soon(anyio.to_thread.run_sync, limiter.call, order.append, who)
            await auntil(lambda count=who + 1: limiter.snapshot().waiting == count)
        for count in range(1, 11):
            await auntil(lambda count=count: len(clock.sleeps) == count)
            clock.advance(1.0)
            await auntil(lambda count=count: len(order) == count)

    assert list(range(10)) == order
    assert 0 == limiter.snapshot().waiting


@pytest.mark.anyio
async def test_a_cancelled_waiter_gives_its_turn_to_those_behind_it() -> None:
    clock = HeldClock()
    limiter = RateLimiter("geo", 1, burst=1, max_wait=10, clock=clock)
    limiter.call(int)
    served: list[tuple[str, float]] = []

    async def note(who: str) -> None:
        served.append((who, clock.monotonic()))

    async with anyio.create_task_group() as group:
        async with anyio.create_task_group() as doomed:
            doomed.start_soon(limiter.acall, note, "first")
            await auntil(lambda: limiter.snapshot().waiting == 1)
            group.start_soon(limiter.acall, note, "second")
            await auntil(lambda: limiter.snapshot().waiting == 2)
            group.start_soon(limiter.acall, note, "third")
            await auntil(lambda: limiter.snapshot().waiting == 3)
            doomed.cancel_scope.cancel()
        await auntil(lambda: len(clock.sleeps) == 2)
        clock.advance(1.0)
        await auntil(lambda: len(clock.sleeps) == 3)
        clock.advance(1.0)

    assert [("second", 1.0), ("third", 2.0)] == served


@pytest.mark.parametrize("steps", range(10))
@pytest.mark.parametrize("victim", range(3))
def test_a_task_cancelled_at_any_point_stops_nobody_else(victim: int, steps: int) -> None:
    limiter = RateLimiter("geo", 10_000, burst=1, max_wait=10)
    finished: set[int] = set()

    async def work(who: int) -> None:
        await limiter.acall(asyncio.sleep, 0)
        finished.add(who)

    async def main() -> None:
        limiter._meter.tat = limiter._monotonic() + 0.002
        tasks = [asyncio.create_task(work(who)) for who in range(4)]
        for _ in range(steps):
            await asyncio.sleep(0)
        tasks[victim].cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)

    asyncio.run(main())

    assert {0, 1, 2, 3} - {victim} <= finished
    assert 0 == limiter.snapshot().waiting


def test_many_threads_never_exceed_the_rate() -> None:
    limiter = RateLimiter("geo", 2000, burst=5, max_wait=10)
    times: list[float] = []

    def work() -> None:
        for _ in range(20):
            limiter.call(lambda: times.append(limiter._monotonic()))

    began = limiter._monotonic()
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert 160 == len(times)
    assert max(times) - began >= (160 - 5) / 2000
    assert 160 == limiter.snapshot().admitted


@pytest.mark.anyio
async def test_a_block_takes_one_permit() -> None:
    limiter = RateLimiter("geo", 1, burst=2, clock=FakeClock())

    with limiter.acquire():
        pass
    async with limiter.acquire():
        pass

    with pytest.raises(RateLimitedError):
        limiter.acquire().__enter__()
    with pytest.raises(RateLimitedError):
        await limiter.acall(anyio.lowlevel.checkpoint)


def test_a_generator_takes_its_permit_at_the_first_item() -> None:
    limiter = RateLimiter("geo", 1, burst=1, clock=FakeClock())

    @limiter
    def items() -> Iterator[int]:
        yield 1

    first, second = items(), items()
    assert [1] == list(first)
    with pytest.raises(RateLimitedError):
        next(second)


def test_a_coroutine_function_is_refused_by_call() -> None:
    async def pay() -> None: ...

    with pytest.raises(TypeError, match="await acall"):
        RateLimiter("geo", 1).call(pay)


def test_what_was_used_comes_back_at_the_new_rate() -> None:
    clock = FakeClock()
    limiter = RateLimiter("geo", 1, burst=1, clock=clock)
    limiter.call(int)

    limiter.configure(rate=10, max_wait=5)
    with pytest.raises(ConfigError):
        limiter.configure(rate=0)
    limiter.call(int)
    limiter.call(int)

    assert [0.1, 0.1] == [pytest.approx(seconds) for seconds in clock.sleeps]
    assert (10, 1.0, 1) == (limiter.snapshot().rate, limiter.snapshot().per, limiter.snapshot().burst)


def test_keys_have_a_rate_of_their_own_and_a_used_one_is_not_forgotten() -> None:
    clock = FakeClock()
    tenants = RateLimiter.per_key("tenant:*", 1, burst=1, max_keys=2, clock=clock)
    tenants["a"].call(int)
    tenants["b"].call(int)

    assert "tenant:__other__" == tenants["c"].name
    with pytest.raises(RateLimitedError, match="'tenant:a'"):
        tenants["a"].call(int)
    clock.advance(1.0)
    assert "tenant:c" == tenants["c"].name


@pytest.mark.parametrize("wrong", [0, -1, math.nan, math.inf, True, "5", None])
def test_settings_outside_of_their_range_are_refused_all_together(wrong: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        RateLimiter("", wrong, wrong, burst=wrong if wrong is not None else 0, max_wait=wrong if wrong != 0 else -1)

    assert ["name", "rate", "per", "burst", "max_wait"] == [mistake.path for mistake in caught.value.mistakes]


def test_copies_and_pickles_are_fresh_and_work() -> None:
    limiter = RateLimiter("geo", 0.001, burst=1)
    limiter.call(int)

    for other in (pickle.loads(pickle.dumps(limiter)), copy.copy(limiter), copy.deepcopy(limiter)):
        assert 5 == other.call(int, "5")
        with pytest.raises(RateLimitedError):
            other.call(int)
