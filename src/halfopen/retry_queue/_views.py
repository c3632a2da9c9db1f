"""The part of RetryQueue that shows."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import BinaryIO

from halfopen._runtime.clock import Clock
from halfopen.circuit_breaker import CircuitBreaker

from ._alerts import Alerts, QueueAlert
from ._dispatcher import Dispatcher
from ._errors import PayloadCorruptError
from ._inspection import Selection
from ._rows import HistoryEntry, Message
from ._stats import LaneStats, QueueStats, Tally
from ._store import Store
from ._summary import lane_stats, queue_stats

__all__ = ["Views"]


class Views:
    """What a queue shows of itself; the base of `RetryQueue`."""

    name: str
    store: Store
    _clock: Clock
    _alerts: Alerts
    _dispatcher: Dispatcher
    _tally: Tally
    _max_size: int

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
        _, data, file, _, _ = self.store.payload(self.store.find(message_id).seq)
        if file is not None:
            return self.store.bodies.open(file)
        if data is None:
            raise PayloadCorruptError(f"the bytes of {message_id} were pruned")
        return io.BytesIO(data)

    def stats(self) -> QueueStats:
        """Return the queue's gauges and this process's counters."""
        return queue_stats(self.name, self.store, self._dispatcher.lanes, self._tally, self._alerts.counts)

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
