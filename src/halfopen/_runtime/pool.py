"""A bulkhead's slots with their lock: waiting for one, holding and freeing it, waking who gets it."""

from __future__ import annotations

import threading
from threading import get_ident
from types import TracebackType
from typing import Protocol, Self

from halfopen._core.histogram import Histogram
from halfopen._core.slots import Slots, Ticket
from halfopen._runtime.clock import Clock
from halfopen._runtime.holding import Holder, Shared
from halfopen._runtime.waiting import ThreadWaker, async_waker, longest_wait
from halfopen.errors import BulkheadFullError

__all__ = ["Place", "Pool"]


class Pool(Slots, Shared):
    """Slots with their lock and what was counted under it."""

    __slots__ = ("abandoned", "admitted", "full", "lock", "timed_out", "waited", "waits")

    def __init__(self, limit: int, max_waiting: int) -> None:
        super().__init__(limit, max_waiting)
        self.lock = threading.RLock()
        self.abandoned = 0
        self.admitted = 0
        self.waited = 0
        self.full = 0
        self.timed_out = 0
        self.waits = Histogram()

    def wait_for_slot(self, name: str, clock: Clock, max_wait: float | None) -> None:
        """
        Block this thread until it has a slot.

        Raises:
            BulkheadFullError: The line is full, or the wait was too long.
        """
        waker = ThreadWaker()
        ticket = Ticket(waker, get_ident())
        try:
            began, until = self._line_up(ticket, name, clock, max_wait)
            if not ticket.granted:
                waker.wait(clock, until)
            self._confirm(ticket, name, clock.monotonic() - began)
        except BaseException:
            # In line, because a method could be interrupted before its first step; and letting go twice does no harm.
            try:
                self.let_go(ticket)
            except BaseException:
                self.let_go(ticket)
                raise
            raise

    async def await_slot(self, name: str, clock: Clock, max_wait: float | None) -> None:
        """
        Suspend this task until it has a slot.

        Raises:
            BulkheadFullError: The line is full, or the wait was too long.
        """
        waker = async_waker()
        ticket = Ticket(waker, get_ident())
        try:
            began, until = self._line_up(ticket, name, clock, max_wait)
            if not ticket.granted:
                await waker.wait(clock, until)
            self._confirm(ticket, name, clock.monotonic() - began)
        except BaseException:
            try:
                self.let_go(ticket)
            except BaseException:
                self.let_go(ticket)
                raise
            raise

    def let_go(self, ticket: Ticket) -> None:
        """Let *ticket* leave, in line or with a slot, and wake whom that goes to."""
        with self.lock:
            self.give_up(ticket)
        self.wake()

    def finish(self, *, held: bool) -> None:
        """Do what an interrupt kept from being done: free a slot that is held still, and wake who got one."""
        if held:
            ticket = Ticket(granted=True)
            with self.lock:
                self.leave(ticket)
        self.wake()

    def _line_up(self, ticket: Ticket, name: str, clock: Clock, max_wait: float | None) -> tuple[float, float | None]:
        self.wake()
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


class _Bulkhead(Protocol):
    name: str
    _pool: Pool
    _clock: Clock
    _max_wait: float | None


class Place(Holder[Pool]):
    """A place in a bulkhead for as long as a ``with`` or ``async with`` block runs; each block needs one of its own."""

    __slots__ = ("_bulkhead",)

    def __init__(self, bulkhead: _Bulkhead) -> None:
        self._held = None
        self._bulkhead = bulkhead

    def __enter__(self) -> Self:
        if not self._take():
            owner = self._bulkhead
            pool = owner._pool
            pool.wait_for_slot(owner.name, owner._clock, owner._max_wait)
            self._held = pool
        return self

    async def __aenter__(self) -> Self:
        if not self._take():
            owner = self._bulkhead
            pool = owner._pool
            await pool.await_slot(owner.name, owner._clock, owner._max_wait)
            self._held = pool
        return self

    def _take(self) -> bool:
        if self._held is not None:
            raise RuntimeError("this place is taken already; acquire() another one for another block")
        pool = self._bulkhead._pool
        with pool.lock:
            if pool.in_use < pool.limit:
                pool.in_use += 1
                pool.admitted += 1
                self._held = pool
        return self._held is not None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        pool = self._held
        if pool is None:
            return
        try:
            with pool.lock:
                if pool.line:
                    pool.leave(Ticket(granted=True))
                else:
                    pool.in_use -= 1
                self._held = None
            if pool.called:
                pool.wake()
        except BaseException:
            pool.finish(held=self._held is not None)
            self._held = None
            raise
