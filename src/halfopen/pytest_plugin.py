"""
Fixtures for pytest, installed with halfopen.

`fake_clock` is a `FakeClock`; `make_breaker` makes circuit breakers on it; `halfopen_events` holds what they publish.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from halfopen import CircuitBreaker, State
    from halfopen._runtime.bus import Bus
    from halfopen.testing import FakeClock, RecordedEvents


class MakeBreaker(Protocol):
    """What the fixture `make_breaker` gives."""

    def __call__(self, name: str = "test", *, state: State | None = None, **settings: Any) -> CircuitBreaker:
        """Make a breaker on the fake clock, in the wanted state."""
        ...


# Imported late: coverage must be able to start before the package it measures.
@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock that moves only when told."""
    from halfopen.testing import FakeClock

    return FakeClock()


@pytest.fixture
def halfopen_bus() -> Bus:
    """The bus on which the breakers of `make_breaker` publish."""
    from halfopen._runtime.bus import Bus

    return Bus()


@pytest.fixture
def halfopen_events(halfopen_bus: Bus) -> RecordedEvents:
    """The events of the breakers of `make_breaker`, in order."""
    from halfopen.testing import RecordedEvents

    events = RecordedEvents()
    halfopen_bus.subscribe(events.append)
    return events


@pytest.fixture
def make_breaker(fake_clock: FakeClock, halfopen_bus: Bus) -> MakeBreaker:
    """Make circuit breakers on the fake clock."""
    from halfopen import CircuitBreaker
    from halfopen.testing import put_into

    def make(name: str = "test", *, state: State | None = None, **settings: Any) -> CircuitBreaker:
        breaker = CircuitBreaker(name, clock=fake_clock, bus=halfopen_bus, **settings)
        return breaker if state is None else put_into(breaker, state)

    return make
