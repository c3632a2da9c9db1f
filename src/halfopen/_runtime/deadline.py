"""The ambient deadline: by when the present call must be over, known to everything it calls."""

from __future__ import annotations

import math
from contextvars import ContextVar, Token
from types import TracebackType

from halfopen._core.checking import Checks
from halfopen._runtime.clock import SYSTEM_CLOCK, Clock
from halfopen.errors import CallTimeoutError, RejectedError

__all__ = ["Deadline", "DeadlinePassedError", "check_deadline", "current_deadline", "deadline", "time_left"]


class DeadlinePassedError(RejectedError, CallTimeoutError):
    """
    The deadline had passed before the call was made.

    A refusal, because the dependency was not asked, and a `TimeoutError`, because that is what callers look for.
    """

    def _sentence(self) -> str:
        return f"deadline {self.name!r} ({self.seconds:.6g} s) had passed before the call was made"


class Deadline:
    """
    A point in time on a clock; as a context manager the ambient deadline of its block, unless a tighter one is set.

    Attributes:
        name: Who set it.
        seconds: How far away it was then.
        at: The clock's monotonic reading at which it passes; infinite if there is no deadline.
    """

    __slots__ = ("_clock", "_token", "at", "name", "seconds")

    def __init__(self, name: str, seconds: float, clock: Clock, began: float | None = None) -> None:
        self.name = name
        self.seconds = seconds
        self.at = (clock.monotonic() if began is None else began) + seconds
        self._clock = clock
        self._token: Token[Deadline | None] | None = None

    def time_left(self) -> float:
        """Return the seconds that are left; negative once it has passed."""
        return self.at - self._clock.monotonic()

    def tighter(self) -> Deadline:
        """Return this one or the ambient one, whichever passes first."""
        ambient = _AMBIENT.get()
        if ambient is None:
            return self
        if ambient._clock is self._clock:
            return ambient if ambient.at <= self.at else self
        return ambient if ambient.time_left() <= self.time_left() else self

    def __enter__(self) -> Deadline:
        if self.tighter() is self:
            self._token = _AMBIENT.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        token, self._token = self._token, None
        if token is not None:
            _AMBIENT.reset(token)


class _NoDeadline(Deadline):
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("none", math.inf, SYSTEM_CLOCK, 0.0)

    def tighter(self) -> Deadline:
        return self

    def __enter__(self) -> Deadline:
        self._token = _AMBIENT.set(None)
        return self


_AMBIENT: ContextVar[Deadline | None] = ContextVar("halfopen_deadline", default=None)


def deadline(seconds: float | None, *, name: str = "deadline", clock: Clock | None = None) -> Deadline:
    """
    Give everything in a ``with`` block so many seconds, together.

    The block is not interrupted: integrations cut their timeouts to `time_left()`, a `Retry` sleeps and tries no
    longer, a `Timeout` cancels by then. Inside an earlier deadline a later one has no effect. It follows the context,
    so also into tasks and `asyncio.to_thread`; work that outlives the call should begin under ``deadline(None)``.

    Args:
        seconds: From now; 0 or less has passed already. None lifts the ambient deadline for the block.
        name: For messages.
        clock: Where not the system's.

    Raises:
        ConfigError: *seconds* is not a finite number.
    """
    if seconds is None:
        return _NoDeadline()
    checks = Checks()
    checks.text("name", name)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        checks.wrong("seconds", seconds, "a number of seconds, or None", "wrong_type")
    elif not math.isfinite(seconds):
        checks.wrong("seconds", seconds, "a finite number of seconds, or None")
    checks.done()
    return Deadline(name, float(seconds), clock or SYSTEM_CLOCK)


def current_deadline() -> Deadline | None:
    """Return the ambient deadline, if there is one."""
    return _AMBIENT.get()


def time_left() -> float | None:
    """
    Return the seconds until the ambient deadline, 0 once it has passed, None without one.

    Hand it to whatever takes a timeout: ``sock.settimeout(halfopen.time_left())``.
    """
    ambient = _AMBIENT.get()
    return None if ambient is None else max(ambient.time_left(), 0.0)


def check_deadline() -> None:
    """
    Return unless the ambient deadline has passed; for loops that nothing else interrupts.

    Raises:
        CallTimeoutError: It has.
    """
    ambient = _AMBIENT.get()
    if ambient is not None and ambient.time_left() <= 0:
        raise CallTimeoutError(ambient.name, ambient.seconds)
