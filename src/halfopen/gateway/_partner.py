"""A partner at work: its pipeline, its connections, its judge."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from halfopen.bulkhead import Bulkhead
from halfopen.cache_fallback import CacheFallback
from halfopen.circuit_breaker import CircuitBreaker
from halfopen.errors import ConfigError, Mistake
from halfopen.fallback import Fallback
from halfopen.hedge import Hedge
from halfopen.pipeline import Pipeline
from halfopen.registry import Registry
from halfopen.retry import Retry
from halfopen.retry_queue import LaneProfile

from ._judging import Judge
from ._settings import GatewaySettings, PartnerSettings
from ._upstream import Upstream

__all__ = ["UNFIT", "Partner"]

_log = logging.getLogger("halfopen.gateway")

UNFIT = {
    "hedge": "it would send a message twice",
    "fallback": "the gateway passes the partner's answers on and makes none up",
    "cache_fallback": "the gateway passes the partner's answers on and makes none up",
}
"""Why policies of these sections have no place in a partner's pipeline."""
_KINDS = {"hedge": Hedge, "fallback": Fallback, "cache_fallback": CacheFallback}
_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"})


class Partner:
    """
    One configured partner.

    Attributes:
        overruled: Lower-case names of the headers that the configuration sets.
    """

    def __init__(self, settings: PartnerSettings, gateway: GatewaySettings, registry: Registry) -> None:
        self.settings = settings
        self.name = settings.name
        self.overruled = frozenset(name.lower().encode() for name in settings.headers)
        self.upstream = Upstream(settings, gateway.time_limit)
        self.judge = Judge(settings.name, settings.profile, as2=settings.as2)
        self._registry = registry
        self._made_of: Any = None
        self._unfit: Any = None
        self._whole: Callable[..., Awaitable[Any]]
        self._once: Callable[..., Awaitable[Any]]
        self._breaker: CircuitBreaker | None = None
        self._in_flight = 0
        self._last: asyncio.Future[None] | None = None
        self._wire()

    def begin(self) -> None:
        """Count an exchange in flight; its `end` comes for certain."""
        self._in_flight += 1

    def end(self) -> None:
        """Count it no more."""
        self._in_flight -= 1
        if not self._in_flight and self._last is not None and not self._last.done():
            self._last.set_result(None)

    async def retire(self) -> None:
        """Close its connections once the exchanges in flight have ended."""
        if self._in_flight:
            self._last = asyncio.get_running_loop().create_future()
            await self._last
        await self.upstream.close()

    def acall(self, call: Callable[[], Awaitable[None]], *, repeatable: bool) -> Awaitable[Any]:
        """Await *call* through the partner's policies; retries among them count only where it may be repeated."""
        self._wire()
        return (self._whole if repeatable else self._once)(call)

    @property
    def breaker(self) -> CircuitBreaker | None:
        """The outermost breaker of its pipeline."""
        self._wire()
        return self._breaker

    def repeatable(self, method: str, message_id: str | None, *, keyed: bool) -> bool:
        """Say whether the same request may arrive twice: by its method, an Idempotency-Key, or an AS2 Message-ID."""
        return method in _REPEATABLE or keyed or (self.settings.as2 and message_id is not None)

    def profile(self) -> LaneProfile:
        """Return how its stored messages are sent: with no more in flight than its bulkhead has places."""
        profile = self.settings.profile
        pipeline = self._made_of
        bulkhead = pipeline.find(Bulkhead) if isinstance(pipeline, Pipeline) else None
        return profile if bulkhead is None else replace(profile, limit=min(profile.limit, bulkhead.snapshot().limit))

    def _wire(self) -> None:
        """Take what the registry has now: a reload may have put another pipeline there."""
        settings, registry = self.settings, self._registry
        section, _, name = (settings.pipeline or settings.breaker or f"breaker.{self.name}").partition(".")
        found = registry.find("circuit_breaker" if section == "breaker" else section, name)
        if found is self._made_of and found is not None:
            return
        if found is None:
            # A removed pipeline goes on as it was; a breaker nobody configured is made.
            if self._made_of is not None:
                return
            found = registry.circuit_breaker(name, consecutive_failures=5)
        if found is self._unfit:
            return
        try:
            self._use(found)
        except ConfigError as error:
            if self._made_of is None:
                raise
            self._unfit = found
            _log.error("the pipeline of %s stays what it was: %s", self.name, error)

    def _use(self, found: Any) -> None:
        if not isinstance(found, Pipeline):
            self._whole = self._once = found.acall
            self._breaker = found
        else:
            _refuse_unfit(self.name, found)
            once = [policy for policy in found.flat if not isinstance(policy, Retry)]
            self._whole = found.acall
            self._once = Pipeline(*once, name=found.name).acall if once else _bare
            self._breaker = found.find(CircuitBreaker)
        self._made_of = found


async def _bare(call: Callable[[], Awaitable[None]]) -> None:
    await call()


def _refuse_unfit(name: str, pipeline: Pipeline) -> None:
    path = f"partner.{name}.pipeline"
    mistakes = [
        Mistake(path, pipeline.name, f"{type(policy).__name__} {policy.name!r} does not fit here: {why}", "conflict")
        for policy in pipeline.flat
        for section, why in UNFIT.items()
        if isinstance(policy, _KINDS[section])
    ]
    if mistakes:
        raise ConfigError(mistakes)
