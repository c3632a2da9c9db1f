"""What the store does by itself inside one transaction: leases, deadlines, receipts, holds, pruning."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from . import _sql
from ._group_commit import Transaction
from ._operations import apply_change, lane_row
from ._owners import owner_of
from ._profile import LaneProfile
from ._requests import Dialect
from ._rows import Message
from ._rules import Change, after_deadline, after_lease, after_missing_receipt
from ._verdicts import pack, round_elsewhere, unpack

__all__ = [
    "clamp_due",
    "end_rounds",
    "expire",
    "hold",
    "make_due",
    "overdue",
    "prune_bodies",
    "prune_rows",
    "reap",
    "release",
    "renew",
    "save_breaker",
]

BATCH = 500
Changed = list[tuple[Message, Change]]


def _select(transaction: Transaction, condition: str, suffix: str = "", **values: object) -> list[Message]:
    statement = f"SELECT {_sql.COLUMN_LIST} FROM messages WHERE {condition} LIMIT {BATCH}{suffix}"
    return [Message.from_row(row) for row in transaction.rows(statement, values)]


def reap(
    transaction: Transaction,
    dialect: Dialect,
    profile_of: Callable[[str], LaneProfile],
    own: frozenset[int],
    dead: Iterable[str] = (),
) -> Changed:
    """
    Turn messages whose lease ran out into `unknown_delivery`.

    Args:
        own: Those in flight in this very process.
        dead: Tokens of processes that have ended: their leases are over as well.
    """
    sending = "state = 'sending' AND "
    over = _select(transaction, sending + dialect.lease_over, dialect.lock_rows, now=transaction.lease_now)
    known = {message.seq for message in over}
    for token in dead:
        left = _select(transaction, sending + "lease_token = :token", dialect.lock_rows, token=token)
        over += [message for message in left if message.seq not in known]
    changed = [
        (message, after_lease(message, profile_of(message.lane), transaction.now))
        for message in over
        if message.seq not in own
    ]
    return _apply_all(transaction, changed)


def end_rounds(transaction: Transaction, lanes: Iterable[str], gone: Collection[str]) -> None:
    """Let others make the trial calls of *lanes* in place of processes of owners that are *gone*."""
    for lane in lanes:
        row = lane_row(transaction, lane, transaction.lane_lock)
        verdict = None if row is None else unpack(row.breaker)
        if verdict is None or owner_of(verdict.by) not in gone:
            continue
        transaction.execute(
            "UPDATE lanes SET breaker = :saved WHERE lane = :lane", {"saved": pack("", verdict.snapshot), "lane": lane}
        )
        transaction.notify(lane)


def expire(transaction: Transaction, dialect: Dialect) -> Changed:
    """Turn messages whose deadline has passed into dead letters; a send in flight ends first."""
    condition = (
        "deadline <= :now AND deadline IS NOT NULL AND state IN ('waiting', 'unknown_delivery', 'awaiting_receipt')"
    )
    over = _select(transaction, condition, dialect.lock_rows, now=transaction.now)
    return _apply_all(transaction, [(message, after_deadline(message, transaction.now)) for message in over])


def overdue(transaction: Transaction, dialect: Dialect, profile_of: Callable[[str], LaneProfile]) -> Changed:
    """Act upon receipts that did not come in time."""
    late = _select(transaction, "state = 'awaiting_receipt' AND due <= :now", dialect.lock_rows, now=transaction.now)
    changed = [(message, after_missing_receipt(message, profile_of(message.lane), transaction.now)) for message in late]
    return _apply_all(transaction, changed)


def _apply_all(transaction: Transaction, changed: Changed) -> Changed:
    for message, change in changed:
        apply_change(transaction, message, change)
        transaction.notify(message.lane)
    return changed


def renew(transaction: Transaction, held: Iterable[tuple[int, str, float]]) -> None:
    """Lengthen the leases of sends in flight: (seq, token, seconds)."""
    for seq, token, seconds in held:
        transaction.execute(
            "UPDATE messages SET lease_until = :until WHERE seq = :seq AND lease_token = :token AND state = 'sending'",
            {"until": transaction.lease_now + seconds, "seq": seq, "token": token},
        )


def make_due(transaction: Transaction, lane: str) -> int:
    """Make messages due whose last outcome was a failure: the breaker has closed, now pacing protects the partner."""
    return transaction.execute(
        f"UPDATE messages SET due = :now WHERE lane = :lane AND {_sql.READY_STATES}"
        " AND due > :now AND last_outcome = 'failure'",
        {"lane": lane, "now": transaction.now},
    )


def clamp_due(transaction: Transaction, horizon: float) -> int:
    """Pull in due times further away than any schedule sets: the wall clock was stepped back."""
    return transaction.execute(
        f"UPDATE messages SET due = :limit WHERE lane IN (SELECT lane FROM lanes) AND {_sql.READY_STATES}"
        " AND due > :limit",
        {"limit": transaction.now + horizon},
    )


def save_breaker(
    transaction: Transaction, lane: str, saved: str, *, process: str, restart_pace: bool, yields_for: float | None
) -> bool:
    """
    Keep the breaker's snapshot; leaving CLOSED sets the send window to 1.

    Args:
        process: Who saves it.
        yields_for: Seconds for which another process's round of trial calls goes before this one; None: none does.
    """
    transaction.execute(_sql.NEW_LANE, {"lane": lane})
    if yields_for is not None:
        row = lane_row(transaction, lane, transaction.lane_lock)
        if row is not None and round_elsewhere(row.breaker, process, transaction.now, yields_for):
            return False
    pace = ", send_window = 1" if restart_pace else ""
    transaction.execute(f"UPDATE lanes SET breaker = :saved{pace} WHERE lane = :lane", {"saved": saved, "lane": lane})
    return True


def hold(transaction: Transaction, lane: str, kind: str, until: float | None, note: str, who: str | None) -> None:
    """Keep *lane* from sending, until Unix time *until* or until somebody releases it."""
    transaction.execute(_sql.NEW_LANE, {"lane": lane})
    transaction.execute(
        "UPDATE lanes SET hold = :kind, hold_until = :until, hold_note = :note WHERE lane = :lane",
        {"kind": kind, "until": until, "note": note, "lane": lane},
    )
    _log_lane(transaction, lane, f"hold: {kind}", note, who)


def release(transaction: Transaction, lane: str, note: str, who: str | None) -> None:
    """Let *lane* send again."""
    transaction.execute(
        "UPDATE lanes SET hold = NULL, hold_until = NULL, hold_note = NULL WHERE lane = :lane", {"lane": lane}
    )
    _log_lane(transaction, lane, "release", note, who)
    transaction.notify(lane)


def _log_lane(transaction: Transaction, lane: str, what: str, detail: str, who: str | None) -> None:
    transaction.execute(
        _sql.HISTORY,
        {
            "seq": None,
            "lane": lane,
            "at": transaction.now,
            "attempt": 0,
            "what": what,
            "outcome": None,
            "detail": detail,
            "who": who,
        },
    )


def prune_bodies(transaction: Transaction, before: float) -> list[str]:
    """Forget the bytes of messages finished before *before*; return the files to delete."""
    finished = transaction.rows(
        "SELECT m.seq, p.file FROM messages m JOIN payloads p ON p.seq = m.seq"
        " WHERE m.state IN ('done', 'cancelled') AND m.finished < :before"
        f" AND (p.body IS NOT NULL OR p.file IS NOT NULL) LIMIT {BATCH}",
        {"before": before},
    )
    for seq, _ in finished:
        transaction.execute("UPDATE payloads SET body = NULL, file = NULL WHERE seq = :seq", {"seq": seq})
    return [file for _, file in finished if file is not None]


def prune_rows(transaction: Transaction, before: float) -> int:
    """Forget messages finished before *before*, their receipts and history."""
    finished = transaction.rows(
        f"SELECT seq FROM messages WHERE state IN ('done', 'cancelled') AND finished < :before LIMIT {BATCH}",
        {"before": before},
    )
    for (seq,) in finished:
        for table in ("history", "payloads", "messages"):
            transaction.execute(f"DELETE FROM {table} WHERE seq = :seq", {"seq": seq})
    return len(finished)
