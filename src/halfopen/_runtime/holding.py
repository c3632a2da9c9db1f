"""Blocks that hold a place among many, and places whose holder was thrown away."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from halfopen._core.slots import Ticket

__all__ = ["Holder", "Shared"]


class _Gone:
    """Nobody to be woken."""

    __slots__ = ()

    def wake(self) -> bool:
        return False


_GONE = _Gone()


class Shared:
    """
    A number of places with their lock.

    Attributes:
        lock: Reentrant, because a signal handler or a finalizer may use the same policy in the midst of it.
        called: Who got a place and has to be woken still; and places of holders that were thrown away.
        abandoned: How many the latter were so far.
    """

    lock: Any
    called: dict[Ticket, None]
    abandoned: int

    def wake(self) -> None:
        """
        Wake who got a place, or free it where nobody is there to be woken.

        What an interrupt leaves undone is still there for the next one that looks.
        """
        called = self.called
        while called:
            ticket = next(iter(called.copy()), None)
            if ticket is None:
                return
            if not ticket.waker.wake():
                with self.lock:
                    self.abandoned += ticket.granted and ticket.waker is _GONE
                    self.revoke(ticket)
            called.pop(ticket, None)

    def wake_if_possible(self) -> None:
        """As `wake`, for finalizers: they do not wait for the lock, and whoever holds it looks after leaving it."""
        lock = self.lock
        if lock._is_owned():
            self.wake()
            return
        try:
            if lock.acquire(False):
                self.wake()
        finally:
            if lock._is_owned():  # also where an interrupt came right after it was acquired
                lock.release()

    def revoke(self, ticket: Ticket) -> None:
        """Free the place of *ticket*, if it has one and nobody has taken it."""
        raise NotImplementedError


S = TypeVar("S", bound=Shared)


class Holder(Generic[S]):
    """A place for as long as a ``with`` or ``async with`` block runs; each block needs one of its own."""

    __slots__ = ("_held",)

    _held: S | None

    def __enter__(self) -> Self:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        raise NotImplementedError

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        self.__exit__(kind, error, traceback)

    def __del__(self) -> None:
        # An interrupt can hit the first instruction of __exit__; then only the end of this object frees the place.
        held = getattr(self, "_held", None)  # __init__ may have been interrupted too
        if held is not None:
            held.called[Ticket(_GONE, granted=True)] = None
            held.wake_if_possible()
