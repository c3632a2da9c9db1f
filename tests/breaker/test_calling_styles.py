"""Everything that can be guarded keeps what it is; what cannot is refused when it is decorated."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import AsyncIterator, Iterator
from types import FunctionType
from typing import Any
from unittest import mock

import pytest

from halfopen import CircuitBreaker, CircuitOpenError, Failures, HalfOpen, State

STATES = [State.CLOSED, State.HALF_OPEN, State.METRICS_ONLY, State.DISABLED]
each_state = pytest.mark.parametrize("state", STATES)


def function(a: int, b: int = 2, /, c: int = 3, *rest: int, d: int, e: int = 5, **others: int) -> Any:
    """Say what came in."""
    return a, b, c, rest, d, e, others


async def coroutine(a: int, b: int = 2, /, c: int = 3, *rest: int, d: int, e: int = 5, **others: int) -> Any:
    """Say what came in."""
    return a, b, c, rest, d, e, others


def generator(a: int, b: int = 2, /, c: int = 3, *rest: int, d: int, e: int = 5, **others: int) -> Iterator[Any]:
    """Say what came in."""
    yield a, b, c, rest, d, e, others


async def async_generator(
    a: int, b: int = 2, /, c: int = 3, *rest: int, d: int, e: int = 5, **others: int
) -> AsyncIterator[Any]:
    """Say what came in."""
    yield a, b, c, rest, d, e, others


KINDS = [function, coroutine, generator, async_generator]
ASKS = (
    inspect.iscoroutinefunction,
    inspect.isgeneratorfunction,
    inspect.isasyncgenfunction,
    inspect.isfunction,
)


def drive(coroutine: Any) -> Any:
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waited")


def outcome_of(guarded: Any, *args: Any, **kwargs: Any) -> Any:
    """Call whatever it is to its end."""
    result = guarded(*args, **kwargs)
    if inspect.iscoroutine(result):
        return drive(result)
    if inspect.isgenerator(result):
        return next(iter([*result]))
    if inspect.isasyncgen(result):

        async def first() -> Any:
            return [item async for item in result][0]  # noqa: RUF015  (to its end)

        return drive(first())
    return result


@pytest.mark.parametrize("fn", KINDS)
def test_the_decorator_keeps_kind_name_docstring_and_signature(make: Any, fn: Any) -> None:
    guarded = make()(fn)

    assert [ask(fn) for ask in ASKS] == [ask(guarded) for ask in ASKS]
    assert (fn.__name__, fn.__qualname__, fn.__doc__, fn.__module__) == (
        guarded.__name__,
        guarded.__qualname__,
        guarded.__doc__,
        guarded.__module__,
    )
    assert inspect.signature(fn) == inspect.signature(guarded)
    assert fn is guarded.__wrapped__


@each_state
@pytest.mark.parametrize("fn", KINDS)
@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((1,), {"d": 4}),
        ((1, 20, 30), {"d": 4, "e": 50}),
        ((1, 20, 30, 40, 50), {"d": 4, "f": 6}),
        ((1,), {"c": 30, "d": 4, "a": 7, "b": 8, "self": 9}),
    ],
)
def test_arguments_arrive_as_they_were_given(make: Any, state: State, fn: Any, args: Any, kwargs: Any) -> None:
    guarded = make(state)(fn)

    expected = outcome_of(fn, *args, **kwargs)

    assert expected == outcome_of(guarded, *args, **kwargs)


@each_state
@pytest.mark.parametrize("fn", KINDS)
@pytest.mark.parametrize(("args", "kwargs"), [((), {"d": 4}), ((1,), {}), ((), {"a": 1, "d": 4})])
def test_a_call_with_wrong_arguments_is_no_call_of_the_dependency(
    make: Any, balanced: Any, state: State, fn: Any, args: Any, kwargs: Any
) -> None:
    breaker = make(state)
    guarded = breaker(fn)

    with pytest.raises(TypeError, match="argument"):
        outcome_of(guarded, *args, **kwargs)

    look = balanced(breaker)
    assert (0, 0, 0) == (look.counters.successes, look.counters.failures, look.counters.ignored)


def test_a_default_is_the_very_object(make: Any) -> None:
    marker = object()

    def fn(value: object = marker, *, key: object = marker) -> tuple[object, object]:
        return value, key

    value, key = make()(fn)()

    assert value is marker
    assert key is marker


ODD = [
    "def odd(self, cls): return self, cls",
    "def odd(odd, fn): return odd, fn",
    "def odd(BaseException, next): return BaseException, next",
    "def odd(_h_fn, _h_now): return _h_fn, _h_now",
    "def odd(*_h_state, **_h_now): return _h_state",
    "def odd(_h_default_0, _h_args=2): return _h_default_0, _h_args",
    "def odd(match, case): return match, case",
    "def odd(größe, _): return größe, _",
    "def odd(ﬁ, ℌ): return ﬁ, ℌ",
    "def odd(__a, b__): return __a, b__",
    "def odd(self, /, *args): return self, *args",
    "def odd(a, *, b=2): return a, b",
    "def odd(result, state, began=2): return result, state",
    "def BaseException(a, b): return a, b\nodd = BaseException",
    "odd = lambda a, b: (a, b)",
    "odd = (lambda a, b: (a, b)); odd.__name__ = 'class'",
    "odd = (lambda a, b: (a, b)); odd.__name__ = '__debug__'",
    "odd = (lambda a, b: (a, b)); odd.__name__ = '_h_fn'",
    "odd = (lambda a, b: (a, b)); odd.__name__ = ''",
    "def odd({}): return a0, a1".format(", ".join(f"a{n}={n}" for n in range(300))),
]


@each_state
@pytest.mark.parametrize("source", ODD)
def test_no_name_of_a_parameter_or_function_is_in_the_way(make: Any, state: State, source: str) -> None:
    scope: dict[str, Any] = {}
    exec(source, scope)
    odd = scope["odd"]
    args = (1,) if "b=2" in source else (1, 2)

    guarded = make(state)(odd)

    assert odd(*args) == guarded(*args)
    assert odd.__name__ == guarded.__name__


def test_an_exception_passes_where_the_function_is_named_as_one(make: Any) -> None:
    scope: dict[str, Any] = {}
    exec("def BaseException(Exception):\n    raise ValueError(Exception)", scope)
    guarded = make()(scope["BaseException"])

    with pytest.raises(ValueError, match="3"):
        guarded(3)


def test_a_parameter_with_an_impossible_name_is_passed_on(make: Any) -> None:
    code = (lambda x: x).__code__.replace(co_varnames=(".0",))
    guarded = make()(FunctionType(code, {}))

    assert 7 == guarded(7)


class Service:
    breaker = CircuitBreaker("class level")

    def __init__(self, offset: int) -> None:
        self.offset = offset

    @breaker
    def method(self, value: int) -> int:
        return self.offset + value

    @breaker
    async def amethod(self, value: int) -> int:
        return self.offset + value

    @breaker
    def items(self, value: int) -> Iterator[int]:
        yield self.offset + value

    @breaker
    async def aitems(self, value: int) -> AsyncIterator[int]:
        yield self.offset + value

    @breaker
    @classmethod
    def inner_classmethod(cls, value: int) -> tuple[type, int]:
        return cls, value

    @classmethod
    @breaker
    def outer_classmethod(cls, value: int) -> tuple[type, int]:
        return cls, value

    @breaker
    @staticmethod
    def inner_staticmethod(value: int) -> int:
        return value

    @staticmethod
    @breaker
    def outer_staticmethod(value: int) -> int:
        return value

    @property
    @breaker
    def guarded_property(self) -> int:
        return self.offset

    @breaker
    def _Service__mangled(self, __value: int) -> int:
        return __value


class Child(Service):
    def method(self, value: int) -> int:
        return super().method(value) + 1


@pytest.mark.parametrize("state", [State.CLOSED, State.METRICS_ONLY])
def test_methods_of_every_kind_are_guarded(state: State) -> None:
    service = Service(10)
    with Service.breaker.observe() if state is State.METRICS_ONLY else mock.MagicMock():
        before = Service.breaker.snapshot().counters.successes

        assert 13 == service.method(3)
        assert 14 == Child(10).method(3)
        assert 13 == drive(service.amethod(3))
        assert 13 == outcome_of(service.items, 3)
        assert 13 == outcome_of(service.aitems, 3)
        assert (Child, 3) == Child.inner_classmethod(3) == Child.outer_classmethod(3)
        assert (Service, 3) == service.inner_classmethod(3) == service.outer_classmethod(3)
        assert 3 == Service.inner_staticmethod(3) == service.outer_staticmethod(3)
        assert 10 == service.guarded_property
        assert 3 == service._Service__mangled(3)  # type: ignore[attr-defined]

        # Each line above is one call for each call in it.
        assert 13 == Service.breaker.snapshot().counters.successes - before


class Sync:
    def __call__(self, value: int) -> int:
        return value


class Async:
    async def __call__(self, value: int) -> int:
        return value


class Items:
    def __call__(self, value: int) -> Iterator[int]:
        yield value


class AsyncItems:
    async def __call__(self, value: int) -> AsyncIterator[int]:
        yield value


@each_state
@pytest.mark.parametrize("kind", [Sync, Async, Items, AsyncItems])
def test_a_callable_object_is_guarded_as_what_its_call_is(
    make: Any, counted: Any, balanced: Any, state: State, kind: Any
) -> None:
    breaker = make(state)

    guarded = breaker(kind())

    assert 3 == outcome_of(guarded, 3)
    assert inspect.iscoroutinefunction(guarded) == (kind is Async)
    assert inspect.isasyncgenfunction(guarded) == (kind is AsyncItems)
    assert inspect.isgeneratorfunction(guarded) == (kind is Items)
    assert (int(state is not State.DISABLED), 0, 0) == counted(breaker)
    balanced(breaker)


@each_state
@pytest.mark.parametrize("fn", KINDS)
def test_a_partial_is_guarded_as_what_it_calls(make: Any, balanced: Any, state: State, fn: Any) -> None:
    breaker = make(state)
    partial = functools.partial(functools.partial(fn, 1), d=4)

    guarded = breaker(partial)

    assert outcome_of(partial, 20) == outcome_of(guarded, 20)
    assert [ask(fn) for ask in ASKS[:3]] == [ask(guarded) for ask in ASKS[:3]]
    assert inspect.signature(partial) == inspect.signature(guarded)
    balanced(breaker)


@each_state
def test_builtins_bound_methods_and_mocks_are_guarded(make: Any, balanced: Any, state: State) -> None:
    breaker = make(state)

    assert 3 == breaker(len)("abc")
    assert [1, 2] == breaker([2, 1].__class__.copy)([1, 2])
    assert 13 == breaker(Service(10).method)(3)
    assert 7 == breaker(mock.Mock(return_value=7))(1, x=2)
    assert 7 == drive(breaker(mock.AsyncMock(return_value=7))(1, x=2))
    assert 5 == breaker(functools.lru_cache(lambda x: x))(5)
    balanced(breaker)


def test_what_hangs_on_a_function_is_kept(make: Any) -> None:
    @functools.singledispatch
    def show(value: object) -> str:
        return "any"

    @show.register
    def _(value: int) -> str:
        return "int"

    function.mark = "kept"  # type: ignore[attr-defined]
    try:
        assert "kept" == make()(function).mark
    finally:
        del function.mark  # type: ignore[attr-defined]
    assert "int" == make()(show)(3)
    assert make()(show).registry.keys() == show.registry.keys()


@pytest.mark.parametrize(
    "unguardable",
    [
        int,
        Service,
        property(lambda self: 1),
        functools.cached_property(lambda self: 1),
        functools.partialmethod(function),
        None,
        3,
        "call",
        object(),
        [function],
    ],
)
def test_what_cannot_be_guarded_is_refused_at_once(make: Any, unguardable: Any) -> None:
    with pytest.raises(TypeError, match=r"guarded|hand in"):
        make()(unguardable)


def test_what_a_function_returned_is_refused_at_once(make: Any) -> None:
    made = [coroutine(1, d=4), generator(1, d=4), async_generator(1, d=4)]

    for result in made:
        with pytest.raises(TypeError, match="hand in the function"):
            make()(result)
    made[0].close()


# call and acall


@each_state
@pytest.mark.parametrize("fn", [function, generator, async_generator])
def test_call_guards_functions_and_generators(make: Any, counted: Any, balanced: Any, state: State, fn: Any) -> None:
    breaker = make(state)

    got = outcome_of(functools.partial(breaker.call, fn), 1, 20, d=4, fn=6)

    assert (1, 20, 3, (), 4, 5, {"fn": 6}) == got
    assert (int(state is not State.DISABLED), 0, 0) == counted(breaker)
    balanced(breaker)


@each_state
def test_acall_guards_coroutine_functions(make: Any, counted: Any, balanced: Any, state: State) -> None:
    breaker = make(state)

    got = drive(breaker.acall(coroutine, 1, 20, d=4, fn=6))

    assert (1, 20, 3, (), 4, 5, {"fn": 6}) == got
    assert (int(state is not State.DISABLED), 0, 0) == counted(breaker)
    balanced(breaker)


@each_state
@pytest.mark.parametrize("fn", [coroutine, lambda *args, **kwargs: coroutine(*args, **kwargs)])  # noqa: PLW0108
def test_call_refuses_a_coroutine_whose_work_it_would_not_guard(
    make: Any, balanced: Any, state: State, fn: Any
) -> None:
    breaker = make(state)

    with pytest.raises(TypeError, match="acall"):
        breaker.call(fn, 1, d=4)

    assert 0 == balanced(breaker).counters.successes


def test_generators_handed_to_call_take_no_permit_before_they_run(make: Any, balanced: Any) -> None:
    breaker = make(State.HALF_OPEN, half_open=HalfOpen(permitted_calls=3, max_ignored=1))

    made = [breaker.call(generator, number, d=4) for number in range(50)]
    got = [next(iter([*each])) for each in made]

    assert list(range(50)) == [each[0] for each in got]
    assert State.CLOSED is breaker.state
    assert 0 == balanced(breaker).counters.ignored


@each_state
def test_a_plain_function_that_returns_a_coroutine_warns_in_every_state_and_runs(make: Any, state: State) -> None:
    breaker = make(state, classify=Failures(result=lambda value: False))
    guarded = breaker(lambda: coroutine(1, d=4))

    with pytest.warns(RuntimeWarning, match="not guarded"):
        made = guarded()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = guarded()

    assert 1 == drive(made)[0] == drive(again)[0]


# Blocks and two steps


@pytest.mark.parametrize("state", [State.CLOSED, State.METRICS_ONLY, State.DISABLED])
def test_a_block_and_two_steps_settle(make: Any, counted: Any, balanced: Any, state: State) -> None:
    breaker = make(state)

    with breaker.acquire():
        pass
    breaker.acquire().success()
    breaker.acquire().failure(ValueError("x"))
    breaker.acquire().ignore()

    assert ((0, 0, 0) if state is State.DISABLED else (2, 1, 1)) == counted(breaker)
    balanced(breaker)


def test_two_steps_settle_trial_calls(make: Any, counted: Any, balanced: Any) -> None:
    breaker = make(State.HALF_OPEN)

    breaker.acquire().success()
    breaker.acquire().ignore()
    breaker.acquire().failure()

    assert State.OPEN is breaker.state
    assert (1, 1, 1) == counted(breaker)
    balanced(breaker)


@each_state
def test_settling_twice_changes_nothing(make: Any, balanced: Any, state: State) -> None:
    breaker = make(state)

    with breaker.acquire() as permit:
        assert not permit.settled
        permit.success()
        assert permit.settled
        permit.failure()
        permit.ignore()
        permit.exception(ValueError())
        permit.result(None)

    look = balanced(breaker)
    assert (int(state is not State.DISABLED), 0, 0) == (
        look.counters.successes,
        look.counters.failures,
        look.counters.ignored,
    )
    assert 1 == look.counters.permits.issued == look.counters.permits.settled


def test_an_exit_stack_may_end_a_block_that_never_began(make: Any, balanced: Any) -> None:
    import contextlib

    for state in STATES:
        breaker = make(state)
        with contextlib.ExitStack() as stack:
            stack.push(breaker.acquire())
        assert 1 == balanced(breaker).counters.permits.settled


@pytest.mark.parametrize("fn", KINDS)
def test_a_refused_call_does_not_reach_the_function(make: Any, fn: Any) -> None:
    reached = mock.Mock()
    breaker = make(State.OPEN)

    def watched(*args: Any, **kwargs: Any) -> Any:
        reached()
        return fn(*args, **kwargs)

    for guarded in (breaker(fn), functools.partial(breaker.call, watched)):
        with pytest.raises(CircuitOpenError):
            outcome_of(guarded, 1, d=4)

    reached.assert_not_called()


# What generators pass through


@each_state
def test_send_throw_and_the_returned_value_pass_through(make: Any, balanced: Any, state: State) -> None:
    breaker = make(state)

    @breaker
    def talk() -> Any:
        got = yield "first"
        try:
            yield got
        except KeyError as error:
            yield f"caught {error.args[0]}"
        return "done"

    def consumer() -> Any:
        return (yield from talk())

    talking = consumer()

    assert "first" == next(talking)
    assert 42 == talking.send(42)
    assert "caught k" == talking.throw(KeyError("k"))
    with pytest.raises(StopIteration) as stop:
        next(talking)
    assert "done" == stop.value.value
    assert 0 == balanced(breaker).counters.failures


@each_state
def test_asend_and_athrow_pass_through(make: Any, balanced: Any, state: State) -> None:
    breaker = make(state)

    @breaker
    async def talk() -> Any:
        got = yield "first"
        try:
            yield got
        except KeyError as error:
            yield f"caught {error.args[0]}"

    talking = talk()

    assert "first" == drive(talking.__anext__())
    assert 42 == drive(talking.asend(42))
    assert "caught k" == drive(talking.athrow(KeyError("k")))
    with pytest.raises(StopAsyncIteration):
        drive(talking.__anext__())
    assert 0 == balanced(breaker).counters.failures
