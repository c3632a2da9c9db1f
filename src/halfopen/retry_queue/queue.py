"""RetryQueue: durable store-and-forward, a lane per partner, driven by the lane's circuit breaker."""

from __future__ import annotations

import inspect
import os
import random
import uuid
from contextlib import suppress
from types import TracebackType
from typing import Any

from halfopen._core.settings import HalfOpen
from halfopen._runtime.clock import SYSTEM_CLOCK, Clock
from halfopen.circuit_breaker import CircuitBreaker

from ._alerts import Alerts
from ._caretaker import Caretaker, Keep
from ._delivery import AsyncSender, Sender
from ._dispatcher import Dispatcher
from ._errors import StoreUnavailableError
from ._group_commit import Ticket
from ._hub import Hub
from ._intake import Deadline, HeaderSource, Payload, prepare, unix_time
from ._lane import Lane
from ._orders import Orders
from ._profile import LaneProfile
from ._requests import Accepted
from ._rows import Stream
from ._runner import Runner, run_tasks
from ._stats import Tally
from ._store import Store
from ._workers import Inline, Threads
from .sqlite import SqliteStore

__all__ = ["RetryQueue"]


class RetryQueue(Orders):
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
        too_old: Seconds after which a lane's oldest waiting message is announced.
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
        too_old: float = 4 * 3600.0,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.name = name
        self.store = store if isinstance(store, Store) else SqliteStore(store, clock=clock)
        self._clock = clock or SYSTEM_CLOCK
        self._workers = workers
        self._max_size = max_size
        self.too_old = too_old
        """Seconds after which a lane's oldest waiting message is announced; fixed when the queue is made."""
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
            instance=uuid.uuid4().hex[:12],
            attention=self._dispatcher.attention,
        )
        self._caretaker = Caretaker(
            self._hub, self._dispatcher.lanes, keep or Keep(), expiring_within=expiring_within, too_old=too_old
        )
        self._left: dict[str, Lane] = {}
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
        if name in self._dispatcher.lanes:
            raise ValueError(f"the lane {name!r} is registered already")
        left = self._left.pop(name, None)
        if left is not None and breaker in (None, left.breaker):
            left.change(sender, profile)
            lane = left
        else:
            if left is not None:
                left.close()
            lane = Lane(name, self._hub, breaker or self._default_breaker(name, profile), sender, profile)
        self._dispatcher.lanes[name] = lane
        self._dispatcher.attention(name)
        return lane.breaker

    def breakers(self) -> list[CircuitBreaker]:
        """Return the breakers that drive the lanes of this process."""
        return [lane.breaker for lane in list(self._dispatcher.lanes.values())]

    def change_lane(self, name: str, *, sender: Sender | AsyncSender, profile: LaneProfile | None = None) -> None:
        """
        Go on sending the messages of lane *name* by another sender, under other limits; sends in flight end as begun.

        Raises:
            KeyError: This process does not send them.
        """
        self._dispatcher.lanes[name].change(sender, profile or LaneProfile())
        self._dispatcher.attention(name)

    def leave_lane(self, name: str) -> None:
        """
        Send no more messages of lane *name*: they wait for a process that does. Sends in flight end.

        Raises:
            KeyError: This process does not send them.
        """
        # It goes on following its breaker: if it comes back, it must not take an old verdict from the store.
        self._left[name] = self._dispatcher.lanes.pop(name)

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
        return self.store.enqueue(new, lambda done: self._enqueued(done, lane, new.file))

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
        for name, lane in list(self._dispatcher.lanes.items()):
            call = lane.sender if inspect.isroutine(lane.sender) else type(lane.sender).__call__
            if (inspect.iscoroutinefunction(lane.sender) or inspect.iscoroutinefunction(call)) is not wanted_async:
                use = "start()" if wanted_async else "await arun()"
                raise TypeError(f"the sender of lane {name!r} needs {use}")

    def _begin(self) -> None:
        for name in list(self._dispatcher.lanes):
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
            with suppress(StoreUnavailableError):
                self.store.settled()
        return total

    def close(self, *, grace: float = 10.0) -> None:
        """Stop, tell the alerts that wait, and close the store."""
        if self._runner.running:
            self.stop(grace=grace)
        for lane in [*self._dispatcher.lanes.values(), *self._left.values()]:
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
        for lane in list(known) if lanes is None else lanes.intersection(list(known)):
            self._dispatcher.attention(lane)

    def _store_gone(self, error: StoreUnavailableError) -> None:
        if self._tally.store_up:
            self._tally.store_up = False
            self._alerts.tell("store_unavailable", detail=f"sending has stopped: {error}")

    def _store_back(self) -> None:
        if not self._tally.store_up:
            self._tally.store_up = True
            self._alerts.tell("store_available", detail="sending goes on")
