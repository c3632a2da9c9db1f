"""
Retry: call again what failed for a passing reason, within bounds that keep an outage from growing.

`halfopen._core.attempts` decides; here are the two colours, the sleeping, and the counters.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

from halfopen._core.attempts import AttemptOutcome, RetryFinished, RetryOutcome, RetryScheduled, RetrySnapshot
from halfopen._core.checking import Checks
from halfopen._core.retry_backoff import (
    Delays,
    Rng,
    constant,
    decorrelated_jitter,
    equal_jitter,
    exponential,
    full_jitter,
)
from halfopen._core.retry_settings import DEFAULT_BACKOFF, Errors, RetrySettings
from halfopen._core.settings import Call
from halfopen._runtime.bus import Bus
from halfopen._runtime.clock import SYSTEM_CLOCK, Clock
from halfopen._runtime.policy import UNFINISHED, decorate, unfinished
from halfopen._runtime.retry_block import Attempt, Attempts
from halfopen._runtime.retry_budget import RetryBudget, RetryBudgetSnapshot
from halfopen._runtime.retrying import ATTEMPT, Host, Run, attempt

__all__ = [
    "Attempt",
    "AttemptOutcome",
    "Attempts",
    "Delays",
    "Retry",
    "RetryBudget",
    "RetryBudgetSnapshot",
    "RetryFinished",
    "RetryOutcome",
    "RetryScheduled",
    "RetrySettings",
    "RetrySnapshot",
    "attempt",
    "constant",
    "decorrelated_jitter",
    "equal_jitter",
    "exponential",
    "full_jitter",
]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

_NO_GENERATORS = "items it has handed out cannot be taken back before another attempt; guard what the generator calls"


class Retry:
    """
    Call again what failed for a passing reason.

    The last error reaches the caller unchanged, with a note that says how many attempts it took and why there was no
    further one. Cancellation, `KeyboardInterrupt` and their kin are never retried. A refusal (`RejectedError`) is
    retried only if it says when asking again makes sense and a time budget (*total*, or the ambient deadline) has
    room for that.

    ```python
    @Retry("rates", on=(ConnectionError, TimeoutError), attempts=4, budget=shared)
    def rates(day): ...

    for attempt in retry:
        with attempt:
            rates(day)
    ```

    Args:
        name: For events, metrics and messages.
        on: Which errors to retry: classes, or a question asked of each. There is no default: a `TypeError` does not
            go away by trying again.
        ignore: Classes that are not retried although *on* says so.
        attempts: So many at most, the first included; None (only with *total*) for no limit.
        backoff: Seconds, `exponential`, `constant`, one of the jitters, or any callable ``(step, rng) -> seconds``.
        total: Seconds from the beginning of the first attempt within which the last one must begin. It is the
            ambient deadline of the attempts, too; only a `Timeout` interrupts one.
        budget: Bounds the share of calls that may be retries; shared by all who are handed the same one.
        result: Says of a returned value whether it should be retried. The last one is returned, not raised.
        only_if: Says of a `Call` whether it may be repeated at all; asked after its first failure.
        retry_after_cap: Seconds to which a wait that the dependency asks for (Retry-After, gRPC pushback) is cut,
            and the longest that a refusal is waited for.
        breaker: The circuit breaker around this retry. While it is open or half-open, failed attempts are not
            followed by others. Inside a trial call there are none even without it.
        clock: Where not the system's.
        rng: Source of chance for jitter.
        bus: Where events go; without one the retry has its own.

    Raises:
        ConfigError: Settings are wrong; all mistakes are named.
    """

    def __init__(
        self,
        name: str,
        *,
        on: Errors,
        ignore: type[Exception] | tuple[type[Exception], ...] = (),
        attempts: int | None = 3,
        backoff: float | Callable[[int, Any], float] = DEFAULT_BACKOFF,
        total: float | None = None,
        budget: RetryBudget | None = None,
        result: Callable[[Any], bool] | None = None,
        only_if: Callable[[Call], bool] | None = None,
        retry_after_cap: float = 60.0,
        breaker: Any = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
        bus: Bus | None = None,
    ) -> None:
        settings = RetrySettings(
            name=name,
            on=on,
            ignore=ignore,
            attempts=attempts,
            backoff=backoff,
            total=total,
            budget=budget,
            result=result,
            only_if=only_if,
            retry_after_cap=retry_after_cap,
        )
        self._host = Host(settings, breaker, clock or SYSTEM_CLOCK, rng or random, bus or Bus())

    @property
    def name(self) -> str:
        """Return the retry's name."""
        return self._host.settings.name

    @property
    def settings(self) -> RetrySettings:
        """Return what is set at present."""
        return self._host.settings

    @property
    def breaker(self) -> Any:
        """Return the circuit breaker around this retry, if it was named; a `Pipeline` sets it."""
        return self._host.breaker

    @breaker.setter
    def breaker(self, breaker: Any) -> None:
        self._host.breaker = breaker

    def __call__(self, fn: F) -> F:
        """
        Decorate a function of either colour.

        Raises:
            TypeError: *fn* cannot be guarded: a class, a property, a generator, or not callable.
        """
        return decorate(self, fn, no_generators=_NO_GENERATORS)

    def call(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call *fn*, and again while its failure is one to retry; sleep in between."""
        host = self._host
        if not host.quick or ATTEMPT.get() != 1:
            return self._call(Run(host, (fn, args, kwargs, None)), fn, args, kwargs)
        if (pay_in := host.pay_in) is not None:
            pay_in()
        began = host.now()
        try:
            # Without names there is no need to pack and unpack them.
            result = fn(*args, **kwargs) if kwargs else fn(*args)  # type: ignore[call-arg]  # what was given
        except Exception as error:
            run = Run(host, (fn, args, kwargs, None), began)
            if not self._again(run, run.failed(error), error):
                raise
        except BaseException:
            host.tally.ended(None)
            raise
        else:
            kind: object = type(result)
            if kind in UNFINISHED:
                unfinished(self, fn, result, args, kwargs, no_generators=_NO_GENERATORS)
            host.succeeded()
            return result
        return self._call(run, fn, args, kwargs)

    def _call(self, run: Run, fn: Callable[..., R], args: Any, kwargs: Any) -> R:
        try:
            while True:
                run.enter()
                try:
                    result = fn(*args, **kwargs)
                except Exception as error:
                    if not self._again(run, run.failed(error), error):
                        raise
                else:
                    kind: object = type(result)
                    if kind in UNFINISHED:
                        unfinished(self, fn, result, args, kwargs, no_generators=_NO_GENERATORS)
                    if not self._again(run, run.returned(result), None):
                        return result
        finally:
            run.end()

    def _again(self, run: Run, delay: float | None, error: Exception | None) -> bool:
        if delay is None:
            return False
        try:
            self._host.clock.sleep(delay)
        except BaseException:
            run.end()
            raise
        return not run.is_over(error)

    async def acall(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Await *fn*, and again while its failure is one to retry; sleep in between."""
        host = self._host
        if not host.quick or ATTEMPT.get() != 1:
            return await self._acall(Run(host, (fn, args, kwargs, None)), fn, args, kwargs)
        if (pay_in := host.pay_in) is not None:
            pay_in()
        began = host.now()
        try:
            result = await fn(*args, **kwargs)
        except Exception as error:
            run = Run(host, (fn, args, kwargs, None), began)
            if not await self._aagain(run, run.failed(error), error):
                raise
        except BaseException:
            host.tally.ended(None)
            raise
        else:
            host.succeeded()
            return result
        return await self._acall(run, fn, args, kwargs)

    async def _acall(self, run: Run, fn: Callable[..., Awaitable[R]], args: Any, kwargs: Any) -> R:
        try:
            while True:
                run.enter()
                try:
                    result = await fn(*args, **kwargs)
                except Exception as error:
                    if not await self._aagain(run, run.failed(error), error):
                        raise
                else:
                    if not await self._aagain(run, run.returned(result), None):
                        return result
        finally:
            run.end()

    async def _aagain(self, run: Run, delay: float | None, error: Exception | None) -> bool:
        if delay is None:
            return False
        try:
            await self._host.clock.asleep(delay)
        except BaseException:
            run.end()
            raise
        return not run.is_over(error)

    def __iter__(self) -> Attempts:
        """Begin a call in block style: ``for attempt in retry: with attempt: ...``."""
        return Attempts(self._host)

    def __aiter__(self) -> Attempts:
        """Begin a call in block style: ``async for attempt in retry: with attempt: ...``."""
        return Attempts(self._host)

    def block(self, label: Any = None) -> Attempts:
        """Begin a call in block style that *only_if* can tell from others by the label of its `Call`."""
        return Attempts(self._host, label)

    def snapshot(self) -> RetrySnapshot:
        """Return the counters since this retry was made."""
        budget = self._host.settings.budget
        return self._host.tally.snapshot(self.name, None if budget is None else budget.snapshot().tokens)

    def subscribe(self, listener: Callable[[Any], object], *kinds: type[Any]) -> Callable[[], None]:
        """Call *listener* with each `RetryScheduled` and `RetryFinished`; return what ends that."""
        return self._host.bus.subscribe(listener, *kinds)

    def configure(self, **changes: Any) -> None:
        """
        Change settings for the calls that begin from now on; counters go on.

        Raises:
            ConfigError: A setting is unknown or wrong; then nothing changes.
        """
        checks = Checks()
        for key in changes.keys() - SETTINGS:
            checks.wrong(key, changes[key], "", "unknown_key")
        checks.done()
        self._host.settings = replace(self._host.settings, **changes)
        self._host.listeners_changed()

    def __repr__(self) -> str:
        return f"Retry({self.name!r}, attempts={self.settings.attempts}, backoff={self.settings.backoff})"

    def __reduce__(self) -> tuple[Any, ...]:
        host = self._host
        return _restored, (host.settings, host.breaker, host.clock, None if host.rng is random else host.rng)


SETTINGS = frozenset(RetrySettings.__dataclass_fields__) - {"name"}


def _restored(settings: RetrySettings, breaker: Any, clock: Clock, rng: Rng | None) -> Retry:
    retry = Retry(settings.name, on=settings.on, breaker=breaker, clock=clock, rng=rng)
    retry.configure(**{key: getattr(settings, key) for key in SETTINGS})
    return retry
