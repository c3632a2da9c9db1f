"""Durable store-and-forward: one lane per partner, a breaker before each, and a store that survives `kill -9`."""

from ._alerts import QueueAlert
from ._caretaker import Keep
from ._delivery import AsyncSender, Delivery, Sender
from ._errors import (
    CommandRefusedError,
    ConfirmationRequiredError,
    DuplicateMessageError,
    PayloadCorruptError,
    PayloadTooLargeError,
    QueueError,
    StoreUnavailableError,
    UnknownMessageError,
)
from ._group_commit import Ticket
from ._inspection import Selection
from ._profile import LaneProfile, MessageSchedule
from ._reports import Report, Verdict
from ._requests import Accepted
from ._rows import AlertKind, HistoryEntry, Message, MessageState, Stream
from ._stats import LaneStats, QueueStats
from ._store import Store
from .answers import judge_exception, judge_status
from .queue import RetryQueue
from .sqlite import SqliteStore

__all__ = [
    "Accepted",
    "AlertKind",
    "AsyncSender",
    "CommandRefusedError",
    "ConfirmationRequiredError",
    "Delivery",
    "DuplicateMessageError",
    "HistoryEntry",
    "Keep",
    "LaneProfile",
    "LaneStats",
    "Message",
    "MessageSchedule",
    "MessageState",
    "PayloadCorruptError",
    "PayloadTooLargeError",
    "QueueAlert",
    "QueueError",
    "QueueStats",
    "Report",
    "RetryQueue",
    "Selection",
    "Sender",
    "SqliteStore",
    "Store",
    "StoreUnavailableError",
    "Stream",
    "Ticket",
    "UnknownMessageError",
    "Verdict",
    "judge_exception",
    "judge_status",
]
