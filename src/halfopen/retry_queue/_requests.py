"""What is asked of the store, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ._group_commit import Transaction
from ._rows import MessageState, Outcome
from ._rules import Change

__all__ = [
    "MESSAGE_COLUMNS",
    "PAYLOAD_COLUMNS",
    "Accepted",
    "ClaimRequest",
    "Dialect",
    "Finished",
    "NewMessage",
    "Pace",
]


@dataclass(frozen=True, slots=True)
class Dialect:
    """
    Where the engines differ.

    Attributes:
        lock_lane: Suffix that locks a lane's row, skipping it if another process holds it.
        lock_rows: The same for messages.
        lease_over: Condition for a lease that has run out.
        insert: Writes messages of different IDs, their payloads, and lanes that are new; returns the seq of each whose
            ID was free, by ID.
        mark: Marks rows by seq as ``sending``.
        settle: Writes a result and its history if the lease token fits; tells whether it did.
        lock_stream: Makes enqueueing into one ordered stream a queue of its own until the commit.
    """

    lock_lane: str
    lock_rows: str
    lease_over: str
    insert: Callable[[Transaction, Sequence[NewMessage]], dict[str, int]]
    mark: Callable[[Transaction, list[int], dict[str, Any]], None]
    settle: Callable[[Transaction, dict[str, Any], dict[str, Any]], bool]
    lock_stream: Callable[[Transaction, str, str], None]


class NewMessage(NamedTuple):
    """
    A message on its way into the store; its large body, if any, is written already.

    A tuple, because one is made for every message: a frozen dataclass takes four times as long.
    """

    id: str
    lane: str
    stream: str | None
    stream_mode: int
    kind: str
    size: int
    digest: str
    deadline: float | None
    headers: str
    body: bytes | None
    file: str | None
    mic: str | None = None
    resubmit_of: str | None = None

    @property
    def row(self) -> tuple[Any, ...]:
        """Return what goes into the table of messages, in the order of `MESSAGE_COLUMNS`."""
        return (*self[:8], self.resubmit_of)

    @property
    def payload(self) -> tuple[Any, ...]:
        """Return what goes into the table of payloads, in the order of `PAYLOAD_COLUMNS`."""
        return self[8:12]


MESSAGE_COLUMNS = (*NewMessage._fields[:8], "resubmit_of")
PAYLOAD_COLUMNS = NewMessage._fields[8:12]


@dataclass(frozen=True, slots=True)
class Accepted:
    """
    A message is in the store.

    Attributes:
        message_id: Its Message-ID.
        seq: Its place in the order of arrival.
        duplicate: True if the same bytes had been accepted under this ID before.
        state: Where the message stands now. A duplicate may be ``dead``, ``error`` or ``cancelled``: that one is not
            sent again before somebody says `retry` or `resubmit`.
    """

    message_id: str
    seq: int
    duplicate: bool = False
    state: MessageState = MessageState.WAITING


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """
    Which messages to take.

    Attributes:
        limit: Most messages to take: one per permit.
        cap: Most messages of the lane in flight, over all processes; None: the lane's send window.
        trial: Choose for trial calls.
        process: Who asks; trial calls are refused while another process makes those of this lane.
        stale_round: Seconds after which another process's round is taken for that of a dead one.
        any_due: Do not consult due times: the breaker's timer rules.
    """

    lane: str
    limit: int
    token: str
    lease: float
    epoch: int | None = None
    cap: int | None = None
    trial: bool = False
    process: str = ""
    stale_round: float = 0.0
    any_due: bool = False
    trial_size: int = 1_000_000


@dataclass(frozen=True, slots=True)
class Pace:
    """What an outcome does to the lane's send window."""

    outcome: Outcome
    limit: int
    slow: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """
    How the result of a send was taken.

    Attributes:
        valid: False if the token no longer fitted: the result went to history only.
        change: What was written, None if nothing.
    """

    valid: bool
    change: Change | None
