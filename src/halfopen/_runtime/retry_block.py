"""A retry in block style: a loop over attempts, each entered with ``with``."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, TypeVar

from halfopen._runtime.retrying import Host, Run

__all__ = ["Attempt", "Attempts"]

R = TypeVar("R")

_NOTHING: Final = object()


class Attempts:
    """
    The attempts of one call in block style; iterate over it once, with ``for`` or ``async for``.

    Raises:
        RuntimeError: The loop's body did not enter its attempt with ``with``.
    """

    __slots__ = ("_host", "_last", "_run")

    def __init__(self, host: Host, label: Any = None) -> None:
        self._host = host
        self._run = Run(host, (None, (), {}, label))
        self._last: Attempt | None = None

    def __iter__(self) -> Attempts:
        return self

    def __aiter__(self) -> Attempts:
        return self

    def __next__(self) -> Attempt:
        last = self._last
        if last is None:
            return self._begin()
        delay = last.delay()
        if delay is None:
            raise StopIteration
        try:
            self._host.clock.sleep(delay)
        except BaseException:
            self._run.end()
            raise
        if self._run.is_over(last.error):
            last.raise_error()
            raise StopIteration
        return self._begin()

    async def __anext__(self) -> Attempt:
        last = self._last
        if last is None:
            return self._begin()
        delay = last.delay()
        if delay is None:
            raise StopAsyncIteration
        try:
            await self._host.clock.asleep(delay)
        except BaseException:
            self._run.end()
            raise
        if self._run.is_over(last.error):
            last.raise_error()
            raise StopAsyncIteration
        return self._begin()

    def _begin(self) -> Attempt:
        if self._last is not None:
            self._last.error = None
        self._last = Attempt(self._run)
        return self._last


class Attempt:
    """One turn of a block-style retry: enter it with ``with``, in async code as well."""

    __slots__ = ("_delay", "_run", "_state", "_value", "error")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._state = "new"
        self._delay: float | None = None
        self._value: Any = _NOTHING
        self.error: Exception | None = None

    @property
    def number(self) -> int:
        """Return the attempt's number, counted from 1."""
        return self._run.number + (self._state == "new")

    def result(self, value: R) -> R:
        """Let *result* of the retry judge this value at the end of the block; return it."""
        self._value = value
        return value

    def __enter__(self) -> Attempt:
        if self._state != "new":
            raise RuntimeError("an attempt is entered once; take the next one from the loop")
        self._run.enter()
        self._state = "entered"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._state = "left"
        if error is None:
            self._finish()
            return False
        if not isinstance(error, Exception):
            self._run.end()
            return False
        self._delay = self._run.failed(error)
        if self._delay is not None:
            self.error = error
        return self._delay is not None

    def _finish(self) -> None:
        if self._value is _NOTHING:
            self._run.succeeded()
        else:
            self._delay = self._run.returned(self._value)

    async def __aenter__(self) -> Attempt:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return self.__exit__(kind, error, traceback)

    def delay(self) -> float | None:
        """Return the seconds to sleep before the next attempt; None if this one was the last."""
        if self._state != "left":
            raise RuntimeError("the loop's body must run inside `with attempt:`")
        return self._delay

    def raise_error(self) -> None:
        """Raise the error that the block swallowed, now that no attempt will follow."""
        error, self.error = self.error, None
        if error is not None:
            raise error
