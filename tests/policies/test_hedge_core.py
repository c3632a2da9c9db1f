from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halfopen._core.hedging import HedgeBudget, Latencies, Quantile, Race, Verdict
from halfopen.errors import ConfigError


@settings(max_examples=200, deadline=None)
@given(st.floats(0.001, 1.0), st.lists(st.booleans(), max_size=300))
def test_extra_attempts_never_exceed_their_share_of_calls(share: float, wanted: list[bool]) -> None:
    budget = HedgeBudget(share)
    spent = 0

    for calls, wants in enumerate(wanted, 1):
        budget.earn()
        spent += wants and budget.spend()
        assert spent <= 1 + share * calls + 1e-6


def test_ten_calls_pay_for_one_attempt_at_a_tenth() -> None:
    budget = HedgeBudget(0.1)
    assert budget.spend()

    for _ in range(9):
        budget.earn()
        assert not budget.spend()
    budget.earn()

    assert budget.spend()


def test_a_quiet_time_does_not_pay_for_a_storm() -> None:
    budget = HedgeBudget(0.5)
    for _ in range(10_000):
        budget.earn()

    assert 10 == sum(budget.spend() for _ in range(100))


def test_without_a_share_everything_is_paid() -> None:
    assert all(HedgeBudget(None).spend() for _ in range(100))


@settings(max_examples=200, deadline=None)
@given(st.floats(0.01, 0.99), st.lists(st.floats(0, 100), max_size=150))
def test_the_quantile_is_the_nearest_rank_of_the_last_durations(share: float, durations: list[float]) -> None:
    latencies = Latencies(Quantile(share, window=50, minimum=10, at_least=0.0))

    for count, seconds in enumerate(durations, 1):
        latencies.add(seconds)
        last = sorted(durations[max(0, count - 50) : count])
        expected = None if len(last) < 10 else last[math.ceil(share * len(last)) - 1]
        assert expected == latencies.value()


def test_a_very_fast_dependency_is_not_hedged_over_noise() -> None:
    latencies = Latencies(Quantile(0.5, minimum=1, at_least=0.01))

    latencies.add(0.0001)

    assert 0.01 == latencies.value()


def test_the_first_success_wins_and_later_ones_are_void() -> None:
    race = Race()
    slow, fast = race.start(), race.start()

    race.succeed(fast, "fast")
    race.succeed(slow, "slow")

    assert (Verdict.ANSWERED, 1, "fast") == (race.verdict, race.winner, race.value)


def test_a_failure_waits_for_the_other_attempt() -> None:
    race = Race()
    race.start()
    second = race.start()

    race.fail(ValueError("first"))

    assert race.verdict is None
    race.succeed(second, 2)
    assert 2 == race.value


def test_if_all_fail_the_first_error_leads() -> None:
    race = Race()
    race.start()
    race.start()
    errors = [ValueError("one"), ValueError("two")]

    for error in errors:
        race.fail(error)

    assert Verdict.FAILED is race.verdict
    assert errors == race.errors


def test_an_interrupt_ends_the_race_at_once() -> None:
    race = Race()
    race.start()
    race.start()
    interrupt = KeyboardInterrupt()

    race.fail(interrupt, at_once=True)

    assert Verdict.FAILED is race.verdict
    assert interrupt is race.errors[0]


@pytest.mark.parametrize("wrong", [0, 1, 1.5, -1, math.nan, math.inf, True, "5"])
def test_a_share_outside_of_its_range_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match="share"):
        Quantile(wrong)  # type: ignore[arg-type]


def test_every_mistake_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        Quantile(2, window=1, minimum=0, at_least=-1)

    assert ["share", "window", "minimum", "at_least"] == [mistake.path for mistake in caught.value.mistakes]
    with pytest.raises(ConfigError, match="minimum: at most window"):
        Quantile(0.5, window=10, minimum=11)
