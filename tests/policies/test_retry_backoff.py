from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfopen._core.retry_backoff import (
    Delays,
    Jitter,
    constant,
    decorrelated_jitter,
    equal_jitter,
    exponential,
    full_jitter,
    next_delay,
)
from halfopen.errors import ConfigError

steps = st.integers(1, 10_000)
seeds = st.integers(0, 2**32)
series = st.builds(
    lambda first, factor, reach, jitter: exponential(first, factor, first * reach, jitter),
    st.floats(0.001, 1000),
    st.floats(1, 10),
    st.floats(1, 1000),
    st.sampled_from(list(Jitter)),
)


@given(series, steps, seeds, st.none() | st.floats(0, 10_000))
def test_every_delay_lies_between_zero_and_the_cap(backoff: Delays, step: int, seed: int, before: float | None) -> None:
    delay = next_delay(backoff, step, before, random.Random(seed))

    assert 0 <= delay <= backoff.cap


@given(series, steps, seeds)
def test_equal_jitter_keeps_at_least_half_and_full_jitter_anything_of_the_series(
    backoff: Delays, step: int, seed: int
) -> None:
    base = backoff.base(step)

    full = full_jitter(backoff.first, backoff.factor, backoff.cap)(step, random.Random(seed))
    equal = equal_jitter(backoff.first, backoff.factor, backoff.cap)(step, random.Random(seed))

    assert 0 <= full <= base
    assert base / 2 <= equal <= base


@given(st.floats(0.001, 10), st.floats(1, 1000), st.lists(seeds, min_size=1, max_size=30))
def test_decorrelated_jitter_stays_within_three_times_the_delay_before(
    first: float, reach: float, draws: list[int]
) -> None:
    backoff = decorrelated_jitter(first, first * reach)
    before = None

    for step, seed in enumerate(draws, 1):
        delay = next_delay(backoff, step, before, random.Random(seed))

        assert first <= delay <= min(3 * (before or first), backoff.cap)
        before = delay


def test_decorrelated_jitter_without_a_delay_before_draws_from_the_series() -> None:
    draws = [decorrelated_jitter(1, 5)(2, random.Random(seed)) for seed in range(200)]

    assert 1 <= min(draws) < 1.5
    assert 4.5 < max(draws) <= 5


def test_the_plain_series_doubles_up_to_its_cap() -> None:
    backoff = exponential(0.5, 2, 5, jitter="none")

    assert [0.5, 1, 2, 4, 5, 5] == [backoff(step, random) for step in range(1, 7)]


def test_a_million_steps_overflow_nothing() -> None:
    assert 10.0 == exponential(jitter="none")(1_000_000, random)


def test_the_same_seed_gives_the_same_delays() -> None:
    def draw() -> list[float]:
        rng = random.Random(7)
        return [full_jitter()(step, rng) for step in range(1, 20)]

    assert draw() == draw()


def test_a_constant_stays_and_may_be_zero() -> None:
    assert [0.3, 0.3] == [constant(0.3)(step, random) for step in (1, 99)]
    assert 0.0 == constant(0)(3, random)


def test_all_mistakes_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        exponential(-1, 0, math.nan, jitter="lots")

    assert ["first", "factor", "cap", "jitter"] == [mistake.path for mistake in caught.value.mistakes]


@pytest.mark.parametrize("value", [math.inf, math.nan, -1, True, "5", None])
@pytest.mark.parametrize("field", ["first", "factor", "cap"])
def test_a_setting_that_is_no_sensible_number_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=field):
        exponential(**{field: value})


def test_a_cap_below_the_first_delay_and_a_shrinking_factor_are_refused() -> None:
    with pytest.raises(ConfigError, match="cap must be at least first"):
        exponential(5, cap=1)
    with pytest.raises(ConfigError, match="factor is a number of at least 1"):
        exponential(factor=0.5)


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -0.1, True, "1", None])
def test_a_backoff_of_ones_own_that_returns_nonsense_is_found_out(nonsense: Any) -> None:
    with pytest.raises(ValueError, match="seconds of at least 0"):
        next_delay(lambda step, rng: nonsense, 1, None, random)


def test_the_breakers_backoff_serves_a_retry_too() -> None:
    from halfopen._core.backoff import exponential as breakers

    assert 4.0 == next_delay(breakers(1, 2, 100, jitter=0), 3, None, random)


def test_it_describes_itself() -> None:
    assert "0.1 s × 2 up to 10 s, full jitter" == str(exponential())
    assert "2 s" == str(constant(2))
    assert "0.1 s up to 10 s, decorrelated jitter" == str(decorrelated_jitter())
