"""One sink of notifications with its line of moves and its thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from halfopen._core.events import CircuitTransitioned
from halfopen._runtime.forking import renew_after_fork
from halfopen._runtime.late import logger
from halfopen.instrumentation._claims import Claims
from halfopen.instrumentation._messages import Notification, move_of
from halfopen.instrumentation._sinks import Sink
from halfopen.registry import Registry
from halfopen.retry import Retry

__all__ = ["Post", "SinkStats", "Waiting"]

WAITING_AT_MOST = 10_000
"""Moves that wait for a sink; beyond it the oldest are counted as lost."""

Waiting: TypeAlias = tuple[CircuitTransitioned, float]
"""A move, and the Unix time at which it was heard of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkStats:
    """
    What became of the moves for one sink.

    Attributes:
        name: The sink.
        delivered: Moves delivered.
        lost: Moves given up on: every attempt failed, or too many waited.
        waiting: Moves that wait.
        notifications: Notifications delivered.
        attempts: Attempts to deliver one.
        up: Whether the last attempt succeeded.
    """

    name: str
    delivered: int
    lost: int
    waiting: int
    notifications: int
    attempts: int
    up: bool


class Post:
    """One sink with its line of moves and its thread."""

    def __init__(
        self,
        registry: Registry,
        sink: Sink,
        retry: Callable[[str], Retry],
        group_for: float,
        source: str,
        claims: Claims | None,
    ) -> None:
        self._registry = registry
        self._sink = sink
        self._retry = retry(f"notify:{sink.name}")
        self._group_for = group_for
        self._source = source
        self._claims = claims
        self._delivered = self._lost = self._notifications = self._attempts = 0
        self._up = True
        self._wake = _condition()
        self._waiting: deque[Waiting] = deque()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._at_hand = 0
        renew_after_fork(self)

    def put(self, move: Waiting) -> None:
        """Take a move; returns at once."""
        with self._wake:
            if len(self._waiting) >= WAITING_AT_MOST:
                self._waiting.popleft()
                self._lost += 1
            self._waiting.append(move)
            self._begin()  # in a forked child
            self._wake.notify_all()

    def start(self) -> None:
        """Begin, so that no call has to wait for the thread."""
        with self._wake:
            self._begin()

    def _begin(self) -> None:
        self._closing = False
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="halfopen-notify", daemon=True)
            self._thread.start()

    def stop(self, grace: float) -> None:
        """Deliver what waits for up to *grace* seconds."""
        with self._wake:
            self._closing = True
            thread = self._thread
            self._wake.notify_all()
        if thread is not None:
            thread.join(grace)

    def stats(self) -> SinkStats:
        """Return what became of the moves."""
        with self._wake:
            return SinkStats(
                name=self._sink.name,
                delivered=self._delivered,
                lost=self._lost,
                waiting=len(self._waiting) + self._at_hand,
                notifications=self._notifications,
                attempts=self._attempts,
                up=self._up,
            )

    def _run(self) -> None:
        while True:
            group = self._next_group()
            if not group:
                return
            try:
                self._deliver(group)
            except BaseException:
                logger().exception("a notification for %s could not be made", self._sink.name)
                with self._wake:
                    self._lost += self._at_hand
            finally:
                with self._wake:
                    self._at_hand = 0

    def _next_group(self) -> list[Waiting]:
        with self._wake:
            self._wake.wait_for(lambda: self._waiting or self._closing)
            if self._waiting:
                self._wake.wait_for(lambda: self._closing, self._group_for)
            group = list(self._waiting)
            self._waiting.clear()
            self._at_hand = len(group)
            if not group:
                self._thread = None
        return group

    def _deliver(self, group: list[Waiting]) -> None:
        if self._claims is not None:
            group = [one for one in group if self._claims.take(f"{self._sink.name}\0{_identity(one[0])}")]
        if not group:
            return
        moves = tuple(move_of(self._registry, event, at) for event, at in group)
        notification = Notification(source=self._source, moves=moves)
        try:
            self._retry.call(self._attempt, notification)
        except Exception as error:
            with self._wake:
                self._lost += len(moves)
            self._turned(False, error)
        else:
            with self._wake:
                self._delivered += len(moves)
                self._notifications += 1
            self._turned(True, None)

    def _attempt(self, notification: Notification) -> None:
        self._attempts += 1
        self._sink.send(notification)

    def _turned(self, up: bool, error: Exception | None) -> None:
        was, self._up = self._up, up
        if was and not up:
            # The class alone: the text of an error may hold the URL, and the URL a secret.
            logger().warning(
                "notifications: %s is down (%s); what is lost is counted", self._sink.name, type(error).__name__
            )
        elif up and not was:
            logger().info("notifications: %s is back; %d moves were lost", self._sink.name, self._lost)

    def _renew(self) -> None:
        # What waits in a forked parent is told by the parent.
        self._wake = _condition()
        self._waiting = deque()
        self._thread = None
        self._closing = False
        self._at_hand = 0


def _condition() -> threading.Condition:
    # Reentrant, because a signal handler may move the breaker whose move it interrupts.
    return threading.Condition(threading.RLock())


def _identity(event: CircuitTransitioned) -> str:
    return f"{event.name}\0{event.old.value}\0{event.new.value}\0{event.reason.value}"
