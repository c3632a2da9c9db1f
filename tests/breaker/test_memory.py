"""Memory does not grow with traffic."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import pytest

from halfopen import CircuitBreaker, CircuitOpenError, CountWindow, HalfOpen, State, TimeWindow, constant
from halfopen.testing import FakeClock
from tests.fresh_process import in_fresh_process

WINDOWS = [CountWindow(100), TimeWindow(10, 10)]


def fails() -> None:
    raise ValueError


def items() -> Iterator[int]:
    yield 1


def attempt(call: Any) -> None:
    try:
        call()
    except (ValueError, CircuitOpenError):
        return


def one_of_each(breaker: CircuitBreaker) -> None:
    breaker.call(int)
    with breaker.acquire():
        pass
    breaker.acquire().ignore()
    breaker.acquire()
    for _ in breaker.call(items):
        pass
    attempt(lambda: breaker.call(fails))


def live(breaker: CircuitBreaker, clock: FakeClock, rounds: int) -> None:
    """Every outcome in CLOSED, then OPEN, HALF_OPEN and CLOSED again."""
    for _ in range(rounds):
        for _ in range(20):
            attempt(lambda: one_of_each(breaker))
            clock.advance(0.05)
        breaker.trip(1.0)
        for _ in range(20):
            attempt(lambda: breaker.call(int))
        clock.advance(1.0)
        for _ in range(5):
            attempt(lambda: one_of_each(breaker))
        breaker.reset()


def growth(window: int) -> tuple[int, int]:
    """Return by how many bytes the program grows in 60 lives, and in the next 600, once the history is full."""
    clock = FakeClock()
    breaker = CircuitBreaker("x", window=WINDOWS[window], clock=clock, wait_in_open=constant(1.0))
    tracemalloc.start()
    marks = []
    for rounds in (60, 60, 600):
        live(breaker, clock, rounds)
        gc.collect()
        marks.append(tracemalloc.get_traced_memory()[0])
    return marks[1] - marks[0], marks[2] - marks[1]


@pytest.mark.parametrize("window", range(len(WINDOWS)), ids=["count", "time"])
def test_a_full_life_over_and_over_takes_no_more_memory(window: int) -> None:
    short, long = in_fresh_process(growth, window)

    assert long < max(short, 0) + 6_000  # one number kept in each of the 600 lives is more


def grow(calls: int) -> int:
    """Return the bytes by which a breaker on the real clock grows in so many calls."""
    breaker = CircuitBreaker("x", failure_rate_threshold=1.0)
    work = breaker(lambda: None)
    longest = 0
    for _ in range(20_000):
        work()
    breaker.snapshot()  # takes in what is quiet
    size = deep_size(breaker)
    for _ in range(calls // 10_000):
        for _ in range(10_000):
            work()
        longest = max(longest, len(breaker._circuit.state.quiet))
    assert longest <= 1_000_000  # a calm lasts 0.1 s at most
    assert 20_000 + calls == breaker.snapshot().counters.successes
    return deep_size(breaker) - size


def test_calm_calls_take_no_more_memory() -> None:
    assert grow(300_000) < 2_000


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_million_calls_take_no_more_memory() -> None:
    assert grow(10_000_000) < 2_000


def test_a_hanging_dependency_keeps_no_record_of_expired_trial_calls() -> None:
    clock = FakeClock()
    half_open = HalfOpen(permitted_calls=3, trial_timeout=1.0)
    breaker = CircuitBreaker("x", clock=clock, wait_in_open=constant(1.0), half_open=half_open)
    breaker.trip()
    hung = []

    for _ in range(200):
        clock.advance(2.0)
        hung.append(breaker.acquire())
    held = len(breaker._circuit.outstanding)
    hung.clear()

    assert 200 == breaker.snapshot().counters.permits.issued
    assert held <= 3
    assert 0 == len(breaker._circuit.outstanding) + len(breaker._abandoned)


def test_a_breaker_is_freed_without_the_collector_of_cycles_or_by_it() -> None:
    import weakref

    breaker = CircuitBreaker("x")
    work = breaker(lambda: 1)
    work()
    gone = weakref.ref(breaker)
    del breaker, work
    gc.collect()

    assert gone() is None


SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType)


def deep_size(thing: Any) -> int:
    """Return the bytes of an object and of what it keeps alive, without what all breakers share, roughly."""
    shared = {id(it) for it in gc.get_referents(CircuitBreaker.__init__.__kwdefaults__)}
    seen: set[int] = set()
    todo, total = [thing], 0
    while todo:
        it = todo.pop()
        if id(it) in seen or id(it) in shared or isinstance(it, SHARED):
            continue
        seen.add(id(it))
        total += sys.getsizeof(it)
        todo += gc.get_referents(it)
    return total


def traced_size(state: str, window: int, number: int = 2000) -> float:
    """Return bytes per breaker, as the allocator sees it."""
    kept = [CircuitBreaker(f"warm {index}", window=WINDOWS[window]) for index in range(10)]
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for index in range(number):
        breaker = CircuitBreaker(str(index), window=WINDOWS[window])
        breaker.call(int)
        if state == State.OPEN:
            breaker.trip()
        kept.append(breaker)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    return (after - before) / number


@pytest.mark.parametrize("state", [State.CLOSED, State.OPEN])
@pytest.mark.parametrize("window", range(len(WINDOWS)), ids=["count", "time"])
def test_a_breaker_is_small(
    state: State, window: int, record_property: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    size = in_fresh_process(traced_size, state, window)

    record_property("bytes", round(size))
    with capsys.disabled():
        print(f"\n{size:,.0f} bytes per breaker, {state.value}, {WINDOWS[window]}")
    assert size < 6_000
