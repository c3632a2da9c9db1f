from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfopen._core.retry_budget import TokenBucket
from halfopen.errors import ConfigError
from halfopen.retry import Retry, RetryBudget
from halfopen.testing import FakeClock

shares = st.integers(1, 1000).map(lambda thousandths: thousandths / 1000)


@given(shares, st.integers(1, 20), st.floats(0, 5), st.lists(st.sampled_from(["call", "retry", "wait"]), max_size=300))
def test_retries_never_exceed_burst_plus_share_of_calls_plus_what_comes_by_itself(
    share: float, burst: int, per_second: float, story: list[str]
) -> None:
    bucket = TokenBucket(share, burst, per_second, now=0.0)
    now, calls, retries = 0.0, 0, 0

    for event in story:
        if event == "call":
            bucket.pay_in()
            calls += 1
        elif event == "wait":
            now += 0.37
        else:
            retries += bucket.take(now)

        assert retries <= burst + share * calls + per_second * now + 1e-6


@given(shares, st.integers(1, 50))
def test_what_is_saved_up_never_exceeds_the_burst(share: float, burst: int) -> None:
    bucket = TokenBucket(share, burst, 1.0, now=0.0)
    for _ in range(500):
        bucket.pay_in()

    granted = [bucket.take(1e6) for _ in range(burst + 5)]

    assert burst == sum(granted)


def test_ten_calls_at_a_tenth_pay_for_exactly_one_retry() -> None:
    bucket = TokenBucket(0.1, 1, 0.0, now=0.0)
    assert bucket.take(0.0)

    granted = []
    for _ in range(30):
        bucket.pay_in()
        granted.append(bucket.take(0.0))

    assert [9, 19, 29] == [number for number, taken in enumerate(granted) if taken]


def test_frequent_questions_do_not_starve_the_slow_trickle() -> None:
    bucket = TokenBucket(0.1, 1, 0.001, now=0.0)
    assert bucket.take(0.0)

    asked = [bucket.take(second / 10) for second in range(1, 10_100)]

    assert 1 == sum(asked)


def test_an_outage_meets_the_share_and_not_a_multiple() -> None:
    clock = FakeClock()
    budget = RetryBudget(0.2, burst=5, clock=clock)
    retries = [Retry(name, on=ConnectionError, attempts=4, budget=budget, clock=clock) for name in ("a", "b")]
    reached = 0

    def down() -> None:
        nonlocal reached
        reached += 1
        raise ConnectionError

    for number in range(1000):
        with pytest.raises(ConnectionError):
            retries[number % 2].call(down)

    assert 1000 + 200 <= reached <= 1000 + 200 + 5
    assert 1000 == sum(sum(retry.snapshot().calls.values()) for retry in retries)
    snapshot = budget.snapshot()
    assert (1000, reached - 1000) == (snapshot.calls, snapshot.granted)
    assert snapshot.denied == sum(retry.snapshot().calls["failed_budget"] for retry in retries)


def test_a_retry_that_does_not_happen_for_another_reason_costs_nothing() -> None:
    clock = FakeClock()
    budget = RetryBudget(clock=clock)
    retry = Retry("r", on=ConnectionError, attempts=2, budget=budget, total=1, backoff=5, clock=clock)

    def down() -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        retry.call(down)

    assert 10 == budget.snapshot().tokens
    assert 1 == retry.snapshot().calls["failed_deadline"]


def test_time_pays_for_rare_callers() -> None:
    clock = FakeClock()
    budget = RetryBudget(0.1, burst=1, per_second=0.5, clock=clock)

    first = [budget.take(), budget.take()]
    clock.advance(2)
    after = [budget.take(), budget.take()]

    assert [True, False, True, False] == first + after


def test_all_mistakes_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        RetryBudget(50, burst=0, per_second=-1)

    assert ["share", "burst", "per_second"] == [mistake.path for mistake in caught.value.mistakes]


@pytest.mark.parametrize("value", [math.nan, math.inf, -1, True, "5", None])
@pytest.mark.parametrize("field", ["share", "burst", "per_second"])
def test_a_setting_that_is_no_sensible_number_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=field):
        RetryBudget(**{field: value})


def test_a_copy_is_fresh_and_set_alike() -> None:
    budget = RetryBudget(0.5, burst=2, per_second=0.25)
    budget.take()

    for other in (copy.copy(budget), pickle.loads(pickle.dumps(budget))):
        assert repr(budget) == repr(other)
        assert 2 == other.snapshot().tokens
