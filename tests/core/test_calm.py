"""The short cut for calm times decides what judging every call decides."""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as runs
from hypothesis import strategies as st

from halfopen import (
    CallSucceeded,
    CircuitBreaker,
    CircuitOpenError,
    CircuitTransitioned,
    CountWindow,
    Permit,
    State,
    TimeWindow,
)
from halfopen._core.events import Event
from halfopen._core.outcomes import FAILURE, IGNORED, SUCCESS, Outcome
from halfopen._core.settings import Settings
from halfopen.testing import FakeClock
from tests.core.strategies import SLOW, settings, trip_rules

CALLS = 2000
EXAMPLES = 120


class Twin:
    """A breaker whose calls are numbered; odd ones are wrapped, even ones hold a permit."""

    def __init__(self, settings: Settings, every: bool) -> None:
        self.clock = FakeClock()
        self.breaker = CircuitBreaker.from_settings("twin", settings, clock=self.clock, rng=random.Random(1))
        self.moves: list[Event] = []
        self.breaker.subscribe(self.moves.append, CircuitTransitioned)
        if every:
            # Whoever listens to successes has each of them judged.
            self.breaker.subscribe(lambda event: None, CallSucceeded)
        self.permits: dict[int, Permit] = {}

    def begin(self, number: int) -> bool:
        try:
            self.permits[number] = self.breaker.acquire()
        except CircuitOpenError:
            return False
        return True

    def end(self, number: int, outcome: Outcome, spent: float) -> None:
        permit = self.permits.pop(number)
        permit.began = self.clock.monotonic() - spent
        {SUCCESS: permit.success, FAILURE: permit.failure, IGNORED: permit.ignore}[outcome]()

    def wrapped(self, outcome: Outcome) -> bool:
        try:
            self.breaker.call(_ANSWERS[outcome])
        except CircuitOpenError:
            return False
        except (ValueError, KeyboardInterrupt):
            pass
        return True

    def quiet(self) -> int:
        state = self.breaker._circuit.state
        return len(state.quiet) + len(state.quiet_permits) + len(state.quiet_failures)

    def facts(self) -> Any:
        """What was decided, and what the window would hold were the quiet calls folded in; nothing is changed."""
        circuit = self.breaker._circuit
        state = circuit.state
        window = getattr(state, "window", None)
        if window is None:
            return state.kind, state.epoch, circuit.step, tuple(state.held())
        copy = object.__new__(type(window))
        for name in type(window).__slots__:
            value = getattr(window, name)
            setattr(copy, name, deque(value) if isinstance(value, deque) else value)
        successes = len(state.quiet) + len(state.quiet_permits)
        for number in range(successes + 1):
            for before, _, _ in state.quiet_failures:
                if before == number:
                    copy.add(True, False, -math.inf)
            copy.successes(number < successes)
        return state.kind, state.epoch, circuit.step, copy.window()


def _fail() -> None:
    raise ValueError


def _give_up() -> None:
    raise KeyboardInterrupt


_ANSWERS: dict[Outcome, Callable[[], None]] = {SUCCESS: lambda: None, FAILURE: _fail, IGNORED: _give_up}


class Traffic:
    """A seeded stream of calls whose health and pace change from time to time."""

    def __init__(self, seed: int, family: list[Settings], calm: Twin, every: Twin) -> None:
        self.chance = random.Random(seed)
        self.family = family
        self.calm, self.every = calm, every
        self.ill = self.slow = 0.0
        self.pace = 0.01
        self.running: list[int] = []

    def play(self, tally: Counter[str]) -> None:
        calm, every, chance = self.calm, self.every, self.chance
        for number in range(CALLS):
            if number % 50 == 0:
                self._change_weather()
            self._pass_time()
            before, failed_before = calm.quiet(), len(calm.breaker._circuit.state.quiet_failures)
            if number % 2:
                outcome = self._outcome()
                assert calm.wrapped(outcome) == every.wrapped(outcome), number
            else:
                self._begin(number)
            if len(self.running) > 3 or chance.random() < 0.6:
                self._end_one()
            tally["quiet"] += calm.quiet() > before
            tally["quiet failures"] += len(calm.breaker._circuit.state.quiet_failures) > failed_before
            self._interfere()
            assert calm.facts() == every.facts(), number
            tally["calls"] += 1
            tally[calm.breaker.state] += 1

    def _change_weather(self) -> None:
        chance = self.chance
        self.ill = chance.choice((0.0, 0.02, 0.1, 0.3, 0.6))
        self.slow = chance.choice((0.0, 0.0, 0.05, 0.3))
        self.pace = chance.choice((0.0, 0.001, 0.01, 0.06, 0.25))

    def _pass_time(self) -> None:
        step = self.pace * self.chance.choice((0, 1, 1, 2, 3)) + (5.0 if self.chance.random() < 0.01 else 0.0)
        self.calm.clock.advance(step)
        self.every.clock.advance(step)

    def _outcome(self) -> Outcome:
        chance = self.chance.random()
        return FAILURE if chance < self.ill else IGNORED if chance > 0.95 else SUCCESS

    def _begin(self, number: int) -> None:
        admitted = self.calm.begin(number)
        assert admitted == self.every.begin(number), number
        if admitted:
            self.running.append(number)

    def _end_one(self) -> None:
        if self.running:
            number = self.running.pop(self.chance.randrange(len(self.running)))
            spent = SLOW * 2 if self.chance.random() < self.slow else self.chance.choice((0.0, 0.01, SLOW))
            outcome = self._outcome()
            self.calm.end(number, outcome, spent)
            self.every.end(number, outcome, spent)

    def _interfere(self) -> None:
        """Look at the one and not at the other; now and then change the settings of both, or give an order."""
        chance = self.chance
        if chance.random() < 0.05:
            self.calm.breaker.snapshot()
            self.every.breaker.tick()
            self._age(self.every)
        if chance.random() < 0.003:
            changed = chance.choice(self.family)
            for twin in (self.calm, self.every):
                twin.breaker.adopt(changed)
        if chance.random() < 0.002:
            order = chance.choice(("reset", "observe", "disable", "try_now"))
            for twin in (self.calm, self.every):
                getattr(twin.breaker, order)()

    @staticmethod
    def _age(twin: Twin) -> None:
        """Let the window drop its old buckets, so that both windows show the same instant."""
        window = getattr(twin.breaker._circuit.state, "window", None)
        if window is not None:
            window.advance(twin.clock.monotonic())


@st.composite
def families(draw: st.DrawFn) -> list[Settings]:
    """Draw settings, and others that share the window, to change to."""
    first = draw(settings())
    size = getattr(first.window, "size", None)
    return [first] + [replace(first, **draw(trip_rules(size))) for _ in range(2)]


@st.composite
def tolerant_families(draw: st.DrawFn) -> list[Settings]:
    """Draw settings that bear many failures before one trips."""
    first, *others = draw(families())
    window = draw(st.sampled_from([CountWindow(200), CountWindow(30), TimeWindow(10, 10)]))
    tolerance = {
        "window": window,
        "minimum_calls": draw(st.integers(1, 20)),
        "failure_rate_threshold": draw(st.sampled_from([None, 0.4, 0.6, 1.0])),
        "slow_call_rate_threshold": draw(st.sampled_from([None, 0.9])),
        "failure_count_threshold": draw(st.integers(15, 30)),  # no more than the smallest window
        "consecutive_failures": draw(st.none() | st.integers(3, 20)),
    }
    return [replace(settings, **tolerance) for settings in (first, *others)]


def compare(examples: int, drawn: st.SearchStrategy[list[Settings]] | None = None) -> Counter[str]:
    """Play so many streams of calls on both breakers; return what happened how often."""
    tally: Counter[str] = Counter()

    @runs(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(families() if drawn is None else drawn, st.integers(0, 2**32))
    def play(family: list[Settings], seed: int) -> None:
        calm, every = Twin(family[0], every=False), Twin(family[0], every=True)

        Traffic(seed, family, calm, every).play(tally)

        assert calm.moves == every.moves
        assert 0 == every.quiet()
        tally["moves"] += len(calm.moves)

    play()
    return tally


def test_the_short_cut_decides_as_judging_every_call_does() -> None:
    assert 6 * CALLS == compare(6)["calls"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_short_cut_decides_as_judging_every_call_does_over_200_000_calls() -> None:
    tally = compare(EXAMPLES)

    assert tally["calls"] >= 200_000
    assert tally["quiet"] >= 10_000, "the short cut was hardly taken"
    assert tally["moves"] >= 2_000, "hardly anything was decided"
    for state in (State.CLOSED, State.OPEN, State.HALF_OPEN, State.RECOVERING, State.METRICS_ONLY):
        assert tally[state] >= 1_000, state


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_failures_that_cannot_trip_are_decided_as_if_each_was_judged() -> None:
    tally = compare(EXAMPLES // 2, tolerant_families())

    assert tally["quiet failures"] >= 400, "failures hardly took the short cut"
    assert tally["moves"] >= 500, "hardly anything was decided"


@pytest.mark.parametrize(
    ("window", "until"), [(CountWindow(10), 0.1), (TimeWindow(10, 10), 0.1), (TimeWindow(0.5, 10), 0.05)]
)
def test_a_calm_lasts_a_tenth_of_a_second_and_no_longer_than_its_bucket(
    window: CountWindow | TimeWindow, until: float
) -> None:
    breaker = CircuitBreaker("x", window=window, minimum_calls=2, clock=FakeClock(0.0))
    breaker.call(int)

    assert until == breaker._circuit.state.calm_until
