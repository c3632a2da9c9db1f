"""A bulkhead's slots with their lock: waiting for one, freeing one, waking who got it."""

from __future__ import annotations

import threading
from collections import deque

from halfopen._core.histogram import Histogram
from halfopen._core.slots import Slots, Ticket
from halfopen._runtime.clock import Clock
from halfopen._runtime.waiting import ThreadWaker, async_waker, longest_wait
from halfopen.errors import BulkheadFullError

__all__ = ["Pool"]


class Pool(Slots):
    """Slots with their lock and what was counted under it."""

    __slots__ = ("abandoned", "admitted", "full", "lock", "orphans", "timed_out", "waited", "waits")

    def __init__(self, limit: int, max_waiting: int) -> None:
        super().__init__(limit, max_waiting)
        self.lock = threading.Lock()
        self.admitted = 0
        self.waited = 0
        self.full = 0
        self.timed_out = 0
        self.abandoned = 0
        self.waits = Histogram()
        # Slots whose holder the garbage collector found, at a moment when the lock may not be waited for.
        self.orphans: deque[None] = deque()

    def wait_for_slot(self, name: str, clock: Clock, max_wait: float | None) -> None:
        """
        Block this thread until it has a slot.

        Raises:
            BulkheadFullError: The line is full, or the wait was too long.
        """
        waker = ThreadWaker()
        ticket = Ticket(waker)
        try:
            began, until = self._line_up(ticket, name, clock, max_wait)
            if not ticket.granted:
                waker.wait(clock, until)
            self._confirm(ticket, name, clock.monotonic() - began)
        except BaseException:
            self.let_go(ticket)
            raise

    async def await_slot(self, name: str, clock: Clock, max_wait: float | None) -> None:
        """
        Suspend this task until it has a slot.

        Raises:
            BulkheadFullError: The line is full, or the wait was too long.
        """
        waker = async_waker()
        ticket = Ticket(waker)
        try:
            began, until = self._line_up(ticket, name, clock, max_wait)
            if not ticket.granted:
                await waker.wait(clock, until)
            self._confirm(ticket, name, clock.monotonic() - began)
        except BaseException:
            self.let_go(ticket)
            raise

    def let_go(self, ticket: Ticket) -> None:
        """Let *ticket* leave, in line or with a slot, and wake whom that goes to; an interrupt stops neither."""
        done = False
        heir = None
        try:
            with self.lock:
                heir = self.give_up(ticket)
                done = True
            self.wake(heir)
        except BaseException:
            self.finish(done, ticket, heir)
            raise

    def finish(self, done: bool, ticket: Ticket | None, heir: Ticket | None) -> None:
        """Do what an interrupt kept from being done."""
        if not done:
            with self.lock:
                heir = self.leave() if ticket is None else self.give_up(ticket)
        self.wake(heir)

    def wake(self, heir: Ticket | None) -> None:
        """Wake who got a slot, or the next one where nobody is there to be woken."""
        while heir is not None and not heir.waker.wake():
            with self.lock:
                heir = self.revoke(heir)
        if self.orphans:
            self.adopt()

    def adopt(self) -> None:
        """Take back the slots of holders that were thrown away."""
        while self.orphans:
            heir = None
            with self.lock:
                if self.orphans:
                    del self.orphans[0]
                    self.abandoned += 1
                    heir = self.leave()
            self.wake(heir)

    def _line_up(self, ticket: Ticket, name: str, clock: Clock, max_wait: float | None) -> tuple[float, float | None]:
        self.adopt()
        began = clock.monotonic()
        longest = longest_wait(max_wait) if self.max_waiting else None
        late = longest is not None and longest <= 0
        with self.lock:
            entered = not late and self.enter(ticket)
            self.full += not entered and not late
            self.timed_out += late
        if not entered:
            raise BulkheadFullError(name, self.limit, "wait_timeout" if late else "full")
        return began, None if longest is None else began + longest

    def _confirm(self, ticket: Ticket, name: str, waited: float) -> None:
        with self.lock:
            granted = ticket.granted
            if granted:
                ticket.taken = True
                self.admitted += 1
                self.waited += 1
                self.waits.add(max(0.0, waited))
            else:
                self.timed_out += 1
        if not granted:
            raise BulkheadFullError(name, self.limit, "wait_timeout")
