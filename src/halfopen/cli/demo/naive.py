"""The guards that halfopen is compared with: none at all, and a breaker without a half-open state."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from halfopen.errors import CircuitOpenError

__all__ = ["Guard", "NoBreaker", "TwoStateBreaker"]

T = TypeVar("T")


class Guard(Protocol):
    """What stands between a sender and the partner; a `CircuitBreaker` is one."""

    def call(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Call *fn*, or refuse."""
        ...

    async def acall(self, fn: Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any) -> T:
        """Await *fn*, or refuse."""
        ...


class NoBreaker:
    """Every call reaches the partner, well or not."""

    def call(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Call *fn*."""
        return fn(*args, **kwargs)

    async def acall(self, fn: Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any) -> T:
        """Await *fn*."""
        return await fn(*args, **kwargs)


class TwoStateBreaker:
    """
    The breaker that people write first: too many failures, stop for a while, then let everybody in again.

    It trips by the same rule as the one of the story. What it lacks is the state in between.

    Args:
        window: So many of the last calls are judged, and so many are needed.
        failure_rate: Share that opens it.
        wait: Seconds that it stays open.
    """

    def __init__(self, *, window: int, failure_rate: float, wait: float) -> None:
        self._lock = threading.Lock()
        self._failed: deque[bool] = deque(maxlen=window)
        self._window = window
        self._failure_rate = failure_rate
        self._wait = wait
        self._open_until: float | None = None
        self.opened = 0

    @property
    def state(self) -> str:
        """Return ``open`` or ``closed``."""
        return "closed" if self._time_left() is None else "open"

    def call(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Call *fn* unless open."""
        self._admit()
        try:
            value = fn(*args, **kwargs)
        except Exception as error:
            self._record(failed=_counts(error))
            raise
        self._record(failed=False)
        return value

    async def acall(self, fn: Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any) -> T:
        """Await *fn* unless open."""
        self._admit()
        try:
            value = await fn(*args, **kwargs)
        except Exception as error:
            self._record(failed=_counts(error))
            raise
        self._record(failed=False)
        return value

    def _admit(self) -> None:
        left = self._time_left()
        if left is not None:
            raise CircuitOpenError("naive", "open", "open", left)

    def _time_left(self) -> float | None:
        with self._lock:
            if self._open_until is None:
                return None
            left = self._open_until - time.monotonic()
            if left > 0:
                return left
            self._open_until = None
            self._failed.clear()
            return None

    def _record(self, *, failed: bool) -> None:
        with self._lock:
            if self._open_until is not None:
                return
            self._failed.append(failed)
            full = len(self._failed) == self._window
            if full and sum(self._failed) >= self._failure_rate * self._window:
                self._open_until = time.monotonic() + self._wait
                self.opened += 1


def _counts(error: Exception) -> bool:
    status = getattr(error, "status", 500)
    return status in (408, 429) or status >= 500
