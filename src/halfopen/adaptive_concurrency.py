"""AdaptiveConcurrency: a limit on calls at once that finds itself, from how long they take."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar, cast

from halfopen._core.checking import Checks
from halfopen._core.concurrency_limits import Aimd, Gradient2
from halfopen._core.sharing import AdaptiveConcurrencySnapshot
from halfopen._runtime.adapting import DROPPED, IGNORED, SUCCESS, Stay, Taught
from halfopen._runtime.clock import SYSTEM_CLOCK, Clock
from halfopen._runtime.forking import renew_after_fork
from halfopen._runtime.policy import UNFINISHED, decorate, unfinished
from halfopen.errors import RejectedError

__all__ = ["AdaptiveConcurrency", "AdaptiveConcurrencySnapshot", "Aimd", "Gradient2", "Stay"]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


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

    def _fresh(self) -> Taught:
        settings = self._settings
        return Taught(
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
        outcome = IGNORED
        try:
            with state.lock:
                if state.in_use < state.limit:
                    state.in_use += 1
                    held = True
            if not held:
                state.refuse(self.name)
            result = fn(*args, **kwargs)
            kind: object = type(result)
            if kind in UNFINISHED:
                guarded: Any = unfinished(self, fn, result, args, kwargs, hold=self)
                if guarded is not result:
                    state.admitted -= 1  # counts when it begins
                    return cast(R, guarded)
            outcome = SUCCESS
            return result
        except self._dropped_on as error:
            outcome = IGNORED if isinstance(error, RejectedError) else DROPPED
            raise
        finally:
            # In line, because a method could be interrupted before its first step.
            if held:
                try:
                    ended = self._monotonic()
                    with state.lock:
                        state.in_use -= 1
                        held = False
                        state.learn(outcome, began, ended)
                except BaseException:
                    state.finish(held=held)
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
        outcome = IGNORED
        try:
            with state.lock:
                if state.in_use < state.limit:
                    state.in_use += 1
                    held = True
            if not held:
                state.refuse(self.name)
            result = await fn(*args, **kwargs)
            outcome = SUCCESS
            return result
        except self._dropped_on as error:
            outcome = IGNORED if isinstance(error, RejectedError) else DROPPED
            raise
        finally:
            if held:
                try:
                    ended = self._monotonic()
                    with state.lock:
                        state.in_use -= 1
                        held = False
                        state.learn(outcome, began, ended)
                except BaseException:
                    state.finish(held=held)
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
        state.wake()
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

    def _renew(self) -> None:
        self._state.lock = threading.RLock()
        self._state = self._fresh()

    def __reduce__(self) -> tuple[Any, ...]:
        clock = None if self._clock is SYSTEM_CLOCK else self._clock
        return _rebuild, (type(self), self.name, self._settings, clock)

    def __repr__(self) -> str:
        return f"<AdaptiveConcurrency {self.name!r}: {self._state.in_use} of {self._state.limit} in use>"


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
