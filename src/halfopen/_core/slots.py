"""
Who may run and who waits, in the order they came; whoever calls these methods holds the lock.

CPython looks for signals, and lets finalizers run, when a function begins and after each call, never between two plain
instructions. A handler may raise, or use the very same slots. So whatever belongs together is done without a call in
between, even where a call would be shorter: at each such moment the numbers are right and nobody is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

__all__ = ["Line", "Slots", "Ticket"]


class Ticket:
    """
    A place in a line.

    Attributes:
        waker: Whatever wakes the one who waits; the line never touches it.
        thread: Which thread waits, or runs the loop of the task that does.
        granted: Whether a slot was handed to it.
        taken: Whether its owner has seen that.
    """

    __slots__ = ("granted", "taken", "thread", "waker")

    def __init__(self, waker: Any = None, thread: int = 0, *, granted: bool = False) -> None:
        self.waker = waker
        self.thread = thread
        self.granted = granted
        self.taken = False


class Line(OrderedDict[Ticket, None]):
    """First come, first served; leaving from the middle costs O(1). It is true while somebody waits."""

    __slots__ = ()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self)

    def join(self, ticket: Ticket) -> None:
        """Queue up at the end."""
        self[ticket] = None

    def first(self) -> Ticket | None:
        """Return who has waited longest."""
        for ticket in self:
            return ticket
        return None

    def leave(self, ticket: Ticket) -> None:
        """Step out, from wherever in the line; a no-op for one that does not wait."""
        self.pop(ticket, None)


class Slots:
    """
    A number of slots with a bounded line in front of them.

    A slot that becomes free goes straight to the first in line: it is never free while somebody waits, so nobody can
    overtake. Hence the invariant that callers may use as a short cut: ``in_use < limit`` implies an empty line.

    Attributes:
        limit: Slots.
        max_waiting: Places in the line.
        in_use: Slots taken, those just handed to a ticket included.
        line: Who waits.
        called: Who got a slot and has to be woken still, in order.
    """

    __slots__ = ("called", "in_use", "limit", "line", "max_waiting")

    def __init__(self, limit: int, max_waiting: int) -> None:
        self.limit = limit
        self.max_waiting = max_waiting
        self.in_use = 0
        self.line = Line()
        self.called: dict[Ticket, None] = {}

    def enter(self, ticket: Ticket) -> bool:
        """Take a slot (*ticket* is granted) or a place in the line; return False where both are full."""
        full = self.line.waiting >= self.max_waiting
        if self.in_use < self.limit:
            self.in_use += 1
            ticket.granted = True
        elif full:
            return False
        else:
            self.line[ticket] = None
        return True

    def leave(self, ticket: Ticket) -> None:
        """Free the slot of *ticket*, or hand it to the first in line; a no-op where it has none."""
        if not ticket.granted:
            return
        ticket.granted = False
        if self.in_use <= self.limit:
            line = self.line
            for heir in line:
                del line[heir]
                heir.granted = True
                self.called[heir] = None
                return
        self.in_use -= 1

    def give_up(self, ticket: Ticket) -> None:
        """Let *ticket* go, in line or with a slot; a no-op for one that has gone."""
        self.line.leave(ticket)
        self.leave(ticket)

    def revoke(self, ticket: Ticket) -> None:
        """Take the slot back from a ticket whose owner cannot be woken."""
        if not ticket.taken:
            self.give_up(ticket)

    def resize(self, limit: int, max_waiting: int) -> None:
        """Change the limits, and hand out slots that there are now. Nobody who runs or waits is thrown out."""
        self.limit = limit
        self.max_waiting = max_waiting
        line = self.line
        while line and self.in_use < self.limit:
            for heir in line:
                del line[heir]
                self.in_use += 1
                heir.granted = True
                self.called[heir] = None
                break
