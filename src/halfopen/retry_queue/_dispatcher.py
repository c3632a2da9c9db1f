"""Which lane is looked at next, and who sends: one thread decides, workers send."""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable
from typing import Protocol

from halfopen._runtime.clock import Clock

from ._delivery import Attempt
from ._errors import StoreUnavailableError
from ._lane import Lane
from ._pacing import Rate, fair_share
from ._reports import Report, Verdict

__all__ = ["Dispatcher", "Workers"]

_LOG = logging.getLogger("halfopen.retry_queue")
_STORE_PAUSE = 1.0


class Workers(Protocol):
    """Who runs attempts."""

    def launch(self, attempt: Attempt, done: Callable[[], None]) -> None:
        """Run *attempt* elsewhere, then call *done*."""


class Dispatcher:
    """
    Takes lanes in turn and hands what they claim to workers.

    Args:
        cap: Most sends in flight in this process, all lanes together.
        rate: Most sends begun per second, all lanes together.
        store_gone: Told when the store fails, with the error.
        store_back: Told when it works again.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        cap: int,
        rate: float | None,
        store_gone: Callable[[StoreUnavailableError], None],
        store_back: Callable[[], None],
    ) -> None:
        self.lanes: dict[str, Lane] = {}
        self.in_flight = 0
        self._clock = clock
        self._cap = cap
        self._rate = Rate(rate)
        self._store_gone = store_gone
        self._store_back = store_back
        # Entered by itself: an interrupt on the way into a Condition, which is Python code, would leave it held.
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._asking: dict[str, None] = {}
        self._served: dict[str, int] = {}
        self._servings = 0
        self._later: list[tuple[float, str]] = []
        self._due_at: dict[str, float] = {}
        self._stopping = False

    def attention(self, lane: str) -> None:
        """Look at *lane* soon; callable from anywhere, never blocks."""
        if lane in self._asking:
            return  # it is looked at after this
        with self._lock:
            if lane not in self._asking:
                self._asking[lane] = None
                self._wake.notify()

    def run(self, workers: Workers) -> None:
        """Dispatch until `stop`."""
        while self._wait():
            self.turn(workers)

    def stop(self) -> None:
        """Claim nothing new; `run` returns."""
        with self._lock:
            self._stopping = True
            self._wake.notify_all()

    def restart(self) -> None:
        """Let `run` be called again."""
        self._stopping = False

    def wait_idle(self, timeout: float) -> bool:
        """Wait until nothing is in flight; return False if that took longer than *timeout* seconds."""
        with self._lock:
            return self._wake.wait_for(lambda: self.in_flight == 0, timeout)

    def _wait(self) -> bool:
        with self._lock:
            while not self._stopping:
                self._promote()
                if self._asking and self.in_flight < self._cap:
                    return True
                self._wake.wait(self._pause())
            return False

    def _promote(self) -> None:
        now = self._clock.monotonic()
        while self._later and self._later[0][0] <= now:
            when, lane = heapq.heappop(self._later)
            if self._due_at.get(lane) == when:
                del self._due_at[lane]
                self._asking.setdefault(lane)

    def _pause(self) -> float | None:
        if not self._later or self._asking:
            return None if not self._later else 1.0
        return min(max(self._later[0][0] - self._clock.monotonic(), 0.0), 3600.0)

    def turn(self, workers: Workers) -> int:
        """Look once at every lane that asks; return the number of attempts launched."""
        with self._lock:
            self._promote()
            # Whoever was served longest ago comes first: one big backlog does not starve small ones.
            turn = sorted(self._asking, key=lambda name: self._served.get(name, 0))
            self._asking.clear()
        launched = 0
        for number, name in enumerate(turn):
            free = self._free()
            if free <= 0:
                self._ask_again(turn[number:])
                break
            launched += self._look(name, fair_share(free, len(turn) - number), workers)
        return launched

    def _free(self) -> int:
        with self._lock:
            free = self._cap - self.in_flight
        return min(free, self._rate.allowed(self._clock.monotonic()))

    def _ask_again(self, names: list[str]) -> None:
        wait = self._rate.wait(self._clock.monotonic())
        for name in names:
            if wait > 0:
                self._later_at(name, wait)
            else:
                self.attention(name)

    def _look(self, name: str, free: int, workers: Workers) -> int:
        lane = self.lanes.get(name)
        if lane is None:
            return 0
        try:
            step = lane.step(free)
        except StoreUnavailableError as error:
            self._store_gone(error)
            self._later_at(name, _STORE_PAUSE)
            return 0
        except Exception:
            _LOG.exception("lane %r could not be looked at", name)
            self._later_at(name, _STORE_PAUSE)
            return 0
        self._store_back()
        self._rate.take(len(step.attempts), self._clock.monotonic())
        for attempt in step.attempts:
            self._launch(attempt, workers)
        if step.attempts:
            self._servings += 1
            self._served[name] = self._servings
            self.attention(name)
        elif step.wait is not None:
            self._later_at(name, step.wait)
        return len(step.attempts)

    def _launch(self, attempt: Attempt, workers: Workers) -> None:
        with self._lock:
            self.in_flight += 1
        try:
            workers.launch(attempt, self._done)
        except RuntimeError as error:
            if attempt.settled:
                raise
            attempt.lane.results.settle(attempt, Report(Verdict.NOT_SENT, str(error)))
            self._done()

    def _done(self) -> None:
        with self._lock:
            self.in_flight -= 1
            self._wake.notify_all()

    def _later_at(self, name: str, wait: float) -> None:
        when = self._clock.monotonic() + max(wait, 0.0)
        with self._lock:
            if when < self._due_at.get(name, float("inf")) or self._due_at[name] <= self._clock.monotonic():
                self._due_at[name] = when
                heapq.heappush(self._later, (when, name))
