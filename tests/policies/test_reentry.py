"""A signal handler or a finalizer that uses a policy in the midst of the same policy: no deadlock, no wrong number."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from halfopen import CircuitBreaker, Pipeline
from halfopen.adaptive_concurrency import AdaptiveConcurrency
from halfopen.bulkhead import Bulkhead
from halfopen.cache_fallback import CacheFallback
from halfopen.errors import BulkheadFullError
from halfopen.fallback import Fallback
from halfopen.hedge import Hedge, Quantile
from halfopen.rate_limiter import RateLimiter
from halfopen.retry import Retry, RetryBudget
from halfopen.testing import FakeClock
from halfopen.timeout import Timeout
from tests.policies.interrupting import at_place
from tests.policies.test_every_interrupt import Recorder, meanwhile

pytestmark = [
    pytest.mark.skipif(sys.implementation.name != "cpython", reason="counts CPython's places"),
    pytest.mark.timeout(300),  # a deadlock is a failure
]


def block(policy: Any) -> None:
    with policy.acquire():
        pass


class Flaky:
    """Fails at first, then does not."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        if self.calls % 2:
            raise ConnectionError
        return self.calls


def call(policy: Any) -> None:
    policy.call(int)


def fail(policy: Any) -> None:
    with suppress(ConnectionError, TimeoutError):
        policy.call(Flaky())


def refused(policy: Any) -> None:
    """Take all there is, and ask once more."""
    with suppress(BulkheadFullError), policy.acquire():
        policy.call(int)


BUDGET = RetryBudget(0.5, burst=1000)


def retry() -> Retry:
    return Retry("r", on=ConnectionError, attempts=3, backoff=0.001, budget=BUDGET, clock=FakeClock())


def pipeline() -> Pipeline:
    breaker = CircuitBreaker("p", failure_rate_threshold=None, consecutive_failures=1000)
    inner = (breaker, retry(), Bulkhead("p", 5), Timeout("p", 10))
    return Pipeline(Fallback("p", 1, on=ConnectionError), *inner)


CASES: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "bulkhead": (lambda: Bulkhead("b", 5), call),
    "bulkhead, failing": (lambda: Bulkhead("b", 5), fail),
    "bulkhead, block": (lambda: Bulkhead("b", 5), block),
    "bulkhead, full": (lambda: Bulkhead("b", 1), refused),
    "bulkheads": (lambda: Bulkhead.per_key("b:*", 5, max_keys=1, key=str), call),
    "adaptive": (lambda: AdaptiveConcurrency("a", min_samples=1, window=1e-9), call),
    "adaptive, failing": (lambda: AdaptiveConcurrency("a", dropped_on=ConnectionError, min_samples=1), fail),
    "adaptive, block": (lambda: AdaptiveConcurrency("a", min_samples=1, window=1e-9), block),
    "adaptive, full": (lambda: AdaptiveConcurrency("a", initial_limit=1, max_limit=1), refused),
    "rate limiter": (lambda: RateLimiter("l", 1e9, burst=1000), call),
    "rate limiter, waiting": (lambda: RateLimiter("l", 1e6, burst=1, max_wait=60), lambda p: (call(p), call(p))[0]),
    "retry": (retry, fail),
    "hedge": (lambda: Hedge("h", 60), call),
    "hedge, hedging": (lambda: Hedge("h", 0.0001, budget=None), call),
    "hedge, quantile": (lambda: Hedge("h", Quantile(window=10, minimum=1, at_least=1e-9)), call),
    "timeout": (lambda: Timeout("t", 10), fail),
    "timeout, thread": (lambda: Timeout("t", 10, worker_thread=True), call),
    "fallback": (lambda: Fallback("f", 1, on=ConnectionError), fail),
    "cache": (lambda: CacheFallback("c", on=ConnectionError, max_age=60, max_entries=1, key=object), call),
    "cache, failing": (lambda: CacheFallback("c", on=ConnectionError, max_age=60), lambda p: (call(p), fail(p))[0]),
    "breaker": (lambda: CircuitBreaker("b", failure_rate_threshold=None, consecutive_failures=1000), fail),
    "pipeline": (pipeline, fail),
}


@pytest.mark.parametrize("case", CASES)
def test_a_policy_can_be_used_in_the_midst_of_itself(case: str) -> None:
    make, use = CASES[case]
    policy = make()
    for _ in range(12):
        use(policy)

    def once() -> None:
        use(policy)
        look(policy)

    def again() -> None:
        for _ in range(3):
            once()

    number = 0
    while at_place(number, once, again):
        number += 1

    assert number > 5
    once()
    for held in ("in_use", "waiting", "running"):
        until_zero(lambda held=held: getattr(look(policy), held, 0))


def look(policy: Any) -> Any:
    threads = getattr(policy, "_threads", None)
    seen = policy.snapshot() if hasattr(policy, "snapshot") else None
    return seen if threads is None else threads


def until_zero(number: Callable[[], int]) -> None:
    for _ in range(6000):
        if number() == 0:
            return
        threading.Event().wait(0.01)
    assert 0 == number()


def test_a_handler_in_the_midst_of_a_wait_for_a_turn_is_served_first() -> None:
    def run(number: int) -> bool:
        limiter: Any = RateLimiter("geo", 1e6, burst=1, max_wait=60)
        meter = limiter._meter
        ahead, behind = Recorder.ticket(), Recorder.ticket()
        meter.line_up(0.0, ahead, None)

        def go_on() -> None:
            meter.line_up(0.0, behind, None)
            meter._leave_line(ahead)

        def intrude() -> None:
            if meter.threads.get(threading.get_ident()):
                limiter.call(int)

        with meanwhile(lambda: meter.line.waiting == 2, go_on):
            reached = at_place(number, lambda: limiter.call(int), intrude)

        assert (number, behind, 1) == (number, meter.line.first(), meter.line.waiting)
        assert behind.waker.woken >= 1, number
        assert {0: 1} == meter.threads
        return reached

    number = 0
    while run(number):
        number += 1
    assert number > 15


def test_a_handler_in_the_midst_of_a_wait_for_a_place_is_refused_and_harms_nobody() -> None:
    def run(number: int) -> bool:
        bulkhead: Any = Bulkhead("shop", 1, max_waiting=2)
        pool = bulkhead._pool
        holder, behind = Recorder.ticket(), Recorder.ticket()
        pool.enter(holder)

        def go_on() -> None:
            with pool.lock:
                pool.enter(behind)
            pool.let_go(holder)

        def intrude() -> None:
            bulkhead.snapshot()
            if pool.line.waiting == 2:
                with suppress(BulkheadFullError):
                    bulkhead.call(int)

        with meanwhile(lambda: pool.line.waiting == 1, go_on):
            reached = at_place(number, lambda: bulkhead.call(int), intrude)

        assert (number, 1, 0, True) == (number, pool.in_use, pool.line.waiting, behind.granted)
        assert behind.waker.woken >= 1, number
        return reached

    number = 0
    while run(number):
        number += 1
    assert number > 15
