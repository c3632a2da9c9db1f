"""Every value that a label may take, apart from names: closed lists, so that no series appears by surprise."""

from __future__ import annotations

from halfopen._core.attempts import AttemptOutcome, RetryOutcome
from halfopen._core.outcomes import Outcome
from halfopen._core.states import AUTOMATIC, Reason, Refusal, State
from halfopen._core.time_limits import TimeoutOutcome

__all__ = [
    "ATTEMPT_OUTCOMES",
    "BULKHEAD_REASONS",
    "CACHE_OUTCOMES",
    "FULL",
    "GATEWAY_OUTCOMES",
    "GATEWAY_TURNED_AWAY",
    "HEDGE_OUTCOMES",
    "HEDGE_SKIPS",
    "OUTCOMES",
    "QUEUE_ALERTS",
    "QUEUE_ATTEMPTS",
    "QUEUE_COMMANDS",
    "QUEUE_STATES",
    "RATE",
    "REASONS",
    "REFUSALS",
    "REFUSALS_ALWAYS",
    "RETRY_OUTCOMES",
    "STATES",
    "STORE_OPERATIONS",
    "TIMEOUT_OUTCOMES",
    "TRIPS",
    "VERDICTS",
]

STATES = tuple(state.value for state in State)
REASONS = (*(reason.value for reason in Reason), "shared")
"""Why a circuit moved; ``shared``: because its fleet did."""
TRIPS = tuple(reason.value for (state, reason) in AUTOMATIC if state is State.CLOSED)
"""Reasons for which a closed circuit opens by itself."""
OUTCOMES = tuple(outcome.value for outcome in Outcome)
VERDICTS = (Outcome.SUCCESS.value, Outcome.FAILURE.value)
REFUSALS = tuple(refusal.value for refusal in Refusal)
REFUSALS_ALWAYS = (Refusal.OPEN.value, Refusal.TRIAL_BUDGET.value, Refusal.FORCED_OPEN.value)
"""Refusals that every breaker can give; the others need a ramp, or a question which calls may be trial calls."""

RETRY_OUTCOMES = tuple(outcome.value for outcome in RetryOutcome)
ATTEMPT_OUTCOMES = tuple(outcome.value for outcome in AttemptOutcome)
TIMEOUT_OUTCOMES = tuple(outcome.value for outcome in TimeoutOutcome)
BULKHEAD_REASONS = ("full", "wait_timeout")
FULL = ("full",)
RATE = ("rate",)
HEDGE_OUTCOMES = ("primary", "hedge", "failed")
HEDGE_SKIPS = ("budget", "no_thread")
CACHE_OUTCOMES = ("success", "missing", "too_old", "no_key")

GATEWAY_OUTCOMES = ("answered", "stored", "refused", "failed", "invalid", "broken_off")
GATEWAY_TURNED_AWAY = (
    "no_token", "wrong_host", "browser", "unknown_partner", "bad_path", "bad_header", "body_too_large", "loop", "other",
)  # fmt: skip

QUEUE_STATES = ("ready", "delayed", "in_flight", "awaiting_receipt", "error", "dead")
QUEUE_ALERTS = (
    "opened", "reopened", "closed", "drained", "inconclusive", "lane_held", "security", "error", "dead", "expiring",
    "too_old", "receipt_overdue", "store_unavailable", "store_available", "clock_stepped",
)  # fmt: skip
QUEUE_ATTEMPTS = OUTCOMES
QUEUE_COMMANDS = ("retry", "resend", "resubmit", "cancel")
STORE_OPERATIONS = ("read", "write", "exchange", "join", "listen")
