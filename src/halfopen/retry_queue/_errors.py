"""What the queue itself raises."""

from __future__ import annotations

from halfopen.errors import HalfOpenError

__all__ = [
    "CommandRefusedError",
    "ConfirmationRequiredError",
    "DuplicateMessageError",
    "PayloadCorruptError",
    "PayloadTooLargeError",
    "QueueError",
    "StoreUnavailableError",
    "UnknownMessageError",
]


class QueueError(HalfOpenError):
    """The root of what the retry queue raises."""


class StoreUnavailableError(QueueError):
    """The store could not commit: disk full, read-only, gone. What was asked did not happen."""


class DuplicateMessageError(QueueError):
    """The Message-ID is taken by a message with other bytes or another lane."""


class UnknownMessageError(QueueError, LookupError):
    """No message has this Message-ID."""


class CommandRefusedError(QueueError):
    """The message is in a state in which this command makes no sense."""


class ConfirmationRequiredError(CommandRefusedError):
    """The partner may have the message already; sending it as a new one must be confirmed."""


class PayloadCorruptError(QueueError):
    """The stored bytes are missing or are not those that were enqueued."""


class PayloadTooLargeError(QueueError, ValueError):
    """The payload is larger than the queue accepts."""
