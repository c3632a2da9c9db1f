from __future__ import annotations

import asyncio
import copy
import inspect
import math
import pickle
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfopen.errors import ConfigError
from halfopen.retry import Retry, RetryFinished, RetryOutcome, RetryScheduled, attempt, constant, exponential
from halfopen.testing import FakeClock
from halfopen.timeout import Timeout, deadline, time_left


class Flaky:
    """Fails so often before it succeeds, and notes which attempt it was told of."""

    def __init__(self, failures: int, error: Callable[[], BaseException] = lambda: ConnectionError("down")) -> None:
        self.failures = failures
        self.error = error
        self.attempts: list[int] = []

    def __call__(self, value: str = "ok") -> str:
        self.attempts.append(attempt())
        if len(self.attempts) <= self.failures:
            raise self.error()
        return value

    async def acall(self, value: str = "ok") -> str:
        return self(value)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def retrying(clock: FakeClock, **settings: Any) -> Retry:
    return Retry("bank", clock=clock, **{"on": ConnectionError, "backoff": 1.0, **settings})


@pytest.fixture(params=["call", "acall", "decorated", "async decorated", "block", "async block"])
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return a way to make one guarded call of a `Flaky`."""

    async def in_async_block(retry: Retry, fn: Flaky) -> Any:
        async for turn in retry:
            with turn:
                value = turn.result(await fn.acall())
        return value

    def in_block(retry: Retry, fn: Flaky) -> Any:
        for turn in retry:
            with turn:
                value = turn.result(fn())
        return value

    async def decorated(retry: Retry, fn: Flaky) -> Any:
        return await retry(fn.acall)()

    return {
        "call": lambda retry, fn: retry.call(fn),
        "acall": lambda retry, fn: asyncio.run(retry.acall(fn.acall)),
        "decorated": lambda retry, fn: retry(fn)(),
        "async decorated": lambda retry, fn: asyncio.run(decorated(retry, fn)),
        "block": in_block,
        "async block": lambda retry, fn: asyncio.run(in_async_block(retry, fn)),
    }[request.param]


def outcomes(retry: Retry) -> dict[str, int]:
    return {str(outcome): number for outcome, number in retry.snapshot().calls.items() if number}


def test_a_first_success_is_no_retry(clock: FakeClock, run: Callable[..., Any]) -> None:
    retry, fn = retrying(clock), Flaky(0)

    assert "ok" == run(retry, fn)
    assert {"success_first": 1} == outcomes(retry)
    assert [] == clock.sleeps


def test_it_calls_again_until_it_succeeds_and_tells_the_call_its_number(
    clock: FakeClock, run: Callable[..., Any]
) -> None:
    retry, fn = retrying(clock), Flaky(2)

    assert "ok" == run(retry, fn)
    assert [1, 2, 3] == fn.attempts
    assert [1.0, 1.0] == clock.sleeps
    assert {"success_after_retry": 1} == outcomes(retry)
    assert {"success": 1, "failure": 2} == retry.snapshot().attempts
    assert (2, 2.0) == (retry.snapshot().retries, retry.snapshot().delay_seconds)
    assert 1 == attempt()


def test_the_last_error_is_raised_unchanged_with_a_note(clock: FakeClock, run: Callable[..., Any]) -> None:
    errors = [ConnectionError(number) for number in range(3)]
    left = iter(errors)
    retry, fn = retrying(clock, backoff=1.2), Flaky(9, lambda: next(left))

    with pytest.raises(ConnectionError) as caught:
        run(retry, fn)

    assert errors[2] is caught.value
    assert ["gave up after 3 attempts in 2.4 s (retry 'bank')"] == caught.value.__notes__
    assert {"failed_exhausted": 1} == outcomes(retry)
    assert {"success": 0, "failure": 3} == retry.snapshot().attempts


def test_an_error_that_is_not_named_is_not_retried_and_gets_no_note(clock: FakeClock, run: Callable[..., Any]) -> None:
    retry, fn = retrying(clock), Flaky(1, TypeError)

    with pytest.raises(TypeError) as caught:
        run(retry, fn)

    assert [1] == fn.attempts
    assert not hasattr(caught.value, "__notes__")
    assert {"failed_not_retried": 1} == outcomes(retry)


def test_ignore_wins_over_on(clock: FakeClock, run: Callable[..., Any]) -> None:
    retry, fn = retrying(clock, on=OSError, ignore=ConnectionError), Flaky(1)

    with pytest.raises(ConnectionError):
        run(retry, fn)

    assert [1] == fn.attempts


def test_on_may_be_a_question(clock: FakeClock, run: Callable[..., Any]) -> None:
    retry, fn = retrying(clock, on=lambda error: "down" in str(error)), Flaky(1)

    assert "ok" == run(retry, fn)


def test_a_question_that_raises_means_no_retry_and_hides_no_error(
    clock: FakeClock, run: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    def broken(error: Exception) -> bool:
        raise KeyError

    retry, fn = retrying(clock, on=broken), Flaky(1)

    with pytest.raises(ConnectionError):
        run(retry, fn)

    assert "raised; the call is not retried" in caplog.text


@pytest.mark.parametrize("backoff", [lambda step, rng: math.nan, lambda step, rng: 1 / 0])
def test_a_broken_backoff_means_no_retry_and_hides_no_error(
    clock: FakeClock, run: Callable[..., Any], caplog: pytest.LogCaptureFixture, backoff: Any
) -> None:
    retry, fn = retrying(clock, backoff=backoff), Flaky(1)

    with pytest.raises(ConnectionError):
        run(retry, fn)

    assert "the backoff of retry 'bank' failed" in caplog.text
    assert {"failed_not_retried": 1} == outcomes(retry)


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_an_interrupt_is_never_retried(clock: FakeClock, interrupt: type[BaseException]) -> None:
    for settings in ({}, {"total": 60}):
        retry, fn = retrying(clock, on=Exception, **settings), Flaky(1, interrupt)

        with pytest.raises(interrupt):
            retry.call(fn)

        assert [1] == fn.attempts
        assert ({}, 1) == (outcomes(retry), retry.snapshot().interrupted)


def test_a_result_may_be_retried_and_the_last_one_is_returned(clock: FakeClock, run: Callable[..., Any]) -> None:
    retry, fn = retrying(clock, on=(), result=lambda value: value == "ok"), Flaky(0)

    assert "ok" == run(retry, fn)
    assert ({"failed_exhausted": 1}, {"success": 0, "failure": 3}) == (outcomes(retry), retry.snapshot().attempts)


def test_a_result_that_becomes_good_is_a_success_after_retry(clock: FakeClock) -> None:
    values = iter([None, None, 5])
    retry = retrying(clock, result=lambda value: value is None)

    assert 5 == retry.call(lambda: next(values))
    assert {"success_after_retry": 1} == outcomes(retry)


def test_only_if_guards_calls_that_must_not_be_repeated(clock: FakeClock) -> None:
    retry = retrying(clock, only_if=lambda call: call.args[0] == "GET")
    got: list[str] = []

    def request(method: str) -> None:
        got.append(method)
        raise ConnectionError

    for method in ("POST", "GET"):
        with pytest.raises(ConnectionError):
            retry.call(request, method)

    assert ["POST", "GET", "GET", "GET"] == got
    assert {"failed_not_retried": 1, "failed_exhausted": 1} == outcomes(retry)


def test_only_if_sees_the_call_itself_through_the_policies_inside(clock: FakeClock) -> None:
    seen = []
    retry = retrying(clock, only_if=seen.append)
    each = Timeout("each", 5, clock=clock)

    def request(method: str, *, body: str) -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        retry.call(each.call, each.call, request, "POST", body="x")

    assert [(request, ("POST",), {"body": "x"})] == [(call.function, call.args, call.kwargs) for call in seen]


def test_only_if_is_asked_once_and_not_before_a_failure(clock: FakeClock) -> None:
    asked = []
    retry = retrying(clock, only_if=lambda call: asked.append(call) or True)

    retry.call(Flaky(0))
    assert [] == asked

    retry.call(Flaky(2), "fine")
    assert [(("fine",), {})] == [(call.args, call.kwargs) for call in asked]


def test_only_if_tells_blocks_apart_by_their_label(clock: FakeClock) -> None:
    retry, fn = retrying(clock, only_if=lambda call: call.label == "read"), Flaky(1)

    for turn in retry.block("read"):
        with turn:
            fn()

    assert [1, 2] == fn.attempts


def test_the_total_bounds_when_the_last_attempt_begins(clock: FakeClock, run: Callable[..., Any]) -> None:
    retry, fn = retrying(clock, attempts=None, total=10, backoff=3), Flaky(99)

    with pytest.raises(ConnectionError) as caught:
        run(retry, fn)

    assert [3.0, 3.0, 3.0] == clock.sleeps
    assert "a delay of 3 s does not fit into the 1 s left" in caught.value.__notes__[0]
    assert {"failed_deadline": 1} == outcomes(retry)


def test_the_total_is_the_ambient_deadline_of_the_attempts(clock: FakeClock) -> None:
    left: list[float | None] = []

    def fn() -> None:
        left.append(time_left())
        raise ConnectionError

    with pytest.raises(ConnectionError):
        retrying(clock, total=10, backoff=3).call(fn)

    assert [10.0, 7.0, 4.0] == left
    assert None is time_left()


def test_it_never_sleeps_past_the_ambient_deadline(clock: FakeClock, run: Callable[..., Any]) -> None:
    retry, fn = retrying(clock, attempts=9, backoff=constant(2)), Flaky(99)

    with deadline(5, clock=clock), pytest.raises(ConnectionError):
        run(retry, fn)

    assert [2.0, 2.0] == clock.sleeps
    assert {"failed_deadline": 1} == outcomes(retry)


def test_a_sleep_that_overshot_the_deadline_is_followed_by_no_attempt(run: Callable[..., Any]) -> None:
    class Sluggish(FakeClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds + 10)

        async def asleep(self, seconds: float) -> None:
            await super().asleep(seconds + 10)

    clock = Sluggish()
    retry, fn = retrying(clock, total=5), Flaky(1)

    with pytest.raises(ConnectionError) as caught:
        run(retry, fn)

    assert [1] == fn.attempts
    assert ["gave up after 1 attempt in 11.0 s (retry 'bank'): no time is left"] == caught.value.__notes__
    assert {"failed_deadline": 1} == outcomes(retry)


@given(
    total=st.none() | st.floats(0.1, 100),
    ambient=st.none() | st.floats(0.1, 100),
    durations=st.lists(st.floats(0, 20), min_size=1, max_size=8),
    asked=st.none() | st.floats(0, 100),
    seed=st.integers(0, 1000),
)
def test_whatever_happens_no_attempt_begins_and_no_sleep_ends_after_the_deadline(
    total: float | None, ambient: float | None, durations: list[float], asked: float | None, seed: int
) -> None:
    clock = FakeClock()
    began: list[float] = []
    lengths = iter(durations)
    limit = min(bound for bound in (total, ambient, math.inf) if bound is not None)
    retry = retrying(clock, attempts=8, total=total, backoff=exponential(0.5), rng=random.Random(seed))

    def fn() -> None:
        began.append(clock.monotonic())
        clock.advance(next(lengths, 1.0))
        error = ConnectionError()
        error.retry_after = asked  # type: ignore[attr-defined]
        raise error

    with deadline(ambient, clock=clock), pytest.raises(ConnectionError):
        retry.call(fn)

    assert all(start < limit for start in began)
    assert len(clock.sleeps) == len(began) - 1
    assert all(slept >= min(asked or 0, 60) for slept in clock.sleeps)


def test_a_retry_after_is_a_lower_bound_with_a_cap(clock: FakeClock, run: Callable[..., Any]) -> None:
    def busy() -> ConnectionError:
        error = ConnectionError()
        error.retry_after = waits.pop(0)  # type: ignore[attr-defined]
        return error

    waits: list[Any] = [7, "0.5", 3600]
    retry, fn = retrying(clock, attempts=4, retry_after_cap=20), Flaky(3, busy)

    assert "ok" == run(retry, fn)
    assert [7.0, 1.0, 20.0] == clock.sleeps


def test_a_retry_after_date_is_read_by_the_wall_clock(clock: FakeClock) -> None:
    def busy() -> ConnectionError:
        error = ConnectionError()
        error.headers = {"Retry-After": "Tue, 14 Nov 2023 22:13:50 GMT"}  # type: ignore[attr-defined]
        return error

    retry = retrying(clock)
    retry.call(Flaky(1, busy))

    assert [30.0] == clock.sleeps


def test_a_result_may_carry_a_retry_after_too(clock: FakeClock) -> None:
    class Response:
        headers = {"Retry-After": "9"}  # noqa: RUF012

    retry = retrying(clock, attempts=2, result=lambda response: True)
    retry.call(Response)

    assert [9.0] == clock.sleeps


def test_a_negative_grpc_pushback_forbids_the_retry(clock: FakeClock, run: Callable[..., Any]) -> None:
    def pushed_back() -> ConnectionError:
        error = ConnectionError()
        error.trailing_metadata = lambda: (("grpc-retry-pushback-ms", "-1"),)  # type: ignore[attr-defined]
        return error

    retry, fn = retrying(clock), Flaky(9, pushed_back)

    with pytest.raises(ConnectionError):
        run(retry, fn)

    assert [1] == fn.attempts
    assert {"failed_not_retried": 1} == outcomes(retry)


def test_notes_do_not_pile_up_on_an_error_that_is_raised_again_and_again(clock: FakeClock) -> None:
    shared = ConnectionError("always me")
    shared.add_note("from elsewhere")
    inner = retrying(clock, attempts=2)
    outer = Retry("outer", on=ConnectionError, attempts=2, backoff=0, clock=clock)

    for _ in range(5):
        with pytest.raises(ConnectionError):
            outer.call(inner.call, Flaky(9, lambda: shared))

    assert [
        "from elsewhere",
        "gave up after 2 attempts in 1.0 s (retry 'bank')",
        "gave up after 2 attempts in 2.0 s (retry 'outer')",
    ] == shared.__notes__


def test_an_error_that_takes_no_notes_is_raised_all_the_same(clock: FakeClock) -> None:
    class Bare(ConnectionError):
        def __setattr__(self, name: str, value: object) -> None:
            raise AttributeError

    with pytest.raises(Bare):
        retrying(clock).call(Flaky(9, Bare))


def test_nested_retries_each_count_their_own_attempts(clock: FakeClock) -> None:
    seen = []
    outer = Retry("outer", on=ConnectionError, attempts=2, backoff=0, clock=clock)
    inner = Retry("inner", on=ConnectionError, attempts=2, backoff=0, clock=clock)

    def fn() -> None:
        seen.append(attempt())
        raise ConnectionError

    def between() -> None:
        before = attempt()
        try:
            inner.call(fn)
        finally:
            assert before == attempt()

    with pytest.raises(ConnectionError):
        outer.call(between)

    assert [1, 2, 1, 2] == seen


def test_a_coroutine_function_through_call_is_refused_instead_of_left_unguarded(clock: FakeClock) -> None:
    async def fn() -> None: ...

    for settings in ({}, {"total": 5}):
        with pytest.raises(TypeError, match="await acall"):
            retrying(clock, on=Exception, **settings).call(fn)


def test_a_generator_is_refused_with_the_reason(clock: FakeClock) -> None:
    def items() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="cannot be taken back before another attempt"):
        retrying(clock)(items)


def test_the_decorator_keeps_colour_and_name(clock: FakeClock) -> None:
    async def fetch(x: int) -> int:
        """Fetch."""
        return x

    guarded = retrying(clock)(fetch)

    assert inspect.iscoroutinefunction(guarded)
    assert ("fetch", "Fetch.") == (guarded.__name__, guarded.__doc__)
    assert 3 == asyncio.run(guarded(3))


def test_every_mistake_is_named_at_once() -> None:
    bad: Any = {
        "on": 3,
        "ignore": BaseException,
        "attempts": 0,
        "backoff": "soon",
        "total": math.inf,
        "budget": 5,
        "result": 1,
        "only_if": 2,
        "retry_after_cap": -1,
    }

    with pytest.raises(ConfigError) as caught:
        Retry("", **bad)

    assert ["name", *bad] == [mistake.path for mistake in caught.value.mistakes]


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, True, "5", 1.5])
def test_attempts_is_a_whole_number_of_at_least_one(value: Any) -> None:
    with pytest.raises(ConfigError, match="attempts"):
        Retry("x", on=OSError, attempts=value)


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, True, "5"])
def test_total_is_a_positive_number(value: Any) -> None:
    with pytest.raises(ConfigError, match="total"):
        Retry("x", on=OSError, total=value)


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, True, "5", None])
def test_backoff_is_seconds_or_callable(value: Any) -> None:
    with pytest.raises(ConfigError, match="backoff"):
        Retry("x", on=OSError, backoff=value)


@pytest.mark.parametrize("value", [BaseException, KeyboardInterrupt, asyncio.CancelledError, int, None, (OSError, int)])
def test_on_names_ordinary_errors(value: Any) -> None:
    with pytest.raises(ConfigError, match="on is"):
        Retry("x", on=value)


def test_on_is_required_and_must_lead_somewhere() -> None:
    with pytest.raises(TypeError, match="on"):
        Retry("x")  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="nothing would ever be retried"):
        Retry("x", on=())
    with pytest.raises(ConfigError, match="something must end the attempts"):
        Retry("x", on=OSError, attempts=None)


def test_a_list_of_errors_will_do() -> None:
    assert (OSError, ValueError) == Retry("x", on=[OSError, ValueError]).settings.on  # type: ignore[arg-type]


def test_every_counter_is_there_from_the_start() -> None:
    snapshot = Retry("x", on=OSError).snapshot()

    assert dict.fromkeys(RetryOutcome, 0) == snapshot.calls
    assert {"success": 0, "failure": 0} == snapshot.attempts
    assert snapshot == Retry("x", on=OSError).snapshot()


def test_events_tell_of_delays_and_ends(clock: FakeClock, run: Callable[..., Any]) -> None:
    retry, events = retrying(clock), []
    unsubscribe = retry.subscribe(events.append)

    run(retry, Flaky(1))
    with pytest.raises(ConnectionError):
        run(retry, Flaky(9))
    unsubscribe()
    run(retry, Flaky(0))

    assert [RetryScheduled, RetryFinished, RetryScheduled, RetryScheduled, RetryFinished] == [type(e) for e in events]
    assert (1, 1.0) == (events[0].attempt, events[0].delay)
    assert isinstance(events[0].error, ConnectionError)
    assert ("success_after_retry", 2, 1.0) == (events[1].outcome, events[1].attempts, events[1].seconds)
    assert ("failed_exhausted", 3, "3 attempts are allowed") == (
        events[4].outcome,
        events[4].attempts,
        events[4].reason,
    )


def test_a_first_success_is_told_of_while_somebody_listens(clock: FakeClock, run: Callable[..., Any]) -> None:
    retry, events = retrying(clock), []
    retry.subscribe(events.append, RetryFinished)

    run(retry, Flaky(0))

    assert [("success_first", 1)] == [(event.outcome, event.attempts) for event in events]
    assert {"success_first": 1} == outcomes(retry)


def test_configure_changes_what_comes_and_keeps_what_was_counted(clock: FakeClock) -> None:
    retry = retrying(clock)
    retry.call(Flaky(1))

    retry.configure(attempts=5, backoff=0)
    with pytest.raises(ConfigError, match="attemps: there is no such setting"):
        retry.configure(attemps=9)
    with pytest.raises(ConfigError):
        retry.configure(attempts=0)

    assert "ok" == retry.call(Flaky(4))
    assert {"success_after_retry": 2} == outcomes(retry)


def test_a_copy_is_set_alike_and_fresh(clock: FakeClock) -> None:
    retry = Retry("bank", on=ConnectionError, attempts=5, backoff=exponential(0.2), total=9, retry_after_cap=3)
    retry.call(Flaky(0))

    for other in (copy.copy(retry), copy.deepcopy(retry), pickle.loads(pickle.dumps(retry))):
        assert retry.settings == other.settings
        assert {} == outcomes(other)


def test_counts_are_exact_over_threads() -> None:
    retry = Retry("bank", on=ConnectionError, backoff=0)

    def work() -> None:
        for number in range(300):
            retry.call(Flaky(number % 2))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        retry.snapshot()
        thread.join()

    assert {"success_first": 600, "success_after_retry": 600} == outcomes(retry)
    assert {"success": 1200, "failure": 600} == retry.snapshot().attempts


@pytest.mark.parametrize("settings", [{}, {"total": 60}])
def test_an_interrupt_during_the_sleep_ends_the_call(settings: dict[str, Any]) -> None:
    class Interrupted(FakeClock):
        def sleep(self, seconds: float) -> None:
            raise KeyboardInterrupt

    retry, fn = retrying(Interrupted(), **settings), Flaky(9)

    with pytest.raises(KeyboardInterrupt):
        retry.call(fn)

    assert ([1], 1, {}) == (fn.attempts, retry.snapshot().interrupted, outcomes(retry))
    assert (1, None) == (attempt(), time_left())


def test_it_shows_what_it_is() -> None:
    shown = repr(Retry("bank", on=OSError))

    assert "Retry('bank', attempts=3, backoff=0.1 s × 2 up to 10 s, full jitter)" == shown
