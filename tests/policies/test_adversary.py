"""What hostile servers, shared errors and foreign contexts do to policies."""

from __future__ import annotations

import contextvars
import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, ClassVar

import pytest

from halfopen._runtime.asked_wait import asked_wait
from halfopen._runtime.retry_after import parse_retry_after
from halfopen.bulkhead import Bulkhead
from halfopen.cache_fallback import CacheFallback
from halfopen.errors import BulkheadFullError
from halfopen.fallback import Fallback
from halfopen.hedge import Hedge
from halfopen.retry import Retry
from halfopen.testing import FakeClock
from halfopen.timeout import Timeout, TimeoutOutcome, deadline

NOVEMBER_1994 = 784111777.0


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


# What servers ask for


@pytest.mark.usefixtures("in_new_york")
@pytest.mark.parametrize(
    "date",
    [
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        "Sun, 06 Nov 1994 08:49:37 -0000",
    ],
)
def test_each_form_of_an_http_date_is_utc_wherever_the_program_runs(date: str) -> None:
    wait = parse_retry_after(date, NOVEMBER_1994 - 10)

    assert 10.0 == wait


class AsksForAges(ConnectionError):
    def __init__(self, **answers: Any) -> None:
        super().__init__("busy")
        vars(self).update(answers)


@pytest.mark.parametrize(
    "answers",
    [
        {"retry_after": 10**400},
        {"headers": {"Retry-After": "9" * 400}},
        {"trailing_metadata": [("grpc-retry-pushback-ms", "9" * 400)]},
    ],
)
def test_a_wait_beyond_all_floats_is_cut_to_the_cap(answers: dict[str, Any]) -> None:
    clock = FakeClock()
    retry = Retry("rates", on=ConnectionError, attempts=2, retry_after_cap=60.0, clock=clock)

    def busy() -> None:
        raise AsksForAges(**answers)

    with pytest.raises(AsksForAges):
        retry.call(busy)

    assert 60.0 == clock.monotonic()


def test_a_number_below_all_floats_asks_for_no_wait() -> None:
    assert 0.0 == asked_wait(AsksForAges(retry_after=-(10**400)), 0.0)


# Keys


class Tenant:
    def __init__(self, name: str) -> None:
        self.name = name
        self.down = False

    @Timeout("rates", 5.0)
    def rate(self, currency: str) -> str:
        if self.down:
            raise ConnectionError("down")
        return f"{self.name}: {currency}"


def test_the_guarded_methods_of_two_instances_share_no_answer() -> None:
    cache = CacheFallback("rates", on=ConnectionError, max_age=60)
    acme, zenith = Tenant("acme"), Tenant("zenith")
    cache.call(acme.rate, "USD")
    acme.down = zenith.down = True

    with pytest.raises(ConnectionError):
        cache.call(zenith.rate, "USD")

    assert "acme: USD" == cache.call(acme.rate, "USD")


def no_key(*_: object) -> None:
    raise KeyError("no such header")


def test_a_key_function_that_raises_costs_neither_answer_nor_error(caplog: pytest.LogCaptureFixture) -> None:
    cache = CacheFallback("rates", on=ConnectionError, max_age=60, key=no_key)

    answer = cache.call(str.upper, "usd")
    with pytest.raises(ConnectionError):
        cache.call(down)

    assert ("USD", 1, 2) == (answer, cache.snapshot().failures["no_key"], len(caplog.records))


# Names


def test_the_refusal_of_a_bulkhead_of_the_same_name_is_a_failure_for_the_timeout_around_it() -> None:
    timeout, bulkhead = Timeout("rates", 5.0), Bulkhead("rates", 1)

    with bulkhead.acquire(), pytest.raises(BulkheadFullError):
        timeout.call(bulkhead.call, str)

    seen = timeout.snapshot()
    assert (0, 1) == (seen.refused, seen.calls[TimeoutOutcome.FAILURE])


# Errors that are raised again and again


SHARED = ConnectionError("the same object each time")


def down(*_: object) -> None:
    raise SHARED


@pytest.mark.parametrize(
    ("guard", "notes"),
    [
        (Retry("rates", on=ConnectionError, attempts=2, backoff=0.0).call, 1),
        (CacheFallback("rates", on=ConnectionError, max_age=60).call, 1),
        (Fallback("rates", dict.fromkeys, down, on=ConnectionError).call, 1),
        (lambda fn: Hedge("rates", 0.001, budget=None).call(Both(fn)), 1),
    ],
    ids=["retry", "cache", "fallback", "hedge"],
)
def test_an_error_that_is_raised_often_tells_of_its_last_call_only(guard: Callable[..., Any], notes: int) -> None:
    vars(SHARED).clear()

    for _ in range(3):
        with pytest.raises(ConnectionError):
            guard(slow_and_down)

    assert notes == len(SHARED.__notes__)


def slow_and_down() -> None:
    time.sleep(0.02)
    raise SHARED


class Both:
    """A call that goes on when it has been made for the second time."""

    def __init__(self, fn: Callable[[], Any]) -> None:
        self.fn = fn
        self.made = threading.Barrier(2)

    def __call__(self) -> Any:
        self.made.wait(60)
        return self.fn()


class Fleeting(ConnectionError):
    made: ClassVar[list[weakref.ref[Fleeting]]] = []

    def __init__(self) -> None:
        super().__init__("down")
        self.made.append(weakref.ref(self))


def down_for_a_moment(*_: object) -> None:
    raise Fleeting


@pytest.mark.parametrize(
    "policy",
    [
        CacheFallback("rates", on=ConnectionError, max_age=60),
        Fallback("rates", down_for_a_moment, on=ConnectionError),
        Fallback("rates", down_for_a_moment, down_for_a_moment, on=ConnectionError),
    ],
    ids=["cache", "fallback", "chain"],
)
def test_an_error_that_leaves_is_gone_once_it_is_handled(policy: CacheFallback | Fallback) -> None:
    Fleeting.made.clear()
    gc.disable()

    try:
        with suppress(Fleeting):
            policy.call(down_for_a_moment)
        alive = [error for error in Fleeting.made if error() is not None]
    finally:
        gc.enable()

    assert [] == alive


# Contexts


def under_a_deadline() -> Iterator[int]:
    with deadline(5.0):
        yield 1


def under_a_retry() -> Iterator[int]:
    for attempt in Retry("rates", on=ConnectionError, total=5.0):
        with attempt:
            yield attempt.number


@pytest.mark.parametrize("block", [under_a_deadline, under_a_retry])
def test_a_block_may_end_in_another_context_than_it_began_in(block: Callable[[], Iterator[int]]) -> None:
    # As a web framework does that runs the halves of a generator on two threads.
    steps = block()
    first = contextvars.copy_context().run(next, steps)

    rest = contextvars.copy_context().run(list, steps)

    assert (1, []) == (first, rest)


# A system that has no thread left


@pytest.mark.parametrize("left", [0, 1])
def test_a_call_is_answered_without_a_hedge_when_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    start = threading.Thread.start
    started: list[threading.Thread] = []
    tried = threading.Event()

    def slow_answer() -> str:
        if left:
            assert tried.wait(60)
        return "found"

    def start_few(thread: threading.Thread) -> None:
        if len(started) >= left:
            tried.set()
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_few)
    hedge = Hedge("search", 0.01, budget=None)

    answer = hedge.call(slow_answer)

    seen = hedge.snapshot()
    assert ("found", 0, 1 - left, left) == (answer, seen.hedges, seen.unhedged, seen.skipped["no_thread"])
