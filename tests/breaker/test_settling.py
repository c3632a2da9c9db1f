"""Every way out of a guarded call settles its permit exactly once, in CLOSED as in HALF_OPEN."""

from __future__ import annotations

import asyncio
import gc
import logging
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import pytest

from halfopen import (
    BulkheadFullError,
    CallTimeoutError,
    CircuitBreaker,
    CircuitOpenError,
    Failures,
    HalfOpen,
    RateLimitedError,
    RejectedError,
    State,
)
from halfopen.testing import FakeClock, put_into
from tests.fresh_process import in_fresh_process

both_states = pytest.mark.parametrize("state", [State.CLOSED, State.HALF_OPEN])


class Quirk(BaseException):
    """No Exception, and no way of cancelling."""


WAYS_OUT = [
    (None, (1, 0, 0)),
    (ValueError("x"), (0, 1, 0)),
    (ExceptionGroup("several", [ValueError("x"), CircuitOpenError("inner", "open", "open", 1.0)]), (0, 1, 0)),
    (CallTimeoutError("timeout", 1.0), (0, 1, 0)),
    (TimeoutError(), (0, 1, 0)),
    (StopAsyncIteration(), (0, 1, 0)),
    (CircuitOpenError("inner", "open", "open", 1.0), (0, 0, 1)),
    (BulkheadFullError("inner", 3), (0, 0, 1)),
    (RateLimitedError("inner", 1.0), (0, 0, 1)),
    (RejectedError("inner"), (0, 0, 1)),
    (ExceptionGroup("all", [BulkheadFullError("a", 3), ExceptionGroup("in", [RejectedError("b")])]), (0, 0, 1)),
    (KeyboardInterrupt(), (0, 0, 1)),
    (SystemExit(1), (0, 0, 1)),
    (GeneratorExit(), (0, 0, 1)),
    (asyncio.CancelledError(), (0, 0, 1)),
    (BaseExceptionGroup("mixed", [ValueError("x"), KeyboardInterrupt()]), (0, 0, 1)),
    (Quirk(), (0, 0, 1)),
]
NAMES = [type(error).__name__ for error, _ in WAYS_OUT]


def drive(coroutine: Any) -> Any:
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waited")


def leave(error: BaseException | None) -> None:
    if error is not None:
        raise error


async def aleave(error: BaseException | None) -> None:
    leave(error)


def items(error: BaseException | None) -> Iterator[int]:
    yield 1
    leave(error)


async def aitems(error: BaseException | None) -> AsyncIterator[int]:
    yield 1
    leave(error)


def by_block(breaker: CircuitBreaker, error: BaseException | None) -> None:
    with breaker.acquire():
        leave(error)


def by_two_steps(breaker: CircuitBreaker, error: BaseException | None) -> None:
    permit = breaker.acquire()
    try:
        leave(error)
    except BaseException as raised:
        permit.exception(raised)
        raise
    permit.success()


async def consume(stream: AsyncIterator[int]) -> list[int]:
    return [item async for item in stream]


STYLES: dict[str, Callable[[CircuitBreaker, BaseException | None], Any]] = {
    "decorator": lambda breaker, error: breaker(leave)(error),
    "call": lambda breaker, error: breaker.call(leave, error),
    "coroutine": lambda breaker, error: drive(breaker(aleave)(error)),
    "acall": lambda breaker, error: drive(breaker.acall(aleave, error)),
    "generator": lambda breaker, error: list(breaker(items)(error)),
    "generator call": lambda breaker, error: list(breaker.call(items, error)),
    "async generator": lambda breaker, error: drive(consume(breaker(aitems)(error))),
    "block": by_block,
    "two steps": by_two_steps,
}
each_style = pytest.mark.parametrize("style", STYLES)


@both_states
@each_style
@pytest.mark.parametrize(("error", "expected"), WAYS_OUT, ids=NAMES)
def test_every_way_out_settles_exactly_once(
    make: Any, counted: Any, balanced: Any, state: State, style: str, error: BaseException | None, expected: Any
) -> None:
    breaker = make(state)
    raised: BaseException | None = None

    try:
        STYLES[style](breaker, error)
    except BaseException as left:
        raised = left

    if (isinstance(error, StopAsyncIteration) and "async" in style) or isinstance(error, StopIteration):
        assert isinstance(raised, RuntimeError)  # Python's own rule for generators
    else:
        assert raised is error
    del raised
    assert expected == counted(breaker)
    look = balanced(breaker)
    assert 0 == look.counters.abandoned
    if state is State.HALF_OPEN:
        assert 1 == look.counters.permits.issued == look.counters.permits.settled
        assert (State.OPEN if expected[1] else State.HALF_OPEN) is breaker.state


class Raising:
    """A classifier that raises whatever it is told to."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def of_exception(self, error: Exception, /) -> Any:
        raise self.error

    def of_result(self, value: Any, /) -> Any:
        raise self.error


@both_states
@each_style
@pytest.mark.parametrize("error", [None, ValueError("the call's own")], ids=["returns", "raises"])
def test_a_raising_classifier_makes_the_call_ignored_and_is_logged_once(
    make: Any,
    counted: Any,
    balanced: Any,
    caplog: pytest.LogCaptureFixture,
    state: State,
    style: str,
    error: BaseException | None,
) -> None:
    if error is None and style in ("block", "two steps"):
        pytest.skip("nobody asks the classifier here")
    breaker = make(state, classify=Raising(ZeroDivisionError("the classifier's")))

    for _ in range(3):
        if error is None:
            STYLES[style](breaker, error)
        else:
            with pytest.raises(ValueError, match="the call's own"):
                STYLES[style](breaker, error)

    assert (0, 0, 3) == counted(breaker)
    balanced(breaker)
    assert 1 == len([record for record in caplog.records if record.levelno == logging.ERROR])


@both_states
@each_style
def test_an_interrupted_classifier_loses_no_permit(make: Any, balanced: Any, state: State, style: str) -> None:
    breaker = make(state, classify=Raising(KeyboardInterrupt()))

    with pytest.raises(KeyboardInterrupt):
        STYLES[style](breaker, ValueError("x"))
    gc.collect()

    look = balanced(breaker)
    assert 0 == look.counters.failures == look.counters.successes


@pytest.mark.parametrize(
    "answer", [None, "maybe", 3, (), ("failure",), ("failure", 1.0, 2), object()], ids=lambda answer: repr(answer)[:20]
)
def test_an_answer_that_is_no_outcome_makes_the_call_ignored(make: Any, counted: Any, answer: Any) -> None:
    class Odd:
        def of_exception(self, error: Exception, /) -> Any:
            return answer

        def of_result(self, value: Any, /) -> Any:
            return answer

    breaker = make(classify=Odd())

    breaker.call(leave, None)
    with pytest.raises(ValueError, match="x"):
        breaker.call(leave, ValueError("x"))

    assert (0, 0, 2) == counted(breaker)


@both_states
@pytest.mark.parametrize("retry_after", [float("nan"), float("inf"), -1.0, True, "5", None])
def test_a_useless_retry_after_is_no_retry_after(make: Any, counted: Any, state: State, retry_after: Any) -> None:
    class Odd:
        def of_exception(self, error: Exception, /) -> Any:
            return "failure", retry_after

        def of_result(self, value: Any, /) -> Any:
            return "success"

    breaker = make(state, classify=Odd())

    with pytest.raises(ValueError, match="x"):
        breaker.call(leave, ValueError("x"))

    assert (0, 1, 0) == counted(breaker)


# Patience


@both_states
@pytest.mark.parametrize("style", ["coroutine", "acall", "block", "async generator"])
@pytest.mark.parametrize(("seconds", "expected"), [(5.0, (0, 0, 1)), (5.001, (0, 1, 0))])
def test_cancelled_after_slow_is_a_slow_failure(
    make: Any, clock: FakeClock, counted: Any, balanced: Any, state: State, style: str, seconds: float, expected: Any
) -> None:
    breaker = make(state)
    hanging = asyncio.CancelledError()

    def patience() -> None:
        clock.advance(seconds)
        raise hanging

    async def apatience() -> None:
        patience()

    async def stream() -> AsyncIterator[int]:
        yield 1
        patience()

    def block() -> None:
        with breaker.acquire():
            patience()

    ways: dict[str, Callable[[], Any]] = {
        "coroutine": lambda: drive(breaker(apatience)()),
        "acall": lambda: drive(breaker.acall(apatience)),
        "async generator": lambda: drive(consume(breaker(stream)())),
        "block": block,
    }
    with pytest.raises(asyncio.CancelledError):
        ways[style]()

    assert expected == counted(breaker)
    look = balanced(breaker)
    assert expected[1] == look.counters.slow_failures


@pytest.mark.parametrize("error", [KeyboardInterrupt(), GeneratorExit(), SystemExit(), Quirk()])
def test_only_cancelling_is_a_loss_of_patience(make: Any, clock: FakeClock, counted: Any, error: BaseException) -> None:
    breaker = make()

    def slowly() -> None:
        clock.advance(100)
        raise error

    with pytest.raises(type(error)):
        breaker.call(slowly)

    assert (0, 0, 1) == counted(breaker)


@pytest.mark.anyio
@both_states
@pytest.mark.parametrize("style", ["coroutine", "acall", "block", "async generator"])
async def test_a_cancelled_task_gives_its_permit_back(
    counted: Any, balanced: Any, make: Any, state: State, style: str
) -> None:
    breaker = make(state)
    entered = anyio.Event()

    async def hang() -> None:
        entered.set()
        await anyio.sleep_forever()

    async def stream() -> AsyncIterator[int]:
        yield 1
        await hang()

    async def block() -> None:
        with breaker.acquire():
            await hang()

    ways: dict[str, Callable[[], Any]] = {
        "coroutine": breaker(hang),
        "acall": lambda: breaker.acall(hang),
        "async generator": lambda: consume(breaker(stream)()),
        "block": block,
    }
    async with anyio.create_task_group() as group:
        group.start_soon(ways[style])
        await entered.wait()
        if state is State.HALF_OPEN:
            assert "running" in [slot.status for slot in breaker.snapshot().trials]
        group.cancel_scope.cancel()

    assert (0, 0, 1) == counted(breaker)
    balanced(breaker)


@pytest.mark.anyio
async def test_giving_up_on_a_hanging_dependency_trips(anyio_backend: Any) -> None:
    breaker = CircuitBreaker("hanging", minimum_calls=3, slow_call_duration=0.001)

    @breaker
    async def hang() -> None:
        await anyio.sleep_forever()

    for _ in range(3):
        with anyio.move_on_after(0.01):
            await hang()

    assert State.OPEN is breaker.state


# Generators left early


@both_states
def test_a_generator_closed_early_is_ignored(make: Any, counted: Any, balanced: Any, state: State) -> None:
    breaker = make(state)
    cleaned: list[str] = []

    @breaker
    def stream() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            cleaned.append("up")

    closed, dropped = stream(), stream()
    assert [1, 1] == [next(closed), next(dropped)]
    closed.close()  # type: ignore[attr-defined]
    del dropped
    gc.collect()

    assert ["up", "up"] == cleaned
    assert (0, 0, 2) == counted(breaker)
    balanced(breaker)


@both_states
def test_a_generator_never_started_takes_no_permit(make: Any, counted: Any, balanced: Any, state: State) -> None:
    breaker = make(state)
    unstarted = breaker(items)(None)

    unstarted.close()  # type: ignore[attr-defined]

    assert (0, 0, 0) == counted(breaker)
    assert 0 == balanced(breaker).counters.permits.issued


@pytest.mark.anyio
@both_states
async def test_an_async_generator_closed_early_is_ignored(make: Any, counted: Any, balanced: Any, state: State) -> None:
    breaker = make(state)
    cleaned: list[str] = []

    @breaker
    async def stream() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await anyio.sleep(0)
            cleaned.append("up")

    streaming = stream()
    assert 1 == await streaming.__anext__()
    await streaming.aclose()  # type: ignore[attr-defined]

    assert ["up"] == cleaned
    assert (0, 0, 1) == counted(breaker)
    balanced(breaker)


@both_states
@pytest.mark.parametrize("kind", ["generator", "async generator"])
def test_a_generator_that_fails_while_it_is_closed_has_failed(
    make: Any, counted: Any, balanced: Any, state: State, kind: str
) -> None:
    breaker = make(state)

    @breaker
    def stream() -> Iterator[int]:
        try:
            yield 1
        finally:
            raise ValueError("cleaning up")

    @breaker
    async def astream() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            raise ValueError("cleaning up")

    if kind == "generator":
        streaming: Any = stream()
        next(streaming)
        with pytest.raises(ValueError, match="cleaning"):
            streaming.close()
    else:
        streaming = astream()
        drive(streaming.__anext__())
        with pytest.raises(ValueError, match="cleaning"):
            drive(streaming.aclose())

    assert (0, 1, 0) == counted(breaker)
    balanced(breaker)


# Permits that nobody settles


@both_states
@pytest.mark.parametrize("cyclic", [False, True])
def test_an_abandoned_permit_is_given_back(make: Any, counted: Any, balanced: Any, state: State, cyclic: bool) -> None:
    breaker = make(state)

    for _ in range(5):
        permit = breaker.acquire()
        if cyclic:
            ring: list[Any] = [permit]
            ring.append(ring)
            del ring
        del permit
    gc.collect()

    look = balanced(breaker)
    assert 5 == look.counters.abandoned == look.counters.permits.abandoned
    assert (0, 0) == (look.counters.successes, look.counters.failures)
    assert state is look.state


def test_a_refused_call_abandons_nothing(make: Any) -> None:
    breaker = make(State.HALF_OPEN, half_open=HalfOpen(permitted_calls=1))
    trial = breaker.acquire()

    for _ in range(3):
        with pytest.raises(CircuitOpenError):
            breaker.acquire()
        assert [] == breaker._abandoned
    trial.success()

    assert 1 == breaker.snapshot().counters.permits.issued


def test_abandoned_trial_calls_make_room_for_the_next_call_at_once(make: Any) -> None:
    breaker = make(State.HALF_OPEN, half_open=HalfOpen(permitted_calls=1, trial_timeout=1e6))

    breaker.acquire()

    assert "x" == breaker.call(lambda: "x")
    assert State.CLOSED is breaker.state


def growth_by_abandoning(state: str) -> tuple[int, int]:
    """Return by how many bytes the program grows in 2,000 abandoned permits, and in the next 20,000."""
    half_open = HalfOpen(permitted_calls=1, max_ignored=10**6)
    breaker = put_into(CircuitBreaker("made", clock=FakeClock(), half_open=half_open), State(state))
    tracemalloc.start()
    marks = []
    for permits in (1000, 2000, 20_000):
        for _ in range(permits):
            breaker.acquire()
        marks.append(tracemalloc.get_traced_memory()[0])
    breaker.tick()
    assert (state, 23_000) == (breaker.state, breaker.snapshot().counters.abandoned)
    return marks[1] - marks[0], marks[2] - marks[1]


@both_states
def test_abandoning_for_ever_takes_no_memory(state: State) -> None:
    short, long = in_fresh_process(growth_by_abandoning, state)

    assert long < max(short, 0) + 10_000


@both_states
def test_a_late_settlement_after_a_move_is_void_and_balances(
    make: Any, counted: Any, balanced: Any, state: State
) -> None:
    breaker = make(state)
    permits = [breaker.acquire() for _ in range(4)]

    breaker.reset()
    permits[0].success()
    permits[1].failure()
    permits[2].ignore()
    del permits

    look = balanced(breaker)
    assert 3 == look.counters.late_results
    assert 1 == look.counters.abandoned
    assert (0, 0) == (look.counters.successes, look.counters.failures)


def test_expired_trial_calls_balance_even_when_they_report_late(make: Any, clock: FakeClock, balanced: Any) -> None:
    breaker = make(State.HALF_OPEN, half_open=HalfOpen(permitted_calls=2, trial_timeout=10.0))
    reported, silent = breaker.acquire(), breaker.acquire()

    clock.advance(10.0)
    assert State.OPEN is breaker.state
    reported.success()
    reported.failure()

    look = breaker.snapshot()
    assert reported.settled
    assert 1 <= look.counters.expired
    del silent
    look = balanced(breaker)
    assert (2, 2) == (
        look.counters.permits.issued,
        look.counters.expired + look.counters.permits.settled + look.counters.abandoned,
    )


def test_the_books_balance_at_every_step(make: Any, clock: FakeClock) -> None:
    import random

    chance = random.Random(5)
    breaker = make(
        minimum_calls=5,
        wait_in_open=1.0,
        classify=Failures(result=lambda value: value is None),
        half_open=HalfOpen(permitted_calls=3, trial_timeout=4.0),
    )
    held: list[Any] = []
    issued = settled = 0
    for _ in range(5000):
        clock.advance(chance.random() * 0.5)
        try:
            held.append(breaker.acquire())
            issued += 1
        except CircuitOpenError:
            pass
        if held and chance.random() < 0.7:
            permit = held.pop(chance.randrange(len(held)))
            step = chance.choice(["success", "success", "success", "failure", "ignore", "drop"])
            if step != "drop":
                settled += not permit.settled
                getattr(permit, step)()
            del permit
        if chance.random() < 0.01:
            chance.choice([breaker.reset, breaker.trip, breaker.try_now, breaker.force_open])()
        permits = breaker.snapshot().counters.permits
        unsettled = len([permit for permit in held if not permit.settled])
        assert issued == permits.issued
        assert unsettled == permits.in_flight
        assert issued == permits.settled + permits.in_flight + permits.expired + permits.abandoned
        assert min(permits.settled, permits.expired, permits.abandoned) >= 0
    look = breaker.snapshot()
    assert look.counters.expired > 20
    assert look.counters.abandoned > 100
    assert look.counters.late_results > 20
    assert settled >= look.counters.permits.settled
