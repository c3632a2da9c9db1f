"""
What the store does to messages inside one transaction: enqueue, claim, finish.

Each function reads first, lets the pure rules decide, then writes. None touches anything but its transaction, so the
writer may run it again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from . import _sql
from ._errors import DuplicateMessageError, QueueError, UnknownMessageError
from ._group_commit import Joint, Transaction
from ._reports import Report, Verdict
from ._requests import Accepted, ClaimRequest, Dialect, Finished, NewMessage, Pace
from ._rows import LaneRow, Message, MessageState
from ._rules import Change, after_receipt
from ._trials import select_trials
from ._verdicts import round_elsewhere

__all__ = ["Enqueue", "apply_change", "claim", "enqueue", "find", "finish", "lane_row", "log"]

# Rows looked at for trial calls: the choice costs the same however long the backlog is.
TRIAL_CANDIDATES = 1000


class Enqueue(Joint[Accepted]):
    """Write a new message, together with those that wait for the writer as well."""

    __slots__ = ("_dialect", "_new")

    def __init__(self, new: NewMessage, dialect: Dialect) -> None:
        self._new = new
        self._dialect = dialect

    @staticmethod
    def together(transaction: Transaction, operations: Sequence[Enqueue]) -> list[Accepted | QueueError]:
        """Write all of them; a `DuplicateMessageError` stands where one was refused."""
        return _enqueue_all(transaction, [one._new for one in operations], operations[0]._dialect)


def enqueue(transaction: Transaction, new: NewMessage, dialect: Dialect) -> Accepted:
    """
    Write a new message; the same bytes under the same ID are accepted once.

    Raises:
        DuplicateMessageError: The ID belongs to other bytes or another lane.
    """
    return Enqueue(new, dialect)(transaction)


def _enqueue_all(transaction: Transaction, news: Sequence[NewMessage], dialect: Dialect) -> list[Accepted | QueueError]:
    streams = {(new.lane, new.stream) for new in news if new.stream is not None}
    for lane, stream in sorted(streams):  # always in one order, or two processes would wait for each other
        dialect.lock_stream(transaction, lane, stream)
    first: dict[str, NewMessage] = {}
    for new in news:
        first.setdefault(new.id, new)
    seqs = dialect.insert(transaction, list(first.values()))
    for lane in {new.lane for new in news}:
        transaction.notify(lane)
    return [
        Accepted(new.id, seqs[new.id]) if new.id in seqs and first[new.id] is new else _present(transaction, new)
        for new in news
    ]


def _present(transaction: Transaction, new: NewMessage) -> Accepted | DuplicateMessageError:
    present = find(transaction, new.id)
    if (present.digest, present.lane) != (new.digest, new.lane):
        return DuplicateMessageError(f"{new.id} is the ID of another message, in lane {present.lane!r}")
    return Accepted(new.id, present.seq, duplicate=True, state=present.state)


def lane_row(transaction: Transaction, lane: str, suffix: str = "") -> LaneRow | None:
    """Return the row of *lane*, or None if there is none or another process holds it."""
    rows = transaction.rows(
        f"SELECT lane, hold, hold_until, hold_note, breaker, send_window FROM lanes WHERE lane = :lane{suffix}",
        {"lane": lane},
    )
    if not rows:
        return None
    name, hold, hold_until, hold_note, breaker, send_window = rows[0]
    return LaneRow(
        lane=name,
        hold=hold,
        hold_until=hold_until,
        hold_note=hold_note,
        breaker=breaker,
        send_window=send_window,
    )


def claim(transaction: Transaction, request: ClaimRequest, dialect: Dialect) -> list[Message] | None:
    """Mark up to so many messages as ``sending`` and return them; None if another process is claiming in this lane."""
    row = lane_row(transaction, request.lane, dialect.lock_lane)
    if row is None:
        return None
    if row.held(transaction.now):
        return []
    if request.trial and round_elsewhere(row.breaker, request.process, transaction.now, request.stale_round):
        return []
    cap = row.send_window if request.cap is None else request.cap
    in_flight = transaction.rows(
        "SELECT count(*) FROM messages WHERE lane = :lane AND state = 'sending'", {"lane": request.lane}
    )[0][0]
    seats = min(request.limit, cap - in_flight)
    if seats <= 0:
        return []
    chosen = _candidates(transaction, request, seats, dialect)
    marks = {"token": request.token, "until": transaction.lease_now + request.lease, "epoch": request.epoch}
    if chosen:
        dialect.mark(transaction, [message.seq for message in chosen], marks)
    return [
        replace(
            message,
            state=MessageState.SENDING,
            attempts=message.attempts + 1,
            lease_token=request.token,
            epoch=request.epoch,
        )
        for message in chosen
    ]


def _candidates(transaction: Transaction, request: ClaimRequest, seats: int, dialect: Dialect) -> list[Message]:
    statement = (
        _sql.CANDIDATES.format(due="" if request.trial or request.any_due else _sql.ONLY_DUE) + dialect.lock_rows
    )
    rows = transaction.rows(
        statement,
        {"lane": request.lane, "now": transaction.now, "seats": TRIAL_CANDIDATES if request.trial else seats},
    )
    messages = [Message.from_row(row) for row in rows]
    return select_trials(messages, seats, request.trial_size) if request.trial else messages


def finish(
    transaction: Transaction, message: Message, token: str, change: Change, pace: Pace | None, dialect: Dialect
) -> Finished:
    """
    Write the result of a send, valid only while *token* is the row's.

    With another token only a positive receipt counts; the rest goes to history.
    """
    if pace is not None:
        _set_pace(transaction, message.lane, pace)
    answer = change
    if change.state in (MessageState.AWAITING_RECEIPT, MessageState.UNKNOWN_DELIVERY):
        change = _with_early_receipt(transaction, message, change)
    row = {**_values(message, change, transaction.now), "token": token}
    if dialect.settle(transaction, row, _entry(message, transaction.now, change.what, change.outcome, change.detail)):
        _keep_receipt(transaction, message, change)
        if change is not answer:
            transaction.execute("UPDATE payloads SET early = NULL WHERE seq = :seq", {"seq": message.seq})
        return Finished(True, change)
    present = _by_seq(transaction, message.seq)
    if change.state is MessageState.DONE and present.state is not MessageState.DONE:
        apply_change(transaction, present, change)
        return Finished(True, change)
    log(transaction, message, what="late result", outcome=change.outcome, detail=change.detail)
    return Finished(False, None)


def _set_pace(transaction: Transaction, lane: str, pace: Pace) -> None:
    if pace.outcome == "ignored":
        return
    if pace.outcome == "failure" or pace.slow:
        transaction.execute(
            "UPDATE lanes SET send_window = CASE WHEN send_window < 4 THEN 1 ELSE send_window / 2 END"
            " WHERE lane = :lane AND send_window > 1",
            {"lane": lane},
        )
        return
    transaction.execute(
        "UPDATE lanes SET send_window = send_window + 1 WHERE lane = :lane AND send_window < :limit",
        {"lane": lane, "limit": pace.limit},
    )


def _with_early_receipt(transaction: Transaction, message: Message, change: Change) -> Change:
    early = transaction.rows("SELECT early, receipt FROM payloads WHERE seq = :seq", {"seq": message.seq})[0]
    if early[0] is None:
        return change
    said = json.loads(early[0])
    report = Report(Verdict(said["verdict"]), said["detail"], receipt=early[1])
    waiting = _by_seq(transaction, message.seq)
    receipt_change = after_receipt(replace(waiting, state=change.state), report, transaction.now)
    return receipt_change or change


def apply_change(transaction: Transaction, message: Message, change: Change, who: str | None = None) -> None:
    """Write *change* into the row of *message* and its history."""
    transaction.execute(_sql.APPLY, _values(message, change, transaction.now))
    log(transaction, message, what=change.what, outcome=change.outcome, detail=change.detail, who=who)
    _keep_receipt(transaction, message, change)


def _values(message: Message, change: Change, now: float) -> dict[str, Any]:
    finished = change.state in (MessageState.DONE, MessageState.CANCELLED)
    return {
        "seq": message.seq,
        "state": change.state.value,
        "due": change.due,
        "attempts": change.attempts,
        "tries": change.tries,
        "resets": int(change.resets),
        "trial_failures": change.trial_failures,
        "back_end_errors": change.back_end_errors,
        "resends": change.resends,
        "maybe_delivered": int(change.maybe_delivered),
        "outcome": change.outcome,
        "detail": change.detail,
        "deadline": change.deadline,
        "finished": now if finished else None,
    }


def _keep_receipt(transaction: Transaction, message: Message, change: Change) -> None:
    if change.receipt is not None:
        transaction.execute(
            "UPDATE payloads SET receipt = :receipt WHERE seq = :seq", {"receipt": change.receipt, "seq": message.seq}
        )


def log(
    transaction: Transaction,
    message: Message,
    *,
    what: str,
    outcome: str | None = None,
    detail: str | None = None,
    who: str | None = None,
) -> None:
    """Write one line of a message's history."""
    transaction.execute(_sql.HISTORY, _entry(message, transaction.now, what, outcome, detail, who))


def _entry(
    message: Message, now: float, what: str, outcome: str | None, detail: str | None, who: str | None = None
) -> dict[str, Any]:
    return {
        "seq": message.seq,
        "lane": message.lane,
        "at": now,
        "attempt": message.attempts,
        "what": what,
        "outcome": outcome,
        "detail": detail,
        "who": who,
    }


def find(transaction: Transaction, message_id: str, suffix: str = "") -> Message:
    """
    Return the message with this Message-ID.

    Raises:
        UnknownMessageError: There is none.
    """
    statement = f"SELECT {_sql.COLUMN_LIST} FROM messages WHERE id = :id{suffix}"
    rows = transaction.rows(statement, {"id": message_id})
    if not rows:
        raise UnknownMessageError(f"no message has the ID {message_id}")
    return Message.from_row(rows[0])


def _by_seq(transaction: Transaction, seq: int) -> Message:
    rows = transaction.rows(
        f"SELECT {_sql.COLUMN_LIST} FROM messages WHERE seq = :seq{transaction.row_lock}", {"seq": seq}
    )
    return Message.from_row(rows[0])
