"""
Moves told to people: to a webhook, a command or a function, never on the path of a call.

```python
notifier = Notifier(registry, Webhook("https://hooks.example/…", form="slack"), only=outages)
notifier.start()
```

Each move is told once. Moves that come close together become one notification, so a hundred breakers that open
because one network went are one message. A sink that is down is retried by `halfopen.Retry`; what could not be
delivered is counted, and two lines are logged: when it went, and when it is back.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from halfopen._core.checking import Checks
from halfopen._core.events import CircuitTransitioned
from halfopen._core.states import State
from halfopen._runtime.forking import renew_after_fork
from halfopen._runtime.late import logger
from halfopen.instrumentation._claims import Claims
from halfopen.instrumentation._sentences import breaker_of, sentence
from halfopen.instrumentation._sinks import Command, Function, Sink, Webhook, worth_retrying
from halfopen.registry import Registry
from halfopen.retry import Retry, exponential

__all__ = [
    "Command",
    "Function",
    "Move",
    "Notification",
    "Notifier",
    "Sink",
    "SinkStats",
    "Webhook",
    "outages",
]

WAITING_AT_MOST = 10_000
"""Moves that wait for a sink; beyond it the oldest are counted as lost."""
SHOWN_AT_MOST = 20
"""Moves that the text of one notification spells out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """
    One move of one circuit breaker.

    Attributes:
        name: The breaker.
        old, new, reason: The states and why, in lower case.
        at: Unix time.
        epoch: The number of the state that began.
        step: The backoff step.
        wait: Seconds that it will stay open; None unless it opened.
        note, by: What an order said.
        tags: The breaker's tags.
        sentence: What `explain()` says.
    """

    name: str
    old: str
    new: str
    reason: str
    at: float
    epoch: int
    step: int
    wait: float | None
    note: str | None
    by: str | None
    tags: Mapping[str, str]
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """
    Moves to tell, oldest first.

    Attributes:
        source: Which process or service tells them.
        moves: At least one.
    """

    source: str
    moves: tuple[Move, ...]

    @property
    def text(self) -> str:
        """The moves in words, a line each."""
        lines = [f"{move.name}: {move.sentence}" for move in self.moves[:SHOWN_AT_MOST]]
        if len(self.moves) == 1:
            return f"[{self.source}] {lines[0]}"
        more = len(self.moves) - len(lines)
        tail = [f"… and {more} more"] if more else []
        return "\n".join([f"[{self.source}] {_summary(self.moves)}", *lines, *tail])

    def plain(self) -> dict[str, Any]:
        """Return it as data that JSON can hold."""
        return {
            "version": 1,
            "source": self.source,
            "text": self.text,
            "moves": [{**asdict(move), "tags": dict(move.tags)} for move in self.moves],
        }


def _summary(moves: tuple[Move, ...]) -> str:
    counts: dict[str, int] = {}
    for move in moves:
        counts[move.new] = counts.get(move.new, 0) + 1
    return f"{len(moves)} moves: " + ", ".join(f"{count} to {new.replace('_', '-')}" for new, count in counts.items())


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


Question: TypeAlias = Callable[[CircuitTransitioned], bool]
_Waiting: TypeAlias = tuple[CircuitTransitioned, float]


def outages(event: CircuitTransitioned) -> bool:
    """Say whether a move begins or ends an outage, or is an order; back-off between trial rounds is neither."""
    if event.reason.value in ("manual", "override_ended"):
        return True
    began = event.new is State.OPEN and event.old in (State.CLOSED, State.RECOVERING)
    return began or event.new is State.CLOSED


class Notifier:
    """
    Tell the moves of a registry's breakers to sinks.

    Args:
        registry: Whose breakers.
        sinks: `Webhook`, `Command`, `Function`, or anything with a name and a `send`; a plain function will do.
        only: Asked of each move whether to tell it, such as `outages`; default all but those that merely follow the
            fleet, which the process that moved first tells.
        group_for: Seconds to wait for further moves after a first one, which go into the same notification.
        source: Names this process to the reader; default the host.
        together: A directory that the processes of one server share. A move that another of them has told within
            *same_for* seconds is not told again.
        same_for: Seconds.
        retry: Makes the `Retry` of a sink from its name; default 5 attempts, 1 to 30 s apart, within 2 minutes.

    Raises:
        ConfigError: A setting is out of its range.
    """

    def __init__(
        self,
        registry: Registry,
        *sinks: Sink | Callable[[Notification], object],
        only: Question | None = None,
        group_for: float = 1.0,
        source: str | None = None,
        together: str | os.PathLike[str] | None = None,
        same_for: float = 60.0,
        retry: Callable[[str], Retry] | None = None,
    ) -> None:
        checks = Checks()
        checks.seconds("group_for", group_for, zero=True)
        checks.seconds("same_for", same_for)
        checks.done()
        self._registry = registry
        self._only = only or _not_shared
        source = source or socket.gethostname()
        claims = None if together is None else Claims(together, same_for)
        self._posts = [
            _Post(registry, _as_sink(sink), (retry or _default_retry), group_for, source, claims) for sink in sinks
        ]
        self._unsubscribe: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin to listen; threads start with the first move."""
        if self._unsubscribe is None:
            self._unsubscribe = self._registry.subscribe(self._moved, CircuitTransitioned)

    def stop(self, grace: float = 5.0) -> None:
        """Listen no more, and deliver what waits for up to *grace* seconds."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        end = time.monotonic() + grace
        for post in self._posts:
            post.stop(max(end - time.monotonic(), 0.0))

    def stats(self) -> list[SinkStats]:
        """Return what became of the moves, for each sink."""
        return [post.stats() for post in self._posts]

    def __enter__(self) -> Notifier:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _moved(self, event: CircuitTransitioned) -> None:
        if self._only(event):
            moment = self._registry.clock.wall()
            for post in self._posts:
                post.put((event, moment))


def _not_shared(event: CircuitTransitioned) -> bool:
    return event.reason.value != "shared"


def _as_sink(sink: Sink | Callable[[Notification], object]) -> Sink:
    return sink if hasattr(sink, "send") else Function(sink)  # type: ignore[return-value]  # one or the other


def _default_retry(name: str) -> Retry:
    return Retry(name, on=worth_retrying, attempts=5, backoff=exponential(1.0, 2.0, 30.0), total=120.0)


class _Post:
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
        self._wake = threading.Condition(threading.Lock())
        self._waiting: deque[_Waiting] = deque()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._at_hand = 0
        renew_after_fork(self)

    def put(self, move: _Waiting) -> None:
        """Take a move; returns at once."""
        with self._wake:
            if len(self._waiting) >= WAITING_AT_MOST:
                self._waiting.popleft()
                self._lost += 1
            self._waiting.append(move)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="halfopen-notify", daemon=True)
                self._thread.start()
            self._wake.notify_all()

    def stop(self, grace: float) -> None:
        with self._wake:
            self._closing = True
            thread = self._thread
            self._wake.notify_all()
        if thread is not None:
            thread.join(grace)
        self._closing = False

    def stats(self) -> SinkStats:
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

    def _next_group(self) -> list[_Waiting]:
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

    def _deliver(self, group: list[_Waiting]) -> None:
        if self._claims is not None:
            group = [one for one in group if self._claims.take(f"{self._sink.name}\0{_identity(one[0])}")]
        if not group:
            return
        moves = tuple(_move(self._registry, event, at) for event, at in group)
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
        self._wake = threading.Condition(threading.Lock())
        self._waiting = deque()
        self._thread = None
        self._closing = False
        self._at_hand = 0


def _identity(event: CircuitTransitioned) -> str:
    return f"{event.name}\0{event.old.value}\0{event.new.value}\0{event.reason.value}"


def _move(registry: Registry, event: CircuitTransitioned, at: float) -> Move:
    breaker = breaker_of(registry, event.name)
    return Move(
        name=event.name,
        old=event.old.value,
        new=event.new.value,
        reason=event.reason.value,
        at=at,
        epoch=event.epoch,
        step=event.step,
        wait=event.wait,
        note=event.note,
        by=event.by,
        tags={} if breaker is None else dict(breaker.tags),
        sentence=sentence(registry, event),
    )
