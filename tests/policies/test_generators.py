"""A generator function through `call` and as a decorator: guarded where a policy can, refused where it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from halfopen import CircuitBreaker, Pipeline
from halfopen.adaptive_concurrency import AdaptiveConcurrency
from halfopen.bulkhead import Bulkhead
from halfopen.cache_fallback import CacheFallback
from halfopen.errors import BulkheadFullError, RateLimitedError
from halfopen.fallback import Fallback
from halfopen.hedge import Hedge, Quantile
from halfopen.rate_limiter import RateLimiter
from halfopen.retry import Retry
from halfopen.timeout import Timeout


def numbers(count: int, *, step: int = 1) -> Iterator[int]:
    yield from range(0, count * step, step)


async def anumbers(count: int, *, step: int = 1) -> AsyncIterator[int]:
    for number in range(0, count * step, step):
        yield number


def made_elsewhere() -> Iterator[int]:
    return numbers(2)


async def collected(items: Any) -> list[int]:
    return [item async for item in items]


HOLDING: dict[str, Callable[[], Any]] = {
    "bulkhead": lambda: Bulkhead("b", 1),
    "bulkheads": lambda: Bulkhead.per_key("b:*", 1, key=lambda count, step=1: count)[3],
    "adaptive": lambda: AdaptiveConcurrency("a", initial_limit=1, max_limit=1),
}
REFUSING: dict[str, Callable[[], Any]] = {
    "retry": lambda: Retry("r", on=ConnectionError),
    "retry with a total": lambda: Retry("r", on=ConnectionError, total=10.0),
    "timeout": lambda: Timeout("t", 10.0),
    "timeout on threads": lambda: Timeout("t", 10.0, worker_thread=True),
    "hedge": lambda: Hedge("h", 10.0),
    "hedge that does not yet": lambda: Hedge("h", Quantile()),
    "fallback": lambda: Fallback("f", [], on=Exception),
    "cache": lambda: CacheFallback("c", on=Exception, max_age=60.0),
}
GUARDING = {
    **HOLDING,
    "rate limiter": lambda: RateLimiter("l", 1000),
    "breaker": lambda: CircuitBreaker("b"),
    "pipeline": lambda: Pipeline(CircuitBreaker("p"), Bulkhead("p", 1)),
}


@pytest.mark.parametrize("kind", GUARDING)
def test_call_hands_out_the_items_of_a_generator(kind: str) -> None:
    policy = GUARDING[kind]()

    assert [0, 2, 4] == list(policy.call(numbers, 3, step=2))
    assert [0, 2, 4] == asyncio.run(collected(policy.call(anumbers, 3, step=2)))
    assert [0, 2, 4] == list(policy(numbers)(3, step=2))


@pytest.mark.parametrize("kind", HOLDING)
def test_a_generator_through_call_keeps_its_place_from_the_first_item_to_the_end(kind: str) -> None:
    policy = HOLDING[kind]()

    items = policy.call(numbers, 3)

    assert 0 == policy.snapshot().in_use
    assert 0 == next(items)
    assert 1 == policy.snapshot().in_use
    with pytest.raises(BulkheadFullError):
        policy.call(int)
    assert [1, 2] == list(items)
    assert (0, 1) == (policy.snapshot().in_use, policy.snapshot().admitted)


@pytest.mark.parametrize("kind", HOLDING)
def test_an_async_generator_through_call_keeps_its_place_as_well(kind: str) -> None:
    policy = HOLDING[kind]()

    async def main() -> None:
        items = policy.call(anumbers, 2)
        assert 0 == policy.snapshot().in_use
        assert 0 == await anext(items)
        assert 1 == policy.snapshot().in_use
        await items.aclose()

    asyncio.run(main())
    assert (0, 1) == (policy.snapshot().in_use, policy.snapshot().admitted)


def test_a_generator_teaches_an_adaptive_limit_nothing() -> None:
    policy = AdaptiveConcurrency("a")

    list(policy.call(numbers, 3))

    assert (1, 0) == (policy.snapshot().admitted, policy.snapshot().measured)


def test_a_generator_through_call_uses_one_permit_of_a_rate_limiter_when_it_is_called() -> None:
    limiter = RateLimiter("l", 1, 3600.0)

    items = limiter.call(numbers, 2)

    with pytest.raises(RateLimitedError):
        limiter.call(numbers, 2)
    assert [0, 1] == list(items)
    assert 1 == limiter.snapshot().admitted


@pytest.mark.parametrize("kind", REFUSING)
@pytest.mark.parametrize("fn", [numbers, anumbers])
def test_a_policy_that_cannot_guard_a_generator_says_so_at_once_and_what_to_do(kind: str, fn: Any) -> None:
    policy = REFUSING[kind]()

    with pytest.raises(TypeError, match=r"cannot guard the generator a?numbers: .*guard what the generator calls"):
        policy.call(fn, 3)
    with pytest.raises(TypeError, match=r"cannot guard the generator a?numbers: .*guard what the generator calls"):
        policy(fn)


@pytest.mark.parametrize("kind", {**REFUSING, **GUARDING})
def test_a_generator_that_a_plain_function_returns_is_a_result(kind: str) -> None:
    policy = {**REFUSING, **GUARDING}[kind]()

    assert [0, 1] == list(policy.call(made_elsewhere))


def test_nested_policies_hold_a_place_each() -> None:
    outer, inner = Bulkhead("outer", 1), Bulkhead("inner", 1)

    items = outer.call(inner.call, numbers, 2)

    assert 0 == next(items)
    assert (1, 1) == (outer.snapshot().in_use, inner.snapshot().in_use)
    assert [1] == list(items)
    assert (0, 0) == (outer.snapshot().in_use, inner.snapshot().in_use)


def test_a_family_guards_a_generator_through_call_only_where_its_key_is_known() -> None:
    family = Bulkhead.per_key("b:*", 1, key=lambda count: count)

    items = family.call(numbers, 2)

    assert 0 == next(items)
    assert 1 == family[2].snapshot().in_use
    with pytest.raises(TypeError, match=r"use call\(\)"):
        family(numbers)
