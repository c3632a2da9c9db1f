"""A rate limiter's rate with its lock and its line: waiting for a turn, and handing it on."""

from __future__ import annotations

import threading

from halfopen._core.gcra import Gcra, seconds_until
from halfopen._core.histogram import Histogram
from halfopen._core.slots import Line, Ticket
from halfopen._runtime.clock import Clock
from halfopen._runtime.waiting import ThreadWaker, async_waker, longest_wait
from halfopen.errors import RateLimitedError

__all__ = ["Meter"]


class Meter(Gcra):
    """The algorithm with its lock, its line, and what was counted under the lock."""

    __slots__ = ("admitted", "line", "lock", "rejected", "waited", "waits")

    def __init__(self, rate: float, per: float, burst: int) -> None:
        super().__init__(rate, per, burst)
        self.lock = threading.Lock()
        self.line = Line()
        self.admitted = 0
        self.rejected = 0
        self.waited = 0
        self.waits = Histogram()

    def line_up(self, now: float, ticket: Ticket, longest: float | None) -> float | None:
        """Join the line; return the seconds until a permit is free instead, where that is longer than *longest*."""
        wait = seconds_until(self.due(now, self.line.waiting), now)
        if longest is not None and wait > longest:
            self.rejected += 1
            return wait
        self.line.join(ticket)
        return None

    def take_turn(self, now: float, began: float, ticket: Ticket) -> float:
        """Let the first in line take a permit and leave; return the seconds it has to wait still, 0 if it has it."""
        if not self.take(now):
            return seconds_until(self.due(now), now)
        self.line.leave(ticket)
        self.admitted += 1
        self.waited += 1
        self.waits.add(max(0.0, now - began))
        return 0.0

    def wait_for_turn(self, name: str, clock: Clock, max_wait: float) -> None:
        """
        Block this thread until it has a permit.

        Raises:
            RateLimitedError: That would take longer than *max_wait* or the ambient deadline.
        """
        waker = ThreadWaker()
        ticket = Ticket(waker)
        try:
            began, first = self._enter(ticket, name, clock, max_wait)
            if not first:
                waker.wait(clock, None)
            while left := self._try(ticket, clock, began):
                clock.sleep(left)
        finally:
            # In line, because a method could be interrupted before its first step; and leaving twice does no harm.
            try:
                self._leave_line(ticket)
            except BaseException:
                self._leave_line(ticket)
                raise

    async def await_turn(self, name: str, clock: Clock, max_wait: float) -> None:
        """
        Suspend this task until it has a permit.

        Raises:
            RateLimitedError: That would take longer than *max_wait* or the ambient deadline.
        """
        waker = async_waker()
        ticket = Ticket(waker)
        try:
            began, first = self._enter(ticket, name, clock, max_wait)
            if not first:
                await waker.wait(clock, None)
            while left := self._try(ticket, clock, began):
                await clock.asleep(left)
        finally:
            # In line, because a method could be interrupted before its first step; and leaving twice does no harm.
            try:
                self._leave_line(ticket)
            except BaseException:
                self._leave_line(ticket)
                raise

    def _enter(self, ticket: Ticket, name: str, clock: Clock, max_wait: float) -> tuple[float, bool]:
        longest = longest_wait(max_wait)
        began = clock.monotonic()
        with self.lock:
            refused_for = self.line_up(began, ticket, longest)
            first = self.line.first() is ticket
        if refused_for is not None:
            raise RateLimitedError(name, refused_for)
        return began, first

    def _try(self, ticket: Ticket, clock: Clock, began: float) -> float:
        now = clock.monotonic()
        with self.lock:
            return self.take_turn(now, began, ticket)

    def _leave_line(self, ticket: Ticket) -> None:
        """Leave the line and wake who is first now."""
        while True:
            with self.lock:
                self.line.leave(ticket)
                first = self.line.first()
            if first is None or first.waker.wake():
                return
            ticket = first  # nobody is there to be woken
