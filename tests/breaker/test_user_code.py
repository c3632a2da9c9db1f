"""No user code runs under a lock: another thread can take the breaker's lock while it runs."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from halfopen import CircuitBreaker, Event, Failures, HalfOpen, State
from halfopen._core.backoff import Exponential
from halfopen.testing import FakeClock


class Probe:
    """Asks, from another thread, whether the breaker's locks are free."""

    def __init__(self) -> None:
        self.breaker: CircuitBreaker | None = None
        self.answers: list[bool] = []

    def ask(self) -> None:
        if self.breaker is None:
            return
        thread = threading.Thread(target=self._try)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()

    def _try(self) -> None:
        assert self.breaker is not None
        for lock in (self.breaker._lock, self.breaker._bus._lock):
            free = lock.acquire(blocking=False)
            self.answers.append(free)
            if free:
                lock.release()

    def check(self) -> None:
        assert self.answers, "it never ran"
        assert all(self.answers)


@pytest.fixture
def probe() -> Probe:
    return Probe()


def fails() -> None:
    raise ValueError("x")


def attempt(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception:
        return


def use(breaker: CircuitBreaker, clock: FakeClock) -> None:
    """Bring a breaker through every move, every outcome and every order."""
    for _ in range(3):
        attempt(lambda: breaker.call(fails))
        attempt(lambda: breaker.call(lambda: 1))
        attempt(breaker(fails))
        attempt(lambda: breaker.acquire().result(3))
        attempt(lambda: breaker.acquire().exception(ValueError()))
        attempt(lambda: breaker.acquire().failure(retry_after=3.0))
        clock.advance(20)
    for order in (breaker.trip, breaker.try_now, breaker.reset, breaker.force_open, breaker.disable, breaker.observe):
        attempt(order)
        attempt(breaker(fails))
        attempt(breaker.snapshot)
        attempt(breaker.explain)
        clock.advance(1000)
        _ = breaker.state
    with breaker.force_open(until=5):
        clock.advance(6)
    with breaker.observe():
        pass
    breaker.configure(minimum_calls=2)
    breaker.restore(breaker.snapshot())
    breaker.subscribe(lambda event: None)()


def test_the_classifier_runs_under_no_lock(probe: Probe) -> None:
    clock = FakeClock()

    class Classify:
        @property
        def judges_results(self) -> bool:
            probe.ask()
            return True

        def of_exception(self, error: Exception, /) -> Any:
            probe.ask()
            return "failure", 1.0

        def of_result(self, value: Any, /) -> Any:
            probe.ask()
            return "success"

    probe.breaker = breaker = CircuitBreaker("x", minimum_calls=2, clock=clock, classify=Classify())

    use(breaker, clock)
    breaker.configure(classify=Classify())

    probe.check()


def test_predicates_of_failures_run_under_no_lock(probe: Probe) -> None:
    clock = FakeClock()

    def ask(thing: object) -> bool:
        probe.ask()
        return False

    classify = Failures(on=(ask, ValueError), ignore=ask, result=ask)
    probe.breaker = breaker = CircuitBreaker("x", minimum_calls=2, clock=clock, classify=classify)

    use(breaker, clock)

    probe.check()


def test_eligible_runs_under_no_lock(probe: Probe) -> None:
    clock = FakeClock()

    def eligible(call: object) -> bool:
        probe.ask()
        return True

    half_open = HalfOpen(eligible=eligible)
    probe.breaker = breaker = CircuitBreaker("x", minimum_calls=2, clock=clock, half_open=half_open)

    use(breaker, clock)

    probe.check()


def backoff_function(probe: Probe) -> Any:
    def backoff(step: int, rng: random.Random) -> float:
        probe.ask()
        return 5.0

    return backoff


def backoff_subclass(probe: Probe) -> Any:
    class Mine(Exponential):
        __slots__ = ()

        def __call__(self, step: int, rng: random.Random) -> float:
            probe.ask()
            return 5.0

    return Mine()


@pytest.mark.parametrize("make_backoff", [backoff_function, backoff_subclass])
@pytest.mark.parametrize("automatic", [False, True])
def test_a_backoff_of_ones_own_runs_under_no_lock(probe: Probe, make_backoff: Any, automatic: bool) -> None:
    clock = FakeClock()
    probe.breaker = breaker = CircuitBreaker(
        "x", minimum_calls=2, clock=clock, wait_in_open=make_backoff(probe), automatic_half_open=automatic
    )

    use(breaker, clock)
    breaker.trip()
    clock.advance(4.9)
    assert State.OPEN is breaker.state

    probe.check()


def test_a_listener_runs_under_no_lock(probe: Probe) -> None:
    clock = FakeClock()
    probe.breaker = breaker = CircuitBreaker("x", minimum_calls=2, clock=clock)
    heard: list[Event] = []

    def listen(event: Event) -> None:
        probe.ask()
        heard.append(event)

    breaker.subscribe(listen)

    use(breaker, clock)

    probe.check()
    assert {"CircuitTransitioned", "CallFailed", "CallSucceeded", "CallRejected"} <= {
        type(event).__name__ for event in heard
    }


def test_a_clock_of_ones_own_runs_under_no_lock(probe: Probe) -> None:
    class Asking(FakeClock):
        def monotonic(self) -> float:
            probe.ask()
            return super().monotonic()

        def wall(self) -> float:
            probe.ask()
            return super().wall()

        def call_at(self, when: float, callback: Any) -> Any:
            probe.ask()
            return super().call_at(when, callback)

    clock = Asking()
    probe.breaker = breaker = CircuitBreaker("x", minimum_calls=2, clock=clock, automatic_half_open=True)

    use(breaker, clock)

    probe.check()


def test_the_guarded_call_runs_under_no_lock(probe: Probe) -> None:
    probe.breaker = breaker = CircuitBreaker("x")

    for order in (breaker.reset, breaker.try_now, breaker.observe, breaker.disable):
        order()
        breaker.call(probe.ask)
        breaker(probe.ask)()
        with breaker.acquire():
            probe.ask()

    probe.check()


@pytest.mark.parametrize("wait", [None, "5", -1.0, 0.0, float("nan"), float("inf"), True, ZeroDivisionError()])
def test_a_useless_backoff_gives_way_to_the_default(wait: Any, caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()

    def backoff(step: int, rng: random.Random) -> float:
        if isinstance(wait, Exception):
            raise wait
        return wait  # type: ignore[no-any-return]

    breaker = CircuitBreaker("x", clock=clock, wait_in_open=backoff)

    breaker.trip()
    remaining = breaker.snapshot().remaining_wait

    assert remaining is not None
    assert 0 <= remaining <= 33
    if wait != 0.0:
        assert remaining > 26
        assert "the backoff of 'x'" in caplog.text


def test_a_breaker_whose_backoff_trips_it_again_does_not_deadlock() -> None:
    clock = FakeClock()
    asked: list[int] = []

    def backoff(step: int, rng: random.Random) -> float:
        asked.append(step)
        if len(asked) == 1:
            breaker.trip()
        return 5.0

    breaker = CircuitBreaker("x", clock=clock, wait_in_open=backoff)

    breaker.trip()
    clock.advance(5.0)

    assert 1 == breaker.call(lambda: 1)


def test_a_predicate_that_raises_makes_the_call_not_eligible(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()

    def eligible(call: object) -> bool:
        raise ZeroDivisionError

    breaker = CircuitBreaker("x", clock=clock, half_open=HalfOpen(eligible=eligible))
    breaker.try_now()

    for _ in range(3):
        with pytest.raises(Exception, match="may not be a trial call"):
            breaker.call(lambda: 1)

    assert 1 == len(caplog.records)
