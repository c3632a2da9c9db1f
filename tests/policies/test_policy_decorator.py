from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import pytest

from halfopen._runtime.policy import decorate, is_async, refuse_coroutine


class Recording:
    name = "recording"

    def __init__(self) -> None:
        self.log: list[str] = []

    def call(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.log.append("call")
        return fn(*args, **kwargs)

    async def acall(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.log.append("acall")
        return await fn(*args, **kwargs)

    @contextmanager
    def hold(self) -> Iterator[None]:
        self.log.append("held")
        try:
            yield
        finally:
            self.log.append("released")

    @asynccontextmanager
    async def ahold(self) -> AsyncIterator[None]:
        with self.hold():
            yield


def test_a_function_keeps_its_name_docstring_and_signature() -> None:
    def pay(amount: int, *, currency: str = "EUR") -> str:
        """Pay."""
        return f"{amount} {currency}"

    guarded = decorate(Recording(), pay)

    assert ("pay", "Pay.") == (guarded.__name__, guarded.__doc__)
    assert inspect.signature(pay) == inspect.signature(guarded)
    assert "3 USD" == guarded(3, currency="USD")


def test_a_coroutine_function_stays_one() -> None:
    policy = Recording()

    async def pay() -> int:
        return 1

    guarded = decorate(policy, pay)

    assert inspect.iscoroutinefunction(guarded)
    assert 1 == asyncio.run(guarded())
    assert ["acall"] == policy.log


def test_methods_static_methods_and_class_methods_are_guarded_in_either_order() -> None:
    policy = Recording()

    def guard(fn: Any) -> Any:
        return decorate(policy, fn)

    class Shop:
        @guard
        def sell(self) -> str:
            return type(self).__name__

        @guard
        @staticmethod
        def rent() -> str:
            return "rent"

        @classmethod
        @guard
        def lend(cls) -> str:
            return cls.__name__

        @guard
        @classmethod
        def give(cls) -> str:
            return cls.__name__

    assert ["Shop", "rent", "Shop", "Shop"] == [Shop().sell(), Shop.rent(), Shop.lend(), Shop().give()]
    assert ["call"] * 4 == policy.log


def test_an_argument_may_have_any_name() -> None:
    def f(self: int, fn: int, policy: int, name: int) -> int:
        return self + fn + policy + name

    assert 10 == decorate(Recording(), f)(self=1, fn=2, policy=3, name=4)


def test_partials_and_callable_instances_show_their_colour() -> None:
    class Sender:
        async def __call__(self) -> str:
            return "sent"

    async def send(x: int) -> int:
        return x

    assert inspect.iscoroutinefunction(decorate(Recording(), Sender()))
    assert inspect.iscoroutinefunction(decorate(Recording(), partial(send, 1)))
    assert inspect.iscoroutinefunction(decorate(Recording(), partial(Sender())))
    assert not is_async(len)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (int, "not the class int; decorate its methods"),
        (property(lambda self: 1), "decorate the getter below @property"),
        (3, "'int' objects: they are not callable"),
        (None, "'NoneType' objects: they are not callable"),
    ],
)
def test_what_cannot_be_guarded_is_refused_at_decoration(what: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        decorate(Recording(), what)


def test_a_generator_is_refused_with_the_policys_reason() -> None:
    def items() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match=r"'recording' cannot guard the generator .*items: because so"):
        decorate(Recording(), items, no_generators="because so")


def test_an_async_generator_is_refused_too() -> None:
    async def items() -> AsyncIterator[int]:
        yield 1

    with pytest.raises(TypeError, match="cannot be taken back"):
        decorate(Recording(), items)


def test_a_held_generator_passes_values_both_ways_and_releases_at_the_end() -> None:
    policy = Recording()

    def echo() -> Iterator[Any]:
        got = yield "ready"
        try:
            yield got
        except KeyError:
            yield "caught"

    running: Any = decorate(policy, echo, hold=policy)()

    assert [] == policy.log
    assert "ready" == next(running)
    assert "hi" == running.send("hi")
    assert "caught" == running.throw(KeyError())
    assert ["held"] == policy.log
    assert [] == list(running)
    assert ["held", "released"] == policy.log


def test_a_held_generator_releases_when_it_is_closed_early() -> None:
    policy = Recording()
    closed = []

    def items() -> Iterator[int]:
        try:
            yield 1
        finally:
            closed.append(list(policy.log))

    running: Any = decorate(policy, items, hold=policy)()
    next(running)
    running.close()

    assert [["held"]] == closed
    assert ["held", "released"] == policy.log


def test_a_held_async_generator_passes_values_both_ways_and_releases() -> None:
    policy = Recording()
    closed = []

    async def echo() -> AsyncIterator[Any]:
        try:
            got = yield "ready"
            try:
                yield got
            except KeyError:
                yield "caught"
        finally:
            closed.append(list(policy.log))

    async def main() -> list[Any]:
        guarded = decorate(policy, echo, hold=policy)
        assert inspect.isasyncgenfunction(guarded)
        running: Any = guarded()
        seen = [await anext(running), await running.asend("hi"), await running.athrow(KeyError())]
        await running.aclose()
        return seen

    assert ["ready", "hi", "caught"] == asyncio.run(main())
    assert [["held"]] == closed
    assert ["held", "released"] == policy.log


def test_a_held_async_generator_ends_by_itself() -> None:
    policy = Recording()

    async def items() -> AsyncIterator[int]:
        yield 1
        yield 2

    async def main() -> list[int]:
        return [item async for item in decorate(policy, items, hold=policy)()]

    assert [1, 2] == asyncio.run(main())
    assert ["held", "released"] == policy.log


def test_a_coroutine_out_of_a_synchronous_call_is_refused_and_closed() -> None:
    async def pay() -> None: ...

    with pytest.raises(TypeError, match="await acall"):
        refuse_coroutine(Recording(), pay())

    refuse_coroutine(Recording(), 3)
