"""Checked, never run: pipelines keep the types of what they guard, and take only policies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_type

from halfopen import (
    AdaptiveConcurrency,
    Bulkhead,
    CacheFallback,
    CircuitBreaker,
    Fallback,
    Finding,
    Hedge,
    Pipeline,
    RateLimiter,
    RejectedError,
    Retry,
    Timeout,
)

every = Pipeline(
    Fallback("p", None, on=(OSError, RejectedError)),
    CacheFallback("p", on=OSError, max_age=60),
    CircuitBreaker("p"),
    Retry("p", on=OSError),
    RateLimiter("p", 10),
    Bulkhead("p", 10),
    Bulkhead.per_key("host:*", 10, key=str),
    AdaptiveConcurrency("p"),
    Hedge("p", 0.2),
    Timeout("p", 2),
    name="every",
)
pipeline = Pipeline(every, name="outer")
Pipeline(print)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Pipeline.standard("p", on=(OSError, ValueError), fallback=str, only_if=lambda call: not call.args)


@pipeline
def pay(amount: int, *, currency: str = "EUR") -> bytes:
    return b""


@pipeline
async def apay(amount: int) -> bytes:
    return b""


@pipeline
def numbers() -> Iterator[int]:
    yield 1


class Shop:
    @pipeline
    def sell(self, what: str) -> int:
        return 1


async def use() -> None:
    assert_type(pay(3, currency="USD"), bytes)
    assert_type(await apay(3), bytes)
    assert_type(Shop().sell("x"), int)
    assert_type(pipeline.call(pay, 3, currency="USD"), bytes)
    assert_type(await pipeline.acall(apay, 3), bytes)
    pipeline.call(pay, "3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(list(numbers()), list[int])
    assert_type(pipeline.find(CircuitBreaker), CircuitBreaker | None)
    assert_type(pipeline.lint(), tuple[Finding, ...])
    assert_type(pipeline.describe("mermaid"), str)
    pipeline.describe("svg")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
