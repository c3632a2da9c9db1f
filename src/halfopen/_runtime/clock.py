"""The one source of time: readings, sleeping, wall time, and calling back later."""

from __future__ import annotations

import heapq
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any, Protocol

from halfopen._runtime.late import logger

__all__ = ["SYSTEM_CLOCK", "Clock", "SystemClock", "TimerHandle"]


class TimerHandle(Protocol):
    """A callback that is due later."""

    def cancel(self) -> None:
        """Take the callback back; a no-op once it ran."""


class Clock(Protocol):
    """
    What every policy asks for time, so that a test can hand in one that jumps.

    All seconds are floats. Only `wall` knows the calendar, and no decision depends on it.
    """

    def monotonic(self) -> float:
        """Return seconds that never go backwards."""
        ...

    def wall(self) -> float:
        """Return Unix time, for showing only."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Block this thread for *seconds*."""
        ...

    async def asleep(self, seconds: float, /) -> None:
        """Suspend this task for *seconds*, on asyncio or trio."""
        ...

    def call_at(self, when: float, callback: Callable[[], object]) -> TimerHandle:
        """Run *callback* once `monotonic` has reached *when*, on no caller's thread."""
        ...


class SystemClock:
    """The machine's own clock."""

    __slots__ = ()

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
    sleep = staticmethod(time.sleep)

    async def asleep(self, seconds: float) -> None:
        """Suspend this task for *seconds*, on asyncio or trio."""
        await async_library().sleep(seconds)

    def call_at(self, when: float, callback: Callable[[], object]) -> TimerHandle:
        """Run *callback* on the timer thread once `monotonic` has reached *when*."""
        return _timer.call_at(when, callback)

    def __reduce__(self) -> str:
        return "SYSTEM_CLOCK"


def async_library() -> Any:
    """
    Return the module, asyncio or trio, whose event loop runs the present task.

    Raises:
        RuntimeError: No task is running.
    """
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        return trio
    import asyncio

    asyncio.get_running_loop()
    return asyncio


class _Timer:
    """One daemon thread for every callback of the process, started when first needed."""

    def __init__(self) -> None:
        # Entered by itself: an interrupt on the way into a Condition, which is Python code, would leave it held.
        # Reentrant, because a signal handler may set a timer in the midst of it.
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._heap: list[tuple[float, int, _Due]] = []
        self._order = count()
        self._thread: threading.Thread | None = None

    def call_at(self, when: float, callback: Callable[[], object]) -> _Due:
        due = _Due(callback)
        with self._lock:
            heapq.heappush(self._heap, (when, next(self._order), due))
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._run, name="halfopen-timer", daemon=True)
                thread.start()
                self._thread = thread
            self._wake.notify()
        return due

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._heap or self._heap[0][0] > time.monotonic():
                    wait = self._heap[0][0] - time.monotonic() if self._heap else None
                    self._wake.wait(wait if wait is None else min(max(wait, 0.0), threading.TIMEOUT_MAX))
                due = heapq.heappop(self._heap)[2]
            due.run()


class _Due:
    __slots__ = ("_callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self._callback = None

    def run(self) -> None:
        callback, self._callback = self._callback, None
        if callback is None:
            return
        try:
            callback()
        except Exception:
            logger().exception("a timer callback raised")


def _forget_timer() -> None:
    global _timer
    _timer = _Timer()


import os  # noqa: E402  (only for the fork hook below)

_timer = _Timer()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_timer)

SYSTEM_CLOCK = SystemClock()
