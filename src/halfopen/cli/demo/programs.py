"""The programs around the gateway: they post each message until the gateway says that it is delivered, or safe."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

from halfopen.cli.demo.hub import Hub
from halfopen.cli.demo.messages import Message
from halfopen.cli.demo.naive import NoBreaker
from halfopen.cli.demo.story import Pace, Story
from halfopen.cli.demo.wire import Connection, Endpoint, NotTaken

__all__ = ["Programs", "as2_messages"]

_STORED = 202
_UNKNOWN = frozenset({502, 504})
_NAP = 0.2


def as2_messages(messages: Iterator[Message], story: Story, receipts: str) -> Iterator[Message]:
    """Ask for a receipt with each message; some belong to ordered streams, and their receipts come later."""
    for position in count():
        message = next(messages, None)
        if message is None:
            return
        message.headers = {"Disposition-Notification-To": "hub@halfopen.example"}
        if position % story.ordered_every == 0:
            message.stream = f"changes-{position // story.ordered_every % story.streams}"
            message.headers |= {"Halfopen-Stream": message.stream, "Receipt-Delivery-Option": receipts}
        yield message


class Programs(Hub):
    """
    Threads and tasks that post to the gateway, and one more thread for the messages of ordered streams.

    A program that does not know what became of its message repeats it under the same Message-ID.

    Attributes:
        stored: Messages that the gateway has on its disk, or had.
        doubtful: Messages that were repeated because their fate was unknown.
        streams: The stream of each message that has one, in the order in which they were accepted.
    """

    def __init__(
        self, endpoint: Endpoint, arriving: Iterator[Message], story: Story, pace: Pace, *, repeat: bool = False
    ) -> None:
        half = replace(story, threads=story.threads // 2, tasks=story.tasks // 2)
        super().__init__(NoBreaker(), endpoint, arriving, half, pace, repeat=repeat)
        self.stored: set[str] = set()
        self.doubtful: set[str] = set()
        self.streams: dict[str, str] = {}
        self._ordered: queue.SimpleQueue[Message] = queue.SimpleQueue()

    @property
    def handed_over(self) -> bool:
        """Return whether every message is delivered, safe with the gateway, or given up."""
        with self._lock:
            ledger = self.ledger
            known = ledger.delivered | self.stored | ledger.given_up
            return self._all_accepted.is_set() and not self.outbox and len(known) >= len(ledger.accepted)

    def carry_over(self, digests: dict[str, str]) -> None:
        """Take note of what an earlier run left with the gateway."""
        self.ledger.accepted.update(digests)
        self.stored.update(digests)

    def _works(self) -> list[Callable[[], None]]:
        return [*super()._works(), self._send_in_order]

    def _receive(self, message: Message) -> None:
        if message.stream is None:
            super()._receive(message)
            return
        with self._lock:
            self.ledger.accepted[message.message_id] = message.digest
            self.streams[message.message_id] = message.stream
        self._ordered.put(message)

    def _send_in_order(self) -> None:
        connection = Connection(self._endpoint, self._tls, self._timeout)
        self._connections.append(connection)
        with contextlib.closing(connection):
            while not self._stopping.is_set():
                try:
                    message = self._ordered.get(timeout=0.05)
                except queue.Empty:
                    continue
                self._until_safe(connection, message)

    def _until_safe(self, connection: Connection, message: Message) -> None:
        while not self._stopping.is_set() and message.message_id not in self.stored | self.ledger.given_up:
            self._try(connection, message)
            if message.message_id not in self.stored:
                self._stopping.wait(_NAP)

    def _taken(self, message: Message, status: int, took: float) -> None:
        if status != _STORED:
            super()._taken(message, status, took)
            return
        with self._lock:
            self.stored.add(message.message_id)
            if message.stream is None:
                self.ledger.refusal_times.append(took)

    def _failed(self, message: Message, error: Exception) -> None:
        final = isinstance(error, NotTaken) and not error.worth_repeating
        with self._lock:
            self.ledger.last_error = str(error) or type(error).__name__
            if final:
                self.ledger.given_up.add(message.message_id)
                return
            if _unknown(error):
                self.doubtful.add(message.message_id)
        if message.stream is None:
            self.outbox.keep(message, self._pace.now() + _NAP * self._pace.speed)


def _unknown(error: Exception) -> bool:
    if isinstance(error, NotTaken):
        return error.status in _UNKNOWN
    return not isinstance(error, ConnectionRefusedError)
