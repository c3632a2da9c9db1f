"""What a sender reports about one attempt, and the table of what each report means."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ._rows import AlertKind, MessageState, Outcome

__all__ = ["RULES", "Report", "Rule", "Verdict"]


class Verdict(StrEnum):
    """What became of one attempt."""

    DELIVERED = "delivered"
    """The partner has it and says so."""
    ACCEPTED = "accepted"
    """The transfer succeeded; the receipt comes later."""
    NOT_DELIVERED = "not_delivered"
    """Surely not delivered, and the partner is sick: refused, connect timeout, 503."""
    UNKNOWN = "unknown"
    """The body had begun and no usable answer came: only a resend with the same ID is safe."""
    REFUSED = "refused"
    """The partner is healthy and refuses this message: a configuration for a person to mend."""
    LANE_MISCONFIGURED = "lane_misconfigured"
    """Every message of the lane will fail alike: an expired certificate, a wrong host."""
    SECURITY = "security"
    """Received, but the proof does not fit: other digest, bad signature, receipt for another message."""
    BACK_END_ERROR = "back_end_error"
    """The partner's catch-all error: usually a sick back end, sometimes a poison document."""
    NOT_SENT = "not_sent"
    """We stopped before the first byte left."""
    INTERRUPTED = "interrupted"
    """We stopped after the body had begun."""
    BROKEN = "broken"
    """Our side cannot build or read the message."""
    SENDER_FAILED = "sender_failed"
    """The sender itself broke; nobody knows whether the partner has the message."""


@dataclass(frozen=True, slots=True)
class Report:
    """
    What a sender hands back.

    Attributes:
        verdict: What became of the attempt.
        detail: One line for people: ``HTTP 503``, ``decryption-failed``.
        retry_after: Seconds the partner asked to wait; a lower bound for the breaker's open time.
        receipt: The receipt as it came, kept as proof of delivery.
        kind: What refusals have in common; five of one kind in a row hold the lane. Defaults to *detail*.
    """

    verdict: Verdict
    detail: str = ""
    retry_after: float | None = None
    receipt: bytes | None = None
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """
    What a verdict means.

    Attributes:
        outcome: What the breaker is told.
        state: Where the message goes.
        alert: The alert to raise, if any.
        undone: The attempt is given back: no byte left.
    """

    outcome: Outcome
    state: MessageState
    alert: AlertKind | None = None
    undone: bool = False


RULES: dict[Verdict, Rule] = {
    Verdict.DELIVERED: Rule("success", MessageState.DONE),
    Verdict.ACCEPTED: Rule("success", MessageState.AWAITING_RECEIPT),
    Verdict.NOT_DELIVERED: Rule("failure", MessageState.WAITING),
    Verdict.UNKNOWN: Rule("failure", MessageState.UNKNOWN_DELIVERY),
    Verdict.REFUSED: Rule("ignored", MessageState.ERROR, alert="error"),
    Verdict.LANE_MISCONFIGURED: Rule("ignored", MessageState.WAITING, alert="lane_held", undone=True),
    Verdict.SECURITY: Rule("ignored", MessageState.ERROR, alert="security"),
    Verdict.BACK_END_ERROR: Rule("failure", MessageState.WAITING),
    Verdict.NOT_SENT: Rule("ignored", MessageState.WAITING, undone=True),
    Verdict.INTERRUPTED: Rule("ignored", MessageState.UNKNOWN_DELIVERY),
    Verdict.BROKEN: Rule("ignored", MessageState.ERROR, alert="error", undone=True),
    Verdict.SENDER_FAILED: Rule("ignored", MessageState.ERROR, alert="error"),
}
