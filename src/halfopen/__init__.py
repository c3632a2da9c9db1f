"""Resilience for Python: a circuit breaker whose half-open state is right, and everything around it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from halfopen._core.backoff import constant, exponential
from halfopen._core.events import (
    CallFailed,
    CallIgnored,
    CallRejected,
    CallSucceeded,
    CircuitTransitioned,
    Event,
    LateResult,
    PolicyCreated,
    PolicyEvicted,
    ThresholdExceeded,
    TrialExpired,
)
from halfopen._core.outcomes import Outcome
from halfopen._core.settings import Call, HalfOpen, Ramp
from halfopen._core.states import State
from halfopen._core.windows import CountWindow, TimeWindow
from halfopen._runtime.trials import in_trial
from halfopen.circuit_breaker import CircuitBreaker, Override, Permit
from halfopen.classification import Failures, failed_status
from halfopen.errors import (
    BulkheadFullError,
    CallTimeoutError,
    CircuitOpenError,
    ConfigError,
    HalfOpenError,
    Mistake,
    RateLimitedError,
    RejectedError,
)

if TYPE_CHECKING:
    from halfopen._core.snapshots import Snapshot
    from halfopen.adaptive_concurrency import AdaptiveConcurrency
    from halfopen.bulkhead import Bulkhead
    from halfopen.cache_fallback import CacheFallback
    from halfopen.fallback import Fallback
    from halfopen.hedge import Hedge
    from halfopen.pipeline import Finding, Pipeline
    from halfopen.rate_limiter import RateLimiter
    from halfopen.registry import Registry
    from halfopen.retry import Retry, RetryBudget, attempt
    from halfopen.timeout import DeadlinePassedError, Timeout, check_deadline, deadline, time_left

__version__ = "0.1.0"

__all__ = [
    "AdaptiveConcurrency",
    "Bulkhead",
    "BulkheadFullError",
    "CacheFallback",
    "Call",
    "CallFailed",
    "CallIgnored",
    "CallRejected",
    "CallSucceeded",
    "CallTimeoutError",
    "CircuitBreaker",
    "CircuitOpenError",
    "CircuitTransitioned",
    "ConfigError",
    "CountWindow",
    "DeadlinePassedError",
    "Event",
    "Failures",
    "Fallback",
    "Finding",
    "HalfOpen",
    "HalfOpenError",
    "Hedge",
    "LateResult",
    "Mistake",
    "Outcome",
    "Override",
    "Permit",
    "Pipeline",
    "PolicyCreated",
    "PolicyEvicted",
    "Ramp",
    "RateLimitedError",
    "RateLimiter",
    "Registry",
    "RejectedError",
    "Retry",
    "RetryBudget",
    "Snapshot",
    "State",
    "ThresholdExceeded",
    "TimeWindow",
    "Timeout",
    "TrialExpired",
    "attempt",
    "check_deadline",
    "constant",
    "deadline",
    "exponential",
    "failed_status",
    "in_trial",
    "time_left",
]

# The breaker is there at once; each of these is imported when it is first asked for, so that a program that needs
# one policy does not wait for eight.
_LATE = {
    "AdaptiveConcurrency": "halfopen.adaptive_concurrency",
    "Bulkhead": "halfopen.bulkhead",
    "CacheFallback": "halfopen.cache_fallback",
    "DeadlinePassedError": "halfopen.timeout",
    "Fallback": "halfopen.fallback",
    "Finding": "halfopen.pipeline",
    "Hedge": "halfopen.hedge",
    "Pipeline": "halfopen.pipeline",
    "RateLimiter": "halfopen.rate_limiter",
    "Registry": "halfopen.registry",
    "Retry": "halfopen.retry",
    "RetryBudget": "halfopen.retry",
    "Snapshot": "halfopen._core.snapshots",
    "Timeout": "halfopen.timeout",
    "attempt": "halfopen.retry",
    "check_deadline": "halfopen.timeout",
    "deadline": "halfopen.timeout",
    "time_left": "halfopen.timeout",
}


def __getattr__(name: str) -> Any:
    module = _LATE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
