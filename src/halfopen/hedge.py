"""Hedge: a second attempt for a call that takes longer than usual, and the first answer counts."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar, cast

from halfopen._core.checking import Checks
from halfopen._core.hedging import HedgeBudget, Latencies, Quantile, Race
from halfopen._runtime.clock import SYSTEM_CLOCK, Clock
from halfopen._runtime.forking import renew_after_fork
from halfopen._runtime.notes import write_notes
from halfopen._runtime.policy import UNFINISHED, decorate, unfinished
from halfopen._runtime.racing import race_tasks, race_threads
from halfopen._runtime.worker_threads import WorkerThreads

__all__ = ["Hedge", "HedgeSnapshot", "Quantile"]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class HedgeSnapshot:
    """
    A hedge at one moment.

    Attributes:
        name: The hedge.
        delay: Seconds after which a call is hedged now; None while too little is known.
        calls: Calls made since it was made.
        hedges: Extra attempts started.
        outcomes: Calls by how they ended: answered by the ``primary`` attempt, by a ``hedge``, or ``failed``.
        skipped: Extra attempts that were due and not started, by reason: ``budget``, ``no_thread``.
        unhedged: Calls made plainly, because no thread was free to make them on.
        given_up: Losing attempts still under way on threads.
        given_up_total: All losing attempts that were left running on threads.
    """

    name: str
    delay: float | None
    calls: int
    hedges: int
    outcomes: Mapping[str, int]
    skipped: Mapping[str, int]
    unhedged: int
    given_up: int
    given_up_total: int


class Hedge:
    """
    Start a second attempt when the first has not answered after *delay*; the first success wins.

    For idempotent calls only: both attempts may take effect. Losers are cancelled and awaited on asyncio and trio. On
    threads nothing can be cancelled: the loser goes on until its function returns, on one of *max_threads* daemon
    threads; when these are taken calls are made plainly, without a hedge. If every attempt fails the first error is
    raised, with a note for each other. An error before the delay is raised at once: trying again is a retry's work.

    Attempts run in tasks or threads of their own, with a copy of the caller's context.

    Args:
        name: For metrics and thread names.
        delay: Seconds, or a `Quantile` of recent durations, above which nothing is hedged until enough are known.
        max_hedges: Extra attempts of one call, at least 1, each *delay* after the one before.
        budget: Extra attempts as a share in (0, 1] of calls: at any time at most 1 + share × calls. None: no limit.
        max_threads: Threads for calls from synchronous code, attempts left running included.
        clock: Where time comes from.

    Raises:
        ConfigError: A value is outside its range; all of them are named.

    Example:
        >>> hedge = Hedge("search", 0.2)
        >>> hedge.call(sorted, "ba")
        ['a', 'b']
    """

    def __init__(
        self,
        name: str,
        delay: float | Quantile | None = None,
        *,
        max_hedges: int = 1,
        budget: float | None = 0.1,
        max_threads: int = 32,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self._delay = Quantile() if delay is None else delay
        self._max_hedges = max_hedges
        self._share = budget
        self._max_threads = max_threads
        self._clock: Clock = SYSTEM_CLOCK if clock is None else clock
        self._check()
        self._renew()
        renew_after_fork(self)

    def _check(self) -> None:
        checks = Checks()
        checks.text("name", self.name)
        if not isinstance(self._delay, Quantile):
            checks.seconds("delay", self._delay)
        checks.whole("max_hedges", self._max_hedges, 1, 10)
        checks.share("budget", self._share, optional=True)
        checks.whole("max_threads", self._max_threads, 1, 10_000)
        checks.done()

    def call(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call *fn* on a worker thread, and once more on another when it takes too long."""
        delay = self._begin()
        attempt = partial(self._once, fn, *args, **kwargs)
        if delay is None:
            return cast(R, self._plainly(attempt))
        race = Race()
        pace = _Pace(self, delay, race)
        if not race_threads(race, pace, self._clock, attempt, self._threads, self.name):
            with self._lock:
                self._unhedged += 1
            return cast(R, self._plainly(attempt))
        return cast(R, self._end(race, pace))

    async def acall(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Await *fn*, and once more when it takes too long."""
        delay = self._begin()
        if delay is None:
            return await self._aplainly(partial(fn, *args, **kwargs))
        race = Race()
        pace = _Pace(self, delay, race)
        await race_tasks(race, pace, self._clock, partial(fn, *args, **kwargs))
        return cast(R, self._end(race, pace))

    def __call__(self, fn: F) -> F:
        """Guard *fn*, which must be safe to run twice."""
        return decorate(self, fn)

    def snapshot(self) -> HedgeSnapshot:
        """Return the numbers of this moment."""
        with self._lock:
            return HedgeSnapshot(
                name=self.name,
                delay=self._due_after(),
                calls=self._calls,
                hedges=self._hedges,
                outcomes=dict(self._outcomes),
                skipped=dict(self._skipped),
                unhedged=self._unhedged,
                given_up=self._threads.given_up,
                given_up_total=self._threads.given_up_total,
            )

    def _begin(self) -> float | None:
        with self._lock:
            self._calls += 1
            self._budget.earn()
            return self._due_after()

    def _due_after(self) -> float | None:
        return self._delay if self._latencies is None else self._latencies.value()  # type: ignore[return-value]

    def _once(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        result: object = fn(*args, **kwargs)
        kind: object = type(result)
        return unfinished(self, fn, result, args, kwargs) if kind in UNFINISHED else result

    def _plainly(self, attempt: Callable[[], Any]) -> Any:
        began = self._clock.monotonic()
        try:
            result = attempt()
        except Exception:
            self._count("failed", 0.0)
            raise
        self._count("primary", self._clock.monotonic() - began)
        return result

    async def _aplainly(self, attempt: Callable[[], Awaitable[R]]) -> R:
        began = self._clock.monotonic()
        try:
            result = await attempt()
        except Exception:
            self._count("failed", 0.0)
            raise
        self._count("primary", self._clock.monotonic() - began)
        return result

    def _end(self, race: Race, pace: _Pace) -> Any:
        outcome = "failed" if race.winner is None else "hedge" if race.winner else "primary"
        self._count(outcome, self._clock.monotonic() - pace.began)
        if race.winner is not None:
            return race.value
        first, *others = race.errors
        own = f"hedge {self.name!r}: attempt "
        notes = [f"{own}{number} failed too: {_shown(other)}" for number, other in enumerate(others, 2)]
        write_notes(first, notes, lambda old: old.startswith(own))
        race.errors.clear()
        try:
            raise first
        finally:
            del first, others

    def _count(self, outcome: str, spent: float) -> None:
        with self._lock:
            self._outcomes[outcome] += 1
            # One duration for each call, that of its first attempt, or as much of it as was seen. Left out, the slow
            # ones would be missing, the quantile would sink and ever more calls would be hedged.
            if self._latencies is not None and outcome != "failed":
                self._latencies.add(spent)

    def _pay(self) -> bool:
        with self._lock:
            if not self._budget.spend():
                self._skipped["budget"] += 1
                return False
            self._hedges += 1
            return True

    def _refund(self) -> None:
        with self._lock:
            self._hedges -= 1
            self._skipped["no_thread"] += 1

    def _renew(self) -> None:
        self._lock = threading.RLock()  # reentrant: a signal handler or a finalizer may come between
        self._latencies = Latencies(self._delay) if isinstance(self._delay, Quantile) else None
        self._budget = HedgeBudget(self._share)
        self._threads = WorkerThreads(self._max_threads)
        self._calls = self._hedges = self._unhedged = 0
        self._outcomes = {"primary": 0, "hedge": 0, "failed": 0}
        self._skipped = {"budget": 0, "no_thread": 0}

    def __reduce__(self) -> tuple[Any, ...]:
        clock = None if self._clock is SYSTEM_CLOCK else self._clock
        settings = (self._delay, self._max_hedges, self._share, self._max_threads, clock)
        return _rebuild, (type(self), self.name, *settings)

    def __repr__(self) -> str:
        return f"<Hedge {self.name!r} after {self._delay}>"


class _Pace:
    """When the extra attempts of one call are due."""

    __slots__ = ("_delay", "_due", "_hedge", "_race", "began")

    def __init__(self, hedge: Hedge, delay: float, race: Race) -> None:
        self._hedge = hedge
        self._delay = delay
        self._race = race
        self.began = hedge._clock.monotonic()
        self._due: float | None = self.began + delay

    def next_at(self) -> float | None:
        return self._due

    def go(self, now: float) -> bool:
        if self._due is None or now < self._due:
            return False
        more = self._race.started < self._hedge._max_hedges
        self._due = now + self._delay if more else None
        return self._hedge._pay()

    def refund(self) -> None:
        self._due = None
        self._hedge._refund()


def _shown(error: BaseException) -> str:
    try:
        return repr(error)
    except Exception:
        return type(error).__name__


def _rebuild(kind: type[Hedge], name: str, *settings: Any) -> Hedge:
    delay, max_hedges, budget, max_threads, clock = settings
    return kind(name, delay, max_hedges=max_hedges, budget=budget, max_threads=max_threads, clock=clock)
