"""
Read off a policy what a plan needs to know of it.

Policies are strangers to this layer: they are told apart by the name of their class, and a policy that users wrote is a
step of which nothing but its name is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

from halfopen._core.backoff import Constant, Exponential
from halfopen._core.plans import Step
from halfopen._core.retry_backoff import Delays, Jitter
from halfopen._core.windows import CountWindow
from halfopen.errors import CircuitOpenError, RejectedError

__all__ = ["step_of"]


def step_of(policy: Any, **more: Any) -> Step:
    """Return the step of a policy, with what only its pipeline knows added."""
    for kind in type(policy).__mro__:
        if kind.__module__.partition(".")[0] == "halfopen" and kind.__name__ in _FACTS:
            facts = _FACTS[kind.__name__](policy)
            return Step(kind=kind.__name__, name=policy.name, **{**facts, **more})
    return Step(kind=type(policy).__name__, name=str(policy.name), **more)


def _retry(policy: Any) -> dict[str, Any]:
    settings = policy.settings
    attempts = math.inf if settings.attempts is None else settings.attempts
    ignore = _as_tuple(settings.ignore)
    bounds = "" if settings.budget is None else f", retries at most {settings.budget.share * 100:g} % of calls"
    if settings.total is not None:
        bounds += f", all within {settings.total:g} s"
    often = "any number of" if attempts == math.inf else f"up to {attempts}"
    return {
        "does": f"{often} attempts on {_errors(settings.on)}, {_apart(settings.backoff)}{bounds}",
        "attempts": attempts,
        "sleeps": _sleeps(settings.backoff, attempts),
        "total": settings.total,
        "heeds_refusals": any(issubclass(CircuitOpenError, error) for error in ignore),
    }


def _apart(backoff: Any) -> str:
    kind = cast("Any", type(backoff))  # pyright: ignore[reportUnknownArgumentType]
    if kind.__str__ is not object.__str__:
        return f"{backoff} apart"
    return f"as far apart as {getattr(backoff, '__name__', kind.__name__)}() says"


_FAR = 1000
"""From this step on a series has long reached its cap."""


def _sleeps(backoff: Any, attempts: float) -> float:
    longest = _longest(backoff)
    if longest is None or attempts == math.inf:
        return math.inf
    near = min(int(attempts) - 1, _FAR)
    return sum(map(longest, range(1, near + 1))) + longest(_FAR) * (attempts - 1 - near)


def _longest(backoff: Any) -> Callable[[int], float] | None:
    """Return what says how long a backoff may wait at a step; None for one that users wrote."""
    if isinstance(backoff, Constant):
        return lambda step: backoff.seconds
    if isinstance(backoff, Exponential):
        series = Delays(backoff.first, backoff.factor, backoff.cap, Jitter.NONE)
        return lambda step: min(series.base(step) * (1 + backoff.jitter), backoff.cap)
    if not isinstance(backoff, Delays):
        return None
    if backoff.jitter is Jitter.DECORRELATED:
        return lambda step: backoff.cap
    return backoff.base


def _timeout(policy: Any) -> dict[str, Any]:
    settings = policy.settings
    trial = settings.seconds if settings.trial is None else settings.trial
    does = f"{settings.seconds:g} s" + ("" if settings.trial is None else f", {settings.trial:g} s for a trial call")
    if settings.worker_thread:
        does += f", on one of {settings.max_threads} threads"
    return {"does": does, "seconds": settings.seconds, "trial_seconds": trial}


def _circuit_breaker(policy: Any) -> dict[str, Any]:
    settings = policy.settings
    window = settings.window
    last = f"the last {window.size} calls" if isinstance(window, CountWindow) else f"the last {window.seconds:g} s"
    rate, count = settings.failure_rate_threshold, settings.failure_count_threshold
    streak, slow = settings.consecutive_failures, settings.slow_call_rate_threshold
    rules = [
        "" if rate is None else f"{rate * 100:g} % of {last} failed",
        "" if count is None else f"{count} of {last} failed",
        "" if streak is None else f"{streak} failed in a row",
    ]
    why = " or ".join(filter(None, rules)) or f"{(slow or 0) * 100:g} % of {last} were slow"
    trials = settings.half_open.permitted_calls
    does = f"opens when {why}, then {trials} trial call{'s' if trials > 1 else ''}"
    return {"does": does, "lease": settings.half_open.trial_timeout}


def _bulkhead(policy: Any) -> dict[str, Any]:
    limit, waiting, wait = policy._pool.limit, policy._pool.max_waiting, policy._max_wait
    does = f"{limit} at once"
    if waiting:
        does += f", {waiting} more wait" + ("" if wait is None else f" up to {wait:g} s")
    return {"does": does, "holds": True, "waits": (math.inf if wait is None else wait) if waiting else 0.0}


def _rate_limiter(policy: Any) -> dict[str, Any]:
    settings = policy._settings
    does = f"{settings.rate:g} in {settings.per:g} s" + (
        f", waits up to {settings.max_wait:g} s" * bool(settings.max_wait)
    )
    return {"does": does, "waits": settings.max_wait}


def _adaptive_concurrency(policy: Any) -> dict[str, Any]:
    settings = policy._settings
    does = f"{settings['min_limit']} to {settings['max_limit']} at once, by latency"
    return {"does": does, "holds": True}


def _fallback(policy: Any) -> dict[str, Any]:
    number = len(policy._links)
    answer = "another answer" if number == 1 else f"one of {number} answers in turn"
    return {"does": f"{answer} on {_errors(policy.on)}", **_answers(policy.on)}


def _cache_fallback(policy: Any) -> dict[str, Any]:
    does = f"the last good answer on {_errors(policy._on)}, at most {policy._max_age:g} s old"
    return {"does": does, **_answers(policy._on)}


def _answers(on: tuple[type[Exception], ...]) -> dict[str, Any]:
    refusals = "no"
    if Exception in on:
        refusals = "swept"
    elif any(issubclass(error, RejectedError) or issubclass(RejectedError, error) for error in on):
        refusals = "named"
    return {"answers": True, "answers_refusals": refusals}


def _hedge(policy: Any) -> dict[str, Any]:
    attempts = 1 + policy._max_hedges
    delay = policy._delay
    after = f"{delay:g} s" if isinstance(delay, (int, float)) else f"what {delay.share * 100:g} % of calls take"
    return {"does": f"up to {attempts} attempts at once, the next after {after}", "attempts": attempts}


def _keyed(policy: Any) -> dict[str, Any]:
    inner = step_of(policy._other)
    shared = {key: getattr(inner, key) for key in ("holds", "waits", "lease")}
    return {"does": f"for each key: {inner.does}", **shared}


def _as_tuple(errors: Any) -> tuple[type[Exception], ...]:
    return cast("tuple[type[Exception], ...]", errors if isinstance(errors, tuple) else (errors,))


def _errors(on: Any) -> str:
    if isinstance(on, type):
        return on.__name__
    if isinstance(on, tuple):
        return ", ".join(error.__name__ for error in _as_tuple(on)) or "results"
    return f"what {getattr(on, '__name__', 'a function')}() says"


_FACTS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "AdaptiveConcurrency": _adaptive_concurrency,
    "Bulkhead": _bulkhead,
    "CacheFallback": _cache_fallback,
    "CircuitBreaker": _circuit_breaker,
    "Fallback": _fallback,
    "Hedge": _hedge,
    "KeyedPolicy": _keyed,
    "RateLimiter": _rate_limiter,
    "Retry": _retry,
    "Timeout": _timeout,
}
