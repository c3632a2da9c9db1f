from __future__ import annotations

import asyncio
import copy
import gc
import math
import os
import pickle
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest

from halfopen._runtime.deadline import deadline
from halfopen.bulkhead import Bulkhead
from halfopen.errors import BulkheadFullError, ConfigError
from halfopen.testing import FakeClock


def in_use(bulkhead: Bulkhead) -> tuple[int, int]:
    seen = bulkhead.snapshot()
    return seen.in_use, seen.waiting


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


class Gate:
    """A call that stays inside until it is let go, and counts who is inside."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.inside = 0
        self.most = 0
        self.lock = threading.Lock()
        self.order: list[Any] = []

    def __call__(self, who: Any = None) -> Any:
        with self.lock:
            self.order.append(who)
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.open.wait(60)
        with self.lock:
            self.inside -= 1
        return who


def started(bulkhead: Bulkhead, gate: Gate, who: Any) -> threading.Thread:
    thread = threading.Thread(target=lambda: bulkhead.call(gate, who), daemon=True)
    thread.start()
    return thread


def test_a_call_passes_its_arguments_and_its_result() -> None:
    bulkhead = Bulkhead("shop", 1)

    assert {"a": 1} == bulkhead.call(dict, a=1)
    assert (0, 0) == in_use(bulkhead)


def test_a_call_that_finds_no_place_is_refused_at_once() -> None:
    bulkhead = Bulkhead("shop", 1)

    with bulkhead.acquire(), pytest.raises(BulkheadFullError) as caught:
        bulkhead.call(int)

    assert ("shop", 1, "full") == (caught.value.name, caught.value.limit, caught.value.reason)
    assert {"full": 1, "wait_timeout": 0} == bulkhead.snapshot().rejections


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, GeneratorExit, SystemExit])
def test_every_way_out_of_a_call_gives_the_place_back(error: type[BaseException]) -> None:
    bulkhead = Bulkhead("shop", 1)

    def fail() -> None:
        raise error

    for _ in range(3):
        with pytest.raises(error):
            bulkhead.call(fail)
        with pytest.raises(error), bulkhead.acquire():
            fail()

    assert (0, 0) == in_use(bulkhead)


def test_at_most_limit_threads_are_inside_and_the_others_follow_in_their_order() -> None:
    bulkhead = Bulkhead("shop", 2, max_waiting=10)
    gate = Gate()
    threads = []
    for who in range(8):
        threads.append(started(bulkhead, gate, who))
        until(lambda count=who + 1: sum(in_use(bulkhead)) == count)

    gate.open.set()
    for thread in threads:
        thread.join(60)

    assert 2 == gate.most
    assert {0, 1} == set(gate.order[:2])
    assert (0, 0) == in_use(bulkhead)
    assert (8, 6) == (bulkhead.snapshot().admitted, bulkhead.snapshot().waited)
    assert 8 == bulkhead.snapshot().wait_seconds.count


def test_the_line_is_first_come_first_served() -> None:
    bulkhead = Bulkhead("shop", 1, max_waiting=10)
    order: list[int] = []
    threads = []
    with bulkhead.acquire():
        for who in range(8):
            threads.append(threading.Thread(target=bulkhead.call, args=(order.append, who)))
            threads[-1].start()
            until(lambda count=who + 1: bulkhead.snapshot().waiting == count)
    for thread in threads:
        thread.join(60)

    assert list(range(8)) == order


def test_the_line_has_an_end() -> None:
    bulkhead = Bulkhead("shop", 1, max_waiting=1)
    gate = Gate()
    threads = [started(bulkhead, gate, 0)]
    until(lambda: in_use(bulkhead) == (1, 0))
    threads.append(started(bulkhead, gate, 1))
    until(lambda: in_use(bulkhead) == (1, 1))

    with pytest.raises(BulkheadFullError, match="1 calls run already"):
        bulkhead.call(int)

    gate.open.set()
    for thread in threads:
        thread.join(60)


def test_a_wait_ends_at_max_wait() -> None:
    bulkhead = Bulkhead("shop", 1, max_waiting=1, max_wait=0.01)

    with bulkhead.acquire(), pytest.raises(BulkheadFullError) as caught:
        bulkhead.call(int)

    assert "wait_timeout" == caught.value.reason
    assert {"full": 0, "wait_timeout": 1} == bulkhead.snapshot().rejections
    assert (0, 0) == in_use(bulkhead)


def test_a_wait_runs_on_the_given_clock() -> None:
    clock = FakeClock()
    bulkhead = Bulkhead("shop", 1, max_waiting=1, max_wait=3600.0, clock=clock)
    caught: list[BulkheadFullError] = []

    def call() -> None:
        try:
            bulkhead.call(int)
        except BulkheadFullError as error:
            caught.append(error)

    with bulkhead.acquire():
        thread = threading.Thread(target=call)
        thread.start()
        until(lambda: bulkhead.snapshot().waiting == 1 and clock._timers)
        clock.advance(3599)
        assert 1 == bulkhead.snapshot().waiting
        clock.advance(1)
        thread.join(60)

    assert ["wait_timeout"] == [error.reason for error in caught]


def test_the_ambient_deadline_cuts_a_wait_short() -> None:
    bulkhead = Bulkhead("shop", 1, max_waiting=1, max_wait=3600.0)

    with bulkhead.acquire():
        for seconds in (0.01, 0):
            with deadline(seconds), pytest.raises(BulkheadFullError) as caught:
                bulkhead.call(int)
            assert "wait_timeout" == caught.value.reason

    assert (0, 0) == in_use(bulkhead)


def test_a_place_is_for_one_block() -> None:
    place = Bulkhead("shop", 2).acquire()

    with place, pytest.raises(RuntimeError, match="taken already"):
        place.__enter__()


def test_a_place_that_is_thrown_away_comes_back() -> None:
    bulkhead = Bulkhead("shop", 1)
    place = bulkhead.acquire()
    place.__enter__()

    del place
    gc.collect()

    assert (0, 0) == in_use(bulkhead)
    assert 1 == bulkhead.snapshot().abandoned


def test_a_place_thrown_away_while_the_lock_is_held_goes_to_the_one_who_waits() -> None:
    bulkhead = Bulkhead("shop", 2, max_waiting=1)
    lost = bulkhead.acquire()
    lost.__enter__()
    other = bulkhead.acquire()
    other.__enter__()
    done = threading.Event()
    thread = threading.Thread(target=lambda: (bulkhead.call(int), done.set()))
    thread.start()
    until(lambda: bulkhead.snapshot().waiting == 1)

    with bulkhead._pool.lock:
        del lost
    assert not done.is_set()
    other.__exit__(None, None, None)
    thread.join(60)

    assert (0, 0) == in_use(bulkhead)


def test_a_generator_keeps_its_place_until_it_ends() -> None:
    bulkhead = Bulkhead("shop", 1)

    @bulkhead
    def items() -> Iterator[int]:
        yield 1
        yield 2

    running = items()
    assert (0, 0) == in_use(bulkhead)
    assert 1 == next(running)
    assert (1, 0) == in_use(bulkhead)
    assert [2] == list(running)
    assert (0, 0) == in_use(bulkhead)


@pytest.mark.anyio
async def test_an_async_generator_keeps_its_place_until_it_ends() -> None:
    bulkhead = Bulkhead("shop", 1)

    @bulkhead
    async def items() -> AsyncIterator[int]:
        yield 1
        yield 2

    seen = []
    async for item in items():
        seen.append((item, bulkhead.snapshot().in_use))

    assert [(1, 1), (2, 1)] == seen
    assert (0, 0) == in_use(bulkhead)


def test_a_coroutine_function_is_refused_by_call() -> None:
    async def pay() -> None: ...

    bulkhead = Bulkhead("shop", 1)

    with pytest.raises(TypeError, match="await acall"):
        bulkhead.call(pay)
    assert (0, 0) == in_use(bulkhead)


@pytest.mark.anyio
async def test_tasks_share_the_places_and_keep_their_order() -> None:
    bulkhead = Bulkhead("shop", 1, max_waiting=100)
    order: list[int] = []
    inside = most = 0

    @bulkhead
    async def work(who: int) -> None:
        nonlocal inside, most
        order.append(who)
        inside += 1
        most = max(most, inside)
        await anyio.lowlevel.checkpoint()
        inside -= 1

    release = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(bulkhead.acall, release.wait)
        await auntil(lambda: in_use(bulkhead) == (1, 0))
        for who in range(20):
            group.start_soon(work, who)
            await auntil(lambda count=who + 1: bulkhead.snapshot().waiting == count)
        release.set()

    assert list(range(20)) == order
    assert 1 == most
    assert (0, 0) == in_use(bulkhead)


@pytest.mark.anyio
async def test_threads_and_tasks_stand_in_one_line() -> None:
    bulkhead = Bulkhead("shop", 1, max_waiting=100)
    order: list[Any] = []
    release = anyio.Event()

    async def note(who: int) -> None:
        order.append(who)

    async with anyio.create_task_group() as group:
        group.start_soon(bulkhead.acall, release.wait)
        await auntil(lambda: in_use(bulkhead) == (1, 0))
        for who in range(12):
            if who % 2:
                group.start_soon(bulkhead.acall, note, who)
            else:
                group.start_soon(anyio.to_thread.run_sync, bulkhead.call, order.append, who)
            await auntil(lambda count=who + 1: bulkhead.snapshot().waiting == count)
        release.set()

    assert list(range(12)) == order
    assert (0, 0) == in_use(bulkhead)


def test_two_event_loops_and_threads_share_one_bulkhead() -> None:
    bulkhead = Bulkhead("shop", 3, max_waiting=1000)
    lock = threading.Lock()
    counts = {"inside": 0, "most": 0, "done": 0}

    def enter() -> None:
        with lock:
            counts["inside"] += 1
            counts["most"] = max(counts["most"], counts["inside"])

    def leave() -> None:
        with lock:
            counts["inside"] -= 1
            counts["done"] += 1

    async def work() -> None:
        enter()
        await anyio.sleep(0)
        leave()

    def sync_work() -> None:
        enter()
        leave()

    async def many() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(100):
                group.start_soon(bulkhead.acall, work)

    threads = [threading.Thread(target=lambda b=b: anyio.run(many, backend=b)) for b in ("asyncio", "asyncio", "trio")]
    threads += [threading.Thread(target=lambda: [bulkhead.call(sync_work) for _ in range(100)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert 600 == counts["done"]
    assert counts["most"] <= 3
    assert (0, 0) == in_use(bulkhead)


@pytest.mark.anyio
async def test_a_task_waits_no_longer_than_max_wait() -> None:
    bulkhead = Bulkhead("shop", 1, max_waiting=1, max_wait=0.01)

    async with bulkhead.acquire():
        with pytest.raises(BulkheadFullError) as caught:
            await bulkhead.acall(anyio.lowlevel.checkpoint)

    assert "wait_timeout" == caught.value.reason
    assert (0, 0) == in_use(bulkhead)


@pytest.mark.anyio
async def test_a_task_waits_on_the_given_clock() -> None:
    clock = FakeClock()
    bulkhead = Bulkhead("shop", 1, max_waiting=1, max_wait=60.0, clock=clock)
    caught: list[str] = []

    async def call() -> None:
        try:
            await bulkhead.acall(anyio.lowlevel.checkpoint)
        except BulkheadFullError as error:
            caught.append(error.reason)

    async with bulkhead.acquire(), anyio.create_task_group() as group:
        group.start_soon(call)
        await auntil(lambda: bulkhead.snapshot().waiting == 1)
        clock.advance(60)
        await auntil(lambda: caught)

    assert ["wait_timeout"] == caught
    assert (0, 0) == in_use(bulkhead)


@pytest.mark.anyio
async def test_a_cancelled_waiter_leaves_the_line() -> None:
    bulkhead = Bulkhead("shop", 1, max_waiting=2)
    ran: list[int] = []

    async def note(who: int) -> None:
        ran.append(who)

    async with bulkhead.acquire():
        async with anyio.create_task_group() as group:
            group.start_soon(bulkhead.acall, note, 1)
            await auntil(lambda: bulkhead.snapshot().waiting == 1)
            group.cancel_scope.cancel()

        assert 0 == bulkhead.snapshot().waiting

    assert [] == ran
    assert (0, 0) == in_use(bulkhead)


@pytest.mark.parametrize("steps", range(8))
@pytest.mark.parametrize("victim", range(3))
def test_a_task_cancelled_at_any_point_loses_no_place_and_no_wake_up_on_asyncio(victim: int, steps: int) -> None:
    bulkhead = Bulkhead("shop", 1, max_waiting=5)
    finished: set[int] = set()

    async def work(who: int) -> None:
        async with bulkhead.acquire():
            await asyncio.sleep(0)
            await bulkhead_free.acall(asyncio.sleep, 0)
        finished.add(who)

    bulkhead_free = Bulkhead("inner", 5)

    async def main() -> None:
        tasks = [asyncio.create_task(work(who)) for who in range(4)]
        for _ in range(steps):
            await asyncio.sleep(0)
        tasks[victim].cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)

    asyncio.run(main())

    assert {0, 1, 2, 3} - {victim} <= finished
    assert (0, 0) == in_use(bulkhead)


@pytest.mark.parametrize("steps", range(12))
@pytest.mark.parametrize("victim", range(3))
def test_a_task_cancelled_at_any_point_loses_no_place_and_no_wake_up_on_trio(victim: int, steps: int) -> None:
    trio = pytest.importorskip("trio")
    bulkhead = Bulkhead("shop", 1, max_waiting=5)
    finished: set[int] = set()
    scopes = [trio.CancelScope() for _ in range(4)]

    async def work(who: int) -> None:
        with scopes[who]:
            async with bulkhead.acquire():
                await trio.lowlevel.checkpoint()
                await trio.lowlevel.checkpoint()
            finished.add(who)

    async def main() -> None:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for who in range(4):
                    nursery.start_soon(work, who)
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                scopes[victim].cancel()

    trio.run(main)

    assert {0, 1, 2, 3} - {victim} <= finished
    assert (0, 0) == in_use(bulkhead)


def test_a_task_that_is_cancelled_just_as_it_gets_the_place_hands_it_on() -> None:
    bulkhead = Bulkhead("shop", 1, max_waiting=5)
    ran: list[int] = []

    async def note(who: int) -> None:
        ran.append(who)

    async def main() -> None:
        place = bulkhead.acquire()
        await place.__aenter__()
        tasks = [asyncio.create_task(bulkhead.acall(note, who)) for who in range(3)]
        await asyncio.sleep(0)
        place.__exit__(None, None, None)
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())

    assert [1, 2] == ran
    assert (0, 0) == in_use(bulkhead)


def test_a_place_for_a_task_whose_loop_is_gone_goes_to_the_next() -> None:
    bulkhead = Bulkhead("shop", 1, max_waiting=5)
    place = bulkhead.acquire()
    place.__enter__()
    dead = asyncio.new_event_loop()

    async def call() -> None:
        await bulkhead.acall(asyncio.sleep, 0)

    waiting = call()
    task = dead.create_task(waiting)
    dead.run_until_complete(asyncio.sleep(0))
    dead.close()
    done = threading.Event()
    thread = threading.Thread(target=lambda: (bulkhead.call(int), done.set()))
    thread.start()
    until(lambda: bulkhead.snapshot().waiting == 2)

    place.__exit__(None, None, None)
    thread.join(60)

    assert done.is_set()
    assert (0, 0) == in_use(bulkhead)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    waiting.close()
    assert (0, 0) == in_use(bulkhead)


def test_settings_can_be_changed_while_callers_wait() -> None:
    bulkhead = Bulkhead("shop", 1, max_waiting=5, max_wait=30)
    gate = Gate()
    threads = [started(bulkhead, gate, who) for who in range(3)]
    until(lambda: sum(in_use(bulkhead)) == 3)

    bulkhead.configure(limit=3, max_wait=None)
    until(lambda: gate.inside == 3)
    bulkhead.configure(limit=1, max_waiting=0)
    with pytest.raises(ConfigError):
        bulkhead.configure(limit=0)

    gate.open.set()
    for thread in threads:
        thread.join(60)
    assert (1, 0) == (bulkhead.snapshot().limit, bulkhead.snapshot().max_waiting)
    assert (0, 0) == in_use(bulkhead)


@pytest.mark.parametrize("wrong", [0, -1, math.nan, math.inf, True, "5", 1.5])
def test_settings_outside_of_their_range_are_refused_all_together(wrong: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Bulkhead("", wrong, max_waiting=wrong if wrong != 0 else -1, max_wait=wrong if wrong != 1.5 else 0)

    assert ["name", "limit", "max_waiting", "max_wait"] == [mistake.path for mistake in caught.value.mistakes]


def test_a_longest_wait_without_a_line_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="max_wait: without effect while max_waiting is 0"):
        Bulkhead("shop", 1, max_wait=1.0)


def test_copies_and_pickles_are_fresh_and_work() -> None:
    bulkhead = Bulkhead("shop", 3, max_waiting=2, max_wait=1.5)

    with bulkhead.acquire():
        for other in (pickle.loads(pickle.dumps(bulkhead)), copy.copy(bulkhead), copy.deepcopy(bulkhead)):
            assert (3, 0, 2) == (other.snapshot().limit, other.snapshot().in_use, other.snapshot().max_waiting)
            assert 5 == other.call(int, "5")


def test_a_snapshot_pickles() -> None:
    seen = Bulkhead("shop", 3).snapshot()

    assert seen == pickle.loads(pickle.dumps(seen))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_every_place_free() -> None:
    bulkhead = Bulkhead("shop", 2)
    gate = Gate()
    threads = [started(bulkhead, gate, who) for who in range(2)]
    until(lambda: in_use(bulkhead) == (2, 0))

    child = os.fork()
    if child == 0:
        free = bulkhead.snapshot().in_use == 0 and bulkhead.call(int) == 0
        os._exit(0 if free else 1)
    _, status = os.waitpid(child, 0)

    gate.open.set()
    for thread in threads:
        thread.join(60)
    assert 0 == status
    assert (0, 0) == in_use(bulkhead)


def test_each_key_has_places_of_its_own() -> None:
    hosts = Bulkhead.per_key("host:*", 1)

    with hosts["a"].acquire():
        assert 0 == hosts["b"].call(int)
        with pytest.raises(BulkheadFullError, match="'host:a'"):
            hosts["a"].call(int)

    assert {"a", "b"} == set(hosts.snapshot())


def test_a_busy_key_is_never_thrown_out_and_the_rest_share_one() -> None:
    hosts = Bulkhead.per_key("host:*", 1, max_keys=2)

    with hosts["a"].acquire(), hosts["b"].acquire():
        assert hosts["c"] is hosts["d"]
        assert "host:__other__" == hosts["c"].name
        assert 1 == hosts["a"].snapshot().in_use
    assert "host:c" == hosts["c"].name

    assert 2 == len(hosts)
    assert {"a", "c", "__other__"} == set(hosts.snapshot())


def test_a_key_that_made_room_while_somebody_held_it_is_the_same_afterwards() -> None:
    hosts = Bulkhead.per_key("host:*", 1, max_keys=1)
    first = hosts["a"]

    assert "host:b" == hosts["b"].name

    assert first is hosts["a"]


def test_a_family_is_a_policy_that_takes_the_key_from_the_arguments() -> None:
    hosts = Bulkhead.per_key("host:*", 1, key=lambda host, *rest: host)
    outer = Bulkhead("all", 5)

    @hosts
    def fetch(host: str, path: str) -> str:
        assert 1 == hosts[host].snapshot().in_use
        return host + path

    assert "a/x" == fetch("a", "/x")
    assert "c/z" == hosts.call(outer.call, lambda host, path: host + path, "c", "/z")
    assert {"a", "c"} == set(hosts)


@pytest.mark.anyio
async def test_a_family_guards_coroutine_functions_too() -> None:
    hosts = Bulkhead.per_key("host:*", 1, key=lambda host: host)

    @hosts
    async def fetch(host: str) -> str:
        return host

    assert "a" == await fetch("a")
    with pytest.raises(TypeError, match="say with key="):
        Bulkhead.per_key("host:*", 1)(fetch)


def test_a_family_says_what_is_wrong_with_its_settings_when_it_is_made() -> None:
    with pytest.raises(ConfigError, match="limit"):
        Bulkhead.per_key("host:*", 0)
    with pytest.raises(ConfigError, match="max_keys"):
        Bulkhead.per_key("host:*", 1, max_keys=0)


def test_copies_and_pickles_of_a_family_are_fresh_and_work() -> None:
    hosts = Bulkhead.per_key("host:*", 1, key=str)

    with hosts["a"].acquire():
        for other in (pickle.loads(pickle.dumps(hosts)), copy.copy(hosts), copy.deepcopy(hosts)):
            assert 5 == other.call(lambda text: 5, "a")
            assert ["a"] == list(other)
