"""The loops that are timed: the same lines for the bare function and for the guarded one."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import repeat
from typing import Any

from benchmarks.measure import Loop
from benchmarks.suites._breakers import Breakers

__all__ = ["awaiting", "bare", "calling", "guarded"]


def call() -> None:
    """Do nothing."""


def keywords(first: int, second: int, *, third: int) -> None:
    """Do nothing with three arguments."""


async def acall() -> None:
    """Do nothing, as a coroutine."""


def failing() -> None:
    """Fail."""
    raise ValueError


def generator() -> Iterator[int]:
    """Yield three numbers."""
    yield from (1, 2, 3)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "call": call,
    "keywords": keywords,
    "acall": acall,
    "refused": call,
    "failing": failing,
    "generator": generator,
}


def bare(style: str) -> Loop:
    """Return the loop of *style* around the function itself."""
    if style == "block":
        return calling(call)
    return _LOOPS[style](_FUNCTIONS[style])


def guarded(breakers: Breakers, style: str) -> Loop:
    """Return the loop of *style* around a function, or a block, that a fresh breaker guards."""
    if style == "block":
        return _block(breakers.block())
    if style == "refused":
        refusing = breakers.refusing(call)
        _make_sure(refusing, lambda raised: raised is not None)
        return _failing(refusing)
    if style == "failing":
        recording = breakers.never_opening(failing)
        _make_sure(recording, lambda raised: isinstance(raised, ValueError))
        return _failing(recording)
    build = breakers.aclosed if style == "acall" else breakers.closed
    return _LOOPS[style](build(_FUNCTIONS[style]))


def _make_sure(fn: Callable[[], Any], right: Callable[[Exception | None], bool]) -> None:
    # A breaker that is not in the state we think would look fast, or slow.
    for _ in range(300):
        raised: Exception | None = None
        try:
            fn()
        except Exception as error:
            raised = error
        if not right(raised):
            raise RuntimeError(f"the breaker is in the wrong state: {raised!r}")


def calling(fn: Callable[[], Any]) -> Loop:
    """Return the loop that calls *fn*."""

    def loop(calls: int) -> None:
        for _ in repeat(None, calls):
            fn()

    return loop


def _with_keywords(fn: Callable[..., Any]) -> Loop:
    def loop(calls: int) -> None:
        for _ in repeat(None, calls):
            fn(1, 2, third=3)

    return loop


def awaiting(fn: Callable[[], Any]) -> Loop:
    """Return the loop that awaits *fn* in one event loop."""

    async def aloop(calls: int) -> None:
        for _ in repeat(None, calls):
            await fn()

    # One event loop for all rounds: making one costs as much as thousands of calls.
    event_loop = asyncio.new_event_loop()

    def loop(calls: int) -> None:
        event_loop.run_until_complete(aloop(calls))

    weakref.finalize(loop, event_loop.close)
    return loop


def _block(enter: Callable[[], AbstractContextManager[Any]]) -> Loop:
    def loop(calls: int) -> None:
        for _ in repeat(None, calls):
            with enter():
                call()

    return loop


def _failing(fn: Callable[[], Any]) -> Loop:
    def loop(calls: int) -> None:
        for _ in repeat(None, calls):
            try:  # noqa: SIM105  (suppress would cost more than what is measured)
                fn()
            except Exception:
                pass

    return loop


def _iterating(fn: Callable[[], Iterator[int]]) -> Loop:
    def loop(calls: int) -> None:
        for _ in repeat(None, calls):
            for _number in fn():
                pass

    return loop


_LOOPS: dict[str, Callable[[Callable[..., Any]], Loop]] = {
    "call": calling,
    "keywords": _with_keywords,
    "acall": awaiting,
    "refused": _failing,
    "failing": _failing,
    "generator": _iterating,
}
