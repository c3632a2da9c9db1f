"""An adaptive limit with its lock: calls that run, what they teach, and blocks that count as one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self

from halfopen._core.concurrency_limits import AdaptiveLimit
from halfopen._core.slots import Ticket
from halfopen._runtime.holding import Holder, Shared
from halfopen.errors import BulkheadFullError, RejectedError

__all__ = ["DROPPED", "IGNORED", "SUCCESS", "Stay", "Taught"]

SUCCESS, DROPPED, IGNORED = 1, 2, 0


class Taught(AdaptiveLimit, Shared):
    """The limit with its lock and what was counted under it."""

    __slots__ = ("abandoned", "admitted", "called", "drops", "lock", "measured", "refused")

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.lock = threading.RLock()
        self.called = {}
        self.abandoned = 0
        self.admitted = 0
        self.refused = 0
        self.measured = 0
        self.drops = 0

    def revoke(self, ticket: Ticket) -> None:
        """End the call of *ticket*, which teaches nothing; a no-op where it has ended."""
        if ticket.granted:
            ticket.granted = False
            self.in_use -= 1

    def refuse(self, name: str) -> None:
        """
        Count a call that is one too many.

        Raises:
            BulkheadFullError: Always.
        """
        self.wake()
        with self.lock:
            self.refused += 1
        raise BulkheadFullError(name, self.limit)

    def learn(self, outcome: int, began: float, ended: float) -> None:
        """Learn from a call that has just ended, under the lock."""
        self.admitted += 1
        if self.in_use >= self.peak:
            self.peak = self.in_use + 1
        if outcome == SUCCESS:
            self.measured += 1
            self.record(ended, ended - began)
        elif outcome == DROPPED:
            self.drops += 1
            self.drop(ended)

    def finish(self, *, held: bool) -> None:
        """Do what an interrupt kept from being done: end a call that is counted still."""
        if held:
            ticket = Ticket(granted=True)
            with self.lock:
                self.revoke(ticket)


class _Owner(Protocol):
    name: str
    _state: Taught
    _monotonic: Callable[[], float]
    _dropped_on: tuple[type[Exception], ...]


class Stay(Holder[Taught]):
    """A call that runs for as long as a ``with`` or ``async with`` block does."""

    __slots__ = ("_began", "_measured", "_owner")

    def __init__(self, owner: _Owner, *, measured: bool) -> None:
        self._held = None
        self._owner = owner
        self._measured = measured
        self._began = 0.0

    def __enter__(self) -> Self:
        if self._held is not None:
            raise RuntimeError("this stay has begun already; acquire() another one for another block")
        owner = self._owner
        state = owner._state
        self._began = owner._monotonic()
        with state.lock:
            if state.in_use < state.limit:
                state.in_use += 1
                self._held = state
        if self._held is None:
            state.refuse(owner.name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        state = self._held
        if state is None:
            return
        try:
            owner = self._owner
            outcome = SUCCESS if error is None and self._measured else IGNORED
            if isinstance(error, owner._dropped_on) and not isinstance(error, RejectedError):
                outcome = DROPPED
            ended = owner._monotonic()
            with state.lock:
                state.in_use -= 1
                self._held = None
                state.learn(outcome, self._began, ended)
        except BaseException:
            state.finish(held=self._held is not None)
            self._held = None
            raise
