"""pybreaker: the decorator; the original error instead of a new one when it trips."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pybreaker

from rivals.adapters.base import Adapter, Guard, Wishes

__all__ = ["ADAPTER"]


class _Listener(pybreaker.CircuitBreakerListener):
    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell

    def failure(self, cb: Any, exc: BaseException) -> None:
        self._tell()

    def success(self, cb: Any) -> None:
        self._tell()

    def state_change(self, cb: Any, old_state: Any, new_state: Any) -> None:
        self._tell()


class _PyBreaker(Adapter):
    name = "pybreaker"
    colours = ("sync",)
    lacks: ClassVar = {"async": "no asyncio"}

    def build(self, wishes: Wishes, colour: str) -> Guard:
        exclude: list[Any] = [wishes.ignore] if wishes.ignore else []
        if wishes.predicate is not None:
            judge = wishes.predicate
            exclude.append(lambda exc: not judge(exc))
        breaker = pybreaker.CircuitBreaker(
            fail_max=wishes.failures,
            reset_timeout=wishes.open_time,
            success_threshold=1,
            exclude=exclude,
            listeners=[_Listener(wishes.listener)] if wishes.listener else [],
            throw_new_error_on_trip=False,
        )
        return Guard(breaker, lambda: breaker.current_state.replace("-", "_"))


ADAPTER = _PyBreaker()
