"""Checked, never run: decorators and calls keep the types of what they guard."""

from __future__ import annotations

from typing import assert_type

from halfopen.retry import Retry, RetryBudget, RetrySnapshot, exponential
from halfopen.timeout import Timeout, TimeoutSnapshot, time_left

retry = Retry("r", on=(OSError, ValueError), backoff=exponential(), budget=RetryBudget(0.1))
Retry("r", on=OSError, backoff=1, result=lambda value: value is None, only_if=lambda call: not call.kwargs)
Retry("r", on=lambda error: "busy" in str(error), backoff=lambda step, rng: step * rng.random())
Retry("r")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
timeout = Timeout("t", 5)


@retry
@timeout
def pay(amount: int, *, currency: str = "EUR") -> bytes:
    return b""


@timeout
@retry
async def apay(amount: int) -> bytes:
    return b""


class Shop:
    @retry
    def sell(self, what: str) -> int:
        return 1

    @timeout
    @staticmethod
    def rent() -> int:
        return 1


async def use() -> None:
    assert_type(pay(3, currency="USD"), bytes)
    assert_type(await apay(3), bytes)
    assert_type(Shop().sell("x"), int)
    assert_type(Shop.rent(), int)
    assert_type(retry.call(pay, 3, currency="USD"), bytes)
    assert_type(await timeout.acall(apay, 3), bytes)
    retry.call(pay, "3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(retry.snapshot(), RetrySnapshot)
    assert_type(timeout.snapshot(), TimeoutSnapshot)
    assert_type(time_left(), float | None)
    async for turn in retry:
        with turn:
            assert_type(turn.result(5), int)
