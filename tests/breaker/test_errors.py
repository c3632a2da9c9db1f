"""Errors say what the caller can act on, cost little, and travel."""

from __future__ import annotations

import copy
import pickle
from typing import Any
from unittest import mock

import pytest

import halfopen
from halfopen import (
    BulkheadFullError,
    CallTimeoutError,
    CircuitBreaker,
    CircuitOpenError,
    ConfigError,
    CountWindow,
    HalfOpen,
    HalfOpenError,
    Mistake,
    Ramp,
    RateLimitedError,
    RejectedError,
    State,
    TimeWindow,
)
from halfopen.testing import FakeClock

EXAMPLES: list[HalfOpenError] = [
    HalfOpenError("text"),
    RejectedError("name"),
    CircuitOpenError("bank", "open", "open", 1.5),
    CircuitOpenError("bank", "half_open", "trial_budget", None),
    BulkheadFullError("bank", 3),
    BulkheadFullError("bank", 3, "wait_timeout"),
    RateLimitedError("bank", 0.25),
    CallTimeoutError("bank", 2.0),
    ConfigError([Mistake("path", 3, "a share in (0, 1]"), Mistake("other", "x", "a number", "wrong_type")]),
]
PUBLIC = ("name", "state", "reason", "retry_after", "limit", "seconds", "mistakes")


@pytest.mark.parametrize("error", EXAMPLES, ids=repr)
@pytest.mark.parametrize("how", [*range(pickle.HIGHEST_PROTOCOL + 1), "copy", "deepcopy"])
def test_every_error_pickles_and_copies(error: HalfOpenError, how: int | str) -> None:
    error.add_note("a note")

    other = pickle.loads(pickle.dumps(error, protocol=how)) if isinstance(how, int) else getattr(copy, how)(error)

    assert type(error) is type(other)
    assert str(error) == str(other)
    assert repr(error) == repr(other)
    for name in PUBLIC:
        if hasattr(error, name):
            assert getattr(error, name) == getattr(other, name)


def test_the_tree() -> None:
    assert issubclass(RejectedError, HalfOpenError)
    for kind in (CircuitOpenError, BulkheadFullError, RateLimitedError):
        assert RejectedError is kind.__base__
    assert issubclass(CallTimeoutError, TimeoutError)
    assert issubclass(CallTimeoutError, HalfOpenError)
    assert issubclass(ConfigError, ValueError)
    assert issubclass(ConfigError, HalfOpenError)
    assert not issubclass(CallTimeoutError, RejectedError)


def refusal(breaker: CircuitBreaker) -> CircuitOpenError:
    with pytest.raises(CircuitOpenError) as refused:
        breaker.acquire()
    return refused.value


def test_a_refusal_says_who_why_and_until_when(clock: FakeClock) -> None:
    half_open = HalfOpen(permitted_calls=1, trial_timeout=7.0)
    breaker = CircuitBreaker("bank", clock=clock, half_open=half_open, ramp=Ramp(duration=60, start=0.1))

    breaker.trip(30.0)
    clock.advance(10.0)
    opened = refusal(breaker)
    breaker.try_now()
    trial = breaker.acquire()
    clock.advance(3.0)
    budget = refusal(breaker)
    again = refusal(breaker)
    trial.success()
    assert breaker.acquire()
    ramp = refusal(breaker)
    breaker.force_open()
    forced = refusal(breaker)
    breaker.force_open(until=9.0)
    clock.advance(1.0)
    forced_for = refusal(breaker)

    assert ("bank", "open", "open", 20.0) == (opened.name, opened.state, opened.reason, opened.retry_after)
    assert ("half_open", "trial_budget", None) == (budget.state, budget.reason, budget.retry_after)
    assert ("half_open", "trial_budget", None) == (again.state, again.reason, again.retry_after)
    assert ("recovering", "recovering", None) == (ramp.state, ramp.reason, ramp.retry_after)
    assert ("forced_open", "forced_open", None) == (forced.state, forced.reason, forced.retry_after)
    assert ("forced_open", 8.0) == (forced_for.reason, forced_for.retry_after)
    assert "circuit 'bank' refused the call: it is open; try again in 20 s" == str(opened)
    assert "every trial call is taken" in str(budget)
    assert "by an order" in str(forced)


def test_a_call_that_is_not_eligible_says_so(clock: FakeClock) -> None:
    half_open = HalfOpen(eligible=lambda call: call.label == "write")
    breaker = CircuitBreaker("bank", clock=clock, half_open=half_open)
    breaker.try_now()

    assert "not_eligible" == refusal(breaker).reason
    assert breaker.acquire(halfopen.Call(label="write"))


@pytest.mark.parametrize("state", [State.OPEN, State.FORCED_OPEN, State.HALF_OPEN])
def test_no_message_is_built_before_somebody_reads_it(make: Any, state: State) -> None:
    breaker = make(state, half_open=HalfOpen(permitted_calls=1))
    held = breaker.acquire() if state is State.HALF_OPEN else None

    with mock.patch.object(CircuitOpenError, "_sentence", return_value="read") as sentence:
        error = refusal(breaker)
        _ = (error.name, error.state, error.reason, error.retry_after)
        sentence.assert_not_called()
        assert "read" == str(error)
    assert held is None or not held.settled


def test_each_refusal_is_an_error_of_its_own(make: Any) -> None:
    breaker = make(State.OPEN)

    one, other = refusal(breaker), refusal(breaker)

    assert one is not other
    assert one.__traceback__ is not other.__traceback__


NO_NUMBERS = [0, -1, float("nan"), float("inf"), True, "5", [], None]


@pytest.mark.parametrize("wrong", NO_NUMBERS, ids=repr)
@pytest.mark.parametrize(
    ("name", "optional"),
    [
        ("minimum_calls", True),
        ("failure_rate_threshold", True),
        ("slow_call_rate_threshold", True),
        ("slow_call_duration", True),
        ("failure_count_threshold", True),
        ("consecutive_failures", True),
        ("wait_in_open", False),
    ],
)
def test_no_number_where_one_is_wanted_is_refused(name: str, optional: bool, wrong: Any) -> None:
    if wrong is None and optional:
        CircuitBreaker("x", **{name: wrong})
        return
    with pytest.raises(ConfigError) as refused:
        CircuitBreaker("x", **{name: wrong})

    assert [name] == [mistake.path for mistake in refused.value.mistakes]
    assert name in str(refused.value)


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), True, "5"], ids=repr)
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (CountWindow, "size"),
        (TimeWindow, "seconds"),
        (TimeWindow, "buckets"),
        (HalfOpen, "permitted_calls"),
        (HalfOpen, "max_concurrent_calls"),
        (HalfOpen, "failure_rate_threshold"),
        (HalfOpen, "slow_call_rate_threshold"),
        (HalfOpen, "trial_timeout"),
        (HalfOpen, "max_ignored"),
        (HalfOpen, "max_duration"),
        (Ramp, "duration"),
        (Ramp, "start"),
        (Ramp, "aggression"),
        (halfopen.constant, "seconds"),
        (halfopen.exponential, "first"),
        (halfopen.exponential, "factor"),
        (halfopen.exponential, "cap"),
    ],
)
def test_no_number_in_a_part_is_refused(kind: Any, name: str, wrong: Any) -> None:
    defaults = {"seconds": 5.0} if kind is TimeWindow and name != "seconds" else {}

    with pytest.raises(ConfigError, match=name):
        kind(**{**defaults, name: wrong})


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        CircuitBreaker(  # type: ignore[call-arg]
            "",
            minimum_calls=0,
            failure_rate_threshold=50,
            slow_call_duration="5",  # type: ignore[arg-type]
            wait_in_open=float("nan"),
            classify=int,  # type: ignore[arg-type]
            automatic_half_open=1,  # type: ignore[arg-type]
        )

    assert {
        "name",
        "minimum_calls",
        "failure_rate_threshold",
        "slow_call_duration",
        "wait_in_open",
        "classify",
        "automatic_half_open",
    } == {mistake.path for mistake in refused.value.mistakes}
    assert "failure_rate_threshold is a share in (0, 1], not 50" in str(refused.value)


def test_a_minimum_above_the_window_names_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"(?s)30.*20|20.*30"):
        CircuitBreaker("x", window=CountWindow(20), minimum_calls=30)


def test_a_value_that_cannot_be_shown_is_still_refused() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    with pytest.raises(ConfigError, match="Broken whose repr raises RuntimeError"):
        CircuitBreaker("x", minimum_calls=Broken())  # type: ignore[arg-type]
