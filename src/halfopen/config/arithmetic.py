"""What the settings of a breaker come to: how long an outage lasts before it opens, and what it lets through after."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from halfopen._core.backoff import Constant, Exponential
from halfopen._core.settings import Settings, exact_share
from halfopen._core.windows import CountWindow, TimeWindow

__all__ = ["Load", "Opening", "load_of", "openings", "slow_opening"]

HOUR = 3600.0
MOST_ROUNDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Opening:
    """
    When one trip rule opens a circuit, if from some moment on every call fails.

    Attributes:
        rule: The rule in words.
        calls: Failed calls it takes at most; infinite where the traffic never suffices.
        seconds: The time until then.
        why: The arithmetic.
    """

    rule: str
    calls: float
    seconds: float
    why: str


def openings(settings: Settings, traffic: float) -> list[Opening]:
    """
    Return when each trip rule opens the circuit at *traffic* calls a second, the window full of successes before.

    Calls are counted when they fail: the time a call takes to fail comes on top.
    """
    found: list[Opening] = []
    if settings.failure_rate_threshold is not None:
        found.append(_by_rate(settings, settings.failure_rate_threshold, traffic, "failed"))
    if settings.failure_count_threshold is not None:
        rule = f"{settings.failure_count_threshold} failed calls in the window"
        found.append(_by_count(settings, settings.failure_count_threshold, traffic, rule))
    if settings.consecutive_failures is not None:
        calls = settings.consecutive_failures
        found.append(_opening(f"{calls} failed calls in a row", calls, traffic))
    return found


def slow_opening(settings: Settings, traffic: float) -> Opening | None:
    """Return when the circuit opens if from some moment on every call is slow, counted from the first slow answer."""
    if settings.slow_call_rate_threshold is None or settings.slow_call_duration is None:
        return None
    return _by_rate(settings, settings.slow_call_rate_threshold, traffic, "were slow")


def _by_rate(settings: Settings, threshold: float, traffic: float, what: str) -> Opening:
    window, minimum = settings.window, settings.minimum
    part, whole = exact_share(threshold)
    if isinstance(window, CountWindow):
        rule = f"{threshold * 100:g} % of the last {window.size} calls {what}, from {minimum} calls on"
        return _opening(rule, max(-(-part * window.size // whole), minimum), traffic)
    rule = f"{threshold * 100:g} % of the calls of the last {window.seconds:g} s {what}, from {minimum} calls on"
    held = math.ceil(traffic * window.seconds)
    return _in_time(window, rule, max(-(-part * held // whole), minimum), minimum, traffic)


def _by_count(settings: Settings, calls: int, traffic: float, rule: str) -> Opening:
    window = settings.window
    if isinstance(window, CountWindow):
        return _opening(rule, calls, traffic)
    return _in_time(window, rule, calls, calls, traffic)


def _in_time(window: TimeWindow, rule: str, calls: int, needed: int, traffic: float) -> Opening:
    """
    Return when so many failed calls are in a time window.

    A window forgets a bucket at a time. The calls of all its buckets but one are in it for certain; more may need
    every bucket, which takes until the one in which the outage began has left and another one has filled.
    """
    bucket = window.seconds / window.buckets
    held = math.floor(traffic * window.seconds)
    if calls <= math.floor(traffic * (window.seconds - bucket)):
        return _opening(rule, calls, traffic)
    if held < needed:
        why = f"only {held:,} calls fall into the window, fewer than the {needed:,} it takes"
        return Opening(rule, math.inf, math.inf, why)
    whole = window.seconds + bucket
    seconds = f"{window.seconds:g} + {bucket:g} s until the window holds nothing but the outage"
    return Opening(rule, math.ceil(traffic * whole) + 1, whole, seconds)


def _opening(rule: str, calls: int, traffic: float) -> Opening:
    seconds = calls / traffic
    return Opening(rule, calls, seconds, f"{calls:,} calls / {traffic:g} per second = {seconds:.4g} s")


@dataclass(frozen=True, slots=True)
class Load:
    """
    The calls that reach a dependency which fails all of them, at most.

    Attributes:
        before: Until the circuit opens.
        trials: Trial calls of one round.
        rounds_first: Rounds in the first hour.
        rounds_later: Rounds in an hour once the backoff has grown.
    """

    before: float
    trials: int
    rounds_first: int
    rounds_later: int

    @property
    def first_hour(self) -> float:
        """Calls in the first hour."""
        return self.before + self.trials * self.rounds_first

    @property
    def later_hour(self) -> float:
        """Calls in each hour once the backoff has grown."""
        return float(self.trials * self.rounds_later)


def load_of(settings: Settings, traffic: float) -> Load | None:
    """Return the load on a sick dependency; None where the waits come from a callable nobody can foresee."""
    waits = _shortest_waits(settings)
    if waits is None:
        return None
    before = min((opening.calls for opening in openings(settings, traffic)), default=math.inf)
    trials = settings.half_open
    # The first failed trial ends a round, but those begun with it reach the dependency too.
    each = trials.permitted_calls if trials.judged_by_rate else trials.concurrent
    passed, rounds = 0.0, 0
    for wait in waits:
        passed += wait
        if passed > HOUR or rounds >= MOST_ROUNDS:
            break
        rounds += 1
    return Load(before, each, rounds, math.ceil(HOUR / _longest_wait(settings)))


def _shortest_waits(settings: Settings) -> Iterator[float] | None:
    backoff = settings.backoff
    if isinstance(backoff, Constant):
        seconds = float(backoff.seconds)
        return iter(lambda: seconds, -1.0)
    if not isinstance(backoff, Exponential):
        return None
    return _growing(backoff)


def _growing(backoff: Exponential) -> Iterator[float]:
    wait = backoff.first
    while True:
        yield min(wait, backoff.cap) * (1 - backoff.jitter)
        wait = min(wait * backoff.factor, backoff.cap)


def _longest_wait(settings: Settings) -> float:
    backoff = settings.backoff
    if isinstance(backoff, Exponential):
        longest = backoff.cap if backoff.factor > 1 else backoff.first
        return max(longest * (1 - backoff.jitter), 1e-6)
    return float(getattr(backoff, "seconds", HOUR))
