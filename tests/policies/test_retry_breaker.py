"""A retry and the circuit breaker around it, or inside it."""

from __future__ import annotations

from typing import Any

import pytest

from halfopen._core.states import State
from halfopen.circuit_breaker import CircuitBreaker
from halfopen.errors import BulkheadFullError, CircuitOpenError, RateLimitedError
from halfopen.retry import Retry
from halfopen.testing import FakeClock, put_into


def down() -> None:
    raise ConnectionError


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def a_breaker(clock: FakeClock, **settings: Any) -> CircuitBreaker:
    return CircuitBreaker("bank", clock=clock, wait_in_open=30.0, **settings)


def a_retry(clock: FakeClock, **settings: Any) -> Retry:
    return Retry("bank", clock=clock, **{"on": ConnectionError, "attempts": 5, "backoff": 1.0, **settings})


def test_inside_a_circuit_that_opens_meanwhile_it_stops_at_once(clock: FakeClock) -> None:
    breaker = a_breaker(clock)
    retry = a_retry(clock, breaker=breaker)
    made = []

    def fn() -> None:
        made.append(clock.monotonic())
        if len(made) == 2:
            breaker.trip()
        raise ConnectionError

    with pytest.raises(ConnectionError) as caught:
        breaker.call(retry.call, fn)

    assert [0.0, 1.0] == made
    assert ["gave up after 2 attempts in 1.0 s (retry 'bank'): circuit 'bank' is open"] == caught.value.__notes__
    assert 1 == retry.snapshot().calls["failed_not_retried"]


def test_a_circuit_that_opens_during_the_sleep_suppresses_the_next_attempt(clock: FakeClock) -> None:
    breaker = a_breaker(clock)
    retry = a_retry(clock, breaker=breaker)
    made = []
    clock.call_at(0.5, breaker.trip)

    def fn() -> None:
        made.append(clock.monotonic())
        raise ConnectionError

    with pytest.raises(ConnectionError) as caught:
        breaker.call(retry.call, fn)

    assert [0.0] == made
    assert "circuit 'bank' is open" in caught.value.__notes__[0]


def test_a_pipeline_may_name_the_breaker_later(clock: FakeClock) -> None:
    retry, breaker = a_retry(clock), a_breaker(clock)
    put_into(breaker, State.FORCED_OPEN)

    retry.breaker = breaker
    with pytest.raises(ConnectionError):
        retry.call(down)

    assert [] == clock.sleeps
    assert breaker is retry.breaker


@pytest.mark.parametrize("state", [State.CLOSED, State.DISABLED, State.METRICS_ONLY])
def test_a_circuit_that_lets_calls_through_does_not_hold_retries_back(clock: FakeClock, state: State) -> None:
    breaker = a_breaker(clock)
    put_into(breaker, state)
    retry = a_retry(clock, breaker=breaker)

    with pytest.raises(ConnectionError):
        retry.call(down)

    assert 4 == len(clock.sleeps)


def test_a_trial_call_is_one_attempt_even_if_the_retry_knows_no_breaker(clock: FakeClock) -> None:
    breaker, retry = a_breaker(clock), a_retry(clock)
    breaker.trip()
    clock.advance(30)
    made = []

    def fn() -> None:
        made.append(breaker.state)
        raise ConnectionError

    with pytest.raises(ConnectionError):
        breaker.call(retry.call, fn)

    assert [State.HALF_OPEN] == made
    assert State.OPEN == breaker.state


def test_outside_an_open_circuit_it_does_not_retry_the_refusal(clock: FakeClock) -> None:
    breaker = a_breaker(clock)
    breaker.trip()
    retry = a_retry(clock, on=Exception)

    with pytest.raises(CircuitOpenError):
        retry.call(breaker.call, down)

    assert [] == clock.sleeps
    assert 1 == retry.snapshot().calls["failed_not_retried"]


def test_outside_it_waits_for_a_refusal_that_fits_its_total(clock: FakeClock) -> None:
    breaker = a_breaker(clock)
    breaker.trip()
    retry = a_retry(clock, total=60)

    assert "fine" == retry.call(breaker.call, lambda: "fine")
    assert [30.0] == clock.sleeps


def test_outside_it_does_not_wait_for_a_refusal_that_does_not_fit(clock: FakeClock) -> None:
    breaker = a_breaker(clock)
    breaker.trip()
    retry = a_retry(clock, total=20)

    with pytest.raises(CircuitOpenError):
        retry.call(breaker.call, down)

    assert [] == clock.sleeps
    assert 1 == retry.snapshot().calls["failed_deadline"]


@pytest.mark.parametrize("refusal", [BulkheadFullError("pool", 3), CircuitOpenError("c", "open", "trial_budget")])
def test_a_refusal_that_names_no_time_is_never_retried(clock: FakeClock, refusal: Exception) -> None:
    retry = a_retry(clock, on=Exception, total=60)

    def refused() -> None:
        raise refusal

    with pytest.raises(type(refusal)):
        retry.call(refused)

    assert [] == clock.sleeps


def test_a_rate_limit_is_waited_for_within_the_total(clock: FakeClock) -> None:
    refusals = [RateLimitedError("r", 2.5)]

    def limited() -> str:
        if refusals:
            raise refusals.pop()
        return "fine"

    assert "fine" == a_retry(clock, total=60).call(limited)
    assert [2.5] == clock.sleeps


def test_ignore_holds_for_refusals_too(clock: FakeClock) -> None:
    def limited() -> None:
        raise RateLimitedError("r", 1)

    with pytest.raises(RateLimitedError):
        a_retry(clock, total=60, ignore=RateLimitedError).call(limited)

    assert [] == clock.sleeps
