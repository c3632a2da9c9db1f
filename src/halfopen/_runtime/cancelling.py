"""
Cancel the block that the present task is in once a time has come, and tell that from a cancellation by somebody else.

On asyncio the bookkeeping is that of `asyncio.timeout`: the block's end takes back the one cancellation that its own
timer asked for, and claims it only if nobody else had asked for one meanwhile. On trio it is a cancel scope. The time
limit runs on the loop's own timers under the system clock, and by `Clock.call_at` under any other.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol

from halfopen._runtime.clock import Clock, SystemClock, TimerHandle, async_library

__all__ = ["CancelScope", "cancel_at"]


class CancelScope(Protocol):
    """A block that is cancelled at its time."""

    @property
    def expired(self) -> bool:
        """Say, after the block, whether it ended because of its time."""
        ...

    @property
    def cause(self) -> BaseException | None:
        """Return the cancellation that ended the block, for its traceback, where there is one."""
        ...

    def __enter__(self) -> CancelScope: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool: ...


def cancel_at(when: float, clock: Clock) -> CancelScope:
    """
    Return a scope for the present task that cancels its block once *clock* reads *when*.

    Raises:
        RuntimeError: No task is running.
    """
    library = async_library()
    return _AsyncioScope(library, when, clock) if library.__name__ == "asyncio" else _TrioScope(library, when, clock)


class _AsyncioScope:
    __slots__ = ("_active", "_asyncio", "_cancelling", "_clock", "_fired", "_task", "_timer", "_when", "cause")

    def __init__(self, asyncio: Any, when: float, clock: Clock) -> None:
        self._asyncio = asyncio
        self._when = when
        self._clock = clock
        self._fired = self._active = False
        self._timer: TimerHandle | None = None
        self.cause: BaseException | None = None

    @property
    def expired(self) -> bool:
        return self.cause is not None

    def __enter__(self) -> _AsyncioScope:
        self._task = self._asyncio.current_task()
        if self._task is None:
            raise RuntimeError("a timeout guards coroutines that run in a task")
        self._cancelling = self._task.cancelling()
        self._active = True
        self._timer = self._start()
        return self

    def _start(self) -> TimerHandle:
        loop = self._asyncio.get_running_loop()
        if isinstance(self._clock, SystemClock):
            timer: TimerHandle = loop.call_later(max(self._when - self._clock.monotonic(), 0.0), self._fire)
            return timer
        return self._clock.call_at(self._when, lambda: _from_elsewhere(loop, self._fire))

    def _fire(self) -> None:
        # A callback of the loop, so the task is suspended and will see the cancellation at that very await.
        if self._active:
            self._fired = True
            self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._active = False
        if self._timer is not None:
            self._timer.cancel()
        if not self._fired:
            return False
        others = self._task.uncancel() > self._cancelling
        if others or not isinstance(error, self._asyncio.CancelledError):
            return False
        self.cause = error
        return True


def _from_elsewhere(loop: Any, callback: Any) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback)


class _TrioScope:
    __slots__ = ("_clock", "_scope", "_timer", "_trio", "_when", "cause")

    def __init__(self, trio: Any, when: float, clock: Clock) -> None:
        self._trio = trio
        self._when = when
        self._clock = clock
        self._timer: TimerHandle | None = None
        self.cause: BaseException | None = None

    @property
    def expired(self) -> bool:
        return bool(self._scope.cancelled_caught)

    def __enter__(self) -> _TrioScope:
        trio = self._trio
        if isinstance(self._clock, SystemClock):
            left = max(self._when - self._clock.monotonic(), 0.0)
            self._scope = trio.CancelScope(deadline=trio.current_time() + left)
        else:
            self._scope = trio.CancelScope()
            token = trio.lowlevel.current_trio_token()
            self._timer = self._clock.call_at(self._when, lambda: self._fire(token))
        self._scope.__enter__()
        return self

    def _fire(self, token: Any) -> None:
        try:
            token.run_sync_soon(self._scope.cancel)
        except self._trio.RunFinishedError:
            return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if self._timer is not None:
            self._timer.cancel()
        return bool(self._scope.__exit__(kind, error, traceback))
