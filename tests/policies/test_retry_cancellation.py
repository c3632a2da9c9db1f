"""Cancellation passes through a retry at every await point, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from halfopen.retry import Retry, attempt
from halfopen.testing import FakeClock
from halfopen.timeout import time_left

POINTS = 12


class Stepping(FakeClock):
    """Sleeps in three steps, so that a cancellation can hit between them."""

    async def asleep(self, seconds: float) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        self.advance(seconds)


def a_retry(**settings: Any) -> Retry:
    return Retry("bank", on=Exception, attempts=3, backoff=1, clock=Stepping(), **settings)


@pytest.mark.parametrize("settings", [{}, {"total": 60.0}], ids=["plain", "total"])
@pytest.mark.parametrize("style", ["call", "block"])
def test_a_cancellation_at_any_point_ends_the_call_at_once(style: str, settings: dict[str, Any]) -> None:
    made: list[int] = []

    async def fn() -> None:
        made.append(attempt())
        await asyncio.sleep(0)
        raise ConnectionError

    async def block(retry: Retry) -> None:
        async for turn in retry:
            with turn:
                await fn()

    async def guarded(retry: Retry) -> None:
        try:
            await (retry.acall(fn) if style == "call" else block(retry))
        finally:
            assert (1, None) == (attempt(), time_left())

    ends = set()
    for steps in range(1, POINTS + 4):
        made.clear()
        retry = a_retry(**settings)

        async def main(retry: Retry = retry, steps: int = steps) -> tuple[bool, bool]:
            task = asyncio.ensure_future(guarded(retry))
            for _ in range(steps):
                await asyncio.sleep(0)
            over = task.done()
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()
            return task.cancelled(), over

        cancelled, over = asyncio.run(main())
        snapshot = retry.snapshot()
        ends.add((cancelled, len(made)))

        assert cancelled is not over
        assert (cancelled, not cancelled) == (snapshot.interrupted == 1, snapshot.calls["failed_exhausted"] == 1)

    assert {(True, 1), (True, 2), (True, 3), (False, 3)} == ends


@pytest.mark.anyio
async def test_on_either_library_a_cancelled_sleep_is_no_attempt(anyio_backend_name: str) -> None:
    import anyio

    made = []
    retry = Retry("bank", on=ConnectionError, backoff=60)

    async def fn() -> None:
        made.append(1)
        raise ConnectionError

    with anyio.move_on_after(0.01) as scope:
        await retry.acall(fn)

    assert scope.cancelled_caught
    assert [1] == made
    assert 1 == retry.snapshot().interrupted


@pytest.mark.anyio
async def test_on_either_library_it_really_sleeps_and_tries_again() -> None:
    made = []
    retry = Retry("bank", on=ConnectionError, backoff=0.001)

    async def fn() -> str:
        made.append(attempt())
        if len(made) < 3:
            raise ConnectionError
        return "fine"

    assert "fine" == await retry.acall(fn)
    assert [1, 2, 3] == made
