"""The invariants that a walk through the whole breaker does not state by itself."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from halfopen import CircuitBreaker, CircuitOpenError, CountWindow, Event, HalfOpen, Permit, Ramp, State, exponential
from halfopen._core.settings import Settings
from halfopen.testing import FakeClock
from tests.core.driving import Bench
from tests.core.strategies import half_opens, settings

fates = st.sampled_from(("hang", "die", "cancel", "leak", "ignore", "success", "failure"))


@given(half_opens(), st.lists(fates, min_size=1, max_size=5), st.booleans())
@example(HalfOpen(), ["hang"], False)
@example(HalfOpen(), ["leak"], False)
def test_half_open_ends_whatever_callers_do(rules: HalfOpen, fates: list[str], ticked: bool) -> None:
    bench = Bench(half_open=rules).go(State.HALF_OPEN)
    hanging: list[Permit] = []

    most = rules.ignored_limit + rules.permitted_calls + 1
    for number in range(most):
        for _ in range(rules.permitted_calls):
            meet(bench, fates[number % len(fates)], hanging)
        bench.clock.advance(rules.trial_timeout)
        if ticked:
            bench.breaker.tick()
        if len(bench.breaker.history) > 1 or bench.state is not State.HALF_OPEN:
            return

    raise AssertionError("still half-open")


def meet(bench: Bench, fate: str, hanging: list[Permit]) -> None:
    """Let one caller meet its fate."""
    try:
        permit = bench.breaker.acquire()
    except CircuitOpenError:
        return
    if fate == "hang":
        hanging.append(permit)
    elif fate == "die":
        permit.exception(SystemExit())
    elif fate == "cancel":
        permit.exception(KeyboardInterrupt())
    elif fate != "leak":
        {"ignore": permit.ignore, "success": permit.success, "failure": permit.failure}[fate]()


steps = st.lists(
    st.tuples(
        st.sampled_from(("call", "call", "call", "begin", "end", "order", "look")),
        st.integers(0, 5),
        st.sampled_from((0.0, 0.01, 0.3, 1.0, 7.0)),
    ),
    max_size=60,
)


@given(settings(wait_in_open=exponential(2, 2, 16, jitter=0.5)), st.integers(0, 3), steps)
def test_the_same_inputs_give_the_same_decisions_byte_for_byte(chosen: Settings, seed: int, steps: Any) -> None:
    assert decisions(chosen, seed, steps) == decisions(chosen, seed, steps)


def test_another_seed_gives_other_waits() -> None:
    chosen = Settings(window=CountWindow(1), minimum_calls=1)

    assert decisions(chosen, 1, [("call", 1, 0.0)]) != decisions(chosen, 2, [("call", 1, 0.0)])


def decisions(chosen: Settings, seed: int, steps: list[tuple[str, int, float]]) -> bytes:
    """Play the steps on a breaker of their own; return everything it said and told."""
    clock = FakeClock()
    breaker = CircuitBreaker.from_settings("twin", chosen, clock=clock, rng=random.Random(seed))
    said: list[str] = []
    breaker.subscribe(lambda event: said.append(repr(event)), Event)
    running: list[Permit] = []
    orders = (breaker.reset, breaker.trip, breaker.try_now, breaker.observe, breaker.disable, breaker.force_open)
    for step, which, passed in steps:
        clock.advance(passed)
        if step == "order":
            orders[which]()
        elif step == "look":
            said.append(repr(breaker.snapshot()))
        elif step == "end" and running:
            end(running.pop(which % len(running)), which)
        else:
            try:
                running.append(breaker.acquire())
            except CircuitOpenError as refusal:
                said.append(repr(refusal))
            else:
                if step == "call":
                    end(running.pop(), which)
    return "\n".join([*said, repr(breaker.snapshot()), breaker.explain()]).encode()


def end(permit: Permit, how: int) -> None:
    (permit.success, permit.failure, permit.failure, permit.ignore, permit.success, permit.success)[how]()


@given(st.lists(st.sampled_from(("success", "failure", "ignore")), max_size=40), st.booleans())
def test_an_observed_breaker_refuses_nothing(outcomes: list[str], ends: bool) -> None:
    bench = Bench()
    bench.breaker.observe(1e6 if ends else None)

    for outcome in outcomes:
        getattr(bench.breaker.acquire(), outcome)()

    assert State.METRICS_ONLY is bench.state
    assert {} == dict(bench.breaker.snapshot().counters.rejected)


@given(st.lists(st.sampled_from(("ignore", "leak")), max_size=60), st.booleans())
def test_calls_without_evidence_never_lead_towards_closed(fates: list[str], with_ramp: bool) -> None:
    bench = Bench(ramp=Ramp() if with_ramp else None).go(State.HALF_OPEN)

    for fate in fates:
        meet(bench, fate, [])
        bench.breaker.tick()
        assert bench.state in (State.HALF_OPEN, State.OPEN)
        if bench.state is State.OPEN:
            bench.breaker.try_now()


@given(half_opens(), st.lists(st.sampled_from(("begin", "begin", "success", "ignore")), max_size=40))
def test_no_more_trials_run_or_start_than_allowed(rules: HalfOpen, steps: list[str]) -> None:
    bench = Bench(half_open=rules).go(State.HALF_OPEN)
    running: list[Permit] = []
    reported = 0

    for step in steps:
        if step == "begin":
            try:
                running.append(bench.breaker.acquire())
            except CircuitOpenError:
                continue
        elif running:
            reported += step == "success"
            getattr(running.pop(0), step)()
        if bench.state is not State.HALF_OPEN:
            return
        assert len(running) <= rules.concurrent
        assert reported + len(running) <= rules.permitted_calls
