"""The metrics of the other policies, each read from the policy's snapshot."""

from __future__ import annotations

from halfopen.instrumentation._metric import Metric, counter, gauge, histogram, of
from halfopen.instrumentation.enumerations import (
    ATTEMPT_OUTCOMES,
    BULKHEAD_REASONS,
    CACHE_OUTCOMES,
    HEDGE_OUTCOMES,
    HEDGE_SKIPS,
    RETRY_OUTCOMES,
    TIMEOUT_OUTCOMES,
    VERDICTS,
)

__all__ = ["POLICY_METRICS"]

_OUTCOME = ("outcome",)

_RETRY = (
    counter(
        "halfopen_retry_calls_total", "Calls by how they ended.",
        lambda look: of(look.calls, RETRY_OUTCOMES),
        label=("outcome", RETRY_OUTCOMES), otel="retry.calls", otel_unit="{call}", otel_labels=_OUTCOME,
    ),
    counter(
        "halfopen_retry_attempts_total", "Attempts; amplification is attempts over calls.",
        lambda look: of(look.attempts, ATTEMPT_OUTCOMES),
        label=("outcome", ATTEMPT_OUTCOMES), otel="retry.attempts", otel_unit="{attempt}", otel_labels=_OUTCOME,
    ),
    histogram(
        "halfopen_retry_attempts_per_call", "Attempts of each finished call.",
        lambda look: (look.attempts_per_call,),
        bounds=(1.0, 2.0, 3.0, 4.0, 5.0, 10.0), otel="retry.attempts_per_call", otel_unit="{attempt}",
    ),
    histogram(
        "halfopen_retry_delay_seconds", "Delays before further attempts.",
        lambda look: (look.delays,), otel="retry.delay", otel_unit="s",
    ),
)  # fmt: skip

_BULKHEAD = (
    gauge("halfopen_bulkhead_limit", "Calls that may run at once.",
          lambda look: look.limit, otel="bulkhead.limit", otel_unit="{call}"),
    gauge("halfopen_bulkhead_in_use", "Calls that run.",
          lambda look: look.in_use, otel="bulkhead.in_use", otel_unit="{call}"),
    gauge("halfopen_bulkhead_waiting", "Callers in line.",
          lambda look: look.waiting, otel="bulkhead.waiting", otel_unit="{call}"),
    gauge("halfopen_bulkhead_waiting_limit", "Places in the line.",
          lambda look: look.max_waiting, otel="bulkhead.waiting.limit", otel_unit="{call}"),
    counter(
        "halfopen_bulkhead_rejections_total", "Calls refused.",
        lambda look: of(look.rejections, BULKHEAD_REASONS),
        label=("reason", BULKHEAD_REASONS), otel="bulkhead.rejections", otel_unit="{call}", otel_labels=("reason",),
    ),
    histogram("halfopen_bulkhead_wait_seconds", "How long admitted calls had waited.",
              lambda look: (look.wait_seconds,), otel="bulkhead.wait", otel_unit="s"),
)  # fmt: skip

_TIMEOUT = (
    counter(
        "halfopen_timeout_calls_total", "Calls by how they ended.",
        lambda look: of(look.calls, TIMEOUT_OUTCOMES),
        label=("outcome", TIMEOUT_OUTCOMES), otel="timeout.calls", otel_unit="{call}", otel_labels=_OUTCOME,
    ),
)  # fmt: skip

_FALLBACK = (
    counter(
        "halfopen_fallback_calls_total", "Failed calls: answered by the fallback, or not.",
        lambda look: (look.successes, look.failures),
        label=("outcome", VERDICTS), otel="fallback.calls", otel_unit="{call}", otel_labels=_OUTCOME,
    ),
)  # fmt: skip

_RATE_LIMITER = (
    gauge("halfopen_rate_limiter_available_permits", "Calls that may begin at once now.",
          lambda look: look.available, otel="rate_limiter.available_permits", otel_unit="{call}"),
    gauge("halfopen_rate_limiter_waiting", "Callers in line.",
          lambda look: look.waiting, otel="rate_limiter.waiting", otel_unit="{call}"),
    counter("halfopen_rate_limiter_admitted_total", "Calls let through.",
            lambda look: look.admitted, otel="rate_limiter.admitted", otel_unit="{call}"),
    counter(
        "halfopen_rate_limiter_rejections_total", "Calls refused.",
        lambda look: of(look.rejections, ("rate",)),
        label=("reason", ("rate",)), otel="rate_limiter.rejections", otel_unit="{call}", otel_labels=("reason",),
    ),
    histogram("halfopen_rate_limiter_wait_seconds", "How long admitted calls had waited.",
              lambda look: (look.wait_seconds,), otel="rate_limiter.wait", otel_unit="s"),
)  # fmt: skip

_HEDGE = (
    counter(
        "halfopen_hedge_calls_total", "Calls by which attempt answered them.",
        lambda look: of(look.outcomes, HEDGE_OUTCOMES),
        label=("outcome", HEDGE_OUTCOMES), otel="hedge.calls", otel_unit="{call}", otel_labels=_OUTCOME,
    ),
    counter("halfopen_hedge_attempts_total", "Extra attempts started.",
            lambda look: look.hedges, otel="hedge.attempts", otel_unit="{attempt}"),
    counter(
        "halfopen_hedge_skipped_total", "Extra attempts that were due and not started.",
        lambda look: of(look.skipped, HEDGE_SKIPS),
        label=("reason", HEDGE_SKIPS), otel="hedge.skipped", otel_unit="{attempt}", otel_labels=("reason",),
    ),
    gauge("halfopen_hedge_delay_seconds", "Delay before an extra attempt; absent while too little is known.",
          lambda look: look.delay, otel="hedge.delay", otel_unit="s"),
)  # fmt: skip

_ADAPTIVE = (
    gauge("halfopen_adaptive_concurrency_limit", "Calls that may run at once now.",
          lambda look: look.limit, otel="adaptive_concurrency.limit", otel_unit="{call}"),
    gauge("halfopen_adaptive_concurrency_in_use", "Calls that run.",
          lambda look: look.in_use, otel="adaptive_concurrency.in_use", otel_unit="{call}"),
    counter(
        "halfopen_adaptive_concurrency_rejections_total", "Calls refused.",
        lambda look: of(look.rejections, ("full",)),
        label=("reason", ("full",)),
        otel="adaptive_concurrency.rejections", otel_unit="{call}", otel_labels=("reason",),
    ),
)  # fmt: skip

_CACHE = (
    gauge("halfopen_cache_fallback_entries", "Answers kept.",
          lambda look: look.entries, otel="cache_fallback.entries", otel_unit="{answer}"),
    counter(
        "halfopen_cache_fallback_calls_total", "Failed calls: answered from the cache, or why not.",
        lambda look: of({"success": look.successes, **look.failures}, CACHE_OUTCOMES),
        label=("outcome", CACHE_OUTCOMES), otel="cache_fallback.calls", otel_unit="{call}", otel_labels=_OUTCOME,
    ),
)  # fmt: skip

POLICY_METRICS: dict[str, tuple[Metric, ...]] = {
    "retry": _RETRY,
    "bulkhead": _BULKHEAD,
    "timeout": _TIMEOUT,
    "fallback": _FALLBACK,
    "rate_limiter": _RATE_LIMITER,
    "hedge": _HEDGE,
    "adaptive_concurrency": _ADAPTIVE,
    "cache_fallback": _CACHE,
}
"""By the kind of policy, as a registry knows it."""
