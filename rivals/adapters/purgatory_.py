"""purgatory: the decorator of its synchronous and of its asynchronous factory."""

from __future__ import annotations

import asyncio
from typing import Any

from purgatory import AsyncCircuitBreakerFactory, SyncCircuitBreakerFactory

from rivals.adapters.base import Adapter, Guard, Wishes

__all__ = ["ADAPTER"]

_STATES = {"closed": "closed", "opened": "open", "half-opened": "half_open"}


class _Purgatory(Adapter):
    name = "purgatory"

    def build(self, wishes: Wishes, colour: str) -> Guard:
        kind: Any = SyncCircuitBreakerFactory if colour == "sync" else AsyncCircuitBreakerFactory
        factory = kind(default_threshold=wishes.failures, default_ttl=wishes.open_time, exclude=_exclude(wishes))
        if wishes.listener is not None:
            factory.add_listener(_hook(wishes, colour))
        breaker = factory.get_breaker("rival")
        if colour == "async":
            breaker = asyncio.run(breaker)
        return Guard(factory("rival"), lambda: _STATES[breaker.context.state])


def _exclude(wishes: Wishes) -> list[Any]:
    if wishes.predicate is not None:
        judge = wishes.predicate
        return [(Exception, lambda exc: not judge(exc))]
    return [wishes.ignore] if wishes.ignore else []


def _hook(wishes: Wishes, colour: str) -> Any:
    tell = wishes.listener
    assert tell is not None

    def hook(name: str, event_type: str, event: Any) -> None:
        if event_type != "circuit_breaker_created":
            tell()

    async def ahook(name: str, event_type: str, event: Any) -> None:
        hook(name, event_type, event)

    return hook if colour == "sync" else ahook


ADAPTER = _Purgatory()
