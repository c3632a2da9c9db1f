"""AdaptiveConcurrency: a limit on calls at once that finds itself, from how long they take."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import CoroutineType, TracebackType
from typing import Any, ParamSpec, TypeVar

from halfopen._core.checking import Checks
from halfopen._core.concurrency_limits import AdaptiveLimit, Aimd, Gradient2
from halfopen._runtime.clock import SYSTEM_CLOCK, Clock
from halfopen._runtime.forking import renew_after_fork
from halfopen._runtime.policy import decorate, refuse_coroutine
from halfopen.errors import BulkheadFullError, RejectedError

__all__ = ["AdaptiveConcurrency", "AdaptiveConcurrencySnapshot", "Aimd", "Gradient2", "Stay"]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveConcurrencySnapshot:
    """
    An adaptive limit at one moment.

    Attributes:
        name: The policy.
        limit: Calls that may run at once now.
        min_limit: Lowest limit it may come to.
        max_limit: Highest limit it may come to.
        in_use: Calls that run.
        admitted: Calls let through since it was made.
        measured: Calls the limit learned from.
        dropped: Calls that failed for overload, by the errors *dropped_on*.
        updates: How often the limit was worked out.
        rejections: Calls refused, by reason: ``full``.
    """

    name: str
    limit: int
    min_limit: int
    max_limit: int
    in_use: int
    admitted: int
    measured: int
    dropped: int
    updates: int
    rejections: Mapping[str, int]


class _State(AdaptiveLimit):
    """The limit with its lock and what was counted under it."""

    __slots__ = ("admitted", "drops", "lock", "measured", "orphans", "refused")

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.lock = threading.Lock()
        self.admitted = 0
        self.refused = 0
        self.measured = 0
        self.drops = 0
        # Calls whose holder the garbage collector found, at a moment when the lock may not be waited for.
        self.orphans: deque[None] = deque()

    def adopt(self) -> None:
        """End the calls of holders that were thrown away."""
        while self.orphans:
            with self.lock:
                if self.orphans:
                    del self.orphans[0]
                    self.in_use -= 1


_SUCCESS, _DROPPED, _IGNORED = 1, 2, 0


class AdaptiveConcurrency:
    """
    Let as many calls run at once as the dependency takes without slowing down, and shed the others at once.

    It measures the mean latency of windows of at least *window* seconds and *min_samples* calls, and lowers the limit
    when latency rises above what was normal: the queue that would build up in the dependency is refused here, early and
    cheaply. With the default `Gradient2`::

        gradient = max(0.5, min(1, tolerance × long-term latency / latency of the window))
        limit    = 0.8 × limit + 0.2 × (limit × gradient + queue_size)

    within [*min_limit*, *max_limit*]. Sources: Netflix concurrency-limits (``Gradient2Limit``, ``AIMDLimit``),
    failsafe-go's adaptive limiter for the windows; where ours differ is said in `Gradient2` and `Aimd`.

    Only a call that returned tells how long the dependency takes. One that raised an error *dropped_on* says that it is
    overloaded and lowers the limit; any other error, cancellation and refusals of inner policies say nothing.

    Args:
        name: For errors and metrics.
        algorithm: `Gradient2` or `Aimd`.
        initial_limit: Where to start.
        min_limit: Lowest limit, at least 1.
        max_limit: Highest limit.
        window: Seconds a window lasts at least.
        min_samples: Calls a window holds at least.
        dropped_on: Exception types that mean overload.
        clock: Where time comes from.

    Raises:
        ConfigError: A value is outside its range; all of them are named.
    """

    def __init__(
        self,
        name: str,
        *,
        algorithm: Gradient2 | Aimd | None = None,
        initial_limit: int = 20,
        min_limit: int = 1,
        max_limit: int = 200,
        window: float = 1.0,
        min_samples: int = 10,
        dropped_on: type[Exception] | tuple[type[Exception], ...] = TimeoutError,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self._settings: dict[str, Any] = {
            "algorithm": Gradient2() if algorithm is None else algorithm,
            "initial_limit": initial_limit,
            "min_limit": min_limit,
            "max_limit": max_limit,
            "window": window,
            "min_samples": min_samples,
            "dropped_on": dropped_on if isinstance(dropped_on, tuple) else (dropped_on,),
        }
        _check(name, self._settings)
        self._dropped_on: tuple[type[Exception], ...] = self._settings["dropped_on"]
        self._clock: Clock = SYSTEM_CLOCK if clock is None else clock
        self._monotonic = self._clock.monotonic
        self._state = self._fresh()
        renew_after_fork(self)

    def _fresh(self) -> _State:
        settings = self._settings
        return _State(
            settings["algorithm"],
            initial=settings["initial_limit"],
            minimum=settings["min_limit"],
            maximum=settings["max_limit"],
            window=settings["window"],
            min_samples=settings["min_samples"],
        )

    @property
    def limit(self) -> int:
        """Calls that may run at once now."""
        return self._state.limit

    def call(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """
        Call *fn* unless that would be one too many.

        Raises:
            BulkheadFullError: As many calls as the limit allows run already.
        """
        state = self._state
        held = False
        began = self._monotonic()
        outcome = _IGNORED
        try:
            with state.lock:
                if state.in_use < state.limit:
                    state.in_use += 1
                    held = True
            if not held:
                self._refuse(state)
            result = fn(*args, **kwargs)
            kind: object = type(result)
            if kind is CoroutineType:
                refuse_coroutine(self, result)
            outcome = _SUCCESS
            return result
        except self._dropped_on as error:
            outcome = _IGNORED if isinstance(error, RejectedError) else _DROPPED
            raise
        finally:
            # In line, because a method could be interrupted before its first step.
            if held:
                ended = began
                try:
                    ended = self._monotonic()
                    with state.lock:
                        state.in_use -= 1
                        held = False
                        self._learn(state, outcome, began, ended)
                except BaseException:
                    if held:
                        with state.lock:
                            state.in_use -= 1
                    raise

    async def acall(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """
        Await *fn* unless that would be one too many.

        Raises:
            BulkheadFullError: As many calls as the limit allows run already.
        """
        state = self._state
        held = False
        began = self._monotonic()
        outcome = _IGNORED
        try:
            with state.lock:
                if state.in_use < state.limit:
                    state.in_use += 1
                    held = True
            if not held:
                self._refuse(state)
            result = await fn(*args, **kwargs)
            outcome = _SUCCESS
            return result
        except self._dropped_on as error:
            outcome = _IGNORED if isinstance(error, RejectedError) else _DROPPED
            raise
        finally:
            if held:
                ended = began
                try:
                    ended = self._monotonic()
                    with state.lock:
                        state.in_use -= 1
                        held = False
                        self._learn(state, outcome, began, ended)
                except BaseException:
                    if held:
                        with state.lock:
                            state.in_use -= 1
                    raise

    def __call__(self, fn: F) -> F:
        """Guard *fn*; a generator counts as a call that runs, but its duration is its reader's and teaches nothing."""
        return decorate(self, fn, hold=self)

    def acquire(self) -> Stay:
        """Return a stay for a block: ``with limit.acquire(): …``; its duration is measured if it ends well."""
        return Stay(self, measured=True)

    def hold(self) -> Stay:
        """Return a stay that is counted but not measured."""
        return Stay(self, measured=False)

    ahold = hold

    def snapshot(self) -> AdaptiveConcurrencySnapshot:
        """Return the numbers of this moment."""
        state = self._state
        state.adopt()
        with state.lock:
            return AdaptiveConcurrencySnapshot(
                name=self.name,
                limit=state.limit,
                min_limit=self._settings["min_limit"],
                max_limit=self._settings["max_limit"],
                in_use=state.in_use,
                admitted=state.admitted + state.in_use,
                measured=state.measured,
                dropped=state.drops,
                updates=state.updates,
                rejections={"full": state.refused},
            )

    def _refuse(self, state: _State) -> None:
        state.adopt()
        with state.lock:
            state.refused += 1
        raise BulkheadFullError(self.name, state.limit)

    def _learn(self, state: _State, outcome: int, began: float, ended: float) -> None:
        state.admitted += 1
        if state.in_use >= state.peak:
            state.peak = state.in_use + 1
        if outcome == _SUCCESS:
            state.measured += 1
            state.record(ended, ended - began)
        elif outcome == _DROPPED:
            state.drops += 1
            state.drop(ended)

    def _renew(self) -> None:
        self._state.lock = threading.Lock()
        self._state = self._fresh()

    def __reduce__(self) -> tuple[Any, ...]:
        clock = None if self._clock is SYSTEM_CLOCK else self._clock
        return _rebuild, (type(self), self.name, self._settings, clock)

    def __repr__(self) -> str:
        return f"<AdaptiveConcurrency {self.name!r}: {self._state.in_use} of {self._state.limit} in use>"


class Stay:
    """A call that runs for as long as a ``with`` or ``async with`` block does."""

    __slots__ = ("_began", "_measured", "_owner", "_state")

    def __init__(self, owner: AdaptiveConcurrency, *, measured: bool) -> None:
        self._owner = owner
        self._measured = measured
        self._began = 0.0
        self._state: _State | None = None

    def __enter__(self) -> Stay:
        if self._state is not None:
            raise RuntimeError("this stay has begun already; acquire() another one for another block")
        state = self._owner._state
        self._began = self._owner._monotonic()
        with state.lock:
            if state.in_use < state.limit:
                state.in_use += 1
                self._state = state
        if self._state is None:
            self._owner._refuse(state)
        return self

    async def __aenter__(self) -> Stay:
        return self.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        owner = self._owner
        outcome = _SUCCESS if error is None and self._measured else _IGNORED
        if isinstance(error, owner._dropped_on) and not isinstance(error, RejectedError):
            outcome = _DROPPED
        self._leave(outcome, owner._monotonic())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        self.__exit__(kind, error, traceback)

    def _leave(self, outcome: int, ended: float) -> None:
        state = self._state
        if state is None:
            return
        with state.lock:
            state.in_use -= 1
            self._state = None
            self._owner._learn(state, outcome, self._began, ended)

    def __del__(self) -> None:
        # An interrupt can hit the first instruction of __exit__; then only the end of this object ends the call.
        state = getattr(self, "_state", None)  # __init__ may have been interrupted too
        if state is not None:
            self._state = None
            state.orphans.append(None)
            # The collector may run while this very thread holds the lock.
            if not state.lock.locked():
                state.adopt()


def _check(name: str, settings: dict[str, Any]) -> None:
    checks = Checks()
    checks.text("name", name)
    algorithm = settings["algorithm"]
    if not isinstance(algorithm, (Gradient2, Aimd)):
        checks.wrong("algorithm", algorithm, "Gradient2(…) or Aimd(…)", "wrong_type")
    sound = len(checks.mistakes)
    for limit in ("min_limit", "initial_limit", "max_limit"):
        checks.whole(limit, settings[limit], 1, 1_000_000)
    if len(checks.mistakes) == sound and not (
        settings["min_limit"] <= settings["initial_limit"] <= settings["max_limit"]
    ):
        allowed = f"from min_limit ({settings['min_limit']}) to max_limit ({settings['max_limit']})"
        checks.wrong("initial_limit", settings["initial_limit"], allowed)
    checks.seconds("window", settings["window"])
    checks.whole("min_samples", settings["min_samples"], 1, 1_000_000)
    for error in settings["dropped_on"]:
        if not (isinstance(error, type) and issubclass(error, Exception)):
            checks.wrong("dropped_on", error, "made of subclasses of Exception", "wrong_type")
    checks.done()


def _rebuild(
    kind: type[AdaptiveConcurrency], name: str, settings: dict[str, Any], clock: Clock | None
) -> AdaptiveConcurrency:
    return kind(name, **settings, clock=clock)
