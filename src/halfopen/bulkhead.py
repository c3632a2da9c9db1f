"""Bulkhead: so many calls at once, the next ones in a line with an end."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Any, ParamSpec, TypeVar, cast

from halfopen._core.checking import Checks
from halfopen._core.sharing import BulkheadSnapshot
from halfopen._core.slots import Ticket
from halfopen._runtime.clock import SYSTEM_CLOCK, Clock
from halfopen._runtime.forking import renew_after_fork
from halfopen._runtime.keyed import KeyedPolicy
from halfopen._runtime.policy import UNFINISHED, decorate, unfinished
from halfopen._runtime.pool import Place, Pool

__all__ = ["Bulkhead", "BulkheadSnapshot", "Place"]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

_KEEP: Any = object()


class Bulkhead:
    """
    Let at most *limit* calls run at once, so that one slow dependency cannot take every thread and connection.

    Threads, asyncio and trio tasks share one pool and one line, first come, first served. A place that becomes free
    goes to the first in line before anybody else can take it.

    Args:
        name: For errors and metrics.
        limit: Calls at once, at least 1.
        max_waiting: Callers that may wait when all places are taken; 0 refuses at once.
        max_wait: Seconds a caller waits at most; None: as long as it takes. The ambient deadline cuts it short.
        clock: Where time comes from.

    Raises:
        ConfigError: A value is outside its range; all of them are named.

    Example:
        >>> bulkhead = Bulkhead("search", 10, max_waiting=20, max_wait=0.5)
        >>> @bulkhead
        ... def search(words):
        ...     return words.split()
        >>> search("to be")
        ['to', 'be']
    """

    def __init__(
        self,
        name: str,
        limit: int,
        *,
        max_waiting: int = 0,
        max_wait: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        _check(name, limit, max_waiting, max_wait)
        self.name = name
        self._clock: Clock = SYSTEM_CLOCK if clock is None else clock
        self._max_wait = max_wait
        self._pool = Pool(limit, max_waiting)
        renew_after_fork(self)

    @classmethod
    def per_key(
        cls,
        name: str,
        limit: int,
        *,
        max_keys: int = 200,
        key: Callable[..., Hashable] | None = None,
        max_waiting: int = 0,
        max_wait: float | None = None,
        clock: Clock | None = None,
    ) -> KeyedPolicy[Bulkhead]:
        """
        Return a family with one bulkhead for each key: ``Bulkhead.per_key("host:*", 10)["example.com"]``.

        Args:
            name: The family; ``*`` stands for the key.
            limit: Calls at once for each key.
            max_keys: Bulkheads kept; a busy one is never thrown out, keys beyond that share ``__other__``.
            key: Handed a call's arguments, says which key it has; makes the family a policy.
            max_waiting: As for `Bulkhead`.
            max_wait: As for `Bulkhead`.
            clock: As for `Bulkhead`.
        """
        _check(name, limit, max_waiting, max_wait)
        make = partial(cls, limit=limit, max_waiting=max_waiting, max_wait=max_wait, clock=clock)
        return KeyedPolicy(name, make, max_keys=max_keys, key=key)

    def call(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """
        Call *fn* in one of the places.

        Raises:
            BulkheadFullError: There is none, nor one in line; or none became free in time.
        """
        pool = self._pool
        held = False
        try:
            with pool.lock:
                if pool.in_use < pool.limit:
                    pool.in_use += 1
                    pool.admitted += 1
                    held = True
            if not held:
                pool.wait_for_slot(self.name, self._clock, self._max_wait)
                held = True
            result = fn(*args, **kwargs) if kwargs else fn(*args)  # type: ignore[call-arg]  # what was given
            kind: object = type(result)
            if kind in UNFINISHED:
                guarded: Any = unfinished(self, fn, result, args, kwargs, hold=self)
                if guarded is not result:
                    pool.admitted -= 1  # counts when it begins
                    return cast(R, guarded)
            return result
        finally:
            # In line, because a method could be interrupted before its first step.
            if held:
                try:
                    with pool.lock:
                        if pool.line:
                            pool.leave(Ticket(granted=True))
                        else:
                            pool.in_use -= 1
                        held = False
                    if pool.called:
                        pool.wake()
                except BaseException:
                    pool.finish(held=held)
                    raise

    async def acall(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """
        Await *fn* in one of the places.

        Raises:
            BulkheadFullError: There is none, nor one in line; or none became free in time.
        """
        pool = self._pool
        held = False
        try:
            with pool.lock:
                if pool.in_use < pool.limit:
                    pool.in_use += 1
                    pool.admitted += 1
                    held = True
            if not held:
                await pool.await_slot(self.name, self._clock, self._max_wait)
                held = True
            return await fn(*args, **kwargs)
        finally:
            if held:
                try:
                    with pool.lock:
                        if pool.line:
                            pool.leave(Ticket(granted=True))
                        else:
                            pool.in_use -= 1
                        held = False
                    if pool.called:
                        pool.wake()
                except BaseException:
                    pool.finish(held=held)
                    raise

    def __call__(self, fn: F) -> F:
        """Guard *fn*; a generator keeps its place from the first item to the end."""
        return decorate(self, fn, hold=self)

    def acquire(self) -> Place:
        """Return a place for a block: ``with bulkhead.acquire(): …`` or ``async with bulkhead.acquire(): …``."""
        return Place(self)

    hold = ahold = acquire

    def configure(
        self, *, limit: int | None = None, max_waiting: int | None = None, max_wait: float | None = _KEEP
    ) -> None:
        """
        Change the settings of a bulkhead in use; whoever runs or waits is left alone.

        Args:
            limit: Calls at once.
            max_waiting: Places in the line.
            max_wait: Seconds, or None; for those who come from now on.

        Raises:
            ConfigError: A value is outside its range; nothing has changed then.
        """
        pool = self._pool
        limit = pool.limit if limit is None else limit
        max_waiting = pool.max_waiting if max_waiting is None else max_waiting
        wait = self._max_wait if max_wait is _KEEP else max_wait
        _check(self.name, limit, max_waiting, wait)
        self._max_wait = wait
        with pool.lock:
            pool.resize(limit, max_waiting)
        pool.wake()

    def snapshot(self) -> BulkheadSnapshot:
        """Return the numbers of this moment."""
        pool = self._pool
        pool.wake()
        with pool.lock:
            taken = (pool.limit, pool.in_use, pool.line.waiting, pool.max_waiting, pool.admitted, pool.waited)
            refused = (pool.full, pool.timed_out, pool.abandoned)
            waits = pool.waits.snapshot(zeros=pool.admitted - pool.waited)
        limit, in_use, waiting, max_waiting, admitted, waited = taken
        return BulkheadSnapshot(
            name=self.name,
            limit=limit,
            in_use=in_use,
            waiting=waiting,
            max_waiting=max_waiting,
            admitted=admitted,
            waited=waited,
            rejections={"full": refused[0], "wait_timeout": refused[1]},
            abandoned=refused[2],
            wait_seconds=waits,
        )

    def _idle(self) -> bool:
        return self._pool.in_use == 0

    def _renew(self) -> None:
        # The caller that forked still holds its slot of the old pool and will free it.
        old = self._pool
        old.lock = threading.RLock()
        self._pool = Pool(old.limit, old.max_waiting)

    def __reduce__(self) -> tuple[Any, ...]:
        pool = self._pool
        clock = None if self._clock is SYSTEM_CLOCK else self._clock
        return _rebuild, (type(self), self.name, pool.limit, pool.max_waiting, self._max_wait, clock)

    def __repr__(self) -> str:
        pool = self._pool
        return f"<Bulkhead {self.name!r}: {pool.in_use} of {pool.limit} in use, {pool.line.waiting} waiting>"


def _check(name: str, limit: int, max_waiting: int, max_wait: float | None) -> None:
    checks = Checks()
    checks.text("name", name)
    checks.whole("limit", limit, 1, 1_000_000)
    checks.whole("max_waiting", max_waiting, 0, 1_000_000)
    checks.seconds("max_wait", max_wait, optional=True)
    if not checks.mistakes and max_wait is not None and max_waiting == 0:
        checks.wrong("max_wait", max_wait, "without effect while max_waiting is 0: nobody may wait", "conflict")
    checks.done()


def _rebuild(
    kind: type[Bulkhead], name: str, limit: int, max_waiting: int, max_wait: float | None, clock: Clock | None
) -> Bulkhead:
    return kind(name, limit, max_waiting=max_waiting, max_wait=max_wait, clock=clock)
