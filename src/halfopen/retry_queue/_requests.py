"""What is asked of the store, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ._group_commit import Transaction
from ._rows import Outcome
from ._rules import Change

__all__ = ["Accepted", "ClaimRequest", "Dialect", "Finished", "NewMessage", "Pace"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """
    Where the engines differ.

    Attributes:
        lock_lane: Suffix that locks a lane's row, skipping it if another process holds it.
        lock_rows: The same for messages.
        lease_over: Condition for a lease that has run out.
        insert: Writes a message, its payload, and its lane if that is new; returns its seq, or None if the ID is taken.
        mark: Marks rows by seq as ``sending``.
        settle: Writes a result and its history if the lease token fits; tells whether it did.
        lock_stream: Makes enqueueing into one ordered stream a queue of its own until the commit.
    """

    lock_lane: str
    lock_rows: str
    lease_over: str
    insert: Callable[[Transaction, dict[str, Any]], int | None]
    mark: Callable[[Transaction, list[int], dict[str, Any]], None]
    settle: Callable[[Transaction, dict[str, Any], dict[str, Any]], bool]
    lock_stream: Callable[[Transaction, str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message on its way into the store; its large body, if any, is written already."""

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


@dataclass(frozen=True, slots=True)
class Accepted:
    """
    A message is in the store.

    Attributes:
        message_id: Its Message-ID.
        seq: Its place in the order of arrival.
        duplicate: True if the same bytes had been accepted under this ID before.
    """

    message_id: str
    seq: int
    duplicate: bool = False


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
