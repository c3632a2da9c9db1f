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
import time
from collections.abc import Callable
from typing import TypeAlias

from halfopen._core.checking import Checks
from halfopen._core.events import CircuitTransitioned
from halfopen._core.states import State
from halfopen.instrumentation._claims import Claims
from halfopen.instrumentation._messages import Move, Notification
from halfopen.instrumentation._post import Post, SinkStats
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

Question: TypeAlias = Callable[[CircuitTransitioned], bool]


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
            Post(registry, _as_sink(sink), (retry or _default_retry), group_for, source, claims) for sink in sinks
        ]
        self._unsubscribe: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin to listen; a no-op when it runs already."""
        if self._unsubscribe is None:
            for post in self._posts:
                post.start()
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
