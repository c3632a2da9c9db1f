"""A breaker on a clock that moves only when told, and short words for what is done to it."""

from __future__ import annotations

import random
from typing import Any

from halfopen import CircuitBreaker, CircuitOpenError, CountWindow, HalfOpen, Permit, State
from halfopen._core.events import Event
from halfopen.testing import FakeClock, RecordedEvents

SLOW = 5.0
"""Seconds; longer calls are slow here."""


class Bench:
    """A breaker, its clock and its events."""

    def __init__(self, **settings: Any) -> None:
        self.clock: FakeClock = settings.pop("clock", None) or FakeClock()
        chosen: dict[str, Any] = {
            "window": CountWindow(10),
            "minimum_calls": 4,
            "slow_call_duration": SLOW,
            "wait_in_open": 30.0,
            "rng": random.Random(1),
        }
        self.breaker = CircuitBreaker("bank", clock=self.clock, **{**chosen, **settings})
        self.events = RecordedEvents()

    def listen(self, *kinds: type[Event]) -> RecordedEvents:
        """Record events of these kinds."""
        self.breaker.subscribe(self.events.append, *kinds)
        return self.events

    @property
    def state(self) -> State:
        return self.breaker.state

    @property
    def moves(self) -> list[str]:
        """The moves so far, as ``old>new reason``."""
        return [f"{move.old}>{move.new} {move.reason}" for move in self.breaker.history]

    def begin(self, times: int = 1) -> list[Permit]:
        """Acquire so many permits."""
        return [self.breaker.acquire() for _ in range(times)]

    def succeed(self, times: int = 1, spent: float = 0.0) -> None:
        for _ in range(times):
            self._aged(spent).success()

    def fail(self, times: int = 1, spent: float = 0.0, retry_after: float | None = None) -> None:
        for _ in range(times):
            self._aged(spent).failure(retry_after=retry_after)

    def ignore(self, times: int = 1) -> None:
        for _ in range(times):
            self.breaker.acquire().ignore()

    def _aged(self, spent: float) -> Permit:
        permit = self.breaker.acquire()
        permit.began -= spent
        return permit

    def refusal(self) -> CircuitOpenError:
        """Ask for a permit and return the refusal."""
        try:
            permit = self.breaker.acquire()
        except CircuitOpenError as refusal:
            return refusal
        permit.ignore()
        raise AssertionError("the call was admitted")

    def admitted(self, calls: int) -> int:
        """Ask so often, and return how many calls were admitted; they succeed."""
        count = 0
        for _ in range(calls):
            try:
                self.breaker.acquire().success()
            except CircuitOpenError:
                continue
            count += 1
        return count

    def window(self) -> tuple[int, int, int]:
        """Calls, failures and slow calls in the window, or of the round."""
        look = self.breaker.snapshot()
        return look.calls, look.failures, look.slow

    def go(self, state: State) -> Bench:
        """Bring the breaker into a state by orders; RECOVERING by a passed round."""
        if state is State.RECOVERING:
            self.breaker.try_now()
            while self.state is State.HALF_OPEN:
                self.succeed()
            return self
        orders = {
            State.CLOSED: self.breaker.reset,
            State.OPEN: self.breaker.trip,
            State.HALF_OPEN: self.breaker.try_now,
            State.FORCED_OPEN: self.breaker.force_open,
            State.DISABLED: self.breaker.disable,
            State.METRICS_ONLY: self.breaker.observe,
        }
        orders[state]()
        return self


def half_open(**rules: Any) -> Bench:
    """Return a bench that is HALF_OPEN after a trip, with these rules of the round."""
    others = rules.pop("settings", {})
    bench = Bench(half_open=HalfOpen(**rules), **others)
    bench.fail(4)
    bench.clock.advance(30.0)
    return bench
