"""An interrupt exactly where CPython can deliver one: waiting for a lock, and right after letting go of it."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import TracebackType
from typing import Any

import pytest

from halfopen.adaptive_concurrency import AdaptiveConcurrency
from halfopen.bulkhead import Bulkhead
from halfopen.errors import BulkheadFullError
from halfopen.rate_limiter import RateLimiter


class InterruptedLock:
    """Raises KeyboardInterrupt in one thread, the *n*-th time it comes to that *point*."""

    def __init__(self, point: str, n: int) -> None:
        self._lock = threading.RLock()
        self._point = point
        self._left = n
        self._thread = threading.get_ident()

    def _interrupt(self, point: str) -> None:
        if point == self._point and threading.get_ident() == self._thread:
            self._left -= 1
            if self._left == 0:
                raise KeyboardInterrupt

    def __enter__(self) -> None:
        self._interrupt("wait")
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()
        self._interrupt("release")

    def acquire(self, blocking: bool = True) -> bool:
        return self._lock.acquire(blocking)

    def release(self) -> None:
        self._lock.release()

    def _is_owned(self) -> bool:
        return self._lock._is_owned()  # type: ignore[attr-defined, no-any-return]


def until(condition: Any) -> None:
    for _ in range(120_000):
        if condition():
            return
        threading.Event().wait(0.0005)
    raise AssertionError("it never came to that")


points = pytest.mark.parametrize("point", ["wait", "release"])
times = pytest.mark.parametrize("n", range(1, 6))


@points
@times
@pytest.mark.parametrize("style", ["call", "block"])
def test_a_bulkhead_frees_its_place_and_wakes_who_waits(point: str, n: int, style: str) -> None:
    bulkhead: Any = Bulkhead("shop", 1, max_waiting=5)
    served = threading.Event()
    waiter = threading.Thread(target=bulkhead.call, args=(served.set,), daemon=True)

    def work() -> None:
        waiter.start()
        until(lambda: bulkhead._pool.line.waiting == 1)

    bulkhead._pool.lock = InterruptedLock(point, n)
    with suppress(KeyboardInterrupt):
        if style == "call":
            bulkhead.call(work)
        else:
            with bulkhead.acquire():
                work()

    if waiter.ident is not None:
        assert served.wait(60)
        waiter.join(60)
    assert (0, 0) == (bulkhead._pool.in_use, bulkhead._pool.line.waiting)


@points
@times
@pytest.mark.parametrize("style", ["call", "block"])
def test_one_that_waits_for_a_bulkhead_leaves_it_as_it_was(point: str, n: int, style: str) -> None:
    bulkhead: Any = Bulkhead("shop", 1, max_waiting=5)
    bulkhead._pool.lock = InterruptedLock(point, n)
    leave = threading.Event()
    inside = threading.Event()
    last = threading.Event()

    def hold() -> None:
        inside.set()
        leave.wait(60)

    holder = threading.Thread(target=bulkhead.call, args=(hold,), daemon=True)
    holder.start()
    assert inside.wait(60)
    timer = threading.Timer(0.005, leave.set)
    timer.start()
    with suppress(KeyboardInterrupt):
        if style == "call":
            bulkhead.call(int)
        else:
            with bulkhead.acquire():
                pass
    holder.join(60)
    timer.join(60)

    next_one = threading.Thread(target=bulkhead.call, args=(last.set,), daemon=True)
    next_one.start()
    assert last.wait(60)
    next_one.join(60)
    assert (0, 0) == (bulkhead._pool.in_use, bulkhead._pool.line.waiting)


@points
@times
def test_one_whose_wait_is_over_leaves_the_line(point: str, n: int) -> None:
    bulkhead: Any = Bulkhead("shop", 1, max_waiting=5, max_wait=0.002)
    place = bulkhead.acquire()
    place.__enter__()
    bulkhead._pool.lock = InterruptedLock(point, n)

    with suppress(KeyboardInterrupt, BulkheadFullError):
        bulkhead.call(int)

    assert (1, 0) == (bulkhead._pool.in_use, bulkhead._pool.line.waiting)
    bulkhead._pool.lock = threading.Lock()
    place.__exit__(None, None, None)
    assert (0, 0) == (bulkhead._pool.in_use, bulkhead._pool.line.waiting)


@points
@times
def test_one_that_waits_for_its_turn_lets_the_next_one_have_it(point: str, n: int) -> None:
    limiter: Any = RateLimiter("geo", 200, burst=1, max_wait=10)
    limiter.call(int)
    limiter._meter.lock = InterruptedLock(point, n)
    served = threading.Event()
    behind = threading.Thread(target=limiter.call, args=(served.set,), daemon=True)

    class LateClock:
        """Lets the one behind line up before it sleeps."""

        monotonic = staticmethod(limiter._clock.monotonic)

        def sleep(self, seconds: float) -> None:
            if behind.ident is None:
                behind.start()
                until(lambda: limiter._meter.line.waiting == 2)
            threading.Event().wait(seconds)

    limiter._clock = LateClock()
    with suppress(KeyboardInterrupt):
        limiter.call(int)

    if behind.ident is not None:
        assert served.wait(60)
        behind.join(60)
    until(lambda: limiter._meter.line.waiting == 0)


@points
@times
@pytest.mark.parametrize("style", ["call", "block"])
def test_adaptive_concurrency_ends_its_call(point: str, n: int, style: str) -> None:
    policy: Any = AdaptiveConcurrency("search")
    policy._state.lock = InterruptedLock(point, n)

    with suppress(KeyboardInterrupt):
        if style == "call":
            policy.call(int)
        else:
            with policy.acquire():
                pass

    assert 0 == policy.snapshot().in_use if n > 3 else policy._state.in_use - len(policy._state.called) == 0
