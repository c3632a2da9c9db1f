from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pytest

from halfopen import CircuitBreaker, CountWindow, HalfOpen, Snapshot, State
from halfopen.testing import FakeClock, put_into


class Make(Protocol):
    def __call__(self, state: State = State.CLOSED, **settings: Any) -> CircuitBreaker: ...


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(start=1000.0)


@pytest.fixture
def make(clock: FakeClock) -> Make:
    """Make a breaker on the fake clock, in a state; a round takes up to ten trial calls at once."""

    def make(state: State = State.CLOSED, **settings: Any) -> CircuitBreaker:
        defaults: dict[str, Any] = {
            "window": CountWindow(100),
            "minimum_calls": 100,
            "slow_call_duration": 5.0,
            "half_open": HalfOpen(permitted_calls=10, trial_timeout=1000.0),
        }
        return put_into(CircuitBreaker("made", clock=clock, **{**defaults, **settings}), state)

    return make


Counts = tuple[int, int, int]


def counts(breaker: CircuitBreaker) -> Counts:
    """Return successes, failures and ignored calls so far."""
    counters = breaker.snapshot().counters
    return counters.successes, counters.failures, counters.ignored


@pytest.fixture
def counted() -> Callable[[CircuitBreaker], Counts]:
    return counts


@pytest.fixture
def balanced() -> Callable[[CircuitBreaker], Snapshot]:
    """Check that no permit is in flight and that the books balance; return the snapshot."""

    def check(breaker: CircuitBreaker) -> Snapshot:
        look = breaker.snapshot()
        permits = look.counters.permits
        assert 0 == permits.in_flight, permits
        assert permits.issued == permits.settled + permits.in_flight + permits.expired + permits.abandoned
        assert "running" not in [slot.status for slot in look.trials]
        return look

    return check
