"""The metrics of the other policies, each read from the policy's snapshot."""

from __future__ import annotations

from halfopen.instrumentation._family import Family
from halfopen.instrumentation._metric import Metric
from halfopen.instrumentation.enumerations import (
    ATTEMPT_OUTCOMES,
    BULKHEAD_REASONS,
    CACHE_OUTCOMES,
    FULL,
    HEDGE_OUTCOMES,
    HEDGE_SKIPS,
    RATE,
    RETRY_OUTCOMES,
    TIMEOUT_OUTCOMES,
    VERDICTS,
)

__all__ = ["POLICY_METRICS"]

_ATTEMPTS = {"otel_unit": "{attempt}"}
_WAIT = ("wait_seconds", "How long admitted calls had waited.", "wait_seconds")
_WAITING = ("waiting", "Callers in line.", "waiting")
_IN_USE = ("in_use", "Calls that run.", "in_use")
_REFUSED = ("rejections", "Calls refused.", "rejections", "reason")

_retry = Family("retry")
_bulkhead = Family("bulkhead")
_timeout = Family("timeout")
_fallback = Family("fallback")
_rate_limiter = Family("rate_limiter")
_hedge = Family("hedge")
_adaptive = Family("adaptive_concurrency")
_cache = Family("cache_fallback")

POLICY_METRICS: dict[str, tuple[Metric, ...]] = {
    "retry": (
        _retry.counts("calls", "Calls by how they ended.", "calls", "outcome", RETRY_OUTCOMES),
        _retry.counts("attempts", "Attempts; amplification is attempts over calls.",
                      "attempts", "outcome", ATTEMPT_OUTCOMES, **_ATTEMPTS),
        _retry.spread("attempts_per_call", "Attempts of each finished call.",
                      "attempts_per_call", (1.0, 2.0, 3.0, 4.0, 5.0, 10.0), **_ATTEMPTS),
        _retry.spread("delay_seconds", "Delays before further attempts.", "delays"),
    ),
    "bulkhead": (
        _bulkhead.level("limit", "Calls that may run at once.", "limit"),
        _bulkhead.level(*_IN_USE),
        _bulkhead.level(*_WAITING),
        _bulkhead.level("waiting_limit", "Places in the line.", "max_waiting", otel="bulkhead.waiting.limit"),
        _bulkhead.counts(*_REFUSED, BULKHEAD_REASONS),
        _bulkhead.spread(*_WAIT),
    ),
    "timeout": (
        _timeout.counts("calls", "Calls by how they ended.", "calls", "outcome", TIMEOUT_OUTCOMES),
    ),
    "fallback": (
        _fallback.counts("calls", "Failed calls: answered by the fallback, or not.",
                         lambda look: {"success": look.successes, "failure": look.failures}, "outcome", VERDICTS),
    ),
    "rate_limiter": (
        _rate_limiter.level("available_permits", "Calls that may begin at once now.", "available"),
        _rate_limiter.level(*_WAITING),
        _rate_limiter.total("admitted", "Calls let through.", "admitted"),
        _rate_limiter.counts(*_REFUSED, RATE),
        _rate_limiter.spread(*_WAIT),
    ),
    "hedge": (
        _hedge.counts("calls", "Calls by which attempt answered them.", "outcomes", "outcome", HEDGE_OUTCOMES),
        _hedge.total("attempts", "Extra attempts started.", "hedges", **_ATTEMPTS),
        _hedge.counts("skipped", "Extra attempts that were due and not started.",
                      "skipped", "reason", HEDGE_SKIPS, **_ATTEMPTS),
        _hedge.level("delay_seconds", "Delay before an extra attempt; absent while too little is known.", "delay"),
    ),
    "adaptive_concurrency": (
        _adaptive.level("limit", "Calls that may run at once now.", "limit"),
        _adaptive.level(*_IN_USE),
        _adaptive.counts(*_REFUSED, FULL),
    ),
    "cache_fallback": (
        _cache.level("entries", "Answers kept.", "entries", otel_unit="{answer}"),
        _cache.counts("calls", "Failed calls: answered from the cache, or why not.",
                      lambda look: {"success": look.successes, **look.failures}, "outcome", CACHE_OUTCOMES),
    ),
}  # fmt: skip
"""By the kind of policy, as a registry knows it."""
