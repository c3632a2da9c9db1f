"""Random pipelines against plain nested calls: the same results, errors, times, order and states, in every style."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest

from halfopen import (
    Bulkhead,
    CallTimeoutError,
    CircuitBreaker,
    Fallback,
    HalfOpen,
    Pipeline,
    RateLimiter,
    RejectedError,
    Retry,
    Timeout,
    in_trial,
)
from halfopen.testing import FakeClock
from halfopen.timeout import check_deadline
from tests.pipeline import reference
from tests.pipeline.test_pipeline import Noting

STYLES = ("call", "decorator", "acall", "async decorator")
Spec = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """Policies, outermost first; where a nested pipeline begins; what attempts do; seconds before each call."""

    specs: tuple[Spec, ...]
    inner_from: int
    attempts: tuple[tuple[str, int], ...]
    gaps: tuple[int, ...]


def a_case(rng: random.Random) -> Case:
    kinds: dict[str, Callable[[], Spec]] = {
        "breaker": lambda: (rng.randint(1, 3), rng.choice([5, 30])),
        "retry": lambda: (rng.randint(1, 3), rng.randint(0, 3)),
        "fallback": lambda: (rng.choice(["errors", "refusals", "both"]),),
        "limiter": lambda: (rng.choice([2, 10]), rng.randint(1, 3)),
        "timeout": lambda: (rng.randint(1, 40),),
        "bulkhead": lambda: (rng.randint(1, 3),),
        "note": lambda: (),
    }
    chosen = rng.choices(list(kinds), weights=(4, 4, 1, 1, 2, 1, 2), k=rng.randint(1, 6))
    fine = rng.random()
    outcomes = ["ok"] * round(10 * fine) + ["down"] * 5 + ["bug"] + ["tripped"]
    return Case(
        specs=tuple((kind, *kinds[kind]()) for kind in chosen),
        inner_from=rng.randint(0, len(chosen) - 1),
        attempts=tuple((rng.choice(outcomes), rng.choice([0, 0, 1, 9])) for _ in range(rng.randint(5, 40))),
        gaps=tuple(rng.choice([0, 0, 1, 6, 31]) for _ in range(rng.randint(5, 30))),
    )


# The two sides. What is compared: result or kind of error, when it came, when each attempt was made, what was noted,
# and the state of each breaker after each call.

Seen = list[tuple[str, float]]


def play_reference(case: Case, reached: Counter[str]) -> tuple[Seen, list[list[str]]]:
    world = reference.World(reached=reached)
    script, seen, states = list(case.attempts), [], []
    policies: list[Any] = []
    around: reference.Breaker | None = None
    for place, (kind, *numbers) in enumerate(case.specs):
        policy = _plain(kind, numbers, world, place, around)
        around = policy if kind == "breaker" else around
        policies.append(policy)

    def function() -> str:
        outcome, takes = script.pop(0) if script else ("ok", 0)
        world.log.append(f"attempt at {world.now}")
        world.now += takes
        if outcome == "tripped" and world.trials == 0:
            for policy in policies:
                if isinstance(policy, reference.Breaker):
                    policy.open()
        if world.deadline is not None and world.deadline <= world.now:
            world.reached["too late"] += 1
            raise reference.TooLate
        return _end(outcome)

    call = reference.nested(policies, function)
    for gap in case.gaps:
        world.now += gap
        try:
            told = call()
        except Exception as error:
            told = {reference.Refused: "refused", reference.TooLate: "too late"}.get(type(error), type(error).__name__)
        seen.append((told, float(world.now)))
        states.append([policy.state for policy in policies if isinstance(policy, reference.Breaker)])
    return [*seen, *((note, 0.0) for note in world.log)], states


def _plain(kind: str, numbers: list[Any], world: reference.World, place: int, around: Any) -> Any:
    errors = {"errors": (ConnectionError,), "refusals": (reference.Refused,)}
    makers: dict[str, Callable[..., Any]] = {
        "breaker": lambda streak, wait: reference.Breaker(world, streak, wait),
        "retry": lambda attempts, delay: reference.Retry(world, attempts, delay, around),
        "fallback": lambda on: reference.Fallback(
            world,
            errors.get(on, (ConnectionError, reference.Refused)),  # type: ignore[arg-type]
        ),
        "limiter": lambda per, burst: reference.Limiter(world, per, burst),
        "timeout": lambda seconds: reference.Timeout(world, seconds),
        "bulkhead": lambda limit: lambda inner: inner(),
        "note": lambda: reference.Note(world, f"note {place}"),
    }
    return makers[kind](*numbers)


def play_ours(case: Case, style: str) -> tuple[Seen, list[list[str]]]:
    clock, log = FakeClock(), list[str]()
    script, seen, states = list(case.attempts), [], []
    policies = [_ours(kind, numbers, clock, log, place) for place, (kind, *numbers) in enumerate(case.specs)]
    inner = Pipeline(*policies[case.inner_from :], name="inner")
    pipeline = Pipeline(*policies[: case.inner_from], inner, name="outer")

    def function() -> str:
        outcome, takes = script.pop(0) if script else ("ok", 0)
        log.append(f"attempt at {Fraction(clock.monotonic())}")
        clock.advance(takes)
        if outcome == "tripped" and not in_trial():
            for policy in policies:
                if isinstance(policy, CircuitBreaker):
                    policy.trip()
        check_deadline()
        return _end(outcome)

    call = _in_style(style, pipeline, function)
    for gap in case.gaps:
        clock.advance(gap)
        try:
            told = call()
        except RejectedError:
            told = "refused"
        except CallTimeoutError:
            told = "too late"
        except Exception as error:
            told = type(error).__name__
        seen.append((told, clock.monotonic()))
        states.append([str(policy.state) for policy in policies if isinstance(policy, CircuitBreaker)])
    return [*seen, *((note, 0.0) for note in log)], states


def _ours(kind: str, numbers: list[Any], clock: FakeClock, log: list[str], place: int) -> Any:
    name = f"{kind} {place}"
    errors: dict[str, Any] = {"errors": ConnectionError, "refusals": RejectedError}
    half_open = HalfOpen(permitted_calls=1, trial_timeout=1e6)
    no_rates: dict[str, Any] = {"failure_rate_threshold": None, "slow_call_rate_threshold": None}
    makers: dict[str, Callable[..., Any]] = {
        "breaker": lambda streak, wait: CircuitBreaker(
            f"{name} {id(log)}",
            consecutive_failures=streak,
            wait_in_open=wait,
            half_open=half_open,
            clock=clock,
            **no_rates,
        ),
        "retry": lambda attempts, delay: Retry(name, on=ConnectionError, attempts=attempts, backoff=delay, clock=clock),
        "fallback": lambda on: Fallback(name, "fallback", on=errors.get(on, (ConnectionError, RejectedError))),
        "limiter": lambda per, burst: RateLimiter(name, 1, per, burst=burst, clock=clock),
        "timeout": lambda seconds: Timeout(name, seconds, clock=clock),
        "bulkhead": lambda limit: Bulkhead(name, limit, clock=clock),
        "note": lambda: Noting(name, log),
    }
    return makers[kind](*numbers)


def _end(outcome: str) -> str:
    if outcome in ("down", "tripped"):
        raise ConnectionError
    if outcome == "bug":
        raise KeyError
    return outcome


def _in_style(style: str, pipeline: Pipeline, function: Callable[[], str]) -> Callable[[], str]:
    async def afunction() -> str:
        return function()

    return {
        "call": lambda: pipeline.call(function),
        "decorator": pipeline(function),
        "acall": lambda: asyncio.run(pipeline.acall(afunction)),
        "async decorator": lambda: asyncio.run(pipeline(afunction)()),
    }[style]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("seed", range(3))
def test_a_random_pipeline_does_what_plain_nested_calls_do(style: str, seed: int) -> None:
    rng = random.Random(seed)

    for _ in range(60 if "a" in style[:2] else 250):
        case = a_case(rng)
        expected = play_reference(case, Counter())
        assert expected == play_ours(case, style), case


def test_the_random_pipelines_reach_everything_often() -> None:
    reached: Counter[str] = Counter()
    rng = random.Random(0)

    for _ in range(2000):
        play_reference(a_case(rng), reached)

    wanted = {
        "opened",
        "trial calls",
        "closed again",
        "refused by a breaker",
        "refused by a limiter",
        "retries",
        "waits for a refusal",
        "answered",
        "too late",
        "suppressed",
    }
    assert {} == {what: reached[what] for what in wanted if reached[what] < 200}
    assert {*reached} <= wanted | {"no time left", "inconclusive rounds"}
