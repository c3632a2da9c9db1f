"""Questions the store answers without writing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from . import _sql
from ._rows import HistoryEntry, LaneRow, Message, MessageState
from ._verdicts import unpack

__all__ = ["LaneCounts", "Look", "Reader", "Selection"]


class Reader(Protocol):
    """A connection that reads."""

    now: float

    def rows(self, sql: str, parameters: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run one statement; return its rows."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """
    Which messages are meant; every criterion given must fit.

    Attributes:
        created_before: Unix time.
        reason: Text that must occur in the last detail, upper or lower case alike.
    """

    lane: str | None = None
    states: frozenset[MessageState] = frozenset()
    kind: str | None = None
    stream: str | None = None
    created_before: float | None = None
    reason: str | None = None

    def condition(self) -> tuple[str, dict[str, Any]]:
        """Return the WHERE clause and its parameters."""
        parts, values = ["1 = 1"], dict[str, Any]()
        for column in ("lane", "kind", "stream"):
            if (wanted := getattr(self, column)) is not None:
                parts.append(f"{column} = :{column}")
                values[column] = wanted
        if self.states:
            listed = ", ".join(f"'{state.value}'" for state in sorted(self.states))
            parts.append(f"state IN ({listed})")
        if self.created_before is not None:
            parts.append("created < :created_before")
            values["created_before"] = self.created_before
        if self.reason is not None:
            parts.append("lower(last_detail) LIKE :reason ESCAPE '!'")
            plain = re.sub("[!%_]", r"!\g<0>", self.reason.lower())
            values["reason"] = f"%{plain}%"
        return " AND ".join(parts), values


@dataclass(frozen=True, slots=True)
class Look:
    """
    What a lane has to do, seen without writing.

    Attributes:
        next_due: When its next message is due, Unix time; None: none waits.
        held: A hold keeps it from sending.
        hold_until: When the hold ends by itself.
        send_window: Messages in flight allowed over all processes.
        in_flight: Messages in flight over all processes.
    """

    next_due: float | None
    held: bool
    hold_until: float | None
    send_window: int
    in_flight: int
    breaker: str | None


@dataclass(slots=True)
class LaneCounts:
    """How many messages of one lane are in which state; `due` are those ready and due."""

    states: dict[MessageState, int] = field(default_factory=dict)
    due: int = 0


def look(reader: Reader, lane: str) -> Look | None:
    """Return what *lane* has to do; None if the store does not know it."""
    rows = reader.rows(
        f"""SELECT l.hold, l.hold_until, l.send_window, l.breaker,
              (SELECT min(due) FROM messages WHERE lane = l.lane AND {_sql.READY_STATES}),
              (SELECT count(*) FROM messages WHERE lane = l.lane AND state = 'sending')
            FROM lanes l WHERE l.lane = :lane""",
        {"lane": lane},
    )
    if not rows:
        return None
    hold, hold_until, send_window, breaker, next_due, in_flight = rows[0]
    held = hold is not None and (hold_until is None or hold_until > reader.now)
    return Look(next_due, held, hold_until if held else None, send_window, in_flight, breaker)


def ready(reader: Reader, lane: str, limit: int, *, any_due: bool) -> int:
    """Count the messages of *lane* that could be sent now, at most *limit*."""
    statement = _sql.CANDIDATES.format(due="" if any_due else _sql.ONLY_DUE)
    return len(reader.rows(statement, {"lane": lane, "now": reader.now, "seats": limit}))


def lanes(reader: Reader) -> list[str]:
    """Name every lane."""
    return [lane for (lane,) in reader.rows("SELECT lane FROM lanes ORDER BY lane")]


def lane_rows(reader: Reader) -> list[LaneRow]:
    """Return every lane's row."""
    rows = reader.rows("SELECT lane, hold, hold_until, hold_note, breaker, send_window FROM lanes ORDER BY lane")
    names = tuple(LaneRow.__dataclass_fields__)
    return [LaneRow(**dict(zip(names, row, strict=True))) for row in rows]


def oldest_per_lane(reader: Reader) -> dict[str, float]:
    """Return the enqueue time of the first waiting message of each lane."""
    rows = reader.rows(
        f"""SELECT m.lane, m.created FROM messages m WHERE m.seq IN (
              SELECT (SELECT min(seq) FROM messages WHERE lane = l.lane AND {_sql.READY_STATES}) FROM lanes l)"""
    )
    return {lane: float(created) for lane, created in rows}


def lanes_with_work(reader: Reader) -> list[str]:
    """Name the lanes in which something waits."""
    rows = reader.rows(
        f"SELECT lane FROM lanes l WHERE EXISTS (SELECT 1 FROM messages WHERE lane = l.lane AND {_sql.READY_STATES})"
    )
    return [lane for (lane,) in rows]


def changed_lanes(reader: Reader, seq: int, entry: int) -> tuple[set[str], int, int]:
    """Name the lanes with arrivals after *seq* or commands after *entry*; return the new marks too."""
    arrivals = reader.rows("SELECT lane, max(seq) FROM messages WHERE seq > :seq GROUP BY lane", {"seq": seq})
    orders = reader.rows(
        "SELECT lane, what, max(entry) FROM history WHERE entry > :entry GROUP BY lane, what", {"entry": entry}
    )
    changed = {lane for lane, _ in arrivals} | {lane for lane, what, _ in orders if what in _WAKING}
    return changed, max([seq, *(top for _, top in arrivals)]), max([entry, *(top for *_, top in orders)])


_WAKING = frozenset(
    {"retry", "resend", "cancel", "release", "lease ran out", "receipt overdue", "receipt", "move_deadline"}
)


def marks(reader: Reader) -> tuple[int, int]:
    """Return the newest seq and history entry."""
    return (
        reader.rows("SELECT coalesce(max(seq), 0) FROM messages")[0][0],
        reader.rows("SELECT coalesce(max(entry), 0) FROM history")[0][0],
    )


def select(reader: Reader, selection: Selection, *, after: int, limit: int) -> list[Message]:
    """Return the messages meant, oldest first, that come after seq *after*."""
    condition, values = selection.condition()
    rows = reader.rows(
        f"SELECT {_sql.COLUMN_LIST} FROM messages WHERE {condition} AND seq > :after ORDER BY seq LIMIT :limit",
        {**values, "after": after, "limit": limit},
    )
    return [Message.from_row(row) for row in rows]


def count(reader: Reader, selection: Selection) -> int:
    """Return how many messages are meant."""
    condition, values = selection.condition()
    total: int = reader.rows(f"SELECT count(*) FROM messages WHERE {condition}", values)[0][0]
    return total


def last(reader: Reader, selection: Selection) -> int:
    """Return the seq of the newest message meant, 0 if there is none."""
    condition, values = selection.condition()
    newest: int = reader.rows(f"SELECT coalesce(max(seq), 0) FROM messages WHERE {condition}", values)[0][0]
    return newest


def history(reader: Reader, seq: int) -> list[HistoryEntry]:
    """Return the attempts, commands and receipts of one message, oldest first."""
    rows = reader.rows(
        "SELECT m.id, h.lane, h.at, h.attempt, h.what, h.outcome, h.detail, h.who"
        " FROM history h JOIN messages m ON m.seq = h.seq WHERE h.seq = :seq ORDER BY h.entry",
        {"seq": seq},
    )
    names = tuple(HistoryEntry.__dataclass_fields__)
    return [HistoryEntry(**dict(zip(names, row, strict=True))) for row in rows]


def claims(reader: Reader) -> tuple[list[str], dict[str, str]]:
    """Return the tokens of messages in flight, and by lane the process that makes trial calls."""
    tokens = reader.rows(
        "SELECT DISTINCT lease_token FROM messages WHERE state = 'sending' AND lease_token IS NOT NULL"
    )
    rounds = reader.rows("SELECT lane, breaker FROM lanes WHERE breaker LIKE :half_open", {"half_open": "%half_open%"})
    verdicts = {lane: unpack(breaker) for lane, breaker in rounds}
    return [token for (token,) in tokens], {
        lane: verdict.by for lane, verdict in verdicts.items() if verdict is not None and verdict.is_round
    }


def payload(reader: Reader, seq: int) -> tuple[str, bytes | None, str | None, str | None, bytes | None]:
    """Return headers, inline body, file name, MIC and receipt."""
    rows = reader.rows("SELECT headers, body, file, mic, receipt FROM payloads WHERE seq = :seq", {"seq": seq})
    headers, body, file, mic, receipt = rows[0]
    return headers, None if body is None else bytes(body), file, mic, None if receipt is None else bytes(receipt)


def counts(reader: Reader) -> dict[str, LaneCounts]:
    """Count the live, failed and dead messages per lane; done and cancelled ones are not counted here."""
    found: dict[str, LaneCounts] = {}
    for lane, state, number, due in reader.rows(_COUNTS, {"now": reader.now}):
        lane_counts = found.setdefault(lane, LaneCounts())
        lane_counts.states[MessageState(state)] = number
        lane_counts.due += due
    return found


# One branch per partial index, so that finished messages are never visited.
_COUNTS = f"""
SELECT lane, 'waiting', count(*), sum(CASE WHEN due <= :now THEN 1 ELSE 0 END)
    FROM messages WHERE {_sql.READY_STATES} GROUP BY lane
UNION ALL SELECT lane, 'sending', count(*), 0 FROM messages WHERE state = 'sending' GROUP BY lane
UNION ALL SELECT lane, 'awaiting_receipt', count(*), 0 FROM messages WHERE state = 'awaiting_receipt' GROUP BY lane
UNION ALL SELECT lane, state, count(*), 0 FROM messages WHERE state IN ('error', 'dead') GROUP BY lane, state"""


def books(reader: Reader) -> dict[MessageState, int]:
    """Count every message by state, finished ones included: a full scan, for audits."""
    rows = reader.rows("SELECT state, count(*) FROM messages GROUP BY state")
    return {MessageState(state): number for state, number in rows}


def oldest_live(reader: Reader) -> float | None:
    """Return the enqueue time of the oldest message that waits, is in flight or awaits a receipt."""
    rows = reader.rows(
        f"""SELECT min(created) FROM messages WHERE seq IN (
              SELECT (SELECT min(seq) FROM messages WHERE lane = l.lane AND {_sql.READY_STATES}) FROM lanes l)
        UNION ALL SELECT min(created) FROM messages WHERE state = 'sending'
        UNION ALL SELECT min(created) FROM messages WHERE state = 'awaiting_receipt'"""
    )
    return min((created for (created,) in rows if created is not None), default=None)


def files(reader: Reader, names: Iterable[str]) -> set[str]:
    """Return those of *names* that a row refers to."""
    return {name for name in names if reader.rows("SELECT 1 FROM payloads WHERE file = :name", {"name": name})}


def expiring(reader: Reader, within: float) -> list[Message]:
    """Return live messages whose deadline comes within so many seconds."""
    rows = reader.rows(
        f"SELECT {_sql.COLUMN_LIST} FROM messages WHERE deadline <= :soon AND deadline > :now"
        " AND deadline IS NOT NULL AND state IN ('waiting', 'unknown_delivery', 'awaiting_receipt') LIMIT 500",
        {"soon": reader.now + within, "now": reader.now},
    )
    return [Message.from_row(row) for row in rows]
