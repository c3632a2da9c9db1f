"""A rate limiter's rate with its lock and its line: waiting for a turn, and handing it on."""

from __future__ import annotations

import threading
from threading import get_ident

from halfopen._core.gcra import Gcra, seconds_until
from halfopen._core.histogram import Histogram
from halfopen._core.slots import Line, Ticket
from halfopen._runtime.clock import Clock
from halfopen._runtime.waiting import ThreadWaker, anap, async_waker, longest_wait, nap
from halfopen.errors import RateLimitedError

__all__ = ["Meter"]


class Meter(Gcra):
    """
    The algorithm with its lock, its line, and what was counted under the lock.

    The lock is reentrant, because a signal handler or a finalizer may use the same limiter in the midst of it.

    Attributes:
        threads: How many of those in line each thread waits for, as itself or for the tasks of its loop.
    """

    __slots__ = ("admitted", "line", "lock", "rejected", "threads", "waited", "waits")

    def __init__(self, rate: float, per: float, burst: int) -> None:
        super().__init__(rate, per, burst)
        self.lock = threading.RLock()
        self.line = Line()
        self.threads: dict[int, int] = {}
        self.admitted = 0
        self.rejected = 0
        self.waited = 0
        self.waits = Histogram()

    def line_up(self, now: float, ticket: Ticket, longest: float | None, *, blocking: bool = False) -> float | None:
        """
        Join the line; return the seconds until a permit is free instead, where that is longer than *longest*.

        One that is *blocking* a thread that others in line need does not join, but overtakes: a signal handler, or a
        synchronous call in an event loop, would wait for ever for those who wait for it.
        """
        mine = self.threads.get(ticket.thread, 0)
        overtakes = blocking and mine > 0
        wait = seconds_until(self.due(now, 0 if overtakes else self.line.waiting), now)
        if longest is not None and wait > longest:
            self.rejected += 1
            return wait
        if not overtakes:
            self.line[ticket] = None
            self.threads[ticket.thread] = mine + 1
        return None

    def step_out(self, ticket: Ticket) -> None:
        """Leave the line; a no-op for one that is not in it."""
        # Without a call in between, as all that belongs together; see `halfopen._core.slots`.
        if ticket in self.line:
            del self.line[ticket]
            left = self.threads[ticket.thread] - 1
            if left:
                self.threads[ticket.thread] = left
            else:
                del self.threads[ticket.thread]

    def take_turn(self, now: float, began: float, ticket: Ticket) -> float:
        """Let the first in line take a permit and leave; return the seconds it has to wait still, 0 if it has it."""
        if not self.take(now):
            return seconds_until(self.due(now), now)
        self.admitted += 1
        self.waited += 1
        self.step_out(ticket)
        self.waits.add(max(0.0, now - began))
        return 0.0

    def wait_for_turn(self, name: str, clock: Clock, max_wait: float) -> None:
        """
        Block this thread until it has a permit.

        Raises:
            RateLimitedError: That would take longer than *max_wait* or the ambient deadline.
        """
        waker = ThreadWaker()
        ticket = Ticket(waker, get_ident())
        try:
            began, next_one = self._enter(ticket, name, clock, max_wait, blocking=True)
            if not next_one:
                waker.wait(clock, None)
            while left := self._try(ticket, clock, began):
                nap(waker, clock, left)
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
        ticket = Ticket(waker, get_ident())
        try:
            began, next_one = self._enter(ticket, name, clock, max_wait)
            if not next_one:
                await waker.wait(clock, None)
                ticket.waker = waker = async_waker()
            while left := self._try(ticket, clock, began):
                await anap(waker, clock, left)
                ticket.waker = waker = async_waker()
        finally:
            try:
                self._leave_line(ticket)
            except BaseException:
                self._leave_line(ticket)
                raise

    def configure(self, now: float, rate: float, per: float, burst: int) -> None:
        """Go on with another rate, and let the next one look anew how long it has to wait."""
        with self.lock:
            self.change(now, rate, per, burst)
            first = self.line.first()
        if first is not None:
            first.waker.wake()

    def _enter(
        self, ticket: Ticket, name: str, clock: Clock, max_wait: float, *, blocking: bool = False
    ) -> tuple[float, bool]:
        longest = longest_wait(max_wait)
        began = clock.monotonic()
        with self.lock:
            refused_for = self.line_up(began, ticket, longest, blocking=blocking)
            next_one = ticket not in self.line or self.line.first() is ticket
        if refused_for is not None:
            raise RateLimitedError(name, refused_for)
        return began, next_one

    def _try(self, ticket: Ticket, clock: Clock, began: float) -> float:
        now = clock.monotonic()
        with self.lock:
            return self.take_turn(now, began, ticket)

    def _leave_line(self, ticket: Ticket) -> None:
        """Leave the line and wake who is first now."""
        while True:
            with self.lock:
                self.step_out(ticket)
                first = self.line.first()
            if first is None or first.waker.wake():
                return
            ticket = first  # nobody is there to be woken
