"""hyx: the decorator, with one success needed to close instead of its three."""

from __future__ import annotations

from typing import ClassVar

from hyx.circuitbreaker import consecutive_breaker

from rivals.adapters.base import Adapter, Guard, Wishes

__all__ = ["ADAPTER"]

_STATES = {"working": "closed", "failing": "open", "recovering": "half_open"}


class _Hyx(Adapter):
    name = "hyx"
    colours = ("async",)
    lacks: ClassVar = {
        "sync": "asyncio only",
        "predicate": "exception types only, no predicate",
        "listener": "no listeners on its breaker",
    }

    def build(self, wishes: Wishes, colour: str) -> Guard:
        breaker = consecutive_breaker(
            exceptions=wishes.failure,
            failure_threshold=wishes.failures,
            recovery_time_secs=wishes.open_time,
            recovery_threshold=1,
        )
        return Guard(breaker, lambda: _STATES[breaker.state.name])


ADAPTER = _Hyx()
