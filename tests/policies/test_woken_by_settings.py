"""New settings reach those who wait: whose time got shorter, and who may run where there is more room."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from halfopen.adaptive_concurrency import AdaptiveConcurrency
from halfopen.bulkhead import Bulkhead
from halfopen.rate_limiter import RateLimiter
from halfopen.registry import Registry

DAY = 86_400.0


def until(condition: Callable[[], bool]) -> None:
    for _ in range(60_000):
        if condition():
            return
        threading.Event().wait(0.001)
    raise AssertionError("it never came to that")


def lined_up(policy: Any, calls: int) -> list[threading.Thread]:
    threads = [threading.Thread(target=policy.call, args=(int,), daemon=True) for _ in range(calls)]
    for number, thread in enumerate(threads, 1):
        thread.start()
        until(lambda number=number: policy.snapshot().waiting == number)
    return threads


def all_end(threads: list[threading.Thread]) -> bool:
    for thread in threads:
        thread.join(60)
    return not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("change", [{"rate": 1e6}, {"per": 1e-6}, {"burst": 10}])
def test_threads_that_wait_for_a_turn_go_on_at_the_new_rate(change: dict[str, Any]) -> None:
    limiter = RateLimiter("geo", 1, DAY, burst=1, max_wait=10 * DAY)
    limiter.call(int)
    threads = lined_up(limiter, 3)

    limiter.configure(**change)

    assert all_end(threads)
    assert 0 == limiter.snapshot().waiting


@pytest.mark.anyio
async def test_tasks_that_wait_for_a_turn_go_on_at_the_new_rate() -> None:
    limiter = RateLimiter("geo", 1, DAY, burst=1, max_wait=10 * DAY)
    limiter.call(int)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(limiter.acall, anyio.sleep, 0)
            while limiter.snapshot().waiting < 3:
                await anyio.sleep(0.001)
            limiter.configure(rate=1e6)

    assert 0 == limiter.snapshot().waiting


def test_a_slower_rate_lets_nobody_go_early() -> None:
    limiter = RateLimiter("geo", 1, DAY, burst=1, max_wait=100 * DAY)
    limiter.call(int)
    threads = lined_up(limiter, 2)

    limiter.configure(per=2 * DAY)
    limiter.configure(per=3 * DAY)

    assert 2 == limiter.snapshot().waiting
    limiter.configure(rate=1e9)
    assert all_end(threads)


def test_a_reloaded_file_reaches_those_who_wait(tmp_path: Path) -> None:
    path = tmp_path / "halfopen.toml"
    text = '[rate_limiter.geo]\nrate = {rate}\nper = "24h"\nburst = 1\nmax_wait = "240h"\n'
    path.write_text(text.format(rate=1))
    registry = Registry.from_file(path)
    limiter = registry.find("rate_limiter", "geo")
    limiter.call(int)
    threads = lined_up(limiter, 2)

    path.write_text(text.format(rate=1e9))
    registry.reload()

    assert all_end(threads)


def test_threads_that_wait_for_a_place_get_the_new_ones() -> None:
    bulkhead = Bulkhead("shop", 1, max_waiting=9)
    leave = threading.Event()
    threads = [threading.Thread(target=bulkhead.call, args=(leave.wait, 60), daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: bulkhead.snapshot().waiting == 3)

    bulkhead.configure(limit=3)

    until(lambda: (3, 1) == (bulkhead.snapshot().in_use, bulkhead.snapshot().waiting))
    leave.set()
    assert all_end(threads)


def test_an_adaptive_limit_that_grows_admits_at_once() -> None:
    """It has no line, so nobody is to be woken: the next call is admitted."""
    policy: Any = AdaptiveConcurrency("search", initial_limit=1, min_samples=1)

    with policy.acquire():
        policy._state.limit = 2

        assert 0 == policy.call(int)
