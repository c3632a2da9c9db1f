"""Threads and two event loops at once, with time limits and cancellations that race the hand-over."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest

from halfopen.bulkhead import Bulkhead
from halfopen.errors import RejectedError
from halfopen.rate_limiter import RateLimiter


class Inside:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.now = self.most = self.total = 0

    def enter(self) -> None:
        with self.lock:
            self.now += 1
            self.total += 1
            self.most = max(self.most, self.now)

    def leave(self) -> None:
        with self.lock:
            self.now -= 1


def storm(policy: Any, seed: int, calls: int, inside: Inside) -> None:
    """Call *policy* from three threads and two event loops, cancelling about half of the tasks at random moments."""

    def work() -> None:
        inside.enter()
        inside.leave()

    def on_threads(rng: random.Random) -> None:
        for _ in range(calls):
            with suppress(RejectedError):
                policy.call(work)

    def on_loop(backend: str) -> Callable[[random.Random], None]:
        async def awork() -> None:
            inside.enter()
            try:
                await anyio.sleep(0)
            finally:
                inside.leave()

        async def one(patience: float) -> None:
            with suppress(RejectedError), anyio.move_on_after(patience):
                await policy.acall(awork)

        async def main(rng: random.Random) -> None:
            async with anyio.create_task_group() as group:
                for _ in range(calls):
                    group.start_soon(one, rng.choice([0.0, 0.0001, 0.001, 30.0]))
                    if rng.random() < 0.2:
                        await anyio.sleep(0)

        return lambda rng: anyio.run(main, rng, backend=backend)

    jobs = [on_threads, on_threads, on_threads, on_loop("asyncio"), on_loop("trio")]
    threads = [
        threading.Thread(target=job, args=(random.Random(seed * 10 + number),), daemon=True)
        for number, job in enumerate(jobs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), f"somebody waits for ever: {policy!r}"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("max_wait", [None, 0.0005, 30.0])
def test_no_place_and_no_wake_up_is_lost_in_a_storm(seed: int, max_wait: float | None) -> None:
    bulkhead = Bulkhead("storm", 2, max_waiting=1000, max_wait=max_wait)
    inside = Inside()

    storm(bulkhead, seed, 150, inside)

    seen = bulkhead.snapshot()
    assert (0, 0, 0) == (seen.in_use, seen.waiting, inside.now)
    assert inside.most <= 2
    assert inside.total <= seen.admitted


@pytest.mark.parametrize("seed", range(4))
def test_nobody_is_left_in_the_line_of_a_rate_limiter_after_a_storm(seed: int) -> None:
    limiter = RateLimiter("storm", 20_000, burst=1, max_wait=10)
    inside = Inside()

    storm(limiter, seed, 150, inside)

    assert 0 == limiter.snapshot().waiting
    assert inside.total <= limiter.snapshot().admitted
