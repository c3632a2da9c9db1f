"""Listeners hear everything in order, and can do no harm."""

from __future__ import annotations

import gc
import logging
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import halfopen._core.events as events_module
from halfopen import (
    CallFailed,
    CallIgnored,
    CallRejected,
    CallSucceeded,
    CircuitBreaker,
    CircuitOpenError,
    CircuitTransitioned,
    Event,
    HalfOpen,
    LateResult,
    State,
    ThresholdExceeded,
    TrialExpired,
)
from halfopen._runtime.bus import Bus
from halfopen.testing import FakeClock, record_events


def fails() -> None:
    raise ValueError("x")


def attempt(breaker: CircuitBreaker, call: Any = fails) -> None:
    try:
        breaker.call(call)
    except (ValueError, CircuitOpenError, KeyboardInterrupt):
        return


def interrupted() -> None:
    raise KeyboardInterrupt


def live(breaker: CircuitBreaker, clock: FakeClock) -> None:
    """Make each kind of event happen."""
    late = breaker.acquire()
    breaker.call(int)
    attempt(breaker, interrupted)
    for _ in range(30):
        attempt(breaker)
    late.success()
    breaker.trip(1.0)
    clock.advance(1.0)
    hung = breaker.acquire()
    clock.advance(1000.0)
    breaker.tick()
    hung.success()
    breaker.observe()
    for _ in range(30):
        attempt(breaker)


ALL_KINDS = {
    CircuitTransitioned,
    CallRejected,
    CallSucceeded,
    CallFailed,
    CallIgnored,
    ThresholdExceeded,
    TrialExpired,
    LateResult,
}


def test_each_kind_of_event_is_heard_by_those_who_ask_for_it(clock: FakeClock) -> None:
    breaker = CircuitBreaker("x", clock=clock)
    heard: dict[type[Event], list[Event]] = {kind: [] for kind in ALL_KINDS}
    everything: list[Event] = []
    for kind in ALL_KINDS:
        breaker.subscribe(heard[kind].append, kind)
    breaker.subscribe(everything.append)

    live(breaker, clock)

    assert {kind: {kind} for kind in ALL_KINDS} == {kind: {type(it) for it in got} for kind, got in heard.items()}
    assert len(everything) == sum(len(got) for got in heard.values())
    assert {"x"} == {event.name for event in everything}
    assert sorted(event.at for event in everything) == [event.at for event in everything]


def test_events_are_frozen_data(clock: FakeClock) -> None:
    import copy
    import dataclasses
    import pickle

    breaker = CircuitBreaker("x", clock=clock)
    with record_events(breaker) as events:
        live(breaker, clock)

    for event in events:
        assert dataclasses.is_dataclass(event)
        with pytest.raises(dataclasses.FrozenInstanceError):
            event.name = "y"  # type: ignore[misc]
        assert event == pickle.loads(pickle.dumps(event)) == copy.copy(event)
        assert not hasattr(event, "__dict__")


def test_several_kinds_can_be_asked_for_at_once(clock: FakeClock) -> None:
    breaker = CircuitBreaker("x", clock=clock)
    with record_events(breaker, CallFailed, CallIgnored) as events:
        live(breaker, clock)

    assert {CallFailed, CallIgnored} == {type(event) for event in events}


@pytest.mark.parametrize("listener", [None, 3, "print"])
def test_what_cannot_be_called_is_no_listener(listener: Any) -> None:
    with pytest.raises(TypeError, match="listener"):
        CircuitBreaker("x").subscribe(listener)


def test_a_coroutine_function_is_no_listener() -> None:
    async def listen(event: Event) -> None: ...

    with pytest.raises(TypeError, match="listener"):
        CircuitBreaker("x").subscribe(listen)


@pytest.mark.parametrize("kind", [int, "CallFailed", None])
def test_what_is_no_event_cannot_be_asked_for(kind: Any) -> None:
    with pytest.raises(TypeError, match="event"):
        CircuitBreaker("x").subscribe(print, kind)


# Order


def test_moves_are_heard_in_the_order_of_their_epochs_from_eight_threads() -> None:
    breaker = CircuitBreaker("x")
    moves: list[CircuitTransitioned] = []
    breaker.subscribe(moves.append, CircuitTransitioned)
    orders = [breaker.trip, breaker.reset, breaker.try_now, breaker.force_open, breaker.observe, breaker.disable]

    def give_orders(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(300):
            chance.choice(orders)()

    threads = [threading.Thread(target=give_orders, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert list(range(2, 2402)) == [move.epoch for move in moves]
    assert [move.new for move in moves[:-1]] == [move.old for move in moves[1:]]


def test_moves_stay_in_order_when_the_wait_is_computed_by_user_code(clock: FakeClock) -> None:
    chance = random.Random(1)

    def backoff(step: int, rng: random.Random) -> float:
        if chance.random() < 0.3:
            breaker.reset()
        return 1.0

    breaker = CircuitBreaker("x", clock=clock, wait_in_open=backoff)
    with record_events(breaker, CircuitTransitioned) as moves:
        for _ in range(50):
            chance.choice([breaker.trip, breaker.reset, breaker.try_now])()

    epochs = [move.epoch for move in moves]  # type: ignore[attr-defined]
    assert list(range(2, 2 + len(epochs))) == epochs
    assert len(epochs) > 50


# Listeners that misbehave


def test_a_raising_listener_changes_no_result_and_the_others_hear(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    breaker = CircuitBreaker("x", clock=clock, minimum_calls=2)
    heard: list[Event] = []

    def bad(event: Event) -> None:
        raise ZeroDivisionError("the listener's")

    breaker.subscribe(bad)
    breaker.subscribe(heard.append)

    assert 3 == breaker.call(lambda: 3)
    with pytest.raises(ValueError, match="x"):
        breaker.call(fails)
    with pytest.raises(CircuitOpenError):
        breaker.call(fails)
    with pytest.raises(CircuitOpenError), breaker.acquire():
        pass

    assert ["CallSucceeded", "CallFailed", "CircuitTransitioned", "CallRejected", "CallRejected"] == [
        type(event).__name__ for event in heard
    ]
    assert 5 == breaker._bus.errors
    assert logging.ERROR == caplog.records[0].levelno
    assert "a listener raised on CallSucceeded of 'x'" in caplog.text


def test_a_listener_may_call_order_and_look(clock: FakeClock) -> None:
    breaker = CircuitBreaker("x", clock=clock, minimum_calls=2, half_open=HalfOpen(permitted_calls=1))
    heard: list[tuple[str, State]] = []

    def meddle(event: Event) -> None:
        heard.append((type(event).__name__, breaker.state))
        breaker.snapshot()
        breaker.explain()
        if isinstance(event, CircuitTransitioned) and event.new is State.OPEN:
            breaker.try_now(by="listener")
            assert "trial" == breaker.call(lambda: "trial")

    breaker.subscribe(meddle, CircuitTransitioned)

    attempt(breaker)
    attempt(breaker)

    assert State.CLOSED is breaker.state
    assert ["open", "half_open", "closed"] == [move.new.value for move in breaker.history]
    assert 3 == len(heard)


def test_a_listener_that_always_reacts_is_not_nested_for_ever(clock: FakeClock) -> None:
    breaker = CircuitBreaker("x", clock=clock)
    depth = deepest = heard = 0

    def react(event: Event) -> None:
        nonlocal depth, deepest, heard
        depth += 1
        deepest, heard = max(depth, deepest), heard + 1
        if heard < 3000:
            breaker.call(int)
        depth -= 1

    breaker.subscribe(react, CallSucceeded)
    breaker.call(int)

    assert (3000, 1) == (heard, deepest)


def test_a_listener_may_leave_and_bring_others_while_it_is_called(clock: FakeClock) -> None:
    breaker = CircuitBreaker("x", clock=clock)
    heard: list[str] = []

    def once(event: Event) -> None:
        heard.append("once")
        leave_once()
        leave_next()
        breaker.subscribe(lambda event: heard.append("new"))

    def following(event: Event) -> None:
        heard.append("next")

    leave_once = breaker.subscribe(once)
    leave_next = breaker.subscribe(following)
    breaker.subscribe(lambda event: heard.append("last"))

    breaker.call(int)
    assert ["once", "last"] == heard
    breaker.call(int)
    assert ["once", "last", "last", "new"] == heard
    leave_once()
    leave_next()


def test_unsubscribing_ends_the_events_and_restores_the_short_cut() -> None:
    breaker = CircuitBreaker("x")
    heard: list[Event] = []

    leave = breaker.subscribe(heard.append)
    breaker.call(int)
    leave()
    breaker.call(int)
    breaker.call(int)

    assert 1 == len(heard)
    assert breaker._circuit.state.quiet
    assert 3 == breaker.snapshot().counters.successes


def test_a_slow_listener_holds_up_nobody_else() -> None:
    breaker = CircuitBreaker("x")
    entered, release = threading.Event(), threading.Event()
    heard: list[Event] = []

    def slow(event: Event) -> None:
        heard.append(event)
        if len(heard) == 1:
            entered.set()
            assert release.wait(60)

    breaker.subscribe(slow, CallSucceeded)
    slow_caller = threading.Thread(target=breaker.call, args=(int,))
    slow_caller.start()
    assert entered.wait(60)

    began = time.monotonic()
    for _ in range(100):
        breaker.call(int)
    spent = time.monotonic() - began
    only_one = len(heard)
    release.set()
    slow_caller.join(60)

    assert (1, 101) == (only_one, len(heard))
    assert spent < 30


def test_events_of_calls_that_a_slow_listener_cannot_take_are_dropped_and_counted_but_moves_never() -> None:
    breaker = CircuitBreaker("x")
    entered, release = threading.Event(), threading.Event()
    heard: list[Event] = []

    def slow(event: Event) -> None:
        heard.append(event)
        if len(heard) == 1:
            entered.set()
            assert release.wait(60)

    breaker.subscribe(slow)
    caller = threading.Thread(target=breaker.call, args=(int,))
    caller.start()
    assert entered.wait(60)
    for _ in range(10_050):
        breaker.call(int)
    for _ in range(5):
        breaker.trip()
        breaker.reset()
    release.set()
    caller.join(60)

    assert 50 == breaker._bus.dropped
    assert 10 == len([event for event in heard if isinstance(event, CircuitTransitioned)])
    assert 1 + 10_000 + 10 == len(heard)
    assert not breaker._bus.waiting


def test_a_listener_that_is_interrupted_does_not_silence_the_bus() -> None:
    breaker = CircuitBreaker("x")
    heard: list[Event] = []

    def listen(event: Event) -> None:
        heard.append(event)
        if len(heard) == 1:
            raise KeyboardInterrupt

    breaker.subscribe(listen)
    with pytest.raises(KeyboardInterrupt):
        breaker.call(int)
    breaker.call(int)

    assert 2 == len(heard)


def test_breakers_on_one_bus_are_heard_together(clock: FakeClock) -> None:
    bus = Bus()
    one, other = (CircuitBreaker(name, clock=clock, bus=bus) for name in ("one", "other"))
    with record_events(bus) as events:
        one.call(int)
        other.trip()
        one.reset()

    assert ["one", "other", "one"] == [event.name for event in events]


def test_a_bus_keeps_no_breaker_alive() -> None:
    import weakref

    bus = Bus()
    bus.subscribe(lambda event: None)
    gone = weakref.ref(CircuitBreaker("gone", bus=bus))
    gc.collect()

    assert gone() is None
    bus.subscribe(lambda event: None)


# Nobody listens


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the events that are constructed."""
    names: list[str] = []
    for name in events_module.__all__:
        kind = getattr(events_module, name)

        def counting(self: Any, *args: Any, _init: Any = kind.__init__, _name: str = name, **kwargs: Any) -> None:
            names.append(_name)
            _init(self, *args, **kwargs)

        monkeypatch.setattr(kind, "__init__", counting)
    yield names


def test_no_event_is_made_that_nobody_wants(clock: FakeClock, made: list[str]) -> None:
    breaker = CircuitBreaker("x", clock=clock)

    live(breaker, clock)

    # The history keeps the moves, and that of the dry run the one opening that there would have been.
    assert {"CircuitTransitioned"} == set(made)
    assert len(breaker.history) + 1 == len(made)


def test_only_the_events_that_somebody_wants_are_made(clock: FakeClock, made: list[str]) -> None:
    breaker = CircuitBreaker("x", clock=clock)
    breaker.subscribe(lambda event: None, LateResult)

    live(breaker, clock)

    assert {"CircuitTransitioned", "LateResult"} == set(made)


# History


def test_the_last_hundred_moves_are_kept(clock: FakeClock) -> None:
    breaker = CircuitBreaker("x", clock=clock)

    assert () == breaker.history
    for _ in range(75):
        breaker.trip(reason="why", by="who")
        breaker.reset()

    assert 100 == len(breaker.history)
    assert list(range(52, 152)) == [move.epoch for move in breaker.history]
    assert ("why", "who", State.OPEN) == (breaker.history[0].note, breaker.history[0].by, breaker.history[0].new)
