"""Checked, never run: bulkheads, limiters, fallbacks and hedges keep the types of what they guard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_type

from halfopen.adaptive_concurrency import AdaptiveConcurrency, AdaptiveConcurrencySnapshot, Aimd, Gradient2
from halfopen.bulkhead import Bulkhead, BulkheadSnapshot, Place
from halfopen.cache_fallback import CacheFallback, StaleAnswer
from halfopen.fallback import Fallback
from halfopen.hedge import Hedge, Quantile
from halfopen.rate_limiter import RateLimiter, RateLimiterSnapshot
from halfopen.typing import Policy

bulkhead = Bulkhead("b", 10, max_waiting=5, max_wait=0.5)
limiter = RateLimiter("r", 10, 60, burst=2, max_wait=1.0)
fallback = Fallback("f", lambda error: None, 5, on=(OSError, ValueError))
hedge = Hedge("h", Quantile(0.9), budget=None)
adaptive = AdaptiveConcurrency("a", algorithm=Aimd(slow_after=0.5), dropped_on=OSError)
AdaptiveConcurrency("a", algorithm=Gradient2(tolerance=1.0))
cache = CacheFallback("c", on=OSError, max_age=60, key=str, on_stale=lambda stale: stale.age)
Fallback("f", 5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
policies: list[Policy] = [bulkhead, limiter, fallback, hedge, adaptive, cache, Bulkhead.per_key("k:*", 1)]


@bulkhead
@limiter
@fallback
@hedge
@adaptive
@cache
def pay(amount: int, *, currency: str = "EUR") -> bytes:
    return b""


@bulkhead
@limiter
@fallback
@hedge
@adaptive
@cache
async def apay(amount: int) -> bytes:
    return b""


@bulkhead
def items() -> Iterator[int]:
    yield 1


def told(stale: StaleAnswer) -> float:
    return stale.age


async def use() -> None:
    assert_type(pay(1, currency="USD"), bytes)
    pay("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(await apay(1), bytes)
    assert_type(items(), Iterator[int])
    for policy in (bulkhead, limiter, hedge, adaptive):
        assert_type(policy.call(pay, 1), bytes)
        assert_type(await policy.acall(apay, 1), bytes)
    with bulkhead.acquire() as place:
        assert_type(place, Place)
    async with limiter.acquire(), adaptive.acquire():
        pass
    assert_type(bulkhead.snapshot(), BulkheadSnapshot)
    assert_type(limiter.snapshot(), RateLimiterSnapshot)
    assert_type(adaptive.snapshot(), AdaptiveConcurrencySnapshot)
    assert_type(Bulkhead.per_key("k:*", 1)["a"], Bulkhead)
    assert_type(RateLimiter.per_key("k:*", 1)["a"].call(pay, 1), bytes)
