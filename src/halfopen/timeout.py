"""Timeout: bound how long a call may take, by cancellation where there is one, by a deadline for all."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextvars import Token
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

from halfopen._core.checking import Checks
from halfopen._core.time_limits import TimeoutFinished, TimeoutOutcome, TimeoutSettings, TimeoutSnapshot
from halfopen._runtime.bus import Bus
from halfopen._runtime.cancelling import cancel_at
from halfopen._runtime.clock import SYSTEM_CLOCK, Clock
from halfopen._runtime.counting import Count
from halfopen._runtime.deadline import (
    AMBIENT,
    Deadline,
    DeadlinePassedError,
    Line,
    check_deadline,
    deadline,
    impose,
    lift,
    nearest,
    remaining,
    time_left,
    withdraw,
)
from halfopen._runtime.policy import UNFINISHED, decorate, unfinished
from halfopen._runtime.trials import in_trial
from halfopen._runtime.worker_threads import Job, WorkerThreads
from halfopen.errors import BulkheadFullError, CallTimeoutError

__all__ = [
    "Deadline",
    "DeadlinePassedError",
    "Timeout",
    "TimeoutFinished",
    "TimeoutOutcome",
    "TimeoutSettings",
    "TimeoutSnapshot",
    "check_deadline",
    "deadline",
    "time_left",
]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

_NO_GENERATORS = "its consumer decides how long it runs; guard what the generator calls"


class Timeout:
    """
    Bound how long a call may take.

    - Async, on asyncio and trio: the call is cancelled once its time is up, and `CallTimeoutError` raised. A
      cancellation from outside passes through untouched; of nested timeouts, the one that fired says so.
    - Sync: the call runs under an ambient deadline that integrations, `time_left` and `check_deadline` obey. Nothing
      interrupts a function that asks none of them; what it returns late is returned, and counted.
    - Sync with *worker_thread*: the caller stops waiting at the limit and gets `CallTimeoutError`; the thread goes on.

    An ambient deadline that is nearer than the limit counts instead of it, and the error names that one. Outside a
    `Retry` a timeout bounds the whole call, inside each attempt.

    ```python
    @Timeout("rates", 2.0, trial=0.5)
    async def rates(day): ...
    ```

    Args:
        name: For events, metrics and messages.
        seconds: How long a call may take, above 0.
        trial: The limit of a circuit breaker's trial calls, at most *seconds*; default *seconds*.
        worker_thread: Run synchronous calls on a thread that can be left behind.
        max_threads: So many such threads at once, with those left behind; when all are taken, calls are refused with
            `BulkheadFullError`.
        clock: Where not the system's.
        bus: Where events go; without one the timeout has its own.

    Raises:
        ConfigError: Settings are wrong; all mistakes are named.
    """

    def __init__(
        self,
        name: str,
        seconds: float,
        *,
        trial: float | None = None,
        worker_thread: bool = False,
        max_threads: int = 16,
        clock: Clock | None = None,
        bus: Bus | None = None,
    ) -> None:
        self._settings = TimeoutSettings(
            name=name, seconds=seconds, trial=trial, worker_thread=worker_thread, max_threads=max_threads
        )
        self._clock: Clock = clock or SYSTEM_CLOCK
        self._now = self._clock.monotonic
        self._bus = bus or Bus()
        self._threads = WorkerThreads(max_threads)
        self._lock = threading.RLock()  # reentrant: a signal handler or a finalizer may come between
        self._successes = Count()
        self._calls = dict.fromkeys(TimeoutOutcome, 0)
        self._late = self._interrupted = self._refused = 0
        self._bus.attach(self)
        self.listeners_changed()

    @property
    def name(self) -> str:
        """Return the timeout's name."""
        return self._settings.name

    @property
    def settings(self) -> TimeoutSettings:
        """Return what is set at present."""
        return self._settings

    def __call__(self, fn: F) -> F:
        """
        Decorate a function of either colour.

        Raises:
            TypeError: *fn* cannot be guarded: a class, a property, a generator, or not callable.
        """
        return decorate(self, fn, no_generators=_NO_GENERATORS)

    def call(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """
        Call *fn* under the ambient deadline, or on a worker thread.

        Raises:
            CallTimeoutError: A worker thread took too long.
            DeadlinePassedError: No time was left, and the call was not made.
            BulkheadFullError: Every worker thread is taken, and the call was not made.
        """
        settings = self._settings
        if settings.worker_thread:
            return self._on_thread(partial(fn, *args, **kwargs))
        if settings.trial is None and AMBIENT.get() is None:
            line: Line = (self._now() + settings.seconds, self._clock, settings.name, settings.seconds)
            try:
                token: Token[Line | None] | None = AMBIENT.set(line)
            except BaseException:  # an interrupt, right after it was set
                withdraw(line, None)
                raise
        else:
            line, token = self._begin()
        try:
            result = fn(*args, **kwargs) if kwargs else fn(*args)  # type: ignore[call-arg]  # what was given
            kind: object = type(result)
            if kind in UNFINISHED:
                unfinished(self, fn, result, args, kwargs, no_generators=_NO_GENERATORS)
        except BaseException as error:
            self._raised(line, error)
            raise
        finally:
            if token is not None:
                AMBIENT.reset(token)
        self._successes.step()
        if self._heard or line[1].monotonic() > line[0]:
            self._returned(line)
        return result

    def _on_thread(self, fn: Callable[[], R]) -> R:
        line, token = self._begin()
        try:
            job = self._submit(fn)
            try:
                if not job.wait(self._clock, self._here(line)):
                    raise CallTimeoutError(line[2], line[3])
                result: R = job.outcome()
                kind: object = type(result)
                if kind in UNFINISHED:
                    unfinished(self, fn, result, (), {}, no_generators=_NO_GENERATORS)
            except BaseException as error:
                self._raised(line, error)
                raise
        finally:
            if token is not None:
                AMBIENT.reset(token)
        self._successes.step()
        self._returned(line)
        return result

    def _submit(self, fn: Callable[[], Any]) -> Job:
        job = self._threads.submit(fn, self.name)
        if job is None:
            with self._lock:
                self._refused += 1
            raise BulkheadFullError(self.name, self._threads.limit)
        return job

    async def acall(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """
        Await *fn*, and cancel it once its time is up.

        Raises:
            CallTimeoutError: It was.
            DeadlinePassedError: No time was left, and the call was not made.
        """
        line, token = self._begin()
        try:
            with cancel_at(self._here(line), self._clock) as scope:
                result = await fn(*args, **kwargs)
                self._successes.step()
                self._returned(line)
                return result
            # Only a cancellation of its own leads the scope here.
            raise CallTimeoutError(line[2], line[3]) from scope.cause
        except BaseException as error:
            self._raised(line, error)
            raise
        finally:
            if token is not None:
                lift(token)

    def snapshot(self) -> TimeoutSnapshot:
        """Return the counters since this timeout was made."""
        threads = self._threads
        with self._lock:
            calls = {**self._calls, TimeoutOutcome.SUCCESS: self._successes.value()}
            return TimeoutSnapshot(
                name=self.name,
                calls=MappingProxyType(calls),
                late=self._late,
                interrupted=self._interrupted,
                refused=self._refused,
                threads=threads.running,
                threads_given_up=threads.given_up,
                max_threads=threads.limit if self._settings.worker_thread else None,
            )

    def subscribe(self, listener: Callable[[Any], object], *kinds: type[Any]) -> Callable[[], None]:
        """Call *listener* with each `TimeoutFinished`; return what ends that."""
        return self._bus.subscribe(listener, *kinds)

    def configure(self, **changes: Any) -> None:
        """
        Change settings for the calls that begin from now on; counters go on.

        Raises:
            ConfigError: A setting is unknown or wrong; then nothing changes.
        """
        checks = Checks()
        for key in sorted(changes.keys() - _CHANGEABLE):
            checks.wrong(key, changes[key], "", "unknown_key")
        checks.done()
        self._settings = replace(self._settings, **changes)
        self._threads.limit = self._settings.max_threads

    def _begin(self) -> tuple[Line, Token[Line | None] | None]:
        settings, clock = self._settings, self._clock
        seconds = settings.seconds
        if settings.trial is not None and in_trial():
            seconds = settings.trial
        line = (clock.monotonic() + seconds, clock, settings.name, seconds)
        first = nearest(line)
        if first is line:
            return line, impose(line)
        if remaining(first) <= 0:
            with self._lock:
                self._refused += 1
            raise DeadlinePassedError(first[2], first[3])
        return first, None

    def _here(self, line: Line) -> float:
        """Return when *line* passes on this timeout's own clock."""
        return line[0] if line[1] is self._clock else self._clock.monotonic() + remaining(line)

    def _returned(self, line: Line) -> None:
        if remaining(line) < 0:
            with self._lock:
                self._late += 1
        if self._heard:
            self._publish(TimeoutOutcome.SUCCESS, line)

    def _raised(self, line: Line, error: BaseException) -> None:
        if not isinstance(error, Exception):
            with self._lock:
                self._interrupted += 1
            return
        # Whatever a client raised when the time was up, it was the time that ended the call.
        up = isinstance(error, CallTimeoutError) and error.name == line[2]
        outcome = TimeoutOutcome.TIMEOUT if up or remaining(line) <= 0 else TimeoutOutcome.FAILURE
        with self._lock:
            self._calls[outcome] += 1
        if self._heard:
            self._publish(outcome, line)

    def _publish(self, outcome: TimeoutOutcome, line: Line) -> None:
        left = remaining(line)
        self._bus.put(TimeoutFinished(name=self.name, at=self._clock.monotonic(), outcome=outcome, left=left))
        self._bus.flush()

    def listeners_changed(self) -> None:
        """Note whether anybody listens."""
        self._heard = self._bus.wants(TimeoutFinished)

    def after_fork(self) -> None:
        """Replace the lock and the threads of the parent."""
        self._lock = threading.RLock()
        self._threads.after_fork()

    def __repr__(self) -> str:
        return f"Timeout({self.name!r}, {self._settings.seconds:g})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._settings, self._clock)


_CHANGEABLE = frozenset(TimeoutSettings.__dataclass_fields__) - {"name"}


def _restored(settings: TimeoutSettings, clock: Clock) -> Timeout:
    return Timeout(
        settings.name,
        settings.seconds,
        trial=settings.trial,
        worker_thread=settings.worker_thread,
        max_threads=settings.max_threads,
        clock=clock,
    )
