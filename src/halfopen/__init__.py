"""Resilience for Python: a circuit breaker whose half-open state is right, and everything around it."""

from halfopen._core.backoff import constant, exponential
from halfopen._core.events import (
    CallFailed,
    CallIgnored,
    CallRejected,
    CallSucceeded,
    CircuitTransitioned,
    Event,
    LateResult,
    ThresholdExceeded,
    TrialExpired,
)
from halfopen._core.outcomes import Outcome
from halfopen._core.settings import Call, HalfOpen, Ramp
from halfopen._core.snapshots import Snapshot
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

__version__ = "0.1.0"

__all__ = [
    "BulkheadFullError",
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
    "Event",
    "Failures",
    "HalfOpen",
    "HalfOpenError",
    "LateResult",
    "Mistake",
    "Outcome",
    "Override",
    "Permit",
    "Ramp",
    "RateLimitedError",
    "RejectedError",
    "Snapshot",
    "State",
    "ThresholdExceeded",
    "TimeWindow",
    "TrialExpired",
    "constant",
    "exponential",
    "failed_status",
    "in_trial",
]
