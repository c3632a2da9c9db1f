"""aiobreaker: the decorator, on functions and on coroutine functions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import aiobreaker

from rivals.adapters.base import Adapter, Guard, Wishes

__all__ = ["ADAPTER"]


class _Listener(aiobreaker.CircuitBreakerListener):
    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell

    def failure(self, breaker: Any, exception: Exception) -> None:
        self._tell()

    def success(self, breaker: Any) -> None:
        self._tell()

    def state_change(self, breaker: Any, old: Any, new: Any) -> None:
        self._tell()


class _AioBreaker(Adapter):
    name = "aiobreaker"

    def build(self, wishes: Wishes, colour: str) -> Guard:
        exclude: list[Any] = [wishes.ignore] if wishes.ignore else []
        if wishes.predicate is not None:
            judge = wishes.predicate
            exclude.append(lambda exc: not judge(exc))
        breaker = aiobreaker.CircuitBreaker(
            fail_max=wishes.failures,
            timeout_duration=timedelta(seconds=wishes.open_time),
            exclude=exclude,
            listeners=[_Listener(wishes.listener)] if wishes.listener else [],
        )
        return Guard(breaker, lambda: str(breaker.current_state.name).lower())


ADAPTER = _AioBreaker()
