"""The stage a scenario plays on: a dependency that does as it is told, and callers on threads or tasks."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal

from rivals import interrupts
from rivals.adapters import Adapter, Guard, Wishes

__all__ = ["Call", "Down", "NeverSent", "Stage", "Verdict", "fails", "passes"]


class Down(Exception):
    """The dependency is down."""


class NeverSent(Exception):
    """The call never left this process: no connection was free."""


@dataclass(frozen=True)
class Verdict:
    """
    What came of one scenario with one library.

    Attributes:
        result: ``pass``, ``fails`` or ``n/a``.
        evidence: What was seen, in a few words.
    """

    result: Literal["pass", "fails", "n/a"]
    evidence: str


def passes(evidence: str) -> Verdict:
    """Say that the library does right."""
    return Verdict("pass", evidence)


def fails(evidence: str) -> Verdict:
    """Say that the library has the fault."""
    return Verdict("fails", evidence)


@dataclass(eq=False)
class Call:
    """
    One call: what the dependency shall do with it, and what became of it.

    Attributes:
        error: Raised by the dependency in the end; None for an answer.
        seconds: How long the dependency takes.
        gate: The dependency takes until this is set, besides.
        block: Take the seconds without giving way to other tasks.
        interrupt_after: A timer signal strikes this many seconds after the guarded call began (`call_here` only).
        inner: A call the dependency makes through the same breaker, first.
        reached: Set once the call has reached the dependency.
        finished: Set once the caller has its answer, refusal or error.
        raised: What the caller got instead of an answer.
        took: Seconds the caller waited.
    """

    error: BaseException | None = None
    seconds: float = 0.0
    gate: threading.Event | None = None
    block: bool = False
    interrupt_after: float = 0.0
    inner: Call | None = None
    reached: threading.Event = field(default_factory=threading.Event)
    finished: threading.Event = field(default_factory=threading.Event)
    raised: BaseException | None = None
    took: float = 0.0
    _future: Any = None

    @property
    def answered(self) -> bool:
        """Whether the caller has an answer, and no exception."""
        return self.finished.is_set() and self.raised is None

    @property
    def refused(self) -> bool:
        """Whether the caller has an exception and the dependency never saw the call."""
        return self.finished.is_set() and not self.reached.is_set()

    def cancel(self) -> None:
        """Cancel the caller's task and wait until that is over."""
        self._future.cancel()
        self.finished.wait(2.0)


class Stage:
    """
    One library in one colour.

    A scenario is written once, as plain code on the main thread. What it starts runs on threads if the colour
    is ``sync``, and as tasks of one event loop, on a thread of its own, if it is ``async``.
    """

    def __init__(self, adapter: Adapter, colour: str) -> None:
        self.adapter = adapter
        self.colour = colour
        self._loop: asyncio.AbstractEventLoop | None = None
        self._guarded: Callable[..., Any] = lambda call: None
        self._guard: Guard | None = None

    def build(self, *, timeout_helper: float | None = None, **wishes: Any) -> None:
        """Make a fresh breaker; with *timeout_helper* seconds of the library's own timeout around each call."""
        self._guard = self.adapter.build(Wishes(failure=Down, **wishes), self.colour)
        dependency = self._dependency()
        if timeout_helper is not None:
            dependency = self.adapter.with_timeout(dependency, timeout_helper, self.colour)
        self._guarded = self._guard.decorate(dependency)

    @property
    def state(self) -> str:
        """Return ``closed``, ``open`` or ``half_open``, as the library itself reports it."""
        assert self._guard is not None
        return self._guard.state()

    def start(self, *calls: Call, wait: bool = True) -> None:
        """Let callers make *calls* at the same instant; return when all have reached the dependency or finished."""
        if self.colour == "async":
            self._start_tasks(calls)
        else:
            self._start_threads(calls)
        if wait:
            self.wait_for(lambda: all(c.reached.is_set() or c.finished.is_set() for c in calls))

    def call(self, call: Call, limit: float = 2.0) -> Call:
        """Make *call* and return it when it has finished, or after *limit* seconds."""
        self.start(call, wait=False)
        call.finished.wait(limit)
        return call

    def call_here(self, call: Call) -> Call:
        """Make *call* on the main thread, where signals arrive."""
        try:
            if self.colour == "sync":
                self._run(call)
            else:
                _in_a_loop_without_signal_handling(self._arun(call))
        except BaseException as raised:
            call.raised = raised
        call.finished.set()
        return call

    def trip(self, failures: int = 3, limit: float = 1.0) -> bool:
        """Make *failures* failing calls; return whether they all came through in time."""
        return all(self.call(Call(error=Down()), limit).finished.is_set() for _ in range(failures))

    def wait_for(self, condition: Callable[[], bool], limit: float = 2.0) -> bool:
        """Wait until *condition* holds, *limit* seconds at most; return whether it does."""
        until = time.monotonic() + limit
        while not condition() and time.monotonic() < until:
            time.sleep(0.002)
        return condition()

    def _dependency(self) -> Callable[..., Any]:
        # Plain functions: some decorators take nothing else.
        def dependency(call: Call) -> str:
            return self._answer(call)

        async def adependency(call: Call) -> str:
            return await self._aanswer(call)

        return dependency if self.colour == "sync" else adependency

    def _start_threads(self, calls: tuple[Call, ...]) -> None:
        together = threading.Barrier(len(calls))

        def caller(call: Call) -> None:
            together.wait()
            with contextlib.suppress(BaseException):
                self._run(call)

        for call in calls:
            threading.Thread(target=caller, args=(call,), daemon=True).start()

    def _start_tasks(self, calls: tuple[Call, ...]) -> None:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, daemon=True).start()
        for call in calls:
            call._future = asyncio.run_coroutine_threadsafe(self._arun(call), self._loop)

    def _run(self, call: Call) -> None:
        began = time.monotonic()
        try:
            interrupts.arm(call.interrupt_after)
            self._guarded(call)
            interrupts.disarm()
        except BaseException as raised:
            interrupts.disarm()
            call.raised = raised
            raise
        finally:
            call.took = time.monotonic() - began
            call.finished.set()

    async def _arun(self, call: Call) -> None:
        began = time.monotonic()
        try:
            interrupts.arm(call.interrupt_after)
            await self._guarded(call)
            interrupts.disarm()
        except BaseException as raised:
            interrupts.disarm()
            call.raised = raised
            raise
        finally:
            call.took = time.monotonic() - began
            call.finished.set()

    def _answer(self, call: Call) -> str:
        call.reached.set()
        if call.inner is not None:
            self._run(call.inner)
        if call.gate is not None:
            call.gate.wait()
        time.sleep(call.seconds)
        if call.error is not None:
            raise call.error
        return "answer"

    async def _aanswer(self, call: Call) -> str:
        call.reached.set()
        if call.inner is not None:
            await self._arun(call.inner)
        while call.gate is not None and not call.gate.is_set():
            await asyncio.sleep(0.002)
        if call.block:
            time.sleep(call.seconds)
        else:
            await asyncio.sleep(call.seconds)
        if call.error is not None:
            raise call.error
        return "answer"


def _in_a_loop_without_signal_handling(main: Coroutine[Any, Any, None]) -> None:
    # asyncio.run would turn an interrupt into a cancellation; here it must strike the call itself.
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(main)
    finally:
        loop.close()
