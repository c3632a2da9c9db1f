"""RetryQueue: durable store-and-forward, a lane per partner, driven by the lane's circuit breaker."""

from __future__ import annotations

import inspect
import os
import random
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, BinaryIO, Literal

from halfopen._core.settings import HalfOpen
from halfopen._runtime.clock import SYSTEM_CLOCK, Clock
from halfopen.circuit_breaker import CircuitBreaker

from ._alerts import Alerts, QueueAlert
from ._bodies import take
from ._caretaker import Caretaker, Keep
from ._delivery import AsyncSender, Sender
from ._dispatcher import Dispatcher
from ._errors import CommandRefusedError, PayloadCorruptError, StoreUnavailableError
from ._group_commit import Ticket
from ._inspection import Selection
from ._intake import Deadline, HeaderSource, Payload, prepare, prepare_again, unix_time
from ._lane import Hub, Lane
from ._operations import Accepted
from ._profile import LaneProfile
from ._reports import Report
from ._rows import HistoryEntry, Message, Stream
from ._rules import check_resubmit
from ._runner import Runner, run_tasks
from ._stats import LaneStats, QueueStats, Tally
from ._store import Store
from ._summary import lane_stats, queue_stats
from ._workers import Inline, Threads
from .sqlite import SqliteStore

__all__ = ["RetryQueue"]

BulkCommand = Literal["retry", "resend", "resubmit", "cancel"]


class RetryQueue:
    """
    Keep messages safe until the partner has them.

    An enqueue that returned is on disk. Each lane sends while its breaker lets it, in the breaker's rhythm; a refusal
    uses up no attempt. Bytes and Message-ID are stored once and never change, so that a partner who knows an ID can
    drop a duplicate.

    ```python
    with RetryQueue("hub.db") as queue:
        queue.lane("acme", sender=send_to_acme)
        queue.start()
        queue.enqueue("acme", b"ISA*00*...", headers={"AS2-To": "ACME"}, deadline=4 * 3600)
    ```

    Args:
        store: A store, or the path of a SQLite file.
        name: For metrics.
        workers: Most sends in flight in this process, all lanes together.
        rate: Most sends begun per second in this process, all lanes together; None: no limit.
        max_size: Most bytes of one payload.
        keep: How long finished messages are kept.
        upkeep: Seconds between rounds of leases, deadlines and receipts.
        expiring_within: Seconds before its deadline at which a message is announced.
        clock, rng: The sources of time and chance, for tests.

    Raises:
        StoreUnavailableError: The store cannot be opened.
    """

    def __init__(
        self,
        store: Store | str | os.PathLike[str],
        *,
        name: str = "retry_queue",
        workers: int = 32,
        rate: float | None = None,
        max_size: int = 100 * 1024 * 1024,
        keep: Keep | None = None,
        upkeep: float = 1.0,
        expiring_within: float = 3600.0,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.name = name
        self.store = store if isinstance(store, Store) else SqliteStore(store, clock=clock)
        self._clock = clock or SYSTEM_CLOCK
        self._workers = workers
        self._max_size = max_size
        self._tally = Tally()
        self._alerts = Alerts(self._clock)
        self._dispatcher = Dispatcher(
            self._clock, cap=workers, rate=rate, store_gone=self._store_gone, store_back=self._store_back
        )
        self._hub = Hub(
            store=self.store,
            clock=self._clock,
            rng=rng or random.SystemRandom(),
            alerts=self._alerts,
            tally=self._tally,
            process=uuid.uuid4().hex[:12],
            attention=self._dispatcher.attention,
            closes={},
            failed_writes=[],
        )
        self._caretaker = Caretaker(self._hub, self._dispatcher.lanes, keep or Keep(), expiring_within=expiring_within)
        self._runner = Runner(self.store, self._dispatcher, self._caretaker, self._changed, upkeep=upkeep)

    # ── lanes ──

    def lane(
        self,
        name: str,
        *,
        sender: Sender | AsyncSender,
        breaker: CircuitBreaker | None = None,
        profile: LaneProfile | None = None,
    ) -> CircuitBreaker:
        """
        Let this process send the messages of lane *name*; return the breaker that drives it.

        Its breaker goes on where it was before a restart. Messages of lanes nobody registered wait.

        Args:
            sender: Makes one attempt and returns a `Report`; plain for `start`, a coroutine function for `arun`.
            breaker: Default: trips after 5 failures in a row or half of at least 20; 3 trial calls.
        """
        profile = profile or LaneProfile()
        breaker = breaker or self._default_breaker(name, profile)
        if name in self._dispatcher.lanes:
            raise ValueError(f"the lane {name!r} is registered already")
        self._dispatcher.lanes[name] = Lane(name, self._hub, breaker, sender, profile)
        self._dispatcher.attention(name)
        return breaker

    def _default_breaker(self, name: str, profile: LaneProfile) -> CircuitBreaker:
        half_open = HalfOpen(permitted_calls=3, trial_timeout=profile.trial_timeout, max_duration=3600.0)
        return CircuitBreaker(name, consecutive_failures=5, half_open=half_open, clock=self._clock)

    def hold(self, lane: str, *, until: Deadline = None, note: str = "", by: str | None = None) -> None:
        """Keep *lane* from sending: until `release`, or until a time (seconds from now, timedelta, aware datetime)."""
        self.store.hold(lane, "operator", unix_time(until, self._clock.wall()), note, by).result()
        self._dispatcher.attention(lane)

    def release(self, lane: str, *, note: str = "", by: str | None = None) -> None:
        """Let *lane* send again, whatever held it."""
        self.store.release(lane, note, by).result()
        self._dispatcher.attention(lane)

    # ── enqueueing ──

    def enqueue(
        self,
        lane: str,
        payload: Payload,
        *,
        headers: HeaderSource = (),
        message_id: str | None = None,
        deadline: Deadline = None,
        document_type: str = "",
        stream: Stream | str | None = None,
        mic: str | None = None,
    ) -> Accepted:
        """
        Store a message; it is on disk when this returns.

        The same bytes under the same ID are accepted once, so a caller that does not know whether it succeeded may
        repeat it.

        Args:
            lane: The partner.
            payload: Bytes, a path, or a readable binary stream; large ones are streamed in constant memory.
            headers: Sent as they are. A Message-ID among them is used, otherwise one is added.
            deadline: When it is too late: seconds from now, a timedelta or an aware datetime.
            document_type: Trial calls take one message of each type before a second.
            stream: Messages of one stream go out in order, one at a time.
            mic: The message's MIC, to compare with a receipt's.

        Raises:
            DuplicateMessageError: The ID belongs to another message.
            PayloadTooLargeError: More bytes than the queue accepts.
            StoreUnavailableError: It could not be committed; nothing was stored.
        """
        return self.submit(
            lane,
            payload,
            headers=headers,
            message_id=message_id,
            deadline=deadline,
            document_type=document_type,
            stream=stream,
            mic=mic,
        ).result()

    def submit(
        self,
        lane: str,
        payload: Payload,
        *,
        headers: HeaderSource = (),
        message_id: str | None = None,
        deadline: Deadline = None,
        document_type: str = "",
        stream: Stream | str | None = None,
        mic: str | None = None,
    ) -> Ticket[Accepted]:
        """Like `enqueue`, but return at once; the message is on disk when the ticket's `result` returns."""
        new = prepare(
            self.store,
            lane,
            payload,
            headers=headers,
            message_id=message_id,
            deadline=unix_time(deadline, self._clock.wall()),
            kind=document_type,
            stream=stream,
            mic=mic,
            limit=self._max_size,
        )
        ticket = self.store.enqueue(new)
        ticket.then(lambda done: self._enqueued(done, lane, new.file))
        return ticket

    def _enqueued(self, ticket: Ticket[Accepted], lane: str, file: str | None) -> None:
        failed = ticket.error is not None
        if file is not None and (failed or ticket.result().duplicate):
            self.store.bodies.delete(file)
        if not failed:
            self._tally.accepted()
            self._dispatcher.attention(lane)

    async def aenqueue(self, lane: str, payload: Payload, **options: Any) -> Accepted:
        """Like `enqueue`, from an asyncio or trio task; the event loop goes on meanwhile."""
        from ._threading import in_thread

        return await in_thread(lambda: self.enqueue(lane, payload, **options))

    # ── running ──

    def start(self) -> None:
        """
        Send from threads of this process until `stop`.

        Raises:
            TypeError: A lane's sender is a coroutine function: use `arun`.
        """
        self._check_senders(wanted_async=False)
        self._begin()
        self._runner.start(Threads(self._workers))

    async def arun(self, *, grace: float = 10.0) -> None:
        """
        Send from tasks of this event loop, asyncio or trio, until cancelled; sends in flight then have *grace* seconds.

        Raises:
            TypeError: A lane's sender is no coroutine function: use `start`.
        """
        self._check_senders(wanted_async=True)
        self._begin()
        await run_tasks(self._runner, self._dispatcher, self._workers, grace)

    def _check_senders(self, *, wanted_async: bool) -> None:
        if self._runner.running:
            raise RuntimeError("the queue is running already")
        for name, lane in self._dispatcher.lanes.items():
            call = lane.sender if inspect.isroutine(lane.sender) else type(lane.sender).__call__
            if (inspect.iscoroutinefunction(lane.sender) or inspect.iscoroutinefunction(call)) is not wanted_async:
                use = "start()" if wanted_async else "await arun()"
                raise TypeError(f"the sender of lane {name!r} needs {use}")

    def _begin(self) -> None:
        for name in self._dispatcher.lanes:
            self._dispatcher.attention(name)

    def stop(self, *, grace: float = 10.0) -> bool:
        """
        Claim nothing new and let sends in flight end; return whether all did within *grace* seconds.

        Messages of those that did not become `unknown_delivery` when their lease runs out.
        """
        return self._runner.stop(grace)

    def tick(self, *, upkeep: bool = True) -> int:
        """Do in this thread what is due right now, for tests and single steps; return the number of attempts."""
        if upkeep:
            self._caretaker.once()
        self._begin()
        total = 0
        while launched := self._dispatcher.turn(Inline()):
            total += launched
            self.store.settled()
        return total

    def close(self, *, grace: float = 10.0) -> None:
        """Stop, tell the alerts that wait, and close the store."""
        if self._runner.running:
            self.stop(grace=grace)
        for lane in self._dispatcher.lanes.values():
            lane.close()
        self._alerts.close()
        self.store.close()

    def __enter__(self) -> RetryQueue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _changed(self, lanes: set[str] | None) -> None:
        known = self._dispatcher.lanes
        for lane in known if lanes is None else lanes & known.keys():
            self._dispatcher.attention(lane)

    def _store_gone(self, error: StoreUnavailableError) -> None:
        if self._tally.store_up:
            self._tally.store_up = False
            self._alerts.tell("store_unavailable", detail=f"sending has stopped: {error}")

    def _store_back(self) -> None:
        if not self._tally.store_up:
            self._tally.store_up = True
            self._alerts.tell("store_available", detail="sending goes on")

    # ── inspecting ──

    def get(self, message_id: str) -> Message:
        """Return one message; `UnknownMessageError` if there is none."""
        return self.store.find(message_id)

    def list(self, selection: Selection | None = None, *, after: int = 0, limit: int = 100) -> Sequence[Message]:
        """Return up to *limit* messages after seq *after*, oldest first."""
        return self.store.select(selection or Selection(), after=after, limit=limit)

    def count(self, selection: Selection) -> int:
        """Return how many messages are meant."""
        return self.store.count(selection)

    def history(self, message_id: str) -> Sequence[HistoryEntry]:
        """Return the attempts, commands and receipts of one message, oldest first."""
        return self.store.history(self.store.find(message_id).seq)

    def headers(self, message_id: str) -> Sequence[tuple[str, str]]:
        """Return a message's headers."""
        return self.store.payload(self.store.find(message_id).seq)[0]

    def proof(self, message_id: str) -> bytes | None:
        """Return the receipt as it came, if one was stored."""
        return self.store.payload(self.store.find(message_id).seq)[4]

    def open(self, message_id: str) -> BinaryIO:
        """Open a message's stored bytes for reading; `PayloadCorruptError` if they are gone."""
        import io

        _, data, file, _, _ = self.store.payload(self.store.find(message_id).seq)
        if file is not None:
            return self.store.bodies.open(file)
        if data is None:
            raise PayloadCorruptError(f"the bytes of {message_id} were pruned")
        return io.BytesIO(data)

    def stats(self) -> QueueStats:
        """Return the queue's gauges and this process's counters."""
        return queue_stats(self.name, self.store, self._dispatcher.lanes, self._tally)

    def lanes(self) -> Sequence[LaneStats]:
        """Return every lane: backlog, pace, what it waits for."""
        return lane_stats(self.store, self._dispatcher.lanes)

    def breaker(self, lane: str) -> CircuitBreaker:
        """Return the breaker of a registered lane."""
        return self._dispatcher.lanes[lane].breaker

    def subscribe(self, listener: Callable[[QueueAlert], object]) -> Callable[[], None]:
        """Call *listener* with every alert, on a thread of its own; return what ends that."""
        return self._alerts.subscribe(listener)

    def flush_alerts(self, timeout: float = 5.0) -> bool:
        """Wait until every alert so far was told."""
        return self._alerts.flush(timeout)

    # ── receipts and commands ──

    def receipt(self, message_id: str, report: Report) -> Message:
        """
        Take an async receipt: idempotent, and the first valid one wins.

        A positive one settles the message in whatever state it is; it never touches the breaker.

        Raises:
            UnknownMessageError: No such message.
            StoreUnavailableError: It could not be committed: have the partner send it again.
        """
        before = self.store.find(message_id)
        change = self.store.receipt(message_id, report).result()
        if change is not None:
            self._announce(before, change)
        return self.store.find(message_id)

    def _announce(self, message: Message, change: Any) -> None:
        lane = self._dispatcher.lanes.get(message.lane)
        if lane is not None:
            lane.announce(message, change)
        self._dispatcher.attention(message.lane)

    def retry(self, message_id: str, *, deadline: Deadline = None, reason: str = "", by: str | None = None) -> Message:
        """Make a message due now, with fresh tries and the same ID; a passed deadline needs a new one."""
        return self._command(message_id, "retry", deadline, reason, by)

    def resend(self, message_id: str, *, deadline: Deadline = None, reason: str = "", by: str | None = None) -> Message:
        """Send again, under the same ID, what the partner may have already."""
        return self._command(message_id, "resend", deadline, reason, by)

    def cancel(self, message_id: str, *, reason: str = "", by: str | None = None) -> Message:
        """Take a message out; `CommandRefusedError` while it is being sent."""
        return self._command(message_id, "cancel", None, reason, by)

    def _command(self, message_id: str, order: str, deadline: Deadline, reason: str, by: str | None) -> Message:
        until = unix_time(deadline, self._clock.wall())
        self.store.command(message_id, order, deadline=until, reason=reason, who=by)
        self._tally.command(order)
        message = self.store.find(message_id)
        self._dispatcher.attention(message.lane)
        return message

    def move_deadline(self, message_id: str, deadline: Deadline, *, by: str | None = None) -> Message:
        """Give a message that is on its way another deadline; None takes it away."""
        self.store.move_deadline(message_id, unix_time(deadline, self._clock.wall()), by)
        return self.store.find(message_id)

    def resubmit(
        self,
        message_id: str,
        *,
        confirm: bool = False,
        deadline: Deadline = None,
        reason: str = "",
        by: str | None = None,
    ) -> Accepted:
        """
        Send the content again as a new message with a new ID.

        Raises:
            ConfirmationRequiredError: The partner may have it already; pass ``confirm=True``.
            PayloadCorruptError: The stored bytes are gone.
        """
        old = self.store.find(message_id)
        check_resubmit(old, confirmed=confirm)
        headers, _, _, mic, _ = self.store.payload(old.seq)
        with self.open(message_id) as stream:
            body = take(stream, self.store.inline, self._max_size, self.store.bodies)
        if body.digest != old.digest:
            raise PayloadCorruptError(f"the stored bytes of {message_id} are not those that were enqueued")
        new = prepare_again(self.store, old, list(headers), body, mic, unix_time(deadline, self._clock.wall()))
        accepted = self.store.resubmit(new, confirmed=confirm, who=by, reason=reason)
        self._tally.command("resubmit")
        self._dispatcher.attention(old.lane)
        return accepted

    def bulk(
        self,
        command: BulkCommand,
        selection: Selection,
        *,
        expected: int,
        deadline: datetime | float | None = None,
        confirm: bool = False,
        reason: str = "",
        by: str | None = None,
    ) -> int:
        """
        Carry out one command for every message meant; return how many it was carried out for.

        Args:
            expected: What `count` said; if it is no longer so, nothing is done.

        Raises:
            CommandRefusedError: The count has changed.
        """
        if (found := self.count(selection)) != expected:
            raise CommandRefusedError(f"{found} messages fit now, not {expected}: nothing was done")
        done, after = 0, 0
        while messages := self.store.select(selection, after=after, limit=500):
            after = messages[-1].seq
            done += sum(self._one(command, message, deadline, confirm, reason, by) for message in messages)
        return done

    def _one(
        self, command: str, message: Message, deadline: Deadline, confirm: bool, reason: str, by: str | None
    ) -> bool:
        try:
            if command == "resubmit":
                self.resubmit(message.id, confirm=confirm, deadline=deadline, reason=reason, by=by)
            else:
                self._command(message.id, command, deadline, reason, by)
        except CommandRefusedError:
            return False
        return True
