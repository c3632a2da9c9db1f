"""
Tools for testing code that uses halfopen: a clock that jumps, recorded events, and breakers in a wanted state.

```python
clock = FakeClock()
breaker = CircuitBreaker("bank", clock=clock)
put_into(breaker, State.OPEN)
clock.advance(30.5)
```
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from halfopen._core.events import Event
from halfopen._core.states import State
from halfopen._runtime.bus import Bus
from halfopen._runtime.clock import async_library
from halfopen.circuit_breaker import CircuitBreaker

if TYPE_CHECKING:
    from halfopen.registry import Registry

__all__ = ["FakeClock", "RecordedEvents", "put_into", "record_events"]

E = TypeVar("E", bound=Event)


class FakeClock:
    """
    A clock that moves only when told, for any policy's `clock=`.

    Sleeping, in threads and in asyncio or trio tasks, moves it instead of waiting. Callbacks run at their due time, in
    order, on the thread that advances it.

    Args:
        start: The first reading in seconds.
        wall: Unix time of that reading.
    """

    def __init__(self, start: float = 0.0, wall: float = 1_700_000_000.0) -> None:
        self._now = start
        self._shift = wall - start
        self._lock = threading.RLock()
        self._timers: list[tuple[float, int, _Timer]] = []
        self._order = count()
        self.sleeps: list[float] = []

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickled one goes on alone from the same reading; what was to be called back stays here.
        return type(self), (self._now, self.wall())

    def __copy__(self) -> FakeClock:
        return self

    def __deepcopy__(self, memo: object) -> FakeClock:
        return self  # the copy of a policy lives in the same time

    def monotonic(self) -> float:
        """Return the present reading in seconds."""
        return self._now

    def wall(self) -> float:
        """Return the present Unix time."""
        return self._now + self._shift

    def step_wall(self, seconds: float) -> None:
        """Set the calendar forwards or backwards, as NTP or a person might; the reading stays."""
        self._shift += seconds

    def advance(self, seconds: float) -> None:
        """
        Move on by *seconds*, stopping at each callback that is due on the way.

        Raises:
            ValueError: *seconds* is negative or no number.
        """
        if not seconds >= 0:
            raise ValueError(f"seconds is a number of at least 0, not {seconds!r}")
        self.advance_to(self._now + seconds)

    def advance_to(self, when: float) -> None:
        """Move on to the reading *when*; a reading in the past changes nothing."""
        while True:
            with self._lock:
                if not self._timers or self._timers[0][0] > when:
                    self._now = max(self._now, when)
                    return
                due, _, timer = heapq.heappop(self._timers)
                self._now = max(self._now, due)
            timer.run()

    def sleep(self, seconds: float) -> None:
        """Move the clock on instead of blocking."""
        self.sleeps.append(seconds)
        self.advance(max(seconds, 0.0))

    async def asleep(self, seconds: float) -> None:
        """Move the clock on instead of suspending; other tasks get one turn."""
        self.sleeps.append(seconds)
        self.advance(max(seconds, 0.0))
        await async_library().sleep(0)

    def call_at(self, when: float, callback: Callable[[], object]) -> _Timer:
        """Run *callback* when the clock is moved to *when* or beyond."""
        timer = _Timer(callback)
        with self._lock:
            heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer


class _Timer:
    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self._callback = None

    def run(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class RecordedEvents(list[Event]):
    """Events in the order in which they were published."""

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one kind."""
        return [event for event in self if isinstance(event, kind)]

    @property
    def kinds(self) -> list[str]:
        """The names of the events' classes, which read well in an assertion."""
        return [type(event).__name__ for event in self]


@contextmanager
def record_events(
    source: CircuitBreaker | Registry | Bus, *kinds: type[Event]
) -> Generator[RecordedEvents, None, None]:
    """
    Record the events of a breaker's bus, of a registry, or of a bus, while the block runs.

    Args:
        source: A breaker, a registry, or a bus.
        kinds: Which events; default all.
    """
    events = RecordedEvents()
    unsubscribe = source.subscribe(events.append, *kinds)
    try:
        yield events
    finally:
        unsubscribe()


def put_into(breaker: CircuitBreaker, state: State) -> CircuitBreaker:
    """
    Bring a breaker into a state by the orders an operator has, and return it.

    RECOVERING needs a ramp; it is reached by a round of successful trial calls.

    Raises:
        ValueError: RECOVERING is asked of a breaker without a ramp.
    """
    if state == State.RECOVERING:  # by its text, too, like the others
        return _recover(breaker)
    orders: dict[State, Callable[[], object]] = {
        State.CLOSED: breaker.reset,
        State.OPEN: breaker.trip,
        State.HALF_OPEN: breaker.try_now,
        State.FORCED_OPEN: breaker.force_open,
        State.DISABLED: breaker.disable,
        State.METRICS_ONLY: breaker.observe,
    }
    orders[state]()
    return breaker


def _recover(breaker: CircuitBreaker) -> CircuitBreaker:
    if breaker.settings.ramp is None:
        raise ValueError(f"{breaker.name!r} has no ramp, so it is never RECOVERING")
    breaker.try_now()
    while breaker.state is State.HALF_OPEN:
        with breaker.acquire():
            pass
    return breaker
