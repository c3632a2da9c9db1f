"""
Who may run and who waits, in the order they came; whoever calls these methods holds the lock.

Steps are ordered so that an interrupt between two of them loses no slot and no waiting ticket: CPython delivers a
signal at calls and at jumps back, never between two plain assignments.
"""

from __future__ import annotations

from collections import deque
from typing import Any

__all__ = ["Line", "Slots", "Ticket"]


class Ticket:
    """
    A place in a line.

    Attributes:
        waker: Whatever wakes the one who waits; the line never touches it.
        waiting: Whether it stands in the line.
        granted: Whether a slot was handed to it.
        taken: Whether its owner has seen that.
    """

    __slots__ = ("granted", "taken", "waiting", "waker")

    def __init__(self, waker: Any = None) -> None:
        self.waker = waker
        self.waiting = False
        self.granted = False
        self.taken = False


class Line:
    """
    First come, first served; leaving from the middle costs O(1).

    A ticket that leaves from the middle stays as a hole until it gets to the front. Holes are dropped when they
    outnumber the waiting, so that memory follows the line and not its history.

    Attributes:
        waiting: How many wait.
    """

    __slots__ = ("_tickets", "waiting")

    def __init__(self) -> None:
        self._tickets: deque[Ticket] = deque()
        self.waiting = 0

    def join(self, ticket: Ticket) -> None:
        """Queue up at the end."""
        ticket.waiting = True
        self.waiting += 1
        self._tickets.append(ticket)

    def first(self) -> Ticket | None:
        """Return who has waited longest."""
        tickets = self._tickets
        while tickets and not tickets[0].waiting:
            del tickets[0]
        return tickets[0] if tickets else None

    def leave(self, ticket: Ticket) -> None:
        """Step out, from wherever in the line; a no-op for one that does not wait."""
        if not ticket.waiting:
            return
        ticket.waiting = False
        self.waiting -= 1
        if len(self._tickets) > 2 * self.waiting + 16:
            self._tickets = deque([ticket for ticket in self._tickets if ticket.waiting])


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
    """

    __slots__ = ("in_use", "limit", "line", "max_waiting")

    def __init__(self, limit: int, max_waiting: int) -> None:
        self.limit = limit
        self.max_waiting = max_waiting
        self.in_use = 0
        self.line = Line()

    def enter(self, ticket: Ticket) -> bool:
        """Take a slot (*ticket* is granted) or a place in the line; return False where both are full."""
        if self.in_use < self.limit:
            self.in_use += 1
            ticket.granted = True
            return True
        if self.line.waiting >= self.max_waiting:
            return False
        self.line.join(ticket)
        return True

    def leave(self) -> Ticket | None:
        """Free one slot; return the ticket it went to, which has to be woken."""
        ticket = self.line.first() if self.in_use <= self.limit else None
        if ticket is None:
            self.in_use -= 1
            return None
        self.line.waiting -= 1
        ticket.waiting = False
        ticket.granted = True
        return ticket

    def give_up(self, ticket: Ticket) -> Ticket | None:
        """Let *ticket* go, in line or with a slot; return the ticket that got its slot, which has to be woken."""
        if not ticket.granted:
            self.line.leave(ticket)
            return None
        successor = self.leave()
        ticket.granted = False
        return successor

    def revoke(self, ticket: Ticket) -> Ticket | None:
        """Take the slot back from a ticket whose owner cannot be woken; return the ticket that got it."""
        return None if ticket.taken else self.give_up(ticket)

    def resize(self, limit: int, max_waiting: int) -> list[Ticket]:
        """Change the limits; return the tickets that got a slot by it. Nobody who runs or waits is thrown out."""
        self.limit = limit
        self.max_waiting = max_waiting
        granted: list[Ticket] = []
        while self.in_use < limit and (ticket := self.line.first()) is not None:
            granted.append(ticket)
            self.in_use += 1
            self.line.waiting -= 1
            ticket.waiting = False
            ticket.granted = True
        return granted
