"""The other policies and the pipeline: nothing in the way, then one failure that is retried or answered."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Any

from benchmarks.measure import BARE, Case, Loop
from benchmarks.suites._loops import awaiting, calling
from benchmarks.suites._policies import GUARDS, MISSING, Guard

__all__ = ["CASES", "MISSING"]


def _fine() -> None:
    """Do nothing."""


async def _afine() -> None:
    """Do nothing, as a coroutine."""


def _three(first: int, second: int, *, third: int) -> None:
    """Do nothing with three arguments."""


def _with_arguments(fn: Callable[..., Any]) -> Loop:
    def loop(calls: int) -> None:
        for _ in repeat(None, calls):
            fn(1, 2, third=3)

    return loop


def _pipeline_with_arguments() -> Loop:
    made: Any = GUARDS["pipeline by call()"]["halfopen"](_three)
    call = made.func  # without the partial, which would be measured, too

    def loop(calls: int) -> None:
        for _ in repeat(None, calls):
            call(_three, 1, 2, third=3)

    return loop


def _every_other(error: Exception) -> Callable[[], None]:
    failing = False

    def fn() -> None:
        nonlocal failing
        failing = not failing
        if failing:
            raise error

    return fn


def _caught(fn: Callable[[], Any]) -> Callable[[], None]:
    """Do by hand what a retry does for a function of which every other call fails."""

    def twice() -> None:
        try:
            fn()
        except ConnectionError:
            fn()

    return twice


def _guarded(guard: Guard, *, awaited: bool) -> Loop:
    return awaiting(guard(_afine)) if awaited else calling(guard(_fine))


def _retried(guard: Guard) -> Loop:
    return calling(guard(_every_other(ConnectionError())))


def _answered(guard: Guard) -> Loop:
    def down() -> None:
        raise ConnectionError

    return calling(guard(down))


def _suppressed() -> Loop:
    def down() -> None:
        try:
            raise ConnectionError
        except ConnectionError:
            pass

    return calling(down)


def _case(what: str, target: float | None = None, threads: tuple[int, ...] = (1,), note: str = "") -> Case:
    awaited = what.startswith("async")
    contestants: dict[str, Callable[[], Loop]] = {BARE: partial(_bare, awaited)}
    contestants |= {name: partial(_guarded, guard, awaited=awaited) for name, guard in GUARDS[what].items()}
    return Case(what, contestants, target, threads, note)


def _bare(awaited: bool) -> Loop:
    return awaiting(_afine) if awaited else calling(_fine)


_RETRIED = Case(
    "retry, second attempt succeeds",
    {
        BARE: lambda: calling(_caught(_every_other(ConnectionError()))),
        **{name: partial(_retried, guard) for name, guard in GUARDS["retry"].items()},
    },
    note="a sleep of 0 s in between, which is most of it; bare is the same by hand, without the sleep",
)
_ANSWERED = Case(
    "fallback, answers",
    {BARE: _suppressed, **{name: partial(_answered, guard) for name, guard in GUARDS["fallback"].items()}},
    note="bare is the exception raised and caught",
)

CASES = [
    _case("retry", note="the first attempt succeeds; at most 3, no waiting"),
    _case("async retry"),
    _RETRIED,
    _case("timeout", note="the deadline of halfopen's synchronous timeout; no other library has one without a thread"),
    _case("thread timeout", note="on a worker thread"),
    _case("async timeout"),
    _case("bulkhead", threads=(1, 8)),
    _case("async bulkhead"),
    _case("rate limiter", threads=(1, 8), note="a permit is free"),
    _case("async rate limiter", note="a permit is free"),
    _case("fallback", note="nothing to answer"),
    _case("async fallback"),
    _ANSWERED,
    _case("adaptive concurrency"),
    _case("cache fallback"),
    _case("async hedge", note="answers before the delay"),
    _case(
        "pipeline",
        2500,
        (1, 8),
        note="halfopen: Fallback, CircuitBreaker, Retry, Bulkhead, Timeout; interlock-cb, which has no retry and times "
        "synchronous calls on threads: fallback, breaker, bulkhead; tenacity: its retry alone; circuitbreaker: around "
        "tenacity's retry",
    ),
    _case("pipeline by call()", 2500),
    Case(
        "pipeline by call(), three arguments",
        {
            BARE: lambda: _with_arguments(_three),
            "halfopen": _pipeline_with_arguments,
        },
        2500,
        note="two by position, one by name",
    ),
    _case("pipeline, standard", 2500, note="Pipeline.standard with a fallback; its retry has a budget"),
    _case("async pipeline", note="the same, interlock-cb with its timeout"),
]
