"""The storage protocol: what an engine must bring, and what every store can then do."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from . import _commands, _inspection, _operations, _upkeep
from ._bodies import Bodies
from ._group_commit import Ticket, Transaction
from ._inspection import LaneCounts, Look, Reader, Selection
from ._owners import owner_of
from ._profile import LaneProfile
from ._reports import Report
from ._requests import Accepted, ClaimRequest, Dialect, Finished, NewMessage, Pace
from ._rows import HistoryEntry, LaneRow, Message, MessageState
from ._rules import Change

__all__ = ["Store"]

T = TypeVar("T")
Headers = Sequence[tuple[str, str]]


class Store(ABC):
    """
    Messages, lanes and history, durable and shared by several processes.

    An engine brings connections (`submit` for writing, `read`), a `dialect`, a place for large `bodies` and news of
    other processes (`watch`). Everything else is the same for all.

    Attributes:
        name: What to call it in metrics.
        inline: Bytes up to which a body is kept in its row.
    """

    name: str
    inline: int
    bodies: Bodies
    dialect: Dialect

    @abstractmethod
    def submit(
        self, operation: Callable[[Transaction], T], callback: Callable[[Ticket[T]], object] | None = None
    ) -> Ticket[T]:
        """Queue *operation* for the next transaction of the writer; *callback* as for `Ticket.then`."""

    @abstractmethod
    def read(self, operation: Callable[[Reader], T]) -> T:
        """Run *operation* on a reading connection, in the caller's thread."""

    @abstractmethod
    def watch(self, changed: Callable[[set[str] | None], object], stop: Callable[[float], bool]) -> None:
        """Call *changed* with lanes others touched (None: any) until *stop*, which waits so many seconds, is True."""

    @abstractmethod
    def lease_prefix(self) -> str:
        """Return what every lease token of this machine's present boot begins with."""

    @abstractmethod
    def owner(self) -> str:
        """Name this process as an owner of leases; an empty text if nobody could see that it has died."""

    @abstractmethod
    def gone(self, owners: frozenset[str]) -> frozenset[str]:
        """Return those of *owners* whose process has ended."""

    @abstractmethod
    def close(self) -> None:
        """Commit what waits and close every connection."""

    # ── writing ──

    def enqueue(
        self, new: NewMessage, callback: Callable[[Ticket[Accepted]], object] | None = None
    ) -> Ticket[Accepted]:
        """Write a new message; *callback* as for `Ticket.then`."""
        return self.submit(_operations.Enqueue(new, self.dialect), callback)

    def claim(self, request: ClaimRequest) -> list[Message] | None:
        """Mark messages as ``sending``; None if another process is claiming in this lane right now."""
        return self.submit(lambda transaction: _operations.claim(transaction, request, self.dialect)).result()

    def finish(self, message: Message, token: str, change: Change, pace: Pace | None = None) -> Ticket[Finished]:
        """Write the result of a send."""
        return self.submit(
            lambda transaction: _operations.finish(transaction, message, token, change, pace, self.dialect)
        )

    def receipt(self, message_id: str, report: Report) -> Ticket[Change | None]:
        """Take a receipt that came by itself."""
        return self.submit(lambda transaction: _commands.receipt(transaction, message_id, report))

    def command(self, message_id: str, order: str, **options: Any) -> Change:
        """Carry out ``retry``, ``resend`` or ``cancel``; options as in `_commands.command`."""
        return self.submit(lambda transaction: _commands.command(transaction, message_id, order, **options)).result()

    def move_deadline(self, message_id: str, deadline: float | None, who: str | None) -> None:
        """Give a message another deadline."""
        self.submit(lambda transaction: _commands.move_deadline(transaction, message_id, deadline, who)).result()

    def resubmit(self, new: NewMessage, *, confirmed: bool, who: str | None, reason: str) -> Accepted:
        """Write an old message's content as a new message."""
        return self.submit(
            lambda transaction: _commands.resubmit(
                transaction, new, self.dialect, confirmed=confirmed, who=who, reason=reason
            )
        ).result()

    def settled(self) -> None:
        """Wait until everything submitted so far is durable, and its callbacks have run."""
        self.submit(lambda transaction: None).result()

    # ── upkeep ──

    def reap(self, profile_of: Callable[[str], LaneProfile], own: frozenset[int]) -> list[tuple[Message, Change]]:
        """Give up on senders whose lease ran out, or whose process has died."""
        tokens, rounds = self.read(_inspection.claims)
        gone = self.gone(frozenset(map(owner_of, [*tokens, *rounds.values()])) - {"", self.owner()})
        dead = [token for token in tokens if owner_of(token) in gone]
        lanes = [lane for lane, process in rounds.items() if owner_of(process) in gone]

        def reap(transaction: Transaction) -> list[tuple[Message, Change]]:
            _upkeep.end_rounds(transaction, lanes, gone)
            return _upkeep.reap(transaction, self.dialect, profile_of, own, dead)

        return self.submit(reap).result()

    def expire(self) -> list[tuple[Message, Change]]:
        """Turn messages past their deadline into dead letters."""
        return self.submit(lambda transaction: _upkeep.expire(transaction, self.dialect)).result()

    def overdue(self, profile_of: Callable[[str], LaneProfile]) -> list[tuple[Message, Change]]:
        """Act upon overdue receipts."""
        return self.submit(lambda transaction: _upkeep.overdue(transaction, self.dialect, profile_of)).result()

    def renew(self, held: Iterable[tuple[int, str, float]]) -> Ticket[None]:
        """Lengthen leases: (seq, token, seconds)."""
        listed = list(held)
        return self.submit(lambda transaction: _upkeep.renew(transaction, listed))

    def make_due(self, lane: str) -> Ticket[int]:
        """Make messages due whose last outcome was a failure."""
        return self.submit(lambda transaction: _upkeep.make_due(transaction, lane))

    def clamp_due(self, horizon: float) -> int:
        """Pull in due times no schedule can have set."""
        return self.submit(lambda transaction: _upkeep.clamp_due(transaction, horizon)).result()

    def save_breaker(
        self,
        lane: str,
        saved: str,
        *,
        process: str = "",
        restart_pace: bool = False,
        yields_for: float | None = None,
    ) -> Ticket[bool]:
        """Keep the breaker's snapshot in the lane's row; tell whether it was, see `_upkeep.save_breaker`."""
        return self.submit(
            lambda transaction: _upkeep.save_breaker(
                transaction, lane, saved, process=process, restart_pace=restart_pace, yields_for=yields_for
            )
        )

    def hold(self, lane: str, kind: str, until: float | None, note: str, who: str | None) -> Ticket[None]:
        """Keep a lane from sending."""
        return self.submit(lambda transaction: _upkeep.hold(transaction, lane, kind, until, note, who))

    def release(self, lane: str, note: str, who: str | None) -> Ticket[None]:
        """Let a lane send again."""
        return self.submit(lambda transaction: _upkeep.release(transaction, lane, note, who))

    def prune(self, bodies_before: float, rows_before: float) -> int:
        """Forget bytes, then rows, of messages finished before these Unix times; return the rows forgotten."""
        while files := self.submit(lambda transaction: _upkeep.prune_bodies(transaction, bodies_before)).result():
            for file in files:
                self.bodies.delete(file)
        pruned = 0
        while number := self.submit(lambda transaction: _upkeep.prune_rows(transaction, rows_before)).result():
            pruned += number
        return pruned

    def sweep_bodies(self, older_than: float = 3600.0) -> int:
        """Delete stored bodies no row refers to: a crash came between body and row."""
        names = list(self.bodies.names(older_than))
        known = self.read(lambda reader: _inspection.files(reader, names))
        orphans = [name for name in names if name not in known]
        for name in orphans:
            self.bodies.delete(name)
        return len(orphans)

    # ── reading ──

    def look(self, lane: str) -> Look | None:
        """Return what a lane has to do."""
        return self.read(lambda reader: _inspection.look(reader, lane))

    def ready(self, lane: str, limit: int, *, any_due: bool) -> int:
        """Count the messages of a lane that could be sent now, at most *limit*."""
        return self.read(lambda reader: _inspection.ready(reader, lane, limit, any_due=any_due))

    def lanes(self) -> list[str]:
        """Name every lane."""
        return self.read(_inspection.lanes)

    def lane_rows(self) -> list[LaneRow]:
        """Return every lane's row."""
        return self.read(_inspection.lane_rows)

    def oldest_per_lane(self) -> dict[str, float]:
        """Return the enqueue time of each lane's first waiting message."""
        return self.read(_inspection.oldest_per_lane)

    def lanes_with_work(self) -> list[str]:
        """Name the lanes in which something waits."""
        return self.read(_inspection.lanes_with_work)

    def find(self, message_id: str) -> Message:
        """Return one message; `UnknownMessageError` if there is none."""
        return self.read(lambda reader: _operations.find(reader, message_id))  # type: ignore[arg-type]  # reads only

    def select(self, selection: Selection, *, after: int = 0, limit: int = 100) -> list[Message]:
        """Return the messages meant, oldest first."""
        return self.read(lambda reader: _inspection.select(reader, selection, after=after, limit=limit))

    def count(self, selection: Selection) -> int:
        """Return how many messages are meant."""
        return self.read(lambda reader: _inspection.count(reader, selection))

    def last(self, selection: Selection) -> int:
        """Return the seq of the newest message meant, 0 if there is none."""
        return self.read(lambda reader: _inspection.last(reader, selection))

    def history(self, seq: int) -> list[HistoryEntry]:
        """Return one message's history."""
        return self.read(lambda reader: _inspection.history(reader, seq))

    def payload(self, seq: int) -> tuple[Headers, bytes | None, str | None, str | None, bytes | None]:
        """Return headers, inline body, name of the stored body, MIC and receipt."""
        headers, body, file, mic, receipt = self.read(lambda reader: _inspection.payload(reader, seq))
        return [(str(name), str(value)) for name, value in json.loads(headers)], body, file, mic, receipt

    def counts(self) -> dict[str, LaneCounts]:
        """Count live, failed and dead messages per lane."""
        return self.read(_inspection.counts)

    def books(self) -> dict[MessageState, int]:
        """Count every message by state."""
        return self.read(_inspection.books)

    def oldest_live(self) -> float | None:
        """Return the enqueue time of the oldest message still on its way."""
        return self.read(_inspection.oldest_live)

    def expiring(self, within: float) -> list[Message]:
        """Return live messages whose deadline comes within so many seconds."""
        return self.read(lambda reader: _inspection.expiring(reader, within))
