"""The hub: it accepts messages, sends them from threads and tasks through a guard, and keeps what was not taken."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from halfopen.cli.demo.messages import Message
from halfopen.cli.demo.naive import Guard
from halfopen.cli.demo.story import Pace, Story
from halfopen.cli.demo.wire import Connection, Endpoint, NotTaken, apost
from halfopen.errors import RejectedError

__all__ = ["Hub", "Ledger", "Outbox"]

_SABOTAGED = 10
_LOOK_AGAIN = 1.0


class Outbox:
    """
    What the hub has accepted and nobody has taken yet, in memory.

    A fresh message is tried at once, whatever the circuit says: it is the caller who meets the refusal. A kept one is
    tried when it is due, and after a refusal none is before the guard says that asking makes sense again.
    Times are seconds of the story.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fresh: deque[Message] = deque()
        self._kept: list[tuple[float, int, Message]] = []
        self._parked_until = 0.0

    def __len__(self) -> int:
        return len(self._fresh) + len(self._kept)

    def accept(self, message: Message) -> None:
        """Take a new message in."""
        with self._lock:
            self._fresh.append(message)

    def keep(self, message: Message, due: float) -> None:
        """Take a message back, to be tried at *due*."""
        with self._lock:
            heapq.heappush(self._kept, (due, message.number, message))

    def park(self, until: float) -> None:
        """Let kept messages rest until *until*."""
        with self._lock:
            self._parked_until = until

    def take(self, now: float) -> Message | None:
        """Return the message to try next, kept ones first, or None if nothing is due."""
        with self._lock:
            if self._kept and now >= self._parked_until and self._kept[0][0] <= now:
                return heapq.heappop(self._kept)[2]
            return self._fresh.popleft() if self._fresh else None


@dataclass(slots=True)
class Ledger:
    """The hub's own books. Refusal times are seconds of the watch, starts readings of the monotonic clock."""

    accepted: dict[str, str] = field(default_factory=dict)
    delivered: set[str] = field(default_factory=set)
    given_up: set[str] = field(default_factory=set)
    sends: int = 0
    failed: int = 0
    refused: int = 0
    refusal_times: list[float] = field(default_factory=list)
    recent: deque[bool] = field(default_factory=lambda: deque(maxlen=20))
    starts: list[float] = field(default_factory=list)
    last_error: str = ""
    last_delivery: float = 0.0

    @property
    def outstanding(self) -> int:
        """Return how many accepted messages have met neither end."""
        return len(self.accepted) - len(self.delivered | self.given_up)


class Hub:
    """
    Args:
        guard: What stands between the senders and the partner.
        endpoint: The partner.
        arriving: The messages that the hub is given.
        story: Rates, senders, attempts.
        pace: How fast the story passes.
        repeat: Send the tenth message again although it was taken, to see that the promises notice.
    """

    def __init__(
        self, guard: Guard, endpoint: Endpoint, arriving: Iterator[Message], story: Story, pace: Pace,
        *, repeat: bool = False,
    ) -> None:  # fmt: skip
        self.ledger = Ledger()
        self.outbox = Outbox()
        self._guard = guard
        self._endpoint = endpoint
        self._arriving = arriving
        self._story = story
        self._pace = pace
        self._repeat = repeat
        self._tls = endpoint.tls()
        self._timeout = pace.at_least(60.0, 20.0)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._all_accepted = threading.Event()
        self._connections: list[Connection] = []
        self._threads: list[threading.Thread] = []

    @property
    def done(self) -> bool:
        """Return whether every message has met its end."""
        with self._lock:
            return self._all_accepted.is_set() and not self.ledger.outstanding

    def start(self) -> None:
        """Begin to accept and to send."""
        self._threads = [
            threading.Thread(target=work, name=f"hub-{work.__name__}", daemon=True) for work in self._works()
        ]
        for thread in self._threads:
            thread.start()

    def _works(self) -> list[Callable[[], None]]:
        return [self._accept, *[self._send] * self._story.threads, self._run_tasks]

    def stop(self) -> None:
        """End at once: calls under way are cut off."""
        self._stopping.set()
        for connection in self._connections:
            connection.hang_up()
        for thread in self._threads:
            thread.join(0.5)

    def _accept(self) -> None:
        story, rate = self._story, self._pace.rate(self._story)
        given = 0
        while not self._stopping.is_set():
            now = min(self._pace.now(), story.accept_until)
            while given < now * rate:
                message = next(self._arriving, None)
                if message is None:
                    self._all_accepted.set()
                    return
                given += 1
                self._receive(message)
            if now >= story.accept_until:
                self._all_accepted.set()
                return
            self._stopping.wait(self._pace.tick)

    def _receive(self, message: Message) -> None:
        with self._lock:
            self.ledger.accepted[message.message_id] = message.digest
        self.outbox.accept(message)

    def _send(self) -> None:
        connection = Connection(self._endpoint, self._tls, self._timeout)
        self._connections.append(connection)
        with contextlib.closing(connection):
            while not self._stopping.is_set():
                message = self.outbox.take(self._pace.now())
                if message is None:
                    self._stopping.wait(self._pace.tick)
                else:
                    self._try(connection, message)

    def _try(self, connection: Connection, message: Message) -> None:
        asked = time.perf_counter()
        try:
            status = self._guard.call(self._post, connection, message)
        except Exception as error:
            self._not_taken(message, error, time.perf_counter() - asked)
        else:
            self._taken(message, status, time.perf_counter() - asked)

    def _post(self, connection: Connection, message: Message) -> int:
        self._note_start(message)
        return connection.post(message)

    def _run_tasks(self) -> None:
        asyncio.run(self._send_in_tasks())

    async def _send_in_tasks(self) -> None:
        tasks = [asyncio.create_task(self._asend()) for _ in range(self._story.tasks)]
        while not self._stopping.is_set():
            await asyncio.sleep(0.02)
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks)

    async def _asend(self) -> None:
        while True:
            message = self.outbox.take(self._pace.now())
            if message is None:
                await asyncio.sleep(self._pace.tick)
            else:
                await self._atry(message)

    async def _atry(self, message: Message) -> None:
        asked = time.perf_counter()
        try:
            status = await self._guard.acall(self._apost, message)
        except Exception as error:
            self._not_taken(message, error, time.perf_counter() - asked)
        else:
            self._taken(message, status, time.perf_counter() - asked)

    async def _apost(self, message: Message) -> int:
        self._note_start(message)
        return await apost(self._endpoint, self._tls, message, self._timeout)

    def _note_start(self, message: Message) -> None:
        with self._lock:
            message.attempts += 1
            self.ledger.sends += 1
            self.ledger.starts.append(time.monotonic())

    def _taken(self, message: Message, status: int, took: float) -> None:
        with self._lock:
            again = self._repeat and message.number == _SABOTAGED and message.message_id not in self.ledger.delivered
            self.ledger.delivered.add(message.message_id)
            self.ledger.recent.append(True)
            self.ledger.last_delivery = self._pace.now()
        if again:
            self.outbox.keep(message, self._pace.now())

    def _not_taken(self, message: Message, error: Exception, took: float) -> None:
        if self._stopping.is_set():
            return
        if isinstance(error, RejectedError):
            self._refused(message, error, took)
        else:
            self._failed(message, error)

    def _refused(self, message: Message, refusal: RejectedError, took: float) -> None:
        now = self._pace.now()
        with self._lock:
            self.ledger.refused += 1
            self.ledger.refusal_times.append(took)
        # While trial calls run, the verdict may come at any moment: look again soon.
        later = refusal.retry_after if getattr(refusal, "reason", "") == "open" else None
        self.outbox.park(now + (_LOOK_AGAIN if later is None else later * self._pace.speed))
        self.outbox.keep(message, now)

    def _failed(self, message: Message, error: Exception) -> None:
        story = self._story
        final = isinstance(error, NotTaken) and not error.worth_repeating
        with self._lock:
            self.ledger.failed += 1
            self.ledger.recent.append(False)
            self.ledger.last_error = str(error) or type(error).__name__
            if final or message.attempts >= story.max_attempts:
                self.ledger.given_up.add(message.message_id)
                return
        self.outbox.keep(message, self._pace.now() + story.retry_first * 2.0 ** (message.attempts - 1))
