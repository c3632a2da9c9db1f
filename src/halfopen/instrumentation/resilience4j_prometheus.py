"""
The metrics of resilience4j's Micrometer module, under its names and in its units, for dashboards that exist already.

Wrong units included: its stock dashboard sets 0–100 and takes −1 for "N/A". Off unless asked for.
"""

from __future__ import annotations

from typing import Any

from halfopen._core.states import State
from halfopen._core.windows import CountWindow
from halfopen.instrumentation._breaker_look import BreakerLook
from halfopen.instrumentation._metric import Metric, counter, gauge, histogram
from halfopen.instrumentation._samples import Header, Kind

__all__ = ["CALL_KINDS", "RETRY_KINDS", "STATES", "compatible_metrics"]

STATES = ("closed", "open", "half_open", "disabled", "forced_open", "metrics_only")
CALL_KINDS = ("successful", "failed", "ignored")
WINDOW_KINDS = ("failed", "successful")
RETRY_KINDS = ("successful_without_retry", "successful_with_retry", "failed_without_retry", "failed_with_retry")

# RECOVERING is unknown there; like half-open it admits a part of the calls.
_ONE_HOT = {
    state: tuple(int(("half_open" if state is State.RECOVERING else state.value) == other) for other in STATES)
    for state in State
}
_P = "resilience4j_circuitbreaker_"


def compatible_metrics(*, buckets: bool = False) -> dict[str, tuple[Metric, ...]]:
    """Return the metrics by kind of policy; *buckets* makes the call durations a histogram."""
    breaker = (*_BREAKER, _histogram if buckets else _summary, _longest)
    return {"circuit_breaker": breaker, **_OTHERS}


def _percent(share: float | None) -> float:
    return -1 if share is None else 100 * share


def _held(look: BreakerLook) -> tuple[int, int]:
    return look.held.failures, look.held.calls - look.held.failures


def _slow(look: BreakerLook) -> tuple[int, int]:
    return look.held.slow_failures, look.held.slow - look.held.slow_failures


def _sums(look: BreakerLook) -> list[float]:
    return [number for one in look.durations for number in one[-2:]]


def _peaks(look: BreakerLook) -> tuple[float, ...]:
    return look.counts.peaks(look.now)


def _window_size(look: BreakerLook) -> float:
    window = look.settings.window
    return window.size if isinstance(window, CountWindow) else window.seconds


def _retry_calls(look: Any) -> tuple[int, ...]:
    calls = look.calls
    last = calls["failed_exhausted"] + calls["failed_budget"] + calls["failed_deadline"]
    return calls["success_first"], calls["success_after_retry"], calls["failed_not_retried"], last


_BREAKER: tuple[Metric, ...] = (
    gauge(_P + "state", "The states of the circuit breaker",
          lambda look: _ONE_HOT[look.state], label=("state", STATES)),
    gauge(_P + "buffered_calls", "Calls in the window", _held, label=("kind", WINDOW_KINDS)),
    gauge(_P + "max_buffered_calls", "Size of the window", _window_size),
    gauge(_P + "slow_calls", "Slow calls in the window", _slow, label=("kind", WINDOW_KINDS)),
    gauge(_P + "failure_rate", "Percent of failed calls; -1 below the minimum number of calls",
          lambda look: _percent(look.share(1))),
    gauge(_P + "slow_call_rate", "Percent of slow calls; -1 below the minimum number of calls",
          lambda look: _percent(look.share(2))),
    counter(_P + "not_permitted_calls_total", "Calls refused",
            lambda look: (sum(look.rejections.values()),), label=("kind", ("not_permitted",))),
)  # fmt: skip
_histogram = histogram(
    _P + "calls_seconds", "Durations of the calls let through", lambda look: look.durations, label=("kind", CALL_KINDS)
)
_summary = Metric(
    Header(_P + "calls_seconds", Kind.SUMMARY, "Durations of the calls let through", "seconds"),
    _sums,
    ("kind",),
    (CALL_KINDS,),
    keys=tuple((kind,) for kind in CALL_KINDS),
)
_longest = gauge(_P + "calls_seconds_max", "Longest recent call", _peaks, label=("kind", CALL_KINDS))

_OTHERS: dict[str, tuple[Metric, ...]] = {
    "retry": (
        counter("resilience4j_retry_calls_total", "Calls by how they ended",
                _retry_calls, label=("kind", RETRY_KINDS)),
    ),
    "bulkhead": (
        gauge("resilience4j_bulkhead_available_concurrent_calls", "Calls that may begin at once",
              lambda look: look.limit - look.in_use),
        gauge("resilience4j_bulkhead_max_allowed_concurrent_calls", "Calls that may run at once",
              lambda look: look.limit),
    ),
    "rate_limiter": (
        gauge("resilience4j_ratelimiter_available_permissions", "Calls that may begin at once",
              lambda look: look.available),
        gauge("resilience4j_ratelimiter_waiting_threads", "Callers in line", lambda look: look.waiting),
    ),
    "timeout": (
        counter("resilience4j_timelimiter_calls_total", "Calls by how they ended",
                lambda look: (look.calls["success"], look.calls["failure"], look.calls["timeout"]),
                label=("kind", ("successful", "failed", "timeout"))),
    ),
}  # fmt: skip
