"""The policies of each library by what they do, as functions that guard a function; the installed ones."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

__all__ = ["GUARDS", "MISSING", "Guard"]

Function = Callable[..., Any]
Guard = Callable[[Function], Function]

LIBRARIES = {
    "tenacity": "tenacity",
    "stamina": "stamina",
    "backoff": "backoff",
    "aiolimiter": "aiolimiter",
    "interlock-cb": "interlock",
    "hyx": "hyx",
    "circuitbreaker": "circuitbreaker",
}
MISSING = [library for library, module in LIBRARIES.items() if find_spec(module) is None]
PLENTY = 1_000_000


def _halfopen_retry(fn: Function) -> Function:
    from halfopen import Retry

    return Retry("benchmark", on=ConnectionError, backoff=0)(fn)


def _tenacity_retry(fn: Function) -> Function:
    import tenacity

    guard: Guard = tenacity.retry(
        retry=tenacity.retry_if_exception_type(ConnectionError),
        stop=tenacity.stop_after_attempt(3),
        wait=tenacity.wait_none(),
        reraise=True,
    )
    return guard(fn)


def _stamina_retry(fn: Function) -> Function:
    import stamina

    stamina.instrumentation.set_on_retry_hooks([])
    guard: Guard = stamina.retry(on=ConnectionError, attempts=3, wait_initial=0, wait_max=0, wait_jitter=0)
    return guard(fn)


def _backoff_retry(fn: Function) -> Function:
    import backoff

    guard: Guard = backoff.on_exception(
        backoff.constant, ConnectionError, max_tries=3, interval=0, jitter=None, logger=None
    )
    return guard(fn)


def _hyx_retry(fn: Function) -> Function:
    from hyx.retry import retry

    guard: Guard = retry(on=ConnectionError, attempts=3, backoff=0)
    return guard(fn)


def _halfopen_timeout(fn: Function) -> Function:
    from halfopen import Timeout

    return Timeout("benchmark", 10)(fn)


def _halfopen_thread(fn: Function) -> Function:
    from halfopen import Timeout

    return Timeout("benchmark", 10, worker_thread=True)(fn)


def _interlock(strategy: str, *args: Any, **settings: Any) -> Guard:
    def guard(fn: Function) -> Function:
        import interlock

        guarded: Function = interlock.Pipeline(getattr(interlock, strategy)(*args, **settings))(fn)
        return guarded

    return guard


def _hyx_timeout(fn: Function) -> Function:
    from hyx.timeout import timeout

    async def guarded() -> Any:
        async with timeout(10):  # its decorator wants a running loop
            return await fn()

    return guarded


def _asyncio_timeout(fn: Function) -> Function:
    async def guarded() -> Any:
        async with asyncio.timeout(10):
            return await fn()

    return guarded


def _halfopen_bulkhead(fn: Function) -> Function:
    from halfopen import Bulkhead

    return Bulkhead("benchmark", 10)(fn)


def _semaphore(fn: Function) -> Function:
    places = threading.BoundedSemaphore(10)

    def guarded() -> Any:
        with places:
            return fn()

    return guarded


def _asyncio_semaphore(fn: Function) -> Function:
    places = asyncio.BoundedSemaphore(10)

    async def guarded() -> Any:
        async with places:
            return await fn()

    return guarded


def _hyx_bulkhead(fn: Function) -> Function:
    from hyx.bulkhead import bulkhead

    return bulkhead(10, 20)(fn)


def _halfopen_limiter(fn: Function) -> Function:
    from halfopen import RateLimiter

    return RateLimiter("benchmark", PLENTY, burst=PLENTY)(fn)


def _aiolimiter_limiter(fn: Function) -> Function:
    from aiolimiter import AsyncLimiter

    limiter = AsyncLimiter(PLENTY, 1)

    async def guarded() -> Any:
        async with limiter:
            return await fn()

    return guarded


def _hyx_limiter(fn: Function) -> Function:
    from hyx.ratelimit import tokenbucket

    limiter: Any = None

    async def guarded() -> Any:
        nonlocal limiter
        limiter = limiter or tokenbucket(PLENTY, 1, PLENTY)  # it wants a running loop
        async with limiter:
            return await fn()

    return guarded


def _halfopen_fallback(fn: Function) -> Function:
    from halfopen import Fallback

    return Fallback("benchmark", None, on=ConnectionError)(fn)


def _hyx_fallback(fn: Function) -> Function:
    from hyx.fallback import fallback

    async def answer(*_: Any, **__: Any) -> None:
        return None

    return fallback(answer, on=ConnectionError)(fn)


def _halfopen_hedge(fn: Function) -> Function:
    from halfopen import Hedge

    return Hedge("benchmark", 10)(fn)


def _halfopen_adaptive(fn: Function) -> Function:
    from halfopen import AdaptiveConcurrency

    return AdaptiveConcurrency("benchmark")(fn)


def _halfopen_cache(fn: Function) -> Function:
    from halfopen import CacheFallback

    return CacheFallback("benchmark", on=ConnectionError, max_age=60)(fn)


def _halfopen_pipeline(fn: Function) -> Function:
    from halfopen import Bulkhead, CircuitBreaker, Fallback, Pipeline, RejectedError, Retry, Timeout

    return Pipeline(
        Fallback("benchmark", None, on=(ConnectionError, RejectedError)),
        CircuitBreaker("benchmark"),
        Retry("benchmark", on=ConnectionError),
        Bulkhead("benchmark", 10),
        Timeout("benchmark", 10),
    )(fn)


def _halfopen_pipeline_call(fn: Function) -> Function:
    from halfopen import Bulkhead, CircuitBreaker, Fallback, Pipeline, RejectedError, Retry, Timeout

    pipeline = Pipeline(
        Fallback("benchmark", None, on=(ConnectionError, RejectedError)),
        CircuitBreaker("benchmark"),
        Retry("benchmark", on=ConnectionError),
        Bulkhead("benchmark", 10),
        Timeout("benchmark", 10),
    )
    return functools.partial(pipeline.call, fn)


def _halfopen_standard(fn: Function) -> Function:
    from halfopen import Pipeline

    return Pipeline.standard("benchmark", fallback=None)(fn)


def _interlock_pipeline(timeout: bool) -> Guard:
    def guard(fn: Function) -> Function:
        import interlock

        strategies = [
            interlock.FallbackStrategy(lambda error: None, on=(ConnectionError,)),
            interlock.CircuitBreakerStrategy(interlock.CircuitBreaker(name="benchmark")),
            interlock.BulkheadStrategy(10),
        ]
        strategies += [interlock.TimeoutStrategy(10)] if timeout else []
        guarded: Function = interlock.Pipeline(*strategies)(fn)
        return guarded

    return guard


def _stacked(fn: Function) -> Function:
    from circuitbreaker import CircuitBreaker

    breaker: Guard = CircuitBreaker(name="benchmark")
    return breaker(_tenacity_retry(fn))


_ALL: dict[str, dict[str, Guard]] = {
    "retry": {
        "halfopen": _halfopen_retry,
        "tenacity": _tenacity_retry,
        "stamina": _stamina_retry,
        "backoff": _backoff_retry,
    },
    "async retry": {
        "halfopen": _halfopen_retry,
        "tenacity": _tenacity_retry,
        "stamina": _stamina_retry,
        "backoff": _backoff_retry,
        "hyx": _hyx_retry,
    },
    "timeout": {"halfopen": _halfopen_timeout},
    "thread timeout": {"halfopen": _halfopen_thread, "interlock-cb": _interlock("TimeoutStrategy", 10)},
    "async timeout": {
        "halfopen": _halfopen_timeout,
        "standard library": _asyncio_timeout,
        "interlock-cb": _interlock("TimeoutStrategy", 10),
        "hyx": _hyx_timeout,
    },
    "bulkhead": {
        "halfopen": _halfopen_bulkhead,
        "standard library": _semaphore,
        "interlock-cb": _interlock("BulkheadStrategy", 10),
    },
    "async bulkhead": {
        "halfopen": _halfopen_bulkhead,
        "standard library": _asyncio_semaphore,
        "interlock-cb": _interlock("BulkheadStrategy", 10),
        "hyx": _hyx_bulkhead,
    },
    "rate limiter": {"halfopen": _halfopen_limiter},
    "async rate limiter": {
        "halfopen": _halfopen_limiter,
        "aiolimiter": _aiolimiter_limiter,
        "hyx": _hyx_limiter,
    },
    "fallback": {
        "halfopen": _halfopen_fallback,
        "interlock-cb": _interlock("FallbackStrategy", lambda error: None, on=(ConnectionError,)),
    },
    "async fallback": {
        "halfopen": _halfopen_fallback,
        "interlock-cb": _interlock("FallbackStrategy", lambda error: None, on=(ConnectionError,)),
        "hyx": _hyx_fallback,
    },
    "adaptive concurrency": {"halfopen": _halfopen_adaptive},
    "cache fallback": {"halfopen": _halfopen_cache},
    "async hedge": {"halfopen": _halfopen_hedge},
    "pipeline": {
        "halfopen": _halfopen_pipeline,
        "interlock-cb": _interlock_pipeline(timeout=False),
        "tenacity": _tenacity_retry,
        "circuitbreaker": _stacked,
    },
    "pipeline by call()": {"halfopen": _halfopen_pipeline_call},
    "pipeline, standard": {"halfopen": _halfopen_standard},
    "async pipeline": {
        "halfopen": _halfopen_pipeline,
        "interlock-cb": _interlock_pipeline(timeout=True),
        "tenacity": _tenacity_retry,
        "circuitbreaker": _stacked,
    },
}

GUARDS = {
    what: {library: guard for library, guard in guards.items() if library not in MISSING}
    for what, guards in _ALL.items()
}
