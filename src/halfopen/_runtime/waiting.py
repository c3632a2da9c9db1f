"""
Park a thread, an asyncio task or a trio task until somebody wakes it, from any thread.

An async waker works once, a thread's again and again. `wake` is remembered when it comes before `wait`, may be called
twice and never blocks; it answers False where nobody can be woken any more because the event loop is gone. Whoever
hands something over on waking goes on with the next in line then. What a wake-up means, granted or timed out, is not
known here: look after `wait`.

A time limit runs on the system's own timers under the system clock, and by `Clock.call_at` under any other.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from threading import get_ident
from typing import Any, Protocol

from halfopen._runtime.clock import Clock, SystemClock, async_library
from halfopen._runtime.deadline import time_left

__all__ = ["AsyncWaker", "ThreadWaker", "Waker", "anap", "async_waker", "longest_wait", "nap"]


class Waker(Protocol):
    """What the one who hands over needs to know."""

    def wake(self) -> bool:
        """Wake the one who waits; return False where that cannot be done any more."""
        ...


class AsyncWaker(Waker, Protocol):
    """A waker that a task can wait for."""

    async def wait(self, clock: Clock, until: float | None) -> None:
        """Suspend the task until woken, or until *clock* reads *until*."""
        ...


class ThreadWaker:
    """Parks a thread on a lock of its own, so that waking one never stirs the others."""

    __slots__ = ("_latch",)

    def __init__(self) -> None:
        self._latch = threading.Lock()
        self._latch.acquire()

    def wake(self) -> bool:
        """Wake the thread."""
        with suppress(RuntimeError):  # it is awake
            self._latch.release()
        return True

    def wait(self, clock: Clock, until: float | None) -> None:
        """Block this thread until woken, or until *clock* reads *until*."""
        if until is None:
            self._latch.acquire()
        elif isinstance(clock, SystemClock):
            left = until - clock.monotonic()
            self._latch.acquire(timeout=min(max(left, 0.0), threading.TIMEOUT_MAX))
        else:
            timer = clock.call_at(until, self.wake)
            try:
                self._latch.acquire()
            finally:
                timer.cancel()


class _AsyncioWaker:
    __slots__ = ("_future", "_loop", "_thread")

    def __init__(self, asyncio: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self._future = self._loop.create_future()
        self._thread = get_ident()

    def wake(self) -> bool:
        if get_ident() == self._thread:
            if self._loop.is_closed():
                return False
            self._open()
            return True
        # Not asked beforehand: the task may take what it was woken for, end, and its loop close, all meanwhile.
        try:
            self._loop.call_soon_threadsafe(self._open)
        except RuntimeError:
            return False
        return True

    def _open(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, clock: Clock, until: float | None) -> None:
        if until is None:
            await self._future
            return
        if isinstance(clock, SystemClock):
            timer = self._loop.call_later(max(0.0, until - clock.monotonic()), self._open)
        else:
            timer = clock.call_at(until, self.wake)
        try:
            await self._future
        finally:
            timer.cancel()


class _TrioWaker:
    __slots__ = ("_event", "_thread", "_token", "_trio")

    def __init__(self, trio: Any) -> None:
        self._trio = trio
        self._event = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        self._thread = get_ident()

    def wake(self) -> bool:
        # The same thread, but in this very run: outside of it, trio would not notice the event.
        lowlevel = self._trio.lowlevel
        if get_ident() == self._thread and lowlevel.in_trio_run() and lowlevel.current_trio_token() is self._token:
            self._event.set()
            return True
        try:
            self._token.run_sync_soon(self._event.set)
        except self._trio.RunFinishedError:
            return False
        return True

    async def wait(self, clock: Clock, until: float | None) -> None:
        if until is None:
            await self._event.wait()
        elif isinstance(clock, SystemClock):
            with self._trio.move_on_after(max(0.0, until - clock.monotonic())):
                await self._event.wait()
        else:
            timer = clock.call_at(until, self.wake)
            try:
                await self._event.wait()
            finally:
                timer.cancel()


def async_waker() -> AsyncWaker:
    """
    Return a waker for the present task.

    Raises:
        RuntimeError: No task is running, on asyncio or trio.
    """
    library = async_library()
    return _TrioWaker(library) if library.__name__ == "trio" else _AsyncioWaker(library)


def nap(waker: ThreadWaker, clock: Clock, seconds: float) -> None:
    """Block this thread for *seconds*; under the system clock, waking it ends that early."""
    if isinstance(clock, SystemClock):
        waker.wait(clock, clock.monotonic() + seconds)
    else:
        clock.sleep(seconds)


async def anap(waker: AsyncWaker, clock: Clock, seconds: float) -> None:
    """Suspend this task for *seconds*; as `nap`."""
    if isinstance(clock, SystemClock):
        await waker.wait(clock, clock.monotonic() + seconds)
    else:
        await clock.asleep(seconds)


def longest_wait(max_wait: float | None) -> float | None:
    """Return the seconds that may be waited: *max_wait* or what the ambient deadline leaves; None: no limit."""
    left = time_left()
    if left is None:
        return max_wait
    return left if max_wait is None else min(left, max_wait)
