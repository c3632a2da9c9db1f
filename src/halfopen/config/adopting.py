"""Let a policy in use go on under the settings of another one: what it has counted, holds and remembers is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from halfopen._core.concurrency_limits import AdaptiveLimit
from halfopen._core.hedging import HedgeBudget, Latencies, Quantile
from halfopen._core.retry_budget import TokenBucket
from halfopen._runtime.keyed import KeyedPolicy
from halfopen.adaptive_concurrency import AdaptiveConcurrency
from halfopen.bulkhead import Bulkhead
from halfopen.cache_fallback import CacheFallback
from halfopen.circuit_breaker import CircuitBreaker
from halfopen.fallback import Fallback
from halfopen.hedge import Hedge
from halfopen.rate_limiter import RateLimiter
from halfopen.retry import Retry, RetryBudget
from halfopen.timeout import Timeout

__all__ = ["adopt"]


def adopt(policy: Any, other: Any) -> bool:
    """
    Give *policy* the settings of *other*, which is of the same class and was never used.

    Returns:
        Whether that is possible; if not, *other* has to take its place.
    """
    if type(policy) is not type(other):
        return False
    settle = next((each for kind, each in _ADOPT.items() if type(policy) is kind), None)
    if settle is not None:
        settle(policy, other)
    elif hasattr(policy, "adopt"):
        policy.adopt(other)
    else:
        return False
    return True


def _breaker(policy: CircuitBreaker, other: CircuitBreaker) -> None:
    policy.adopt(other.settings, other.classifier)
    policy.tags = other.tags


def _retry(policy: Retry, other: Retry) -> None:
    settings = other.settings
    policy.configure(**{name: getattr(settings, name) for name in settings.__dataclass_fields__ if name != "name"})
    if other.breaker is not None:
        policy.breaker = other.breaker


def _timeout(policy: Timeout, other: Timeout) -> None:
    settings = other.settings
    policy.configure(**{name: getattr(settings, name) for name in settings.__dataclass_fields__ if name != "name"})


def _bulkhead(policy: Bulkhead, other: Bulkhead) -> None:
    pool = other._pool
    policy.configure(limit=pool.limit, max_waiting=pool.max_waiting, max_wait=other._max_wait)


def _rate_limiter(policy: RateLimiter, other: RateLimiter) -> None:
    settings, meter = other._settings, policy._meter
    policy._settings = settings
    meter.configure(policy._monotonic(), settings.rate, settings.per, settings.whole_burst)


def _fallback(policy: Fallback, other: Fallback) -> None:
    with policy._lock:
        answers = [*policy._answers, *([0] * len(other._links))]
        policy._answers = answers[: max(len(policy._answers), len(other._links))]
        policy._links, policy._on = other._links, other._on


def _hedge(policy: Hedge, other: Hedge) -> None:
    with policy._lock:
        policy._latencies = _latencies(policy._latencies, other._delay)
        policy._delay, policy._max_hedges, policy._share = other._delay, other._max_hedges, other._share
        saved = policy._budget._tokens
        policy._budget = HedgeBudget(other._share)
        policy._budget._tokens = saved
        policy._max_threads = policy._threads.limit = other._max_threads


def _latencies(before: Latencies | None, delay: float | Quantile) -> Latencies | None:
    if not isinstance(delay, Quantile):
        return None
    after = Latencies(delay)
    for seconds in () if before is None else list(before._latest):
        after.add(seconds)
    return after


def _adaptive(policy: AdaptiveConcurrency, other: AdaptiveConcurrency) -> None:
    settings = other._settings
    state: AdaptiveLimit = policy._state
    with policy._state.lock:
        if settings["algorithm"] != policy._settings["algorithm"]:
            state._algorithm, state._memory = settings["algorithm"], settings["algorithm"].start()
        state._minimum, state._maximum = settings["min_limit"], settings["max_limit"]
        state._window, state._min_samples = settings["window"], settings["min_samples"]
        state.exact = max(float(state._minimum), min(float(state._maximum), state.exact))
        state.limit = int(state.exact)
        policy._settings, policy._dropped_on = settings, other._dropped_on


def _cache(policy: CacheFallback, other: CacheFallback) -> None:
    dropped: list[Any] = []  # outlives the lock: an answer may have a finalizer
    with policy._lock:
        policy._on, policy._max_age, policy._max_entries = other._on, other._max_age, other._max_entries
        policy._key, policy._on_stale = other._key, other._on_stale
        while len(policy._kept) > policy._max_entries:
            dropped.append(policy._kept.popitem(last=False))
            policy._evicted += 1


def _budget(policy: RetryBudget, other: RetryBudget) -> None:
    with policy._lock:
        now = policy._clock.monotonic()
        policy._bucket.refill(now)
        bucket = TokenBucket(*other._settings, now)
        bucket._parts = min(policy._bucket._parts, bucket._full)
        policy._settings, policy._bucket = other._settings, bucket


def _family(policy: KeyedPolicy[Any], other: KeyedPolicy[Any]) -> None:
    with policy._lock:
        policy._make, policy._key, policy._max_keys = other._make, other._key, other._max_keys
        members = [*policy._alive.values(), policy._other]
    for member in members:
        adopt(member, other._other)


_ADOPT: dict[type[Any], Callable[[Any, Any], None]] = {
    CircuitBreaker: _breaker,
    Retry: _retry,
    Timeout: _timeout,
    Bulkhead: _bulkhead,
    RateLimiter: _rate_limiter,
    Fallback: _fallback,
    Hedge: _hedge,
    AdaptiveConcurrency: _adaptive,
    CacheFallback: _cache,
    RetryBudget: _budget,
    KeyedPolicy: _family,
}
