"""Fallback: another answer when the call fails."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from inspect import isawaitable
from types import CoroutineType
from typing import Any, ParamSpec, TypeVar, cast

from halfopen._core.checking import Checks
from halfopen._runtime.clock import SYSTEM_CLOCK, Clock
from halfopen._runtime.forking import renew_after_fork
from halfopen._runtime.notes import write_notes
from halfopen._runtime.policy import UNFINISHED, decorate, is_async, refuse_coroutine, unfinished

__all__ = ["Fallback", "FallbackSnapshot"]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackSnapshot:
    """
    A fallback at one moment.

    Attributes:
        name: The fallback.
        successes: Calls that failed and were answered by the fallback.
        failures: Calls that failed and whose fallbacks all failed too.
        answers: How many of the successes each link of the chain gave, in its order.
    """

    name: str
    successes: int
    failures: int
    answers: tuple[int, ...]


class Fallback:
    """
    Answer with something else when a call fails with one of the errors *on*.

    Every other error passes. The links of the chain are tried in order: a callable is handed the call's error and may
    be a coroutine function where the call is awaited, anything else is the answer itself. A link that raises hands on
    to the next one; if the last one raises, its error is raised with the call's own error as ``__cause__``.

    Args:
        name: For metrics.
        links: What to answer with: values, or functions of the error.
        on: Exception types that are answered; `Exception` for all, but then a typo in your own code is answered too.
        clock: Taken for symmetry with the other policies.

    Raises:
        ConfigError: There is no link, or *on* is not made of exception types.

    Example:
        >>> prices = Fallback("prices", lambda error: [], on=(ConnectionError, TimeoutError))
        >>> @prices
        ... def fetch():
        ...     raise ConnectionError("no route")
        >>> fetch()
        []
    """

    def __init__(
        self,
        name: str,
        *links: Callable[[Exception], Any] | object,
        on: type[Exception] | tuple[type[Exception], ...],
        clock: Clock | None = None,
    ) -> None:
        errors = on if isinstance(on, tuple) else (on,)
        _check(name, links, errors)
        self.name = name
        self._links: tuple[Any, ...] = links
        self._on = errors
        self._clock: Clock = SYSTEM_CLOCK if clock is None else clock
        self._renew()
        renew_after_fork(self)

    @property
    def on(self) -> tuple[type[Exception], ...]:
        """The exception types that are answered."""
        return self._on

    def call(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call *fn*, or answer for it."""
        try:
            result = fn(*args, **kwargs) if kwargs else fn(*args)  # type: ignore[call-arg]  # what was given
        except self._on as error:
            return cast(R, self._answer(error))
        kind: object = type(result)
        if kind in UNFINISHED:
            unfinished(self, fn, result, args, kwargs)
        return result

    async def acall(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Await *fn*, or answer for it."""
        try:
            return await fn(*args, **kwargs)
        except self._on as error:
            return cast(R, await self._aanswer(error))

    def __call__(self, fn: F) -> F:
        """
        Guard *fn*.

        Raises:
            TypeError: *fn* is not awaited but a link of the chain has to be.
        """
        if not is_async(fn) and any(callable(link) and is_async(link) for link in self._links):
            raise TypeError(f"Fallback {self.name!r} has a coroutine function in its chain: guard a coroutine function")
        return decorate(self, fn)

    def snapshot(self) -> FallbackSnapshot:
        """Return the numbers of this moment."""
        with self._lock:
            answers = tuple(self._answers)
            return FallbackSnapshot(
                name=self.name, successes=sum(answers), failures=self._failures, answers=answers
            )  # fmt: skip

    def _answer(self, error: Exception) -> Any:
        failed: list[Exception] = []
        for number, link in enumerate(self._links):
            try:
                answer: object = link(error) if callable(link) else link
                kind: object = type(answer)
                if kind is CoroutineType:
                    refuse_coroutine(self, answer)
            except Exception as own:
                failed.append(own)
            else:
                self._count(number)
                return answer
        try:
            return self._fail(error, failed)
        finally:
            del error, failed  # an error whose traceback leads to itself outlives the call

    async def _aanswer(self, error: Exception) -> Any:
        failed: list[Exception] = []
        for number, link in enumerate(self._links):
            try:
                answer = link(error) if callable(link) else link
                if callable(link) and isawaitable(answer):
                    answer = await answer
            except Exception as own:
                failed.append(own)
            else:
                self._count(number)
                return answer
        try:
            return self._fail(error, failed)
        finally:
            del error, failed  # an error whose traceback leads to itself outlives the call

    def _fail(self, error: Exception, failed: list[Exception]) -> Any:
        with self._lock:
            self._failures += 1
        last = failed.pop()
        own = f"fallback {self.name!r}: link "
        notes = [f"{own}{number} had failed with {_shown(earlier)}" for number, earlier in enumerate(failed, 1)]
        write_notes(last, notes, lambda old: old.startswith(own))
        try:
            if last is error:
                raise error
            raise last from error
        finally:
            del last, error

    def _count(self, number: int) -> None:
        with self._lock:
            self._answers[number] += 1

    def _renew(self) -> None:
        self._lock = threading.RLock()  # reentrant: a signal handler or a finalizer may come between
        self._answers = [0] * len(self._links)
        self._failures = 0

    def __reduce__(self) -> tuple[Any, ...]:
        clock = None if self._clock is SYSTEM_CLOCK else self._clock
        return _rebuild, (type(self), self.name, self._links, self._on, clock)

    def __repr__(self) -> str:
        return f"<Fallback {self.name!r}: {len(self._links)} links on {', '.join(e.__name__ for e in self._on)}>"


def _shown(error: Exception) -> str:
    try:
        return repr(error)
    except Exception:
        return type(error).__name__


def _check(name: str, links: tuple[Any, ...], errors: Iterable[Any]) -> None:
    checks = Checks()
    checks.text("name", name)
    if not links:
        checks.wrong("links", links, "needed: a value, or a function of the error", "missing")
    for number, link in enumerate(links, 1):
        if isinstance(link, type) and issubclass(link, BaseException):
            # It would be called and hand out an exception as if it were an answer.
            checks.wrong(f"links[{number}]", link, "a value or a function of the error", "wrong_type")
    if not errors:
        checks.wrong("on", errors, "needed: the exception types that are answered", "missing")
    for error in errors:
        if not (isinstance(error, type) and issubclass(error, Exception)):
            checks.wrong("on", error, "made of subclasses of Exception", "wrong_type")
    checks.done()


def _rebuild(
    kind: type[Fallback], name: str, links: tuple[Any, ...], on: tuple[type[Exception], ...], clock: Clock | None
) -> Fallback:
    return kind(name, *links, on=on, clock=clock)
