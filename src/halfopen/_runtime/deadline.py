"""The ambient deadline: by when the present call must be over, known to everything it calls."""

from __future__ import annotations

import math
from contextlib import suppress
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any

from halfopen._core.checking import Checks
from halfopen._runtime.clock import SYSTEM_CLOCK, Clock
from halfopen.errors import CallTimeoutError, RejectedError

__all__ = [
    "AMBIENT",
    "Deadline",
    "DeadlinePassedError",
    "Line",
    "check_deadline",
    "deadline",
    "impose",
    "lift",
    "nearest",
    "remaining",
    "time_left",
    "withdraw",
]


class DeadlinePassedError(RejectedError, CallTimeoutError):
    """
    The deadline had passed before the call was made.

    A refusal, because the dependency was not asked, and a `TimeoutError`, because that is what callers look for.
    """

    def _sentence(self) -> str:
        return f"deadline {self.name!r} ({self.seconds:.6g} s) had passed before the call was made"


Line = tuple[float, Clock, str, float]
"""When it passes, on which clock, who set it, how many seconds away it was then. Plain: each call makes one."""

AMBIENT: ContextVar[Line | None] = ContextVar("halfopen_deadline", default=None)


def remaining(line: Line) -> float:
    """Return the seconds left until *line*; negative once it has passed."""
    return line[0] - line[1].monotonic()


def nearest(line: Line) -> Line:
    """Return *line* or the ambient deadline, whichever passes first."""
    ambient = AMBIENT.get()
    if ambient is None:
        return line
    if ambient[1] is line[1]:
        return ambient if ambient[0] <= line[0] else line
    return ambient if remaining(ambient) <= remaining(line) else line


def impose(line: Line | None) -> Token[Line | None]:
    """Make *line* the ambient deadline; an interrupt leaves the one before in place."""
    before = AMBIENT.get()
    try:
        return AMBIENT.set(line)
    except BaseException:
        withdraw(line, before)
        raise


def withdraw(line: Line | None, before: Line | None) -> None:
    """Put back the ambient deadline *before*, if *line* was imposed and an interrupt lost its token."""
    if AMBIENT.get() is line:
        AMBIENT.set(before)


def lift(token: Token[Line | None]) -> None:
    """Take back a deadline; in another context, where a generator may end, there is nothing to take back."""
    with suppress(ValueError):
        AMBIENT.reset(token)


class Deadline:
    """
    A context manager that sets the ambient deadline of its block, unless a nearer one is set; made by `deadline`.

    Attributes:
        name: Who set it.
    """

    __slots__ = ("_line", "_token", "name")

    def __init__(self, name: str, line: Line | None) -> None:
        self.name = name
        self._line = line
        self._token: Token[Line | None] | None = None

    def time_left(self) -> float:
        """Return the seconds until it passes; negative afterwards, infinite for ``deadline(None)``."""
        return math.inf if self._line is None else remaining(self._line)

    def __enter__(self) -> Deadline:
        if self._token is not None:
            raise RuntimeError("a deadline is entered once")
        if self._line is None or nearest(self._line) is self._line:
            self._token = impose(self._line)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        token, self._token = self._token, None
        if token is not None:
            try:  # noqa: SIM105  (as `lift`, which an interrupt could hit as it begins)
                AMBIENT.reset(token)
            except ValueError:
                pass


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
    checks = Checks()
    checks.text("name", name)
    if seconds is None:
        checks.done()
        return Deadline(name, None)
    if not _is_number(seconds):
        checks.wrong("seconds", seconds, "a number of seconds, or None", "wrong_type")
    elif not math.isfinite(seconds):
        checks.wrong("seconds", seconds, "a finite number of seconds, or None")
    checks.done()
    source: Clock = clock or SYSTEM_CLOCK
    return Deadline(name, (source.monotonic() + seconds, source, name, float(seconds)))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def time_left() -> float | None:
    """
    Return the seconds until the ambient deadline, 0 once it has passed, None without one.

    Hand it to whatever takes a timeout: ``sock.settimeout(halfopen.time_left())``.
    """
    ambient = AMBIENT.get()
    return None if ambient is None else max(remaining(ambient), 0.0)


def check_deadline() -> None:
    """
    Return unless the ambient deadline has passed; for loops that nothing else interrupts.

    Raises:
        CallTimeoutError: It has.
    """
    ambient = AMBIENT.get()
    if ambient is not None and remaining(ambient) <= 0:
        raise CallTimeoutError(ambient[2], ambient[3])
