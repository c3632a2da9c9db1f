"""What a hostile or careless caller may do: absurd numbers, odd forms, classifiers and listeners that misbehave."""

from __future__ import annotations

import asyncio
import copy
import logging
import math
import pickle
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from halfopen import (
    CallSucceeded,
    CircuitBreaker,
    CircuitOpenError,
    ConfigError,
    Failures,
    HalfOpen,
    Ramp,
    Registry,
    State,
    TimeWindow,
    constant,
    exponential,
    in_trial,
)
from halfopen._core.checking import usable_seconds
from halfopen._runtime.clock import _timer
from halfopen.testing import FakeClock, put_into

HUGE = 10**400
"""Finite, but no float."""


def fails() -> None:
    raise LookupError


def trip_by_calls(breaker: CircuitBreaker) -> None:
    with pytest.raises(LookupError):
        breaker.call(fails)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (CircuitBreaker, "slow_call_duration"),
        (CircuitBreaker, "wait_in_open"),
        (CircuitBreaker, "forget_after"),
        (HalfOpen, "trial_timeout"),
        (HalfOpen, "max_duration"),
        (Ramp, "duration"),
        (Ramp, "aggression"),
        (TimeWindow, "seconds"),
        (exponential, "first"),
        (exponential, "factor"),
        (exponential, "cap"),
        (constant, "seconds"),
    ],
)
def test_a_whole_number_beyond_every_float_is_a_mistake_like_infinity(make: Callable[..., Any], name: str) -> None:
    named = {"name": "b"} if make is CircuitBreaker else {}

    with pytest.raises(ConfigError) as caught:
        make(**named, **{name: HUGE})

    assert [name] == [mistake.path for mistake in caught.value.mistakes]


def test_seconds_beyond_every_float_are_not_usable() -> None:
    assert usable_seconds(HUGE) is None


def test_a_permit_that_fails_with_an_absurd_retry_after_is_settled() -> None:
    breaker = CircuitBreaker("b", clock=FakeClock())
    permit = breaker.acquire()

    permit.failure(retry_after=HUGE)

    assert permit.settled
    assert 1 == breaker.snapshot().failures


@pytest.mark.parametrize("order", ["force_open", "disable", "observe"])
def test_an_order_that_would_last_beyond_every_float_is_refused(order: str) -> None:
    breaker = CircuitBreaker("b", clock=FakeClock())

    with pytest.raises(ConfigError, match="until"):
        getattr(breaker, order)(until=HUGE)

    assert State.CLOSED is breaker.state


@pytest.mark.parametrize("name", ["tags", "clock", "rng", "bus"])
@pytest.mark.parametrize(
    "value", [0, -1, math.nan, True, "5", object()], ids=["0", "-1", "nan", "True", "text", "object"]
)
def test_what_is_no_number_is_checked_too(name: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        CircuitBreaker("", **{name: value})  # type: ignore[arg-type]

    assert ["name", name] == [mistake.path for mistake in caught.value.mistakes]


def test_tags_are_text_and_the_breakers_own() -> None:
    tags = {"team": "edi"}
    breaker = CircuitBreaker("b", tags=tags)

    tags["team"] = "other"

    assert {"team": "edi"} == dict(breaker.tags)
    with pytest.raises(ConfigError, match="tags"):
        CircuitBreaker("b", tags={"team": 5})  # type: ignore[dict-item]


def test_a_round_that_is_to_end_closed_by_name_ends_closed() -> None:
    clock = FakeClock()
    half_open = HalfOpen(max_duration=5.0, after_max_duration="closed")  # type: ignore[arg-type]
    breaker = CircuitBreaker("b", clock=clock, half_open=half_open)
    breaker.try_now()

    clock.advance(5.0)

    assert State.CLOSED is breaker.state


@pytest.mark.parametrize("threshold", [1e-10, 1e-12, 5e-324])
def test_a_tiny_threshold_never_opens_a_circuit_without_failures(threshold: float) -> None:
    clock = FakeClock()
    breaker = CircuitBreaker(
        "b", clock=clock, failure_rate_threshold=threshold, slow_call_rate_threshold=threshold, minimum_calls=2
    )

    for _ in range(5):
        breaker.call(int)
        clock.advance(1.0)

    healthy = breaker.state
    trip_by_calls(breaker)

    assert (State.CLOSED, State.OPEN) == (healthy, breaker.state)


def test_buckets_shorter_than_a_clock_can_tell_apart_are_refused() -> None:
    with pytest.raises(ConfigError, match="buckets"):
        TimeWindow(seconds=5e-324, buckets=10)


class Capped:
    """A backoff with an odd `cap`."""

    def __init__(self, cap: object) -> None:
        self.cap = cap

    def __call__(self, step: int, rng: random.Random) -> float:
        return 5.0


@pytest.mark.parametrize(
    "cap", [None, "5", math.nan, -1.0, HUGE, lambda: 5.0], ids=["None", "text", "nan", "-1", "huge", "method"]
)
def test_a_backoff_whose_cap_is_no_number_still_opens_the_circuit(cap: object) -> None:
    breaker = CircuitBreaker("b", clock=FakeClock(), consecutive_failures=1, wait_in_open=Capped(cap))

    trip_by_calls(breaker)

    assert State.OPEN is breaker.state
    assert 5.0 == breaker.snapshot().remaining_wait


def test_the_cap_of_a_backoff_in_user_code_is_not_read_under_the_lock() -> None:
    asked_under_lock: list[bool] = []

    class Asking:
        breaker: CircuitBreaker | None = None

        @property
        def cap(self) -> float:
            if self.breaker is not None:
                asked_under_lock.append(self.breaker._lock._is_owned())  # type: ignore[attr-defined]
            return 50.0

        def __call__(self, step: int, rng: random.Random) -> float:
            return 5.0

    backoff = Asking()
    backoff.breaker = breaker = CircuitBreaker("b", clock=FakeClock(), wait_in_open=backoff)
    breaker.acquire().failure(retry_after=70.0)
    breaker.trip()

    assert True not in asked_under_lock


@pytest.mark.parametrize(
    "backoff", [exponential(30.0, 1e308, 600.0, 0.0), exponential(1e-300, 2.0, 600.0, 0.0)], ids=str
)
@pytest.mark.parametrize("step", [3, 5_000, HUGE], ids=["3", "5000", "huge"])
def test_no_step_overflows_a_backoff(backoff: Callable[[int, random.Random], float], step: int) -> None:
    wait = backoff(step, random.Random(1))

    assert 0 < wait <= 600.0


def saved(**changes: Any) -> dict[str, Any]:
    breaker = CircuitBreaker("b", clock=FakeClock())
    breaker.trip()
    return {**breaker.snapshot().plain(), **changes}


@pytest.mark.parametrize("data", [None, [], "closed", 5, object()], ids=["None", "list", "text", "number", "object"])
def test_what_is_no_snapshot_at_all_is_a_configuration_error(data: Any) -> None:
    breaker = CircuitBreaker("b", clock=FakeClock())

    with pytest.raises(ConfigError, match="saved"):
        breaker.restore(data)

    assert State.CLOSED is breaker.state


@pytest.mark.parametrize("name", ["time", "since", "wait", "next_trial_at", "ends_at"])
def test_saved_times_beyond_every_float_are_a_configuration_error(name: str) -> None:
    with pytest.raises(ConfigError, match=f"saved.{name}"):
        CircuitBreaker("b", clock=FakeClock()).restore(saved(**{name: HUGE}))


def test_a_breaker_restored_with_an_absurd_step_opens_again() -> None:
    breaker = CircuitBreaker("b", clock=FakeClock())
    breaker.restore(saved(step=HUGE))
    breaker.try_now()

    breaker.trip()

    assert 0 < (breaker.snapshot().remaining_wait or 0) <= 600.0


@pytest.mark.parametrize("until", [1e12, 1e300, timedelta.max], ids=repr)
def test_an_order_beyond_the_calendar_can_be_explained(until: Any) -> None:
    breaker = CircuitBreaker("b", clock=FakeClock())

    breaker.force_open(until=until)

    assert "forced open since" in breaker.explain()


def test_ending_an_order_after_its_end_time_is_a_no_op() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("b", clock=clock)
    breaker.trip()
    order = breaker.force_open(until=5.0)
    clock.advance(6.0)

    order.end()

    assert ["manual", "manual", "override_ended"] == [event.reason for event in breaker.history]
    assert 1 == breaker.snapshot().step


def test_every_configuration_error_pickles_whatever_the_wrong_value_was() -> None:
    with pytest.raises(ConfigError) as caught:
        CircuitBreaker("b", window=lambda: 5, minimum_calls=-1)  # type: ignore[arg-type]

    copied = pickle.loads(pickle.dumps(caught.value))

    assert str(caught.value) == str(copied)
    assert -1 == copied.mistakes[0].value


@pytest.mark.parametrize(
    ("wait", "shown"), [(1800.0, "1800 s"), (21.4, "21.4 s"), (0.25, "0.25 s"), (1e6, "1000000 s")]
)
def test_a_refusal_tells_a_long_wait_in_plain_digits(wait: float, shown: str) -> None:
    breaker = CircuitBreaker("b", clock=FakeClock())
    breaker.trip(wait=wait)

    with pytest.raises(CircuitOpenError) as caught:
        breaker.acquire()

    assert str(caught.value).endswith(f"try again in {shown}")


def test_an_explanation_shows_no_limit_that_is_gone() -> None:
    breaker = CircuitBreaker("b", clock=FakeClock(), consecutive_failures=1)
    trip_by_calls(breaker)

    breaker.configure(consecutive_failures=None)

    assert "None" not in breaker.explain()


def test_an_explanation_names_no_backoff_for_a_wait_that_was_ordered() -> None:
    breaker = CircuitBreaker("b", clock=FakeClock())

    breaker.trip(wait=10.0)

    assert breaker.explain().endswith("by order; next trial in 10.0 s")


class Masked(Exception):
    @property  # type: ignore[misc]  # that is what is hostile about it
    def __class__(self) -> Any:
        raise RuntimeError("hostile")


class Sealed(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class Unhashable(type):
    __hash__ = None  # type: ignore[assignment]

    def __eq__(cls, other: object) -> bool:
        raise RuntimeError


class Odd(Exception, metaclass=Unhashable):
    pass


@pytest.mark.parametrize("kind", [Masked, Sealed, Odd], ids=["masked", "sealed", "odd"])
@pytest.mark.parametrize("state", [State.CLOSED, State.HALF_OPEN])
def test_an_exception_that_resists_being_looked_at_passes_through(kind: type[Exception], state: State) -> None:
    breaker = CircuitBreaker("b", clock=FakeClock())
    if state is State.HALF_OPEN:
        breaker.try_now()

    def call() -> None:
        raise kind

    seen: list[type] = []
    try:
        breaker.call(call)
    except BaseException as error:
        seen.append(type(error))

    assert seen[0] is kind
    assert 0 == breaker.snapshot().counters.permits.in_flight


def test_a_listener_that_raises_a_cancellation_changes_no_result() -> None:
    breaker, told = CircuitBreaker("b", clock=FakeClock()), list[CallSucceeded]()

    def listener(event: CallSucceeded) -> None:
        raise asyncio.CancelledError  # what reading the result of a cancelled future raises

    breaker.subscribe(listener, CallSucceeded)
    breaker.subscribe(told.append, CallSucceeded)

    assert 7 == breaker.call(lambda: 7)
    assert 1 == len(told)


def test_a_listener_lets_an_interrupt_through() -> None:
    breaker = CircuitBreaker("b", clock=FakeClock())

    def listener(event: CallSucceeded) -> None:
        raise KeyboardInterrupt

    breaker.subscribe(listener, CallSucceeded)

    with pytest.raises(KeyboardInterrupt):
        breaker.call(lambda: 7)


@pytest.mark.parametrize("state", [State.CLOSED, State.HALF_OPEN])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps], ids=["copy", "deepcopy", "pickle"])
def test_a_permit_cannot_be_doubled(state: State, copied: Callable[[object], object]) -> None:
    breaker = CircuitBreaker("b", clock=FakeClock())
    if state is State.HALF_OPEN:
        breaker.try_now()
    permit = breaker.acquire()

    with pytest.raises(TypeError, match="permit"):
        copied(permit)

    permit.success()
    assert 0 == breaker.snapshot().counters.permits.in_flight


async def _never_asked(_: object) -> bool:
    return False


class _AsyncPredicate:
    async def __call__(self, _: object) -> bool:
        return False


@pytest.mark.parametrize("predicate", [_never_asked, _AsyncPredicate()], ids=["function", "object"])
@pytest.mark.parametrize(
    ("make", "name"), [(HalfOpen, "eligible"), (Failures, "result"), (Failures, "on"), (Failures, "ignore")]
)
def test_a_predicate_that_would_have_to_be_awaited_is_refused(
    make: Callable[..., Any], name: str, predicate: object
) -> None:
    with pytest.raises(ConfigError, match=name):
        make(**{name: predicate})


def test_two_changes_at_once_both_count() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        lost = sum(_lost_a_change() for _ in range(150))
    finally:
        sys.setswitchinterval(before)

    assert 0 == lost


def _lost_a_change() -> bool:
    breaker, barrier = CircuitBreaker("b", clock=FakeClock()), threading.Barrier(2)

    def change(changes: dict[str, Any]) -> None:
        barrier.wait()
        breaker.configure(**changes)

    threads = [threading.Thread(target=change, args=(each,)) for each in ({"minimum_calls": 3}, {"forget_after": 7.0})]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (3, 7.0) != (breaker.settings.minimum_calls, breaker.settings.forget_after)


class Raising:
    def of_exception(self, error: Exception, /) -> Any:
        raise KeyError

    def of_result(self, value: Any, /) -> Any:
        raise KeyError


def test_each_piece_of_user_code_that_fails_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    breaker = CircuitBreaker("b", clock=FakeClock(), classify=Raising(), wait_in_open=lambda step, rng: -1.0)

    with caplog.at_level(logging.ERROR, "halfopen"):
        for _ in range(2):
            trip_by_calls(breaker)
            breaker.trip()
            breaker.reset()

    assert ["classifier", "backoff"] == [record.getMessage().split()[1] for record in caplog.records]


class TimerlessClock(FakeClock):
    def call_at(self, when: float, callback: Callable[[], object]) -> Any:
        raise RuntimeError("can't start new thread")


def test_a_timer_that_cannot_start_leaves_the_circuit_to_its_callers(caplog: pytest.LogCaptureFixture) -> None:
    clock = TimerlessClock()
    breaker = CircuitBreaker("b", clock=clock, consecutive_failures=1, wait_in_open=5.0, automatic_half_open=True)

    with caplog.at_level(logging.ERROR, "halfopen"):
        trip_by_calls(breaker)
        clock.advance(5.0)

    assert State.HALF_OPEN is breaker.state
    assert 1 == len(caplog.records)


def test_a_retry_after_header_is_read_from_any_object_with_headers() -> None:
    breaker = CircuitBreaker("b", clock=FakeClock(), consecutive_failures=1, wait_in_open=5.0)

    breaker.acquire().result(SimpleNamespace(status_code=503, headers={"Retry-After": "9" * 30}))

    assert 600.0 == breaker.snapshot().remaining_wait


def _use(registry: Registry, breaker: CircuitBreaker) -> None:
    """Come by every lock."""
    registry.circuit_breaker("named").call(int)
    registry.keyed("host:*", max_keys=1)["other"].call(int)
    breaker.trip()
    breaker.reset()
    breaker.subscribe(lambda event: None)()


@pytest.mark.parametrize("holder", ["breaker", "bus", "registry", "family", "timer"])
def test_code_that_interrupts_the_holder_of_a_lock_may_use_everything(holder: str) -> None:
    registry = Registry()
    registry.subscribe(lambda event: None)
    family = registry.keyed("host:*", max_keys=1)
    breaker = registry.circuit_breaker("b", automatic_half_open=True)
    locks: dict[str, Any] = {
        "breaker": breaker._lock,
        "bus": registry.bus._lock,
        "registry": registry._lock,
        "family": family._lock,
        "timer": _timer._lock,
    }

    def interrupted() -> None:
        with locks[holder]:
            _use(registry, breaker)  # as a signal handler does, or a finalizer

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(60)

    assert not thread.is_alive()


def test_a_ramp_that_is_taken_away_ends_when_it_is_taken_away() -> None:
    clock = FakeClock(start=100.0)
    breaker = CircuitBreaker("b", clock=clock, ramp=Ramp(duration=60.0))
    put_into(breaker, State.RECOVERING)
    clock.advance(7.0)

    breaker.configure(ramp=None)

    assert (State.CLOSED, 107.0) == (breaker.state, breaker.history[-1].at)
    assert 7.0 == breaker.snapshot().counters.time_in_state["recovering"]


def test_a_lease_that_is_shortened_ends_when_it_is_shortened() -> None:
    clock = FakeClock(start=100.0)
    breaker = CircuitBreaker("b", clock=clock, wait_in_open=30.0, half_open=HalfOpen(trial_timeout=60.0))
    breaker.try_now()
    hung = breaker.acquire()
    clock.advance(50.0)

    breaker.configure(half_open=HalfOpen(trial_timeout=1.0))

    assert hung.settled
    assert 30.0 == breaker.snapshot().remaining_wait


ENDING = {State.DISABLED: "disable", State.METRICS_ONLY: "observe"}


@pytest.mark.parametrize("state", ENDING)
def test_a_generator_under_an_order_with_an_end_is_no_trial_call(state: State) -> None:
    breaker = CircuitBreaker("b", clock=FakeClock())
    getattr(breaker, ENDING[state])(until=60.0)

    @breaker
    def items() -> Iterator[bool]:
        breaker.call(int)
        yield in_trial()

    assert [False] == list(items())
    counters = breaker.snapshot().counters
    assert (0, 2 if state is State.METRICS_ONLY else 0) == (counters.guests, counters.successes)


def _generated(breaker: CircuitBreaker) -> list[Any]:
    @breaker
    def items() -> Iterator[Any]:
        yield breaker.call(in_trial)
        yield breaker.call(in_trial)

    return list(items())


def _nested(breaker: CircuitBreaker) -> list[Any]:
    return breaker.call(lambda: [breaker.call(in_trial), breaker.call(in_trial)])


@pytest.mark.parametrize("calls", [_nested, _generated], ids=["function", "generator"])
def test_a_call_that_a_ramp_admitted_is_not_refused_its_own_inside(
    calls: Callable[[CircuitBreaker], list[Any]],
) -> None:
    ramp = Ramp(duration=1e6, start=0.3)
    breaker = CircuitBreaker("b", clock=FakeClock(), ramp=ramp, half_open=HalfOpen(permitted_calls=1))
    put_into(breaker, State.RECOVERING)
    admitted = 0

    for _ in range(100):
        with suppress(CircuitOpenError):
            assert [False, False] == calls(breaker)
            admitted += 1

    look = breaker.snapshot()
    assert 29 <= admitted <= 31
    assert (admitted, 0, 2 * admitted) == (look.calls, look.counters.ignored, look.counters.guests)


def test_what_was_due_before_settings_changed_happened_before() -> None:
    clock = FakeClock(start=100.0)
    breaker = CircuitBreaker("b", clock=clock, wait_in_open=30.0, half_open=HalfOpen(trial_timeout=60.0))
    breaker.try_now()
    breaker.acquire()
    clock.advance(70.0)

    breaker.configure(half_open=HalfOpen(trial_timeout=1000.0))

    assert (State.OPEN, 160.0) == (breaker.state, breaker.history[-1].at)
    assert 20.0 == breaker.snapshot().remaining_wait


def test_a_state_may_be_told_by_its_text() -> None:
    breaker = CircuitBreaker("b", clock=FakeClock(), ramp=Ramp())

    assert list(State) == [put_into(breaker, str(state)).state for state in State]  # type: ignore[arg-type]


def test_a_listener_that_would_have_to_be_awaited_is_refused() -> None:
    breaker = CircuitBreaker("b", clock=FakeClock())

    with pytest.raises(TypeError, match="plain function"):
        breaker.subscribe(_AsyncPredicate())


def test_a_permit_that_is_lost_after_its_lease_is_counted_once() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("b", clock=clock, half_open=HalfOpen(trial_timeout=3.0))
    breaker.try_now()
    permit = breaker.acquire()
    clock.advance(3.0)

    del permit

    permits = breaker.snapshot().counters.permits
    assert (1, 0, 1, 0) == (permits.issued, permits.settled, permits.expired, permits.abandoned)
