"""circuitbreaker: the decorator, which is the form that refuses."""

from __future__ import annotations

from typing import Any, ClassVar

from circuitbreaker import CircuitBreaker

from rivals.adapters.base import Adapter, Guard, Wishes

__all__ = ["ADAPTER"]


class _CircuitBreaker(Adapter):
    name = "circuitbreaker"
    lacks: ClassVar = {"listener": "no listeners"}

    def build(self, wishes: Wishes, colour: str) -> Guard:
        expected: Any = wishes.failure
        if wishes.predicate is not None:
            judge = wishes.predicate
            expected = lambda kind, exc: judge(exc)  # noqa: E731
        breaker = CircuitBreaker(
            failure_threshold=wishes.failures,
            recovery_timeout=wishes.open_time,
            expected_exception=expected,
        )
        return Guard(breaker, lambda: str(breaker.state))


ADAPTER = _CircuitBreaker()
