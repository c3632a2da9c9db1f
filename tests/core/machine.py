"""
A walk through everything a breaker can be asked, in step with the reference model, that measures where it gets.

A plain random walk hardly ever reaches HALF_OPEN. So many rules go the whole way to the next move: they fail calls
until the circuit trips, wait until trial calls are due, or bring a round to each of its ends.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import asdict, replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from halfopen import (
    CircuitBreaker,
    CircuitOpenError,
    CircuitTransitioned,
    LateResult,
    State,
    ThresholdExceeded,
    TrialExpired,
)
from halfopen._core.settings import Settings
from halfopen._core.states import ORDERS, allowed_moves
from halfopen.testing import FakeClock
from tests.core.reference_model import Call, Model, Refused, observed
from tests.core.strategies import SLOW, settings

WALL = 1_700_000_000.0

REACHED: Counter[Any] = Counter()
"""In how many walks each state and each move was reached; and how many walks there were."""

outcomes = st.sampled_from(("success", "failure", "ignored", "slow success", "slow failure"))
seconds = st.sampled_from((0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 20.0))
lasts = st.none() | st.sampled_from((1.0, 4.0))
orders = st.tuples(st.sampled_from(sorted(ORDERS)), lasts)


class Interrupted(BaseException):
    """Leaves a guarded call without evidence."""


class Walk(RuleBasedStateMachine):
    """One breaker and its model."""

    @initialize(chosen=settings(), starts=st.sampled_from((0.0, 0.25, 7.0)))
    def begin(self, chosen: Settings, starts: float) -> None:
        self.visited: set[Any] = {State.CLOSED}
        self.timed = chosen.automatic_half_open
        self.model = Model(chosen, starts)
        self._make(chosen, FakeClock(start=starts, wall=WALL + starts))

    def _make(self, chosen: Settings, clock: FakeClock) -> None:
        self.clock = clock
        self.breaker = CircuitBreaker.from_settings("walk", chosen, clock=clock, rng=random.Random(0))
        self.running: list[tuple[Any, Call]] = []
        self.events: list[Any] = []
        self.seen = 0
        kinds = (CircuitTransitioned, ThresholdExceeded, TrialExpired, LateResult)
        self.breaker.subscribe(self.events.append, *kinds)

    def teardown(self) -> None:
        if hasattr(self, "visited"):
            REACHED.update(self.visited | {"walks"})

    # Single steps

    @rule(several=st.lists(outcomes, min_size=1, max_size=4), wrapped=st.booleans())
    def calls(self, several: list[str], wrapped: bool) -> None:
        for outcome in several:
            self._wrapped(outcome) if wrapped else self._whole(outcome)

    @rule(several=st.integers(1, 3))
    def calls_begin(self, several: int) -> None:
        for _ in range(several):
            self._begin()

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 20), outcome=outcomes)
    def a_call_ends(self, which: int, outcome: str) -> None:
        self._end(*self.running.pop(which % len(self.running)), outcome)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 20))
    def a_permit_is_lost(self, which: int) -> None:
        call = self.running.pop(which % len(self.running))[1]
        self.breaker.tick()
        self.model.leak(call)
        self.model.tick()

    @rule(passed=seconds)
    def time_passes(self, passed: float) -> None:
        self._pass(passed)

    @rule()
    def somebody_asks(self) -> None:
        self._tick()

    @rule(given=st.lists(orders, min_size=1, max_size=6))
    def orders_are_given(self, given: list[tuple[str, float | None]]) -> None:
        for name, lasts in given:
            self._order(name, lasts)

    @rule(other=settings())
    def settings_change(self, other: Settings) -> None:
        # A timer that is set goes on when the setting is taken away; so it never is, here.
        other = replace(other, automatic_half_open=other.automatic_half_open or self.timed)
        self.timed = other.automatic_half_open
        before = self.breaker.snapshot()
        self.model.tick()

        self.breaker.adopt(other)
        self.model.configure(other)

        # Invariant 11, said once more without the model.
        after = self.breaker.snapshot()
        if not self.model.gated:
            assert (before.state, before.epoch, before.step) == (after.state, after.epoch, after.step)
        if after.state is State.OPEN and after.epoch == before.epoch:
            assert before.remaining_wait == after.remaining_wait
        self.model.tick()

    @rule(slept=st.sampled_from((0.0, 1.0, 3.0, 100.0)), starts=st.sampled_from((0.0, 64.0)))
    def the_process_starts_again(self, slept: float, starts: float) -> None:
        saved = json.loads(json.dumps(self.breaker.snapshot().plain()))
        self.model.tick()
        self.look()
        wall = self.clock.wall() + slept
        self.model = self.model.restarted(self.breaker.settings, starts, slept)
        for permit, _ in self.running:
            permit.ignore()

        self._make(self.breaker.settings, FakeClock(start=starts, wall=wall))
        self.breaker.restore(saved)

    # Whole ways

    @precondition(lambda self: self.model.state in (State.CLOSED, State.RECOVERING))
    @rule(outcome=st.sampled_from(("failure", "slow success", "slow failure")), wrapped=st.booleans())
    def calls_fail_until_it_trips(self, outcome: str, wrapped: bool) -> None:
        epoch = self.model.epoch
        for _ in range(24):
            self._wrapped(outcome) if wrapped else self._whole(outcome)
            if self.model.epoch != epoch:
                return

    @precondition(lambda self: self.model.state is State.OPEN)
    @rule()
    def the_wait_is_over(self) -> None:
        self._pass(max(self.model.until - self.model.now, 0.0))
        self._begin()

    @precondition(lambda self: self.model.state is State.OPEN)
    @rule(outcome=outcomes)
    def the_wait_is_over_and_a_round_follows(self, outcome: str) -> None:
        self._pass(max(self.model.until - self.model.now, 0.0))
        self._round(outcome)

    @precondition(lambda self: self.model.state is State.HALF_OPEN)
    @rule(outcome=outcomes)
    def a_round_ends(self, outcome: str) -> None:
        self._round(outcome)

    @precondition(lambda self: self.model.state is State.HALF_OPEN)
    @rule()
    def trial_calls_hang(self) -> None:
        self._begin()
        self._pass(self.model.settings.half_open.trial_timeout)
        self._tick()

    @precondition(lambda self: self.model.state is State.HALF_OPEN and self.model.settings.half_open.max_duration)
    @rule()
    def a_round_takes_too_long(self) -> None:
        self._pass(self.model.settings.half_open.max_duration or 0.0)
        self._tick()

    @precondition(lambda self: self.model.state is State.RECOVERING)
    @rule(tenths=st.sampled_from((0.25, 0.5, 1.0)))
    def the_ramp_goes_on(self, tenths: float) -> None:
        ramp = self.model.settings.ramp
        self._pass(ramp.duration * tenths if ramp else 0.0)
        self._tick()

    @precondition(lambda self: self.model.state in tuple(State)[4:])
    @rule()
    def an_order_ends(self) -> None:
        if self.model.ends_at == float("inf"):
            self._order({"forced_open": "force_open", "disabled": "disable"}.get(self.model.state, "observe"), 2.0)
        self._pass(max(self.model.ends_at - self.model.now, 0.0))
        self._tick()

    @rule(
        slept=st.sampled_from((0.0, 1.0)),
        way=st.lists(st.sampled_from((*sorted(ORDERS), "round")), min_size=1, max_size=3),
    )
    def it_is_led_somewhere_and_starts_again(self, slept: float, way: list[str]) -> None:
        for step in way:
            if step == "round":
                self._order("try_now", None)
                self._round("success")
            else:
                self._order(step, None)
        self.the_process_starts_again(slept, 0.0)

    @precondition(lambda self: self.model.settings.ramp is not None)
    @rule(
        ends=st.sampled_from((*["fail"] * 8, "ramp", *sorted(ORDERS) * 2)),
        outcome=st.sampled_from(("failure", "slow success")),
    )
    def it_recovers(self, ends: str, outcome: str) -> None:
        self._order("try_now", None)
        self._round("success")
        if self.model.state is not State.RECOVERING:
            return
        if ends == "fail":
            self.calls_fail_until_it_trips(outcome, wrapped=False)
        elif ends == "ramp":
            self.the_ramp_goes_on(1.0)
        else:
            self._order(ends, None)

    @rule(outcome=st.sampled_from(("failure", "slow success", "slow failure")))
    def it_is_reset_and_trips(self, outcome: str) -> None:
        self._order("reset", None)
        self.calls_fail_until_it_trips(outcome, wrapped=True)

    @rule(outcome=st.sampled_from(("ignored", "hang", "stall", "success")))
    def it_is_tried(self, outcome: str) -> None:
        self._order("try_now", None)
        if outcome == "hang":
            self.trial_calls_hang()
        elif outcome == "stall":
            self._pass(self.model.settings.half_open.max_duration or 0.0)
            self._tick()
        else:
            self._round(outcome)

    def _round(self, outcome: str) -> None:
        for _ in range(12):
            before = self.model.epoch
            call = self._begin()
            if call is None:
                return
            self._end(*self.running.pop(), outcome)
            if self.model.epoch != before and self.model.state is not State.HALF_OPEN:
                return

    # Both together

    def _begin(self) -> Call | None:
        held = self._held() if not self.model.gated else None
        expected = self.model.begin(permit=True)
        try:
            permit = self.breaker.acquire()
        except CircuitOpenError as refusal:
            assert expected == Refused(refusal.reason, refusal.retry_after)
            assert refusal.state is self.model.state
            assert self.model.state is not State.METRICS_ONLY, "it refused"
            return None
        assert isinstance(expected, Call), expected
        assert held is None or held == self._held()
        self.running.append((permit, expected))
        return expected

    def _end(self, permit: Any, call: Call, outcome: str) -> None:
        how = outcome.removeprefix("slow ")
        if outcome != how:
            permit.began = self.clock.monotonic() - 1.5 * SLOW
        spent = self.clock.monotonic() - permit.began
        late = self._is_late(call)
        before = self._facts() if late else None
        {"success": permit.success, "failure": permit.failure, "ignored": permit.ignore}[how]()
        self.model.end(call, how, spent)
        if late:
            assert before == self._facts(), "a late result changed something"
        elif how == "ignored":
            assert self._no_better_than(call), "an ignored call led towards CLOSED"

    def _is_late(self, call: Call) -> bool:
        self._tick()
        return call.epoch != self.model.epoch

    def _no_better_than(self, call: Call) -> bool:
        return call.epoch == self.model.epoch or self.model.state is State.OPEN

    def _facts(self) -> Any:
        look = self.breaker.snapshot()
        return look.state, look.epoch, look.step, look.calls, look.failures, look.slow, look.trials, look.streak

    def _held(self) -> Any:
        look = self.breaker.snapshot()
        return look.calls, look.failures, look.slow

    def _whole(self, outcome: str) -> None:
        if self._begin() is not None:
            self._end(*self.running.pop(), outcome)

    def _wrapped(self, outcome: str) -> None:
        call = self.model.begin(permit=False)
        spent = 1.5 * SLOW if outcome.startswith("slow") else 0.0
        try:
            self.breaker.call(self._work, outcome, spent, call)
        except CircuitOpenError as refusal:
            assert call == Refused(refusal.reason, refusal.retry_after)
            return
        except (OSError, Interrupted):
            pass
        assert isinstance(call, Call), call
        self.model.end(call, outcome.removeprefix("slow "), spent)

    def _work(self, outcome: str, spent: float, call: Any) -> None:
        assert isinstance(call, Call), call
        self._pass(spent)
        if outcome.endswith("failure"):
            raise ConnectionError
        if outcome.endswith("ignored"):
            raise Interrupted

    def _pass(self, passed: float) -> None:
        self.clock.advance(passed)
        self.model.advance(passed)

    def _tick(self) -> None:
        self.breaker.tick()
        self.model.tick()

    def _order(self, name: str, lasts: float | None) -> None:
        if name in ("reset", "try_now"):
            getattr(self.breaker, name)()
            lasts = None
        else:
            getattr(self.breaker, name)(lasts)
        self.model.order(name, lasts)

    # Comparing

    @invariant()
    def moves_agree(self) -> None:
        moves = [observed(event) for event in self.events[self.seen :] if isinstance(event, CircuitTransitioned)]
        self.seen = len(self.events)
        assert self.model.moves == moves, (self.model.moves, moves)
        self.model.moves.clear()
        for move in moves:
            self.visited |= {(move.old, move.reason, move.new), move.new}

    @invariant()
    def the_round_keeps_its_limits(self) -> None:
        if self.model.state is not State.HALF_OPEN:
            return
        assert len(self.model.outcomes) + len(self.model.trials) <= 4

    @rule()
    def look(self) -> None:
        look, model = self.breaker.snapshot(), self.model
        model.tick()
        assert (model.state, model.epoch, model.step) == (look.state, look.epoch, look.step)
        assert WALL + (model.entered - model.now) + (self.clock.wall() - WALL) == look.since
        assert (None if model.state is not State.OPEN else max(model.until - model.now, 0.0)) == look.remaining_wait
        assert model.last_wait == look.wait
        held = (look.calls, look.failures, look.slow, look.slow_failures)
        assert model.totals(model.now) == held
        assert (0 if model.state is State.HALF_OPEN else model.streak) == look.streak
        assert model.trial_slots() == Counter(slot.status for slot in look.trials)
        assert model.ignored == look.ignored_trials
        self._look_at_counters(look.counters)

    def _look_at_counters(self, counters: Any) -> None:
        model = self.model
        names = (
            "successes", "failures", "ignored", "slow_successes", "slow_failures", "trial_successes", "trial_failures",
            "late_results",
        )  # fmt: skip
        plural = {"successes": "success", "failures": "failure", "slow_successes": "slow_success"}
        plural["slow_failures"] = "slow_failure"
        assert {name: model.counts[plural.get(name, name)] for name in names} == {
            name: getattr(counters, name) for name in names
        }
        assert dict(model.rejected) == dict(counters.rejected)
        permits = counters.permits
        wanted = Counter(
            issued=model.counts["issued"],
            settled=model.counts["settled"],
            in_flight=len(model.in_flight),
            expired=model.counts["expired"],
            abandoned=model.counts["abandoned"],
        )
        assert wanted == Counter(asdict(permits)), (wanted, permits)
        assert permits.issued == permits.settled + permits.in_flight + permits.expired + permits.abandoned
        assert model.counts["expired"] == sum(isinstance(event, TrialExpired) for event in self.events)
        assert model.counts["late_results"] == sum(isinstance(event, LateResult) for event in self.events)
        assert model.exceeded == sum(isinstance(event, ThresholdExceeded) for event in self.events)


def wanted() -> list[Any]:
    """Return every state, and every move of the table, orders and restoring included."""
    return [*State, *sorted((old, reason.value, new) for old, reason, new in allowed_moves())]
