"""The stream of events: kept under the breaker's lock, published after it, in order, by one thread at a time."""

from __future__ import annotations

import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from halfopen._core.checking import is_coroutine_function
from halfopen._core.events import CircuitTransitioned, Event
from halfopen._runtime.late import logger

__all__ = ["Bus", "Listener"]

E = TypeVar("E", bound=Event)
Listener = Callable[[Any], object]

WAITING_AT_MOST = 10_000
"""Events that wait for a slow listener before call events are dropped, and counted."""


class Bus:
    """
    One stream of events for a registry of policies.

    A listener runs on the thread of whichever call publishes. It may be slow, raise, subscribe, unsubscribe, and call
    the breaker: no call's result changes and nothing deadlocks. While a slow one runs, other threads only add to the
    line; beyond 10,000 waiting events those about single calls are dropped and counted in `dropped`, never moves.
    """

    __slots__ = (
        "__weakref__",
        "_lock",
        "_members",
        "_subscriptions",
        "_sweep_at",
        "_turn",
        "_wanted",
        "dropped",
        "errors",
        "waiting",
    )

    def __init__(self) -> None:
        # Reentrant, because a signal handler or a finalizer may call the breaker in the midst of it.
        self._lock = threading.RLock()
        self._subscriptions: tuple[_Subscription, ...] = ()
        self._wanted: dict[type[Event], bool] = _NOTHING_WANTED
        # Made for the first subscription: most buses have none, and a deque takes 600 bytes.
        self.waiting: deque[Event] | tuple[()] = ()
        self._members: list[weakref.ref[Any]] = []
        self._turn: Callable[[], _Turn | None] = _nobody
        self._sweep_at = 16
        self.dropped = 0
        self.errors = 0
        _BUSES.add(self)

    def subscribe(self, listener: Callable[[E], object], *kinds: type[E]) -> Callable[[], None]:
        """
        Call *listener* with every event of these kinds, or of all kinds; return what ends the subscription.

        Raises:
            TypeError: *listener* cannot be called, is a coroutine function, or a kind is no class of events.
        """
        if not callable(listener) or is_coroutine_function(listener):
            raise TypeError(f"a listener is a plain function of one event, not {listener!r}")
        for kind in kinds:
            if not (isinstance(kind, type) and issubclass(kind, Event)):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"a kind of event is a subclass of Event, not {kind!r}")
        subscription = _Subscription(listener, kinds or (Event,))
        self._change(lambda present: (*present, subscription))
        return lambda: self._end(subscription)

    def _end(self, subscription: _Subscription) -> None:
        subscription.live = False
        self._change(lambda present: tuple(one for one in present if one is not subscription))

    def _change(self, change: Callable[[tuple[_Subscription, ...]], tuple[_Subscription, ...]]) -> None:
        with self._lock:
            if isinstance(self.waiting, tuple):
                self.waiting = deque()
            present = self._subscriptions
            changed = change(present)
            while present is not self._subscriptions:  # a handler that came between has changed them, too
                present = self._subscriptions
                changed = change(present)
            self._subscriptions = changed
            self._wanted = {}
        for member in self._alive():
            member.listeners_changed()

    def attach(self, member: Any) -> None:
        """Tell *member*, by its `listeners_changed`, when somebody subscribes or leaves."""
        with self._lock:
            self._members.append(weakref.ref(member))
            if len(self._members) > self._sweep_at:
                self._members = [one for one in self._members if one() is not None]
                self._sweep_at = 2 * len(self._members) + 16

    def _alive(self) -> list[Any]:
        with self._lock:
            return [member for one in self._members if (member := one()) is not None]

    def wants(self, kind: type[Event]) -> bool:
        """Say whether anybody listens to events of this kind."""
        if not self._subscriptions:
            return False
        wanted = self._wanted
        known = wanted.get(kind)
        if known is None:
            known = wanted[kind] = any(issubclass(kind, one.kinds) for one in self._subscriptions)
        return known

    def put(self, event: Event) -> None:
        """Keep an event until `flush`."""
        if len(self.waiting) >= WAITING_AT_MOST and not isinstance(event, CircuitTransitioned):
            self.dropped += 1
            return
        if not isinstance(self.waiting, tuple):
            self.waiting.append(event)

    def flush(self) -> None:
        """Publish what waits, unless another thread, or a listener of this one, is at it already."""
        while self.waiting:
            turn = self._take_turn()
            if turn is None:
                return
            try:
                self._publish()
            finally:
                turn.over = True

    def _take_turn(self) -> _Turn | None:
        # Whoever publishes holds the only strong reference to his turn. An interrupt at any instruction
        # ends his frame and so his turn; a flag would stay set.
        turn = _Turn()
        with self._lock:
            present = self._turn()
            if present is not None and not present.over:
                return None
            self._turn = weakref.ref(turn)
        return turn

    def _publish(self) -> None:
        waiting = self.waiting
        while not isinstance(waiting, tuple):
            try:
                event = waiting.popleft()
            except IndexError:
                return
            for subscription in self._subscriptions:
                if subscription.live and isinstance(event, subscription.kinds):
                    self._call(subscription.listener, event)

    def _call(self, listener: Listener, event: Event) -> None:
        try:
            listener(event)
        except BaseException as error:
            if not isinstance(error, Exception) and not _is_cancellation(error):
                raise
            self.errors += 1
            logger().exception("a listener raised on %s of %r", type(event).__name__, event.name)

    def after_fork(self) -> None:
        """Begin anew in a child process, where the publishing thread does not exist."""
        self._lock = threading.RLock()
        self._turn = _nobody
        if self.waiting:
            self.waiting = deque()
        for member in self._alive():
            member.after_fork()


def _is_cancellation(error: BaseException) -> bool:
    """Say whether a listener has read a cancelled future; a plain function is never cancelled itself."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and isinstance(error, asyncio.CancelledError)


_NOTHING_WANTED: dict[type[Event], bool] = {}


class _Subscription:
    __slots__ = ("kinds", "listener", "live")

    def __init__(self, listener: Listener, kinds: tuple[type[Event], ...]) -> None:
        self.listener = listener
        self.kinds = kinds
        self.live = True


class _Turn:
    __slots__ = ("__weakref__", "over")

    def __init__(self) -> None:
        self.over = False


def _nobody() -> None:
    return None


_BUSES: weakref.WeakSet[Bus] = weakref.WeakSet()


def _after_fork() -> None:
    for bus in list(_BUSES):
        bus.after_fork()


import os  # noqa: E402  (only for the fork hook)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
