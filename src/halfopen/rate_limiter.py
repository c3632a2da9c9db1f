"""RateLimiter: so many calls in so much time, the next ones refused or spread out in the order they came."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from types import CoroutineType, TracebackType
from typing import Any, NamedTuple, ParamSpec, TypeVar

from halfopen._core.checking import Checks
from halfopen._core.sharing import RateLimiterSnapshot
from halfopen._runtime.clock import SYSTEM_CLOCK, Clock
from halfopen._runtime.forking import renew_after_fork
from halfopen._runtime.keyed import KeyedPolicy
from halfopen._runtime.meter import Meter
from halfopen._runtime.policy import decorate, refuse_coroutine

__all__ = ["RateLimiter", "RateLimiterSnapshot", "Turn"]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class _Settings(NamedTuple):
    rate: float
    per: float
    burst: int | None
    max_wait: float

    @property
    def whole_burst(self) -> int:
        return max(1, int(min(self.rate, 1_000_000))) if self.burst is None else self.burst


class RateLimiter:
    """
    Let at most *rate* calls begin in *per* seconds, after a quiet time up to *burst* of them at once.

    The generic cell rate algorithm (ITU-T I.371): exact, without a timer, one number of state. In any stretch of *t*
    seconds at most ``burst + t × rate / per`` calls begin. Threads, asyncio and trio tasks share one line, first come,
    first served; a caller that is cancelled gives its turn to those behind it.

    Args:
        name: For errors and metrics.
        rate: Calls in *per* seconds, above 0; may be a fraction.
        per: Seconds, above 0.
        burst: Calls at once after a quiet time, at least 1. Default: *rate* rounded down, at least 1. With 1 the calls
            are evenly spaced.
        max_wait: Seconds a caller may have to wait; a longer wait is refused at once, because it is known beforehand.
            0 never waits. The ambient deadline cuts it short.
        clock: Where time comes from.

    Raises:
        ConfigError: A value is outside its range; all of them are named.

    Example:
        >>> limiter = RateLimiter("geocoder", 10, max_wait=2.0)
        >>> limiter.call(str.upper, "oslo")
        'OSLO'
    """

    def __init__(
        self,
        name: str,
        rate: float,
        per: float = 1.0,
        *,
        burst: int | None = None,
        max_wait: float = 0.0,
        clock: Clock | None = None,
    ) -> None:
        _check(name, rate, per, burst, max_wait)
        self.name = name
        self._clock: Clock = SYSTEM_CLOCK if clock is None else clock
        self._monotonic = self._clock.monotonic
        self._settings = _Settings(rate, per, burst, max_wait)
        self._meter = Meter(rate, per, self._settings.whole_burst)
        renew_after_fork(self)

    @classmethod
    def per_key(
        cls,
        name: str,
        rate: float,
        per: float = 1.0,
        *,
        max_keys: int = 200,
        key: Callable[..., Hashable] | None = None,
        burst: int | None = None,
        max_wait: float = 0.0,
        clock: Clock | None = None,
    ) -> KeyedPolicy[RateLimiter]:
        """
        Return a family with one rate limiter for each key: ``RateLimiter.per_key("tenant:*", 5)["acme"]``.

        Args:
            name: The family; ``*`` stands for the key.
            rate: Calls in *per* seconds for each key.
            per: Seconds.
            max_keys: Limiters kept; one whose burst is not whole again is never thrown out, keys beyond that share
                ``__other__``.
            key: Handed a call's arguments, says which key it has; makes the family a policy.
            burst: As for `RateLimiter`.
            max_wait: As for `RateLimiter`.
            clock: As for `RateLimiter`.
        """
        _check(name, rate, per, burst, max_wait)
        make = partial(cls, rate=rate, per=per, burst=burst, max_wait=max_wait, clock=clock)
        return KeyedPolicy(name, make, max_keys=max_keys, key=key)

    def call(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """
        Call *fn* once a permit is free.

        Raises:
            RateLimitedError: That would take longer than *max_wait*; ``retry_after`` says how long.
        """
        if not self._admit():
            self._meter.wait_for_turn(self.name, self._clock, self._settings.max_wait)
        result = fn(*args, **kwargs)
        kind: object = type(result)
        if kind is CoroutineType:
            refuse_coroutine(self, result)
        return result

    async def acall(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """
        Await *fn* once a permit is free.

        Raises:
            RateLimitedError: That would take longer than *max_wait*; ``retry_after`` says how long.
        """
        if not self._admit():
            await self._meter.await_turn(self.name, self._clock, self._settings.max_wait)
        return await fn(*args, **kwargs)

    def __call__(self, fn: F) -> F:
        """Guard *fn*; a generator uses one permit, at its first item."""
        return decorate(self, fn, hold=self)

    def acquire(self) -> Turn:
        """Return a turn for a block: ``with limiter.acquire(): …`` or ``async with limiter.acquire(): …``."""
        return Turn(self)

    hold = ahold = acquire

    def configure(
        self, *, rate: float | None = None, per: float | None = None, burst: int | None = None,
        max_wait: float | None = None,
    ) -> None:  # fmt: skip
        """
        Change the settings of a limiter in use; permits already used stay used, and come back at the new rate.

        Whoever waits goes on waiting, by the new rate.

        Args:
            rate: Calls in *per* seconds.
            per: Seconds.
            burst: Calls at once after a quiet time.
            max_wait: Seconds a caller may have to wait, from now on.

        Raises:
            ConfigError: A value is outside its range; nothing has changed then.
        """
        old = self._settings
        new = _Settings(
            old.rate if rate is None else rate,
            old.per if per is None else per,
            old.burst if burst is None else burst,
            old.max_wait if max_wait is None else max_wait,
        )
        _check(self.name, *new)
        self._settings = new
        self._meter.configure(self._monotonic(), new.rate, new.per, new.whole_burst)

    def snapshot(self) -> RateLimiterSnapshot:
        """Return the numbers of this moment."""
        meter = self._meter
        settings = self._settings
        now = self._monotonic()
        with meter.lock:
            return RateLimiterSnapshot(
                name=self.name,
                rate=settings.rate,
                per=settings.per,
                burst=meter.burst,
                available=meter.available(now),
                waiting=meter.line.waiting,
                admitted=meter.admitted,
                waited=meter.waited,
                rejections={"rate": meter.rejected},
                wait_seconds=meter.waits.snapshot(zeros=meter.admitted - meter.waited),
            )

    def _admit(self) -> bool:
        meter = self._meter
        now = self._monotonic()
        with meter.lock:
            tat = meter.tat
            if now < tat - meter.tolerance or meter.line:
                return False
            # Gcra.take, in line.
            meter.tat = (tat if tat > now else now) + meter.interval
            meter.admitted += 1
        return True

    def _idle(self) -> bool:
        meter = self._meter
        return not meter.line and meter.tat <= self._monotonic()

    def _renew(self) -> None:
        self._meter.lock = threading.RLock()
        settings = self._settings
        self._meter = Meter(settings.rate, settings.per, settings.whole_burst)

    def __reduce__(self) -> tuple[Any, ...]:
        clock = None if self._clock is SYSTEM_CLOCK else self._clock
        return _rebuild, (type(self), self.name, *self._settings, clock)

    def __repr__(self) -> str:
        rate, per = self._settings.rate, self._settings.per
        return f"<RateLimiter {self.name!r}: {rate:g} in {per:g} s, {self._meter.line.waiting} waiting>"


class Turn:
    """A turn at a rate limiter, taken on entering a ``with`` or ``async with`` block; leaving gives nothing back."""

    __slots__ = ("_limiter",)

    def __init__(self, limiter: RateLimiter) -> None:
        self._limiter = limiter

    def __enter__(self) -> Turn:
        owner = self._limiter
        if not owner._admit():
            owner._meter.wait_for_turn(owner.name, owner._clock, owner._settings.max_wait)
        return self

    async def __aenter__(self) -> Turn:
        owner = self._limiter
        if not owner._admit():
            await owner._meter.await_turn(owner.name, owner._clock, owner._settings.max_wait)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...


def _check(name: str, rate: Any, per: Any, burst: Any, max_wait: Any) -> None:
    checks = Checks()
    checks.text("name", name)
    checks.number("rate", rate)
    checks.seconds("per", per)
    checks.whole("burst", burst, 1, 1_000_000, optional=True)
    checks.seconds("max_wait", max_wait, zero=True)
    checks.done()


def _rebuild(
    kind: type[RateLimiter], name: str, rate: float, per: float, burst: int | None, max_wait: float,
    clock: Clock | None,
) -> RateLimiter:  # fmt: skip
    return kind(name, rate, per, burst=burst, max_wait=max_wait, clock=clock)
