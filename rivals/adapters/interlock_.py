"""interlock-cb: the decorator, one probe, and its timeouts where they help."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from interlock import CircuitBreaker, Config, sync_timeout, timeout

from rivals.adapters.base import Adapter, Guard, Wishes

__all__ = ["ADAPTER"]


class _Judge:
    def __init__(self, predicate: Callable[[BaseException], bool]) -> None:
        self._predicate = predicate

    def is_failure(self, *, result: object, exception: Exception | None) -> bool:
        return exception is not None and self._predicate(exception)


class _Listener:
    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell

    def on_state_change(self, **about: object) -> None:
        self._tell()

    def on_call(self, **about: object) -> None:
        self._tell()

    def on_rejected(self, **about: object) -> None:
        self._tell()

    def on_reset(self, **about: object) -> None:
        self._tell()


class _Interlock(Adapter):
    name = "interlock-cb"
    timeout_helper = "timeout"

    def build(self, wishes: Wishes, colour: str) -> Guard:
        breaker = CircuitBreaker(
            name="rival",
            config=Config(
                minimum_number_of_calls=wishes.failures,
                permitted_calls_in_half_open=1,
                max_concurrent_probes=1,
                wait_duration_in_open=wishes.open_time,
            ),
            classifier=_Judge(wishes.predicate) if wishes.predicate else None,
            listener=_Listener(wishes.listener) if wishes.listener else None,
            unreachable_exceptions=(wishes.ignore,) if wishes.ignore else (),
        )
        return Guard(breaker, lambda: breaker.state.value)

    def with_timeout(self, fn: Callable[..., Any], seconds: float, colour: str) -> Callable[..., Any]:
        if colour == "sync":
            bounded: Callable[..., Any] = sync_timeout(seconds)(fn)
            return bounded

        @functools.wraps(fn)
        async def abounded(*args: Any) -> Any:
            async with timeout(seconds):
                return await fn(*args)

        return abounded


ADAPTER = _Interlock()
