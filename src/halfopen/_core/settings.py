"""What can be set on a circuit breaker, and the trip rules made of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from halfopen._core.backoff import RETRY_AFTER_CAP, Backoff, Constant, Exponential
from halfopen._core.checking import Checks, usable_seconds
from halfopen._core.states import Reason, State
from halfopen._core.windows import CountWindow, Sums, TimeWindow, Totals

__all__ = ["Call", "HalfOpen", "Ramp", "Settings", "TripRules"]

DEFAULT_MINIMUM_CALLS = 20


@dataclass(frozen=True, slots=True)
class Call:
    """
    A call that asks for a permit, as `HalfOpen.eligible` sees it.

    Attributes:
        function: What is to be called; None for a bare `acquire`.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        label: Whatever the caller of `acquire` says about it.
    """

    function: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict[str, Any])
    label: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfOpen:
    """
    How a circuit finds out whether the dependency is well again.

    Without a threshold every trial call must succeed: *permitted_calls* successes close the circuit, the first
    failed or slow trial call re-opens it. With a threshold the round is judged by rates once
    min(minimum_calls, permitted_calls) trial calls have reported, as resilience4j does; the rate that is not given
    is the breaker's own.

    Args:
        permitted_calls: Trial calls of a round, at least 1.
        max_concurrent_calls: Trial calls in flight at once, 1 to *permitted_calls*; default all of them.
        failure_rate_threshold: Share in (0, 1] of failed trial calls that re-opens.
        slow_call_rate_threshold: Share in (0, 1] of slow trial calls that re-opens.
        trial_timeout: Seconds after which a trial call that has not reported counts as failed. It frees the circuit,
            it does not stop the call.
        max_ignored: Ignored trial calls after which a round ends without verdict; default 10 × *permitted_calls*.
        max_duration: Seconds after which a round ends whatever happened; default never.
        after_max_duration: Where it leads then: ``State.OPEN`` (a failed round) or ``State.CLOSED``.
        eligible: Says of a `Call` whether it may be a trial call; the others are refused while half-open.

    Raises:
        ConfigError: A value is outside its range; all of them are named.
    """

    permitted_calls: int = 3
    max_concurrent_calls: int | None = None
    failure_rate_threshold: float | None = None
    slow_call_rate_threshold: float | None = None
    trial_timeout: float = 60.0
    max_ignored: int | None = None
    max_duration: float | None = None
    after_max_duration: State = State.OPEN
    eligible: Callable[[Call], bool] | None = None

    def __post_init__(self) -> None:
        checks = Checks()
        checks.whole("permitted_calls", self.permitted_calls, 1, 1_000_000)
        checks.whole("max_concurrent_calls", self.max_concurrent_calls, 1, optional=True)
        checks.share("failure_rate_threshold", self.failure_rate_threshold, optional=True)
        checks.share("slow_call_rate_threshold", self.slow_call_rate_threshold, optional=True)
        checks.seconds("trial_timeout", self.trial_timeout)
        checks.whole("max_ignored", self.max_ignored, 1, optional=True)
        checks.seconds("max_duration", self.max_duration, optional=True)
        if self.after_max_duration not in (State.OPEN, State.CLOSED):
            checks.wrong("after_max_duration", self.after_max_duration, "State.OPEN or State.CLOSED")
        else:
            object.__setattr__(self, "after_max_duration", State(self.after_max_duration))  # a text is equal to one
        checks.callable("eligible", self.eligible, optional=True)
        if not checks.mistakes and self.concurrent > self.permitted_calls:
            allowed = f"at most permitted_calls ({self.permitted_calls})"
            checks.wrong("max_concurrent_calls", self.max_concurrent_calls, allowed)
        checks.done()

    @property
    def concurrent(self) -> int:
        """Trial calls in flight at once."""
        return self.permitted_calls if self.max_concurrent_calls is None else self.max_concurrent_calls

    @property
    def ignored_limit(self) -> int:
        """Ignored trial calls after which a round ends without verdict."""
        return 10 * self.permitted_calls if self.max_ignored is None else self.max_ignored

    @property
    def judged_by_rate(self) -> bool:
        """Whether rates decide, instead of "all must succeed"."""
        return self.failure_rate_threshold is not None or self.slow_call_rate_threshold is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """
    How traffic returns after a passed round.

    The admitted share at *t* seconds is max(start, (t / duration) ** (1 / aggression)), the formula of Envoy's slow
    start. It is dealt out evenly, not by chance.

    Args:
        duration: Seconds until everything is admitted, above 0.
        start: Share in (0, 1] that is admitted at once.
        aggression: Above 0; 1 grows linearly, more than 1 faster at the beginning.

    Raises:
        ConfigError: A value is outside its range; all of them are named.
    """

    duration: float = 60.0
    start: float = 0.1
    aggression: float = 1.0

    def __post_init__(self) -> None:
        checks = Checks()
        checks.seconds("duration", self.duration)
        checks.share("start", self.start)
        checks.number("aggression", self.aggression)
        checks.done()

    def share(self, elapsed: float) -> float:
        """Return the share in (0, 1] that is admitted *elapsed* seconds after the passed round."""
        grown = max(elapsed / self.duration, 0.0)
        if grown >= 1.0:
            return 1.0
        return max(self.start, math.pow(grown, 1.0 / self.aggression))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting of a circuit breaker; `CircuitBreaker` documents them."""

    window: CountWindow | TimeWindow = CountWindow(100)
    minimum_calls: int | None = None
    failure_rate_threshold: float | None = 0.5
    slow_call_rate_threshold: float | None = 1.0
    slow_call_duration: float | None = 60.0
    failure_count_threshold: int | None = None
    consecutive_failures: int | None = None
    wait_in_open: float | Backoff = Exponential()
    forget_after: float | None = None
    half_open: HalfOpen = HalfOpen()
    ramp: Ramp | None = None
    automatic_half_open: bool = False
    # Made once for all breakers that share these settings.
    rules: tuple[TripRules, TrialRules] = field(init=False, repr=False, compare=False)
    # Seconds to which a Retry-After is cut: the cap of the backoff, or 600. Read once, for it may be user code.
    retry_after_cap: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks = Checks()
        self._check_window(checks)
        checks.share("failure_rate_threshold", self.failure_rate_threshold, optional=True)
        checks.share("slow_call_rate_threshold", self.slow_call_rate_threshold, optional=True)
        checks.seconds("slow_call_duration", self.slow_call_duration, optional=True)
        checks.whole("failure_count_threshold", self.failure_count_threshold, 1, optional=True)
        checks.whole("consecutive_failures", self.consecutive_failures, 1, optional=True)
        if not callable(self.wait_in_open):
            checks.seconds("wait_in_open", self.wait_in_open)
        checks.seconds("forget_after", self.forget_after, optional=True, zero=True)
        if not isinstance(self.half_open, HalfOpen):  # pyright: ignore[reportUnnecessaryIsInstance]
            checks.wrong("half_open", self.half_open, "a HalfOpen", "wrong_type")
        if self.ramp is not None and not isinstance(self.ramp, Ramp):  # pyright: ignore[reportUnnecessaryIsInstance]
            checks.wrong("ramp", self.ramp, "a Ramp or None", "wrong_type")
        checks.flag("automatic_half_open", self.automatic_half_open)
        if not checks.mistakes:
            self._check_conflicts(checks)
        checks.done()
        object.__setattr__(self, "rules", (TripRules(self), TrialRules(self)))
        object.__setattr__(self, "retry_after_cap", _retry_after_cap(self.backoff))

    def _check_window(self, checks: Checks) -> None:
        checks.whole("minimum_calls", self.minimum_calls, 1, optional=True)
        if not isinstance(self.window, (CountWindow, TimeWindow)):  # pyright: ignore[reportUnnecessaryIsInstance]
            checks.wrong("window", self.window, "a CountWindow or a TimeWindow", "wrong_type")
        elif isinstance(self.window, CountWindow) and self.minimum > self.window.size:
            allowed = f"minimum_calls is {self.minimum_calls}, more than the {self.window.size} calls of the window"
            checks.wrong("minimum_calls", self.minimum_calls, allowed, "conflict")

    def _check_conflicts(self, checks: Checks) -> None:
        rules = (
            self.failure_rate_threshold,
            self.slow_call_rate_threshold,
            self.failure_count_threshold,
            self.consecutive_failures,
        )
        if all(rule is None for rule in rules):
            checks.wrong("failure_rate_threshold", None, "no trip rule is set: the circuit could never open", "missing")
        if self.slow_call_duration is None and self.slow_call_rate_threshold not in (None, 1.0):
            allowed = "slow_call_rate_threshold is set, so slow_call_duration must say what is slow"
            checks.wrong("slow_call_duration", None, allowed, "conflict")
        most = self.window.size if isinstance(self.window, CountWindow) else None
        if most is not None and self.failure_count_threshold is not None and self.failure_count_threshold > most:
            allowed = (
                f"failure_count_threshold is {self.failure_count_threshold}, more than the {most} calls of the window"
            )
            checks.wrong("failure_count_threshold", self.failure_count_threshold, allowed, "conflict")

    @property
    def minimum(self) -> int:
        """Calls before a rate is judged."""
        if self.minimum_calls is not None and isinstance(self.minimum_calls, int):
            return self.minimum_calls
        most = self.window.size if isinstance(self.window, CountWindow) else DEFAULT_MINIMUM_CALLS
        return min(DEFAULT_MINIMUM_CALLS, most)

    @property
    def backoff(self) -> Backoff:
        """The wait in OPEN as a backoff."""
        wait = self.wait_in_open
        return wait if callable(wait) else Constant(wait)

    def limit(self, why: Reason) -> float | None:
        """Return what is reached when a circuit moves for this reason: a share, calls or seconds; None for nothing."""
        limit = _LIMITS.get(why)
        return None if limit is None else limit(self)


_LIMITS: dict[Reason, Callable[[Settings], float | None]] = {
    Reason.FAILURE_RATE: lambda settings: settings.failure_rate_threshold,
    Reason.SLOW_CALL_RATE: lambda settings: settings.slow_call_rate_threshold,
    Reason.FAILURE_COUNT: lambda settings: settings.failure_count_threshold,
    Reason.CONSECUTIVE: lambda settings: settings.consecutive_failures,
    Reason.TRIAL_EXPIRED: lambda settings: settings.half_open.trial_timeout,
    Reason.INCONCLUSIVE: lambda settings: settings.half_open.ignored_limit,
    Reason.MAX_DURATION: lambda settings: settings.half_open.max_duration,
}


def _retry_after_cap(backoff: Backoff) -> float:
    try:
        cap = usable_seconds(getattr(backoff, "cap", None))
    except Exception:  # a property of the user's
        return RETRY_AFTER_CAP
    return RETRY_AFTER_CAP if cap is None else cap


NEVER = (1, 0)
"""A share that no part of any whole reaches."""


def exact_share(threshold: float | None) -> tuple[int, int]:
    """
    Return a threshold as (part, whole), to be compared by multiplication and exactly.

    A float near a short fraction is taken for it: 0.07 means 7 of 100, though 0.07 × 100 is a hair above 7. The
    short fraction is the best one with a denominator up to 10⁹, found by continued fractions; but no threshold comes
    down to 0, which calls without a single failure would reach.
    """
    if threshold is None:
        return NEVER
    part, whole = _short_fraction(*threshold.as_integer_ratio())
    return (part, whole) if part else (1, _LARGEST)


_LARGEST = 10**9


def _short_fraction(numerator: int, denominator: int, largest: int = _LARGEST) -> tuple[int, int]:
    if denominator <= largest:
        return numerator, denominator
    low, high = (0, 1), (1, 0)
    top, bottom = numerator, denominator
    while True:
        whole = top // bottom
        following = low[1] + whole * high[1]
        if following > largest:
            break
        low, high = high, (low[0] + whole * high[0], following)
        top, bottom = bottom, top - whole * bottom
    steps = (largest - low[1]) // high[1]
    other = (low[0] + steps * high[0], low[1] + steps * high[1])
    # The nearer one of the last two; compared by cross multiplication.
    distance = abs(high[0] * denominator - numerator * high[1]) * other[1]
    return high if distance <= abs(other[0] * denominator - numerator * other[1]) * high[1] else other


MOST_ROOM = 1000
"""Failures that are gathered at most before one is judged."""


class TripRules:
    """The four trip rules, ready to be asked after every call."""

    __slots__ = ("consecutive", "failure_count", "failure_rate", "minimum", "slow_rate")

    def __init__(self, settings: Settings) -> None:
        self.minimum = settings.minimum
        self.failure_rate = exact_share(settings.failure_rate_threshold)
        self.slow_rate = exact_share(settings.slow_call_rate_threshold)
        self.failure_count = settings.failure_count_threshold or math.inf
        self.consecutive = settings.consecutive_failures or math.inf

    def broken(self, held: Sums, streak: int) -> Reason | None:
        """Return the first rule that says "trip", or None."""
        calls, failures, slow, _ = held
        if calls >= self.minimum:
            part, whole = self.failure_rate
            if failures * whole >= part * calls:
                return Reason.FAILURE_RATE
            part, whole = self.slow_rate
            if slow * whole >= part * calls:
                return Reason.SLOW_CALL_RATE
        if failures >= self.failure_count:
            return Reason.FAILURE_COUNT
        return Reason.CONSECUTIVE if streak >= self.consecutive else None

    def room(self, held: Sums, streak: int) -> int:
        """
        Return how many failures cannot trip, whatever successes come between; at most `MOST_ROOM`.

        It holds while no call ages out of the window by time alone: the calls held do not get fewer then, so it is
        known beforehand how far so many failures may carry.
        """
        calls, failures, _, _ = held
        if calls < self.minimum:
            return 0
        part, whole = self.failure_rate
        room = (part * calls - 1) // whole - failures if whole else MOST_ROOM
        return min(room, MOST_ROOM, self.failure_count - 1 - failures, self.consecutive - 1 - streak)  # type: ignore[return-value]

    def calm(self, held: Sums) -> bool:
        """Say whether a fast success is unable to trip: the minimum is reached, or there is nothing bad to judge."""
        calls, failures, slow, _ = held
        return calls >= self.minimum or not (failures or slow)


class TrialRules:
    """What ends a half-open round."""

    __slots__ = ("failure_rate", "half_open", "needed", "slow_rate")

    def __init__(self, settings: Settings) -> None:
        trials = settings.half_open
        self.half_open = trials
        self.needed = min(settings.minimum, trials.permitted_calls)
        self.failure_rate = exact_share(trials.failure_rate_threshold or settings.failure_rate_threshold)
        self.slow_rate = exact_share(trials.slow_call_rate_threshold or settings.slow_call_rate_threshold)

    def passed(self, held: Totals) -> bool | None:
        """Return the verdict over the trial calls that have reported; None while there is none."""
        if not self.half_open.judged_by_rate:
            if held.failures or held.slow:
                return False
            return True if held.calls >= self.half_open.permitted_calls else None
        if held.calls < self.needed:
            return None
        part, whole = self.failure_rate
        if held.failures * whole >= part * held.calls:
            return False
        part, whole = self.slow_rate
        return held.slow * whole < part * held.calls
