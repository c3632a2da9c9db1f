"""Recorded events, and breakers in a wanted state."""

from __future__ import annotations

import pytest

from halfopen import CallFailed, CallSucceeded, CircuitBreaker, CircuitTransitioned, HalfOpen, Ramp, State
from halfopen._runtime.bus import Bus
from halfopen.testing import FakeClock, RecordedEvents, put_into, record_events


def test_events_are_recorded_while_the_block_runs() -> None:
    breaker = CircuitBreaker("x")

    breaker.call(int)
    with record_events(breaker) as events:
        breaker.call(int)
        breaker.trip()
    breaker.reset()

    assert ["CallSucceeded", "CircuitTransitioned"] == events.kinds
    assert [State.OPEN] == [move.new for move in events.of(CircuitTransitioned)]
    assert [] == events.of(CallFailed)


def test_only_the_wanted_kinds_are_recorded() -> None:
    breaker = CircuitBreaker("x")

    with record_events(breaker, CallSucceeded) as events:
        breaker.call(int)
        breaker.trip()

    assert ["CallSucceeded"] == events.kinds


def test_a_block_that_raises_stops_recording_too() -> None:
    breaker = CircuitBreaker("x")

    with pytest.raises(KeyError), record_events(breaker) as events:
        raise KeyError
    breaker.call(int)

    assert [] == events
    assert () == breaker._bus._subscriptions


def test_the_events_of_a_bus_are_recorded() -> None:
    bus = Bus()
    one, other = CircuitBreaker("one", bus=bus), CircuitBreaker("other", bus=bus)

    with record_events(bus) as events:
        one.call(int)
        other.call(int)

    assert ["one", "other"] == [event.name for event in events]


def test_recorded_events_are_a_list() -> None:
    assert isinstance(RecordedEvents(), list)


@pytest.mark.parametrize("begin", [state for state in State if state is not State.RECOVERING])
@pytest.mark.parametrize("state", State)
def test_a_breaker_is_put_into_every_state_from_every_other(begin: State, state: State) -> None:
    half_open = HalfOpen(permitted_calls=3, max_concurrent_calls=1)
    breaker = CircuitBreaker("x", clock=FakeClock(), ramp=Ramp(), half_open=half_open)

    put_into(breaker, begin)
    returned = put_into(breaker, state)

    assert returned is breaker
    assert state is breaker.state


def test_recovering_needs_a_ramp() -> None:
    with pytest.raises(ValueError, match="'x' has no ramp"):
        put_into(CircuitBreaker("x"), State.RECOVERING)
