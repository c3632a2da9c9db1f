"""halfopen: the decorator, one trial call, a constant wait."""

from __future__ import annotations

from typing import Any

from halfopen import CircuitBreaker, Failures, HalfOpen, Outcome, constant
from rivals.adapters.base import Adapter, Guard, Wishes

__all__ = ["ADAPTER"]


class _Judge:
    def __init__(self, wishes: Wishes) -> None:
        assert wishes.predicate is not None
        self._predicate = wishes.predicate

    def of_exception(self, exc: BaseException) -> Outcome:
        return Outcome.FAILURE if self._predicate(exc) else Outcome.SUCCESS

    def of_result(self, value: object) -> Outcome:
        return Outcome.SUCCESS


class _HalfOpen(Adapter):
    name = "halfopen"

    def build(self, wishes: Wishes, colour: str) -> Guard:
        breaker = CircuitBreaker(
            "rival",
            consecutive_failures=wishes.failures,
            wait_in_open=constant(wishes.open_time),
            half_open=HalfOpen(permitted_calls=1, trial_timeout=wishes.trial_timeout or 60.0),
            classify=_classify(wishes),
        )
        if wishes.listener is not None:
            listener = wishes.listener
            breaker.subscribe(lambda event: listener())
        return Guard(breaker, lambda: breaker.state.value)


def _classify(wishes: Wishes) -> Any:
    if wishes.predicate is not None:
        return _Judge(wishes)
    return Failures(on=wishes.failure, ignore=(wishes.ignore,) if wishes.ignore else ())


ADAPTER = _HalfOpen()
