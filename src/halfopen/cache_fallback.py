"""CacheFallback: the last good answer when the call fails, if it is not too old."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from types import MethodType
from typing import Any, ParamSpec, TypeVar, cast

from halfopen._core.checking import Checks
from halfopen._runtime.clock import SYSTEM_CLOCK, Clock
from halfopen._runtime.forking import renew_after_fork
from halfopen._runtime.notes import write_notes
from halfopen._runtime.policy import UNFINISHED, Bound, decorate, innermost, unfinished

__all__ = ["CacheFallback", "CacheFallbackSnapshot", "StaleAnswer"]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

_log = logging.getLogger("halfopen")


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleAnswer:
    """
    An old answer that was given in place of an error, as *on_stale* hears of it.

    Attributes:
        name: The cache.
        key: The call's key.
        age: Seconds since the answer was good.
        error: What the call raised.
    """

    name: str
    key: Hashable
    age: float
    error: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFallbackSnapshot:
    """
    A cache at one moment.

    Attributes:
        name: The cache.
        entries: Answers kept.
        max_entries: Answers kept at most.
        stored: Good answers seen.
        successes: Failed calls answered from the cache.
        failures: Failed calls it had no answer for, by reason: ``missing``, ``too_old``, ``no_key``.
        evicted: Answers dropped to make room.
        oldest_given: Greatest age in seconds of an answer given.
    """

    name: str
    entries: int
    max_entries: int
    stored: int
    successes: int
    failures: dict[str, int]
    evicted: int
    oldest_given: float


class CacheFallback:
    """
    Remember the last good answer for each key, and give it when a call fails with one of the errors *on*.

    It saves no calls: each one is made. The answer is the very object that was returned before, not a copy.

    Args:
        name: For metrics and logs.
        on: Exception types that may be answered from the cache.
        max_age: Seconds after which an answer is too old to be given.
        max_entries: Answers kept; the one not used for longest makes room.
        key: Handed a call's arguments, says what they ask for. Default: the function and its arguments, all of which
            must be hashable; a call without a key passes through uncached, as one does whose *key* raises.
        on_stale: Hears of each old answer given; what it raises is logged, not raised.
        clock: Where time comes from.

    Raises:
        ConfigError: A value is outside its range; all of them are named.

    Example:
        >>> rates = CacheFallback("rates", on=ConnectionError, max_age=3600)
        >>> @rates
        ... def rate(currency):
        ...     return 1.08
        >>> rate("USD")
        1.08
    """

    _kept: OrderedDict[Hashable, tuple[float, Any]]
    _stored: int
    _successes: int
    _evicted: int
    _failures: dict[str, int]
    _oldest_given: float

    def __init__(
        self,
        name: str,
        *,
        on: type[Exception] | tuple[type[Exception], ...],
        max_age: float,
        max_entries: int = 1000,
        key: Callable[..., Hashable] | None = None,
        on_stale: Callable[[StaleAnswer], object] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self._on = on if isinstance(on, tuple) else (on,)
        self._max_age = max_age
        self._max_entries = max_entries
        self._key = key
        self._on_stale = on_stale
        self._clock: Clock = SYSTEM_CLOCK if clock is None else clock
        self._monotonic = self._clock.monotonic
        self._check()
        self._renew()
        renew_after_fork(self)

    def _check(self) -> None:
        checks = Checks()
        checks.text("name", self.name)
        if not self._on:
            checks.wrong("on", self._on, "needed: the exception types that are answered", "missing")
        for error in self._on:
            if not (isinstance(error, type) and issubclass(error, Exception)):
                checks.wrong("on", error, "made of subclasses of Exception", "wrong_type")
        checks.seconds("max_age", self._max_age)
        checks.whole("max_entries", self._max_entries, 1, 10_000_000)
        checks.callable("key", self._key, optional=True)
        checks.callable("on_stale", self._on_stale, optional=True)
        checks.done()

    def call(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call *fn*, or give its last good answer."""
        try:
            result = fn(*args, **kwargs)
        except self._on as error:
            return cast(R, self._recall(self._key_of(fn, args, kwargs), error))
        kind: object = type(result)
        if kind in UNFINISHED:
            unfinished(self, fn, result, args, kwargs)
        self._store(self._key_of(fn, args, kwargs), result)
        return result

    async def acall(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Await *fn*, or give its last good answer."""
        try:
            result = await fn(*args, **kwargs)
        except self._on as error:
            return cast(R, self._recall(self._key_of(fn, args, kwargs), error))
        self._store(self._key_of(fn, args, kwargs), result)
        return result

    def __call__(self, fn: F) -> F:
        """Guard *fn*."""
        return decorate(self, fn)

    def forget(self) -> None:
        """Drop every answer, after a change of schema or tenant, say."""
        with self._lock:
            dropped = self._kept
            self._kept = OrderedDict()
        # Out here, because an answer may have a finalizer.
        dropped.clear()

    def snapshot(self) -> CacheFallbackSnapshot:
        """Return the numbers of this moment."""
        with self._lock:
            return CacheFallbackSnapshot(
                name=self.name,
                entries=len(self._kept),
                max_entries=self._max_entries,
                stored=self._stored,
                successes=self._successes,
                failures=dict(self._failures),
                evicted=self._evicted,
                oldest_given=self._oldest_given,
            )

    def _key_of(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
        """Return the call's key, None where it has none."""
        function: Callable[..., Any] | None = fn
        if isinstance(fn, (MethodType, Bound)):
            function, args, kwargs = innermost(fn, args, kwargs)
        key: Hashable
        if self._key is not None:
            try:
                key = self._key(*args, **kwargs)
            except Exception:
                _log.exception("key of cache %r raised; the call passes through uncached", self.name)
                return None
        else:
            # With types, because 1, 1.0 and True are equal.
            types = tuple(map(type, args))
            key = (function, args, types, *_named(kwargs)) if kwargs else (function, args, types)
        try:
            hash(key)
        except Exception:
            return None
        return key

    def _store(self, key: Hashable, value: Any) -> None:
        if key is None:
            return
        now = self._monotonic()
        dropped: Any = None  # outlives the lock: what it refers to may have a finalizer
        with self._lock:
            dropped = self._kept.pop(key, None)
            self._kept[key] = (now, value)
            self._stored += 1
            if len(self._kept) > self._max_entries:
                with suppress(KeyError):  # emptied meanwhile, by a handler that came between
                    dropped = self._kept.popitem(last=False)
                    self._evicted += 1
        del dropped

    def _recall(self, key: Hashable, error: Exception) -> Any:
        now = self._monotonic()
        with self._lock:
            found = None if key is None else self._kept.get(key)
            reason = self._judge(key, found, now)
        if reason is not None or found is None:
            self._explain(error, reason, found, now)
            try:
                raise error
            finally:
                del error  # an error whose traceback leads to itself outlives the call
        stored, value = found
        self._tell(StaleAnswer(name=self.name, key=key, age=now - stored, error=error))
        return value

    def _judge(self, key: Hashable, found: tuple[float, Any] | None, now: float) -> str | None:
        reason = None
        if found is None:
            reason = "no_key" if key is None else "missing"
        elif now - found[0] > self._max_age:
            reason = "too_old"
            self._kept.pop(key, None)
        if reason is not None or found is None:
            self._failures[reason or "missing"] += 1
            return reason
        with suppress(KeyError):  # made room, in a handler that came between
            self._kept.move_to_end(key)
        self._successes += 1
        self._oldest_given = max(self._oldest_given, now - found[0])
        return None

    def _explain(self, error: Exception, reason: str | None, found: tuple[float, Any] | None, now: float) -> None:
        why = {
            "no_key": "the call has no hashable key",
            "missing": "there is no earlier answer",
            "too_old": f"the last answer is {now - found[0]:.3g} s old, at most {self._max_age:g} s" if found else "",
        }[reason or "missing"]
        own = f"cache {self.name!r} could not answer: "
        write_notes(error, [own + why], lambda old: old.startswith(own))

    def _tell(self, stale: StaleAnswer) -> None:
        if self._on_stale is None:
            return
        try:
            self._on_stale(stale)
        except Exception:
            _log.exception("on_stale of cache %r raised", self.name)

    def _renew(self) -> None:
        self._lock = threading.RLock()  # reentrant: a signal handler or a finalizer may come between
        self._kept = OrderedDict()
        self._stored = self._successes = self._evicted = 0
        self._failures = {"missing": 0, "too_old": 0, "no_key": 0}
        self._oldest_given = 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        clock = None if self._clock is SYSTEM_CLOCK else self._clock
        settings = (self._on, self._max_age, self._max_entries, self._key, self._on_stale, clock)
        return _rebuild, (type(self), self.name, *settings)

    def __repr__(self) -> str:
        return f"<CacheFallback {self.name!r}: {len(self._kept)} of {self._max_entries} answers>"


def _named(kwargs: dict[str, Any]) -> tuple[Hashable, ...]:
    names = sorted(kwargs)
    values = tuple(map(kwargs.get, names))
    return (*names, values, tuple(map(type, values)))


def _rebuild(kind: type[CacheFallback], name: str, *settings: Any) -> CacheFallback:
    on, max_age, max_entries, key, on_stale, clock = settings
    return kind(name, on=on, max_age=max_age, max_entries=max_entries, key=key, on_stale=on_stale, clock=clock)
