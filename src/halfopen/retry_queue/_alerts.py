"""Alerts: once per transition, off the sending path, harmless when a listener fails."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import get_args

from halfopen._runtime.clock import Clock

from ._rows import AlertKind

__all__ = ["Alerts", "QueueAlert"]

_LOG = logging.getLogger("halfopen.retry_queue")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAlert:
    """
    Something a person may want to know.

    Attributes:
        at: Unix time.
        more: Alerts of the same kind and lane that were not told since the last one.
    """

    kind: AlertKind
    lane: str | None
    message_id: str | None
    detail: str
    at: float
    more: int = 0


class Alerts:
    """
    Tells listeners, on a thread of its own; the queue never waits for them.

    Args:
        interval: Seconds within which a second alert of the same kind and lane is only counted.
        room: Alerts that may wait for slow listeners; older ones are dropped then.

    Attributes:
        counts: Alerts raised, told or not, by kind.
    """

    def __init__(self, clock: Clock, *, interval: float = 60.0, room: int = 1000) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(get_args(AlertKind), 0))
        self._clock = clock
        self._interval = interval
        self._waiting: deque[QueueAlert] = deque(maxlen=room)
        self._listeners: tuple[Callable[[QueueAlert], object], ...] = ()
        self._told: dict[tuple[str, str | None], tuple[float, int]] = {}
        # Entered by itself: an interrupt on the way into a Condition, which is Python code, would leave it held.
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._closing = False
        self._idle = True

    def subscribe(self, listener: Callable[[QueueAlert], object]) -> Callable[[], None]:
        """Call *listener* with every alert; return what ends that."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

        def end() -> None:
            with self._lock:
                self._listeners = tuple(one for one in self._listeners if one is not listener)

        return end

    def tell(
        self, kind: AlertKind, *, lane: str | None = None, message_id: str | None = None, detail: str = ""
    ) -> None:
        """Raise an alert; returns at once."""
        alert = QueueAlert(kind=kind, lane=lane, message_id=message_id, detail=detail, at=self._clock.wall())
        with self._lock:
            self.counts[kind] += 1
            if not self._listeners or (fresh := self._limited(alert)) is None:
                return
            self._waiting.append(fresh)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="halfopen-alerts", daemon=True)
                self._thread.start()
            self._wake.notify_all()

    def _limited(self, alert: QueueAlert) -> QueueAlert | None:
        now, key = self._clock.monotonic(), (alert.kind, alert.lane)
        last, more = self._told.get(key, (float("-inf"), 0))
        if now - last < self._interval:
            self._told[key] = (last, more + 1)
            return None
        self._told[key] = (now, 0)
        return replace(alert, more=more)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._idle = not self._waiting
                self._wake.notify_all()
                while not self._waiting:
                    if self._closing:
                        return
                    self._wake.wait()
                self._idle = False
                alert, listeners = self._waiting.popleft(), self._listeners
            for listener in listeners:
                try:
                    listener(alert)
                except Exception:
                    _LOG.exception("a listener for alerts of the retry queue raised")

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until every alert raised so far was told; return False if that took too long."""
        with self._lock:
            return self._wake.wait_for(lambda: self._idle and not self._waiting, timeout)

    def close(self) -> None:
        """Tell what waits, then end the thread."""
        with self._lock:
            self._closing = True
            self._wake.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5.0)
