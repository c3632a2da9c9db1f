"""The rows the rules work on: messages, lanes, history."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

__all__ = ["READY", "RESTING", "AlertKind", "HistoryEntry", "LaneRow", "Message", "MessageState", "Outcome", "Stream"]

Outcome = Literal["success", "failure", "ignored"]

AlertKind = Literal[
    "opened",
    "reopened",
    "closed",
    "drained",
    "inconclusive",
    "lane_held",
    "security",
    "error",
    "dead",
    "expiring",
    "too_old",
    "receipt_overdue",
    "store_unavailable",
    "store_available",
    "clock_stepped",
]


class MessageState(StrEnum):
    """Where a message stands."""

    WAITING = "waiting"
    SENDING = "sending"
    UNKNOWN_DELIVERY = "unknown_delivery"
    AWAITING_RECEIPT = "awaiting_receipt"
    DONE = "done"
    ERROR = "error"
    DEAD = "dead"
    CANCELLED = "cancelled"


READY = frozenset({MessageState.WAITING, MessageState.UNKNOWN_DELIVERY})
RESTING = frozenset(MessageState) - {MessageState.SENDING}


@dataclass(frozen=True, slots=True)
class Stream:
    """
    An ordered stream inside a lane: one message in flight, the head blocks those behind it.

    Attributes:
        key: Its name, unique in the lane.
        on_dead: What a head in ``error`` or ``dead`` does to the others: ``block`` or ``skip``.
        receipt_passes: True lets the next one go while the head still awaits its receipt.
    """

    key: str
    on_dead: Literal["block", "skip"] = "block"
    receipt_passes: bool = False

    @property
    def mode(self) -> int:
        """Return the two settings as the bits the store keeps: 1 skips, 2 passes."""
        return (self.on_dead == "skip") + 2 * self.receipt_passes


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """
    One message as the store has it. Times are Unix seconds.

    Attributes:
        seq: Order of arrival.
        id: Message-ID on the wire, unchanged on every retry and resend.
        attempts: POSTs begun, over all time. A refusal adds none.
        tries: Those that count towards the attempt limit: no trial calls, none before the last order to retry.
        due: The next moment at which the row matters.
        maybe_delivered: True while the partner may have the message already and no receipt says so.
    """

    seq: int
    id: str
    lane: str
    stream: str | None
    stream_mode: int
    kind: str
    size: int
    digest: str
    created: float
    deadline: float | None
    due: float
    attempts: int
    tries: int
    trial_failures: int
    back_end_errors: int
    resends: int
    maybe_delivered: bool
    state: MessageState
    lease_until: float | None
    lease_token: str | None
    epoch: int | None
    last_outcome: str | None
    last_detail: str | None
    resubmit_of: str | None
    finished: float | None

    @classmethod
    def from_row(cls, row: tuple[Any, ...]) -> Message:
        """Build one from the columns in the order of `COLUMNS`."""
        values = dict(zip(COLUMNS, row, strict=True))
        values["state"] = MessageState(values["state"])
        values["maybe_delivered"] = bool(values["maybe_delivered"])
        return cls(**values)


COLUMNS = tuple(Message.__dataclass_fields__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRow:
    """
    What all processes share about one lane.

    Attributes:
        hold: None, ``operator`` or ``configuration``.
        hold_until: Unix time at which the hold ends by itself; None: a person releases it.
        breaker: Saved breaker snapshot as JSON.
        send_window: How many messages of the lane may be in flight, over all processes.
    """

    lane: str
    hold: str | None = None
    hold_until: float | None = None
    hold_note: str | None = None
    breaker: str | None = None
    send_window: int = 1

    def held(self, now: float) -> bool:
        """Tell whether a hold keeps the lane from sending at *now*."""
        return self.hold is not None and (self.hold_until is None or self.hold_until > now)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One attempt, command or receipt."""

    message_id: str | None
    lane: str
    at: float
    attempt: int
    what: str
    outcome: str | None
    detail: str | None
    who: str | None
