"""Policies in the order they read: calls, decorators, nesting, and what the parts know of each other."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import anyio
import pytest

from halfopen import (
    AdaptiveConcurrency,
    Bulkhead,
    BulkheadFullError,
    CacheFallback,
    Call,
    CallTimeoutError,
    CircuitBreaker,
    CircuitOpenError,
    ConfigError,
    Fallback,
    HalfOpen,
    Pipeline,
    RateLimiter,
    RejectedError,
    Retry,
    RetryBudget,
    State,
    Timeout,
)
from halfopen.testing import FakeClock, put_into
from halfopen.timeout import check_deadline


class Noting:
    """A policy of a user's own that notes when it is passed."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log

    def call(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.log.append(f"+{self.name}")
        try:
            return fn(*args, **kwargs)
        finally:
            self.log.append(f"-{self.name}")

    async def acall(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.log.append(f"+{self.name}")
        try:
            return await fn(*args, **kwargs)
        finally:
            self.log.append(f"-{self.name}")

    def __call__(self, fn: Any) -> Any:
        return partial(self.call, fn)


def down(*_: Any, **__: Any) -> None:
    raise ConnectionError("down")


def a_breaker(name: str = "bank", **settings: Any) -> CircuitBreaker:
    return CircuitBreaker(name, consecutive_failures=2, wait_in_open=30.0, **settings)


# Order


def test_it_runs_in_the_order_it_reads() -> None:
    log: list[str] = []
    pipeline = Pipeline(Noting("a", log), Noting("b", log), Noting("c", log))

    pipeline.call(log.append, "fn")

    assert ["+a", "+b", "+c", "fn", "-c", "-b", "-a"] == log


def test_the_decorator_and_acall_keep_the_same_order() -> None:
    log: list[str] = []
    pipeline = Pipeline(Noting("a", log), Noting("b", log))

    @pipeline
    async def decorated() -> None:
        log.append("fn")

    asyncio.run(decorated())
    asyncio.run(pipeline.acall(inspect.unwrap(decorated)))

    assert ["+a", "+b", "fn", "-b", "-a"] * 2 == log


@pytest.mark.anyio
async def test_every_policy_is_passed_on_asyncio_and_trio() -> None:
    pipeline = Pipeline.standard("colours", on=ConnectionError, fallback="fallback", timeout=0.05)

    async def hang() -> str:
        await anyio.sleep(60)
        return "never"

    async def fine() -> str:
        return "fine"

    assert "fine" == await pipeline.acall(fine)
    with pytest.raises(CallTimeoutError):
        await pipeline(hang)()


def test_a_pipeline_in_a_pipeline_stands_where_it_reads() -> None:
    log: list[str] = []
    inner = Pipeline(Noting("b", log), Noting("c", log), name="inner")
    pipeline = Pipeline(Noting("a", log), inner, Noting("d", log))

    pipeline.call(log.append, "fn")

    assert "abcd" == "".join(entry[1] for entry in log if entry[0] == "+")
    assert ["a", "b", "c", "d"] == [policy.name for policy in pipeline.flat]
    assert inner is pipeline.policies[1]


def test_arguments_results_and_errors_pass_unchanged() -> None:
    pipeline = Pipeline(a_breaker(), Bulkhead("b", 2), Timeout("t", 5))
    error = KeyError("x")

    def raising() -> None:
        raise error

    assert (1, 2, {"c": 3}) == pipeline.call(lambda a, b, **kwargs: (a, b, kwargs), 1, b=2, c=3)
    with pytest.raises(KeyError) as caught:
        pipeline.call(raising)
    assert error is caught.value


# The decorator


def test_a_decorated_function_keeps_its_looks() -> None:
    @Pipeline(a_breaker(), Timeout("t", 5))
    def pay(amount: int, *, currency: str = "EUR") -> str:
        """Pay."""
        return f"{amount} {currency}"

    assert ("pay", "Pay.") == (pay.__name__, pay.__doc__)
    assert "(amount: 'int', *, currency: 'str' = 'EUR') -> 'str'" == str(inspect.signature(pay))
    assert ("3 EUR", "3 USD") == (pay(3), pay(amount=3, currency="USD"))


def test_a_call_with_wrong_arguments_is_no_call_of_the_dependency() -> None:
    breaker = a_breaker()

    @Pipeline(breaker, Timeout("t", 5))
    def pay(amount: int) -> int:
        return amount

    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        pay()  # type: ignore[call-arg]

    assert 0 == breaker.snapshot().counters.failures


def test_a_coroutine_function_stays_one() -> None:
    @Pipeline(a_breaker(), Retry("r", on=OSError), Timeout("t", 5))
    async def pay(amount: int) -> int:
        return amount

    assert inspect.iscoroutinefunction(pay)
    assert 3 == asyncio.run(pay(3))


def test_methods_of_every_kind_are_guarded() -> None:
    pipeline = Pipeline(a_breaker(), Bulkhead("b", 2))

    class Shop:
        @pipeline
        def sell(self, what: str) -> tuple[str, str]:
            return type(self).__name__, what

        @pipeline
        @staticmethod
        def rent() -> str:
            return "rent"

        @classmethod
        @pipeline
        def made(cls) -> str:
            return cls.__name__

    assert (("Shop", "x"), "rent", "Shop") == (Shop().sell("x"), Shop.rent(), Shop.made())


def test_partials_and_callable_instances_are_guarded() -> None:
    class Adder:
        def __call__(self, a: int, b: int) -> int:
            return a + b

    pipeline = Pipeline(a_breaker(), Bulkhead("b", 2))

    assert 3 == pipeline(Adder())(1, 2)
    assert 3 == pipeline(partial(Adder(), 1))(2)


def test_a_generator_is_guarded_where_every_policy_can() -> None:
    bulkhead = Bulkhead("b", 2)
    pipeline = Pipeline(a_breaker(), bulkhead, RateLimiter("l", 10), AdaptiveConcurrency("a"))

    @pipeline
    def numbers() -> Iterator[int]:
        yield bulkhead.snapshot().in_use
        yield 2

    assert inspect.isgeneratorfunction(numbers)
    assert [1, 2] == list(numbers())
    assert [1, 2] == list(pipeline.call(inspect.unwrap(numbers)))
    assert 0 == bulkhead.snapshot().in_use


def test_a_generator_that_one_policy_cannot_guard_is_refused_with_its_reason() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    pipeline = Pipeline(a_breaker(), Retry("r", on=OSError))

    with pytest.raises(TypeError, match=r"Retry 'r' cannot guard the generator .*numbers: items it has handed out"):
        pipeline(numbers)
    with pytest.raises(TypeError, match="Retry 'r' cannot guard the generator"):
        pipeline.call(numbers)


@pytest.mark.parametrize("thing", [int, property(lambda self: 1), 5])
def test_what_cannot_be_guarded_is_refused(thing: Any) -> None:
    with pytest.raises(TypeError, match="Pipeline 'pay'"):
        Pipeline(Bulkhead("b", 2), name="pay")(thing)


def test_a_mistake_that_a_policy_finds_at_decoration_is_found() -> None:
    async def later(error: Exception) -> int:
        return 1

    with pytest.raises(TypeError, match="coroutine function in its chain"):
        Pipeline(Fallback("f", later, on=OSError), Bulkhead("b", 2))(lambda: 1)


def test_a_coroutine_function_handed_to_call_is_refused_and_no_failure_of_the_dependency() -> None:
    async def pay() -> int:
        return 1

    breaker = a_breaker()
    pipeline = Pipeline(breaker, Bulkhead("b", 2), Timeout("t", 1), name="pay")

    with pytest.raises(TypeError, match=r"Pipeline 'pay' cannot guard .*pay\(\) through call\(\): await acall\(\)"):
        pipeline.call(pay)

    assert 0 == breaker.snapshot().counters.failures


def test_a_generator_function_handed_to_call_is_one_call_and_uses_one_permit() -> None:
    limiter, breaker = RateLimiter("l", 1, 60, burst=5), a_breaker()

    class Log:
        def lines(self, last: int) -> Iterator[int]:
            yield from range(last)

    items = Pipeline(breaker, limiter).call(Log().lines, 3)
    before = limiter.snapshot().admitted
    read = list(items)

    assert (0, [0, 1, 2], 1) == (before, read, limiter.snapshot().admitted)
    assert 1 == breaker.snapshot().counters.successes


# Construction


def test_an_empty_pipeline_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one policy"):
        Pipeline(name="empty")
    with pytest.raises(ConfigError, match="at least one policy"):
        Pipeline(*[])


def test_the_same_policy_twice_is_refused_also_inside_a_nested_pipeline() -> None:
    retry = Retry("r", on=OSError)
    inner = Pipeline(retry, name="inner")

    with pytest.raises(ConfigError, match=r"policies\[3\]: Retry 'r' is there twice"):
        Pipeline(a_breaker(), retry, retry)
    with pytest.raises(ConfigError, match="is there twice"):
        Pipeline(retry, inner)


def test_every_mistake_is_named_at_once() -> None:
    retry = Retry("r", on=OSError)

    with pytest.raises(ConfigError) as caught:
        Pipeline(retry, retry, name="")

    assert ["name", "policies[2]"] == [mistake.path for mistake in caught.value.mistakes]


@pytest.mark.parametrize(
    ("thing", "why"),
    [
        (CircuitBreaker, "not of the class CircuitBreaker: make one of it"),
        (print, "lacks call, acall"),
        (None, "None is none"),
        (Bulkhead.per_key("host:*", 2), "say with key= which key a call has"),
    ],
)
def test_what_is_no_policy_is_refused(thing: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        Pipeline(thing)


def test_a_keyed_policy_is_a_part_like_any_other() -> None:
    hosts = Bulkhead.per_key("host:*", 2, key=lambda host: host)
    pipeline = Pipeline(hosts, Timeout("t", 5))

    assert "a" == pipeline.call(lambda host: host, "a")
    assert ["a"] == list(hosts)


def test_a_pickled_or_copied_pipeline_works_and_its_retry_watches_its_own_breaker() -> None:
    pipeline = Pipeline(a_breaker(), Retry("r", on=OSError), name="pay")

    other = pickle.loads(pickle.dumps(pipeline))
    deep = copy.deepcopy(pipeline)

    for twin in (other, deep):
        assert ("pay", 1) == (twin.name, twin.call(int, 1))
        assert twin.find(CircuitBreaker) is twin.find(Retry).breaker
        assert twin.find(CircuitBreaker) is not pipeline.find(CircuitBreaker)


def test_it_tells_what_it_is_made_of() -> None:
    breaker = a_breaker()
    pipeline = Pipeline(Pipeline(breaker, name="inner"), Timeout("t", 5), name="pay")

    assert (2, "<Pipeline 'pay': Pipeline → Timeout>") == (len(pipeline), repr(pipeline))
    assert breaker is pipeline.find(CircuitBreaker)
    assert pipeline.find(Retry) is None
    assert list(pipeline.policies) == list(pipeline)


# What the parts know of each other


def test_a_retry_watches_the_nearest_breaker_outside_of_it() -> None:
    far, near, inside = a_breaker("far"), a_breaker("near"), a_breaker("inside")
    retry = Retry("r", on=OSError)

    Pipeline(far, Timeout("t", 5), near, retry, inside)

    assert near is retry.breaker


def test_a_retry_in_a_nested_pipeline_watches_the_breaker_around_that() -> None:
    breaker, retry = a_breaker(), Retry("r", on=OSError)

    Pipeline(breaker, Pipeline(retry, name="inner"))

    assert breaker is retry.breaker


def test_a_retry_that_was_told_a_breaker_keeps_it() -> None:
    told = a_breaker("told")
    retry = Retry("r", on=OSError, breaker=told)

    Pipeline(a_breaker("around"), retry)

    assert told is retry.breaker


def test_a_new_pipeline_over_a_retry_brings_its_breaker() -> None:
    retry, new = Retry("r", on=OSError), a_breaker("new")
    Pipeline(a_breaker("old"), retry)

    Pipeline(new, retry)

    assert new is retry.breaker


def test_a_breaker_that_opens_ends_the_retries() -> None:
    clock = FakeClock()
    breaker = a_breaker(clock=clock)
    pipeline = Pipeline(breaker, Retry("r", on=ConnectionError, attempts=9, backoff=1.0, clock=clock))
    made = []

    def fn() -> None:
        made.append(clock.monotonic())
        if len(made) == 3:
            breaker.trip()
        raise ConnectionError

    with pytest.raises(ConnectionError):
        pipeline.call(fn)

    assert [0.0, 1.0, 2.0] == made


def test_one_call_is_one_failure_for_the_breaker_however_many_attempts() -> None:
    clock = FakeClock()
    breaker = a_breaker(clock=clock)

    with pytest.raises(ConnectionError):
        Pipeline(breaker, Retry("r", on=ConnectionError, attempts=5, clock=clock)).call(down)

    assert (State.CLOSED, 1) == (breaker.state, breaker.snapshot().failures)


def a_breaker_forced_open() -> Any:
    breaker = a_breaker("inner")
    breaker.force_open()
    return breaker


def a_spent_limiter() -> Any:
    limiter = RateLimiter("inner", 1, 1000, burst=1)
    limiter.call(int)
    return limiter


def a_full_bulkhead() -> Any:
    bulkhead = Bulkhead("inner", 1)
    place = bulkhead.acquire()
    place.__enter__()
    return bulkhead, place  # a place that is thrown away comes back


@pytest.mark.parametrize("make", [a_breaker_forced_open, a_spent_limiter, a_full_bulkhead])
def test_refusals_from_inside_are_no_failures_of_the_breaker_outside(make: Callable[[], Any]) -> None:
    made = make()
    inner = made[0] if isinstance(made, tuple) else made
    outer = a_breaker("outer")
    pipeline = Pipeline(outer, Retry("r", on=ConnectionError), inner)

    for _ in range(10):
        with pytest.raises(RejectedError):
            pipeline.call(int)

    assert (State.CLOSED, 0, 10) == (outer.state, outer.snapshot().failures, outer.snapshot().counters.ignored)


def test_a_timeout_inside_is_a_failure_of_the_breaker_and_answered_by_the_fallback() -> None:
    clock = FakeClock()
    breaker = a_breaker(clock=clock)
    pipeline = Pipeline(
        Fallback("f", "none", on=(CallTimeoutError, RejectedError)), breaker, Timeout("t", 1, clock=clock)
    )

    def late() -> str:
        clock.advance(2)
        check_deadline()
        return "late"

    assert ["none"] * 3 == [pipeline.call(late) for _ in range(3)]
    assert (State.OPEN, 2) == (breaker.state, breaker.snapshot().counters.failures)


# What user code sees


@pytest.mark.parametrize("style", ["call", "decorator", "acall", "async decorator", "generator", "stacked"])
def test_eligible_sees_the_users_function_and_arguments(style: str) -> None:
    seen: list[Call] = []

    def eligible(call: Call) -> bool:
        seen.append(call)
        return True

    clock = FakeClock()
    breaker = a_breaker(clock=clock, half_open=HalfOpen(eligible=eligible))
    put_into(breaker, State.HALF_OPEN)
    seen.clear()

    def fn(a: int, *, b: int) -> int:
        return a + b

    async def afn(a: int, *, b: int) -> int:
        return a + b

    def numbers(a: int, *, b: int) -> Iterator[int]:
        yield a + b

    user: Callable[..., Any] = {"acall": afn, "async decorator": afn, "generator": numbers}.get(style, fn)
    held = Pipeline(breaker, Bulkhead("b", 2), RateLimiter("l", 9))
    pipeline = Pipeline(breaker, Retry("r", on=OSError), Bulkhead("b2", 2), Timeout("t", 5))
    runs: dict[str, Callable[[], Any]] = {
        "call": lambda: pipeline.call(fn, 1, b=2),
        "decorator": lambda: pipeline(fn)(1, b=2),
        "acall": lambda: asyncio.run(pipeline.acall(afn, 1, b=2)),
        "async decorator": lambda: asyncio.run(pipeline(afn)(1, b=2)),
        "generator": lambda: next(held(numbers)(1, b=2)),
        "stacked": lambda: breaker(Bulkhead("b3", 2)(Timeout("t2", 5)(fn)))(1, b=2),
    }

    result = runs[style]()

    assert (3, [Call(user, (1,), {"b": 2})]) == (result, seen)


def test_only_if_sees_the_users_call_through_what_is_inside() -> None:
    seen: list[Call] = []
    retry = Retry("r", on=ConnectionError, only_if=lambda call: bool(seen.append(call)))

    with pytest.raises(ConnectionError):
        Pipeline(retry, Bulkhead("b", 2), Timeout("t", 5))(down)("POST", to="x")

    assert [Call(down, ("POST",), {"to": "x"})] == seen


def test_a_cache_fallback_knows_calls_by_the_users_arguments() -> None:
    clock = FakeClock()
    cache = CacheFallback("c", on=(ConnectionError, RejectedError), max_age=60, clock=clock)
    breaker = a_breaker(clock=clock)
    pipeline = Pipeline(cache, breaker, Timeout("t", 5, clock=clock))
    rate = pipeline(lambda currency: {"USD": 1.08, "CHF": 0.94}[currency])

    good = [rate("USD"), rate("CHF")]
    breaker.force_open()

    assert good == [rate("USD"), rate("CHF")]
    with pytest.raises(CircuitOpenError):
        rate("JPY")


def product(first: int, second: int, *, third: int = 1) -> int:
    return first * second * third


async def aproduct(first: int, second: int, *, third: int = 1) -> int:
    return first * second * third


RUNS: dict[str, Callable[[Pipeline], int]] = {
    "call": lambda pipeline: pipeline.call(product, 2, 3, third=7),
    "acall": lambda pipeline: asyncio.run(pipeline.acall(aproduct, 2, 3, third=7)),
    "decorator": lambda pipeline: pipeline(product)(2, 3, third=7),
    "async decorator": lambda pipeline: asyncio.run(pipeline(aproduct)(2, 3, third=7)),
    "partial": lambda pipeline: pipeline.call(partial(product, 2), 3, third=7),
    "decorated partial": lambda pipeline: pipeline(partial(product, 2))(3, third=7),
}


@pytest.mark.parametrize("style", RUNS)
@pytest.mark.parametrize("outermost", [False, True])
def test_a_key_sees_the_arguments_of_the_call_by_position_and_by_name(style: str, outermost: bool) -> None:
    seen: list[Any] = []

    def key(*args: Any, **kwargs: Any) -> str:
        seen.append((args, kwargs))
        return "k"

    family = Bulkhead.per_key("k:*", 2, key=key)
    others = [a_breaker(), Timeout("t", 5)]

    result = RUNS[style](Pipeline(family, *others) if outermost else Pipeline(*others, family))

    # What a partial brings is a part of the function, not of the call.
    assert (42, [((3,) if "partial" in style else (2, 3), {"third": 7})]) == (result, seen)


@pytest.mark.parametrize("style", ["call", "acall"])
@pytest.mark.parametrize("innermost", [False, True])
def test_a_cache_fallback_finds_the_last_answer_of_a_call_with_names(style: str, innermost: bool) -> None:
    clock = FakeClock()
    cache = CacheFallback("c", on=RejectedError, max_age=60, clock=clock)
    breaker = a_breaker(clock=clock)
    pipeline = Pipeline(breaker, cache) if innermost else Pipeline(cache, breaker)

    answers = [RUNS[style](pipeline) for _ in range(2)]
    if not innermost:
        breaker.force_open()
        answers.append(RUNS[style](pipeline))

    assert {42} == {*answers}
    assert 1 == cache.snapshot().entries


def test_a_policy_of_the_users_own_is_handed_the_arguments() -> None:
    handed: list[Any] = []

    class Looking(Noting):
        def call(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            handed.append((fn, args, kwargs))
            return fn(*args, **kwargs)

    pipeline = Pipeline(a_breaker(), Looking("own", []))

    assert [42, 42] == [pipeline.call(product, 2, 3, third=7), pipeline(product)(2, 3, third=7)]
    assert [(product, (2, 3), {"third": 7})] * 2 == handed


def test_messages_show_the_function_and_not_its_arguments() -> None:
    async def later(*, password: str) -> None:
        """Do nothing."""

    def makes(*, password: str) -> Any:
        return later(password=password)

    with pytest.raises(TypeError) as caught:
        Pipeline(a_breaker()).call(makes, password="hunter2")

    assert "makes" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_an_object_of_the_users_that_looks_like_a_policy_is_not_seen_through() -> None:
    class Client:
        name = "client"

        def call(self, what: str) -> str:
            raise ConnectionError

        async def acall(self, what: str) -> str:
            return what

    seen: list[Call] = []
    client = Client()
    retry = Retry("r", on=ConnectionError, only_if=lambda call: bool(seen.append(call)))

    with pytest.raises(ConnectionError):
        Pipeline(retry, Bulkhead("b", 2)).call(client.call, "x")

    assert [(client.call, ("x",))] == [(call.function, call.args) for call in seen]


# The standard pipeline


def test_the_standard_pipeline_has_the_recommended_order_and_no_findings() -> None:
    pipeline = Pipeline.standard("standard order", fallback="none")

    assert ["Fallback", "CircuitBreaker", "Retry", "Bulkhead", "Timeout"] == [type(p).__name__ for p in pipeline]
    assert {"standard order"} == {policy.name for policy in pipeline}
    assert () == pipeline.lint()


@pytest.mark.parametrize("timeout", [0.5, 10, 45, 600])
@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_whatever_its_numbers_it_has_no_findings(timeout: float, attempts: int) -> None:
    name = f"standard {timeout} {attempts}"

    assert () == Pipeline.standard(name, timeout=timeout, attempts=attempts, fallback=None).lint()


def test_the_standard_pipeline_leaves_out_what_is_not_wanted() -> None:
    pipeline = Pipeline.standard("lean", attempts=1, limit=None)

    assert ["CircuitBreaker", "Timeout"] == [type(policy).__name__ for policy in pipeline]


def test_the_standard_pipeline_rides_out_an_outage() -> None:
    clock = FakeClock()
    budget = RetryBudget(0.5, clock=clock)
    pipeline = Pipeline.standard("ride", fallback=lambda error: type(error).__name__, budget=budget, clock=clock)
    healthy = [True]

    @pipeline
    def fetch() -> str:
        if not healthy[0]:
            raise ConnectionError
        return "fresh"

    before = [fetch() for _ in range(20)]
    healthy[0] = False
    during = [fetch() for _ in range(100)]
    healthy[0] = True
    clock.advance(60)
    after = [fetch() for _ in range(3)]

    assert ({"fresh"}, {"fresh"}) == ({*before}, {*after})
    assert ["ConnectionError"] * 20 + ["CircuitOpenError"] * 80 == during


def test_the_standard_pipeline_refuses_the_call_that_is_one_too_many() -> None:
    pipeline = Pipeline.standard("narrow", limit=1)

    with pytest.raises(BulkheadFullError):
        pipeline.call(pipeline.call, int)


def test_the_standard_pipeline_names_its_mistakes() -> None:
    with pytest.raises(ConfigError, match="seconds is a number of seconds greater than 0"):
        Pipeline.standard("x", timeout=-1)
