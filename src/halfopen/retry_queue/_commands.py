"""Receipts that come by themselves, and what people order, inside one transaction."""

from __future__ import annotations

import json

from ._errors import CommandRefusedError
from ._group_commit import Transaction
from ._operations import apply_change, enqueue, find, log
from ._reports import Report
from ._requests import Accepted, Dialect, NewMessage
from ._rows import MessageState
from ._rules import Change, after_command, after_receipt, check_resubmit

__all__ = ["command", "move_deadline", "receipt", "resubmit"]


def receipt(transaction: Transaction, message_id: str, report: Report) -> Change | None:
    """Take a receipt that came by itself; return what it changed, None if nothing."""
    message = find(transaction, message_id, transaction.row_lock)
    change = after_receipt(message, report, transaction.now)
    if change is not None:
        apply_change(transaction, message, change)
        return change
    if message.state is MessageState.SENDING:
        # Our own POST has not returned yet: keep the receipt for then.
        transaction.execute(
            "UPDATE payloads SET early = :early, receipt = :receipt WHERE seq = :seq",
            {
                "early": json.dumps({"verdict": report.verdict, "detail": report.detail}),
                "receipt": report.receipt,
                "seq": message.seq,
            },
        )
    log(transaction, message, what="receipt noted", detail=report.detail or report.verdict)
    return None


def command(
    transaction: Transaction,
    message_id: str,
    order: str,
    *,
    deadline: float | None = None,
    reason: str = "",
    who: str | None = None,
) -> Change:
    """
    Carry out ``retry``, ``resend`` or ``cancel``.

    Raises:
        UnknownMessageError: There is no such message.
        CommandRefusedError: Its state does not allow it.
    """
    message = find(transaction, message_id, transaction.row_lock)
    change = after_command(message, order, transaction.now, deadline=deadline, reason=reason)
    apply_change(transaction, message, change, who)
    transaction.notify(message.lane)
    return change


def move_deadline(transaction: Transaction, message_id: str, deadline: float | None, who: str | None) -> None:
    """Give a message that is still on its way another deadline; None takes it away."""
    message = find(transaction, message_id, transaction.row_lock)
    if message.state not in _ON_ITS_WAY:
        raise CommandRefusedError(f"{message.id} is {message.state}: a deadline makes no sense there")
    transaction.execute(
        "UPDATE messages SET deadline = :deadline WHERE seq = :seq", {"deadline": deadline, "seq": message.seq}
    )
    log(transaction, message, what="move_deadline", detail=str(deadline), who=who)


_ON_ITS_WAY = (
    MessageState.WAITING,
    MessageState.SENDING,
    MessageState.UNKNOWN_DELIVERY,
    MessageState.AWAITING_RECEIPT,
)


def resubmit(
    transaction: Transaction, new: NewMessage, dialect: Dialect, *, confirmed: bool, who: str | None, reason: str
) -> Accepted:
    """Write the content of an old message as the new message *new*, whose `resubmit_of` points back."""
    old = find(transaction, new.resubmit_of or "", transaction.row_lock)
    check_resubmit(old, confirmed=confirmed)
    accepted = enqueue(transaction, new, dialect)
    log(transaction, old, what="resubmit", detail=reason or f"as {new.id}", who=who)
    return accepted
