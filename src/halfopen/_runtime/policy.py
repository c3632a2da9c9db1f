"""Turn an object with `call` and `acall` into a decorator for whatever can be guarded."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial, wraps
from types import AsyncGeneratorType, CoroutineType, GeneratorType, MethodType
from typing import Any, NoReturn, ParamSpec, Protocol, TypeVar, cast

__all__ = [
    "Bound",
    "CallPolicy",
    "Hold",
    "decorate",
    "guards",
    "held",
    "innermost",
    "is_async",
    "mark",
    "refuse_coroutine",
    "refuse_what_is_no_function",
    "unfinished",
]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

UNFINISHED: frozenset[type] = frozenset({CoroutineType, GeneratorType, AsyncGeneratorType})
"""Types of results whose work may not have been done when the function returns; see `unfinished`."""

_NO_GENERATORS = "it hands out items while it runs, and they cannot be taken back; guard what the generator calls"


class CallPolicy(Protocol):
    """What every policy offers: a name and the two colours of a guarded call."""

    @property
    def name(self) -> str:
        """Return the policy's name."""
        ...

    def call(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call *fn* under the policy."""
        ...

    async def acall(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Await *fn* under the policy."""
        ...


class Bound(partial[Any]):
    """
    A function with its arguments, on its way through a chain of policies.

    Handed on from policy to policy, keyword arguments are packed and unpacked at each. `innermost` sees through it.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        # Messages show the function; arguments may be secrets.
        return repr(self.func)


class Hold(Protocol):
    """A policy that can be held for as long as a generator runs."""

    def hold(self) -> AbstractContextManager[object]:
        """Return a context manager to hold while a generator runs."""
        ...

    def ahold(self) -> AbstractAsyncContextManager[object]:
        """Return its asynchronous twin for async generators."""
        ...


def decorate(policy: CallPolicy, fn: F, *, hold: Hold | None = None, no_generators: str | None = None) -> F:
    """
    Wrap *fn* so that each call goes through *policy*; keep its signature, name, docstring and colour.

    Functions, coroutine functions, methods, `staticmethod` and `classmethod` objects, partials and callable
    instances can be wrapped. A generator is one call that *hold* is held for, from the first item to the end.

    Args:
        policy: Offers `call` and `acall`.
        fn: What to guard.
        hold: How the policy guards generators, if it can; usually the policy itself.
        no_generators: Why it cannot, for the message.

    Raises:
        TypeError: *fn* cannot be guarded: a class, a property, something that is not callable, or a generator
            where the policy has no *hold*.
    """
    if isinstance(fn, (staticmethod, classmethod)):
        wrapped = cast(Any, fn)
        inner = decorate(policy, wrapped.__func__, hold=hold, no_generators=no_generators)
        return cast(F, type(wrapped)(inner))
    refuse_what_is_no_function(policy, fn)
    if _is(inspect.isgeneratorfunction, fn) or _is(inspect.isasyncgenfunction, fn):
        return mark(fn, _generator(policy, fn, hold, no_generators))
    return mark(fn, _async(policy, fn) if is_async(fn) else _sync(policy, fn))


def is_async(fn: Callable[..., Any]) -> bool:
    """Say whether calling *fn* makes a coroutine; sees through partials, bound methods and callable instances."""
    return _is(inspect.iscoroutinefunction, fn)


def refuse_coroutine(policy: CallPolicy, result: object) -> None:
    """
    Refuse a coroutine that came out of a synchronous call: it has not run yet, so nothing was guarded.

    Raises:
        TypeError: *result* is a coroutine.
    """
    if type(result) is CoroutineType:
        result.close()
        raise TypeError(f"{_kind(policy)} cannot guard {result.__qualname__}() through call(): await acall() instead")


def unfinished(
    policy: CallPolicy, fn: Callable[..., Any], result: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
    *, hold: Hold | None = None, no_generators: str | None = None,
) -> Any:  # fmt: skip
    """
    Return what a synchronous call gives back whose work has not been done when *fn* returned *result*.

    Where *fn* is a generator function, that is a generator which is guarded as `decorate` guards one. A generator that
    a plain function returns is a result like any other.

    Raises:
        TypeError: It is a coroutine, or a generator that *policy* cannot guard.
    """
    refuse_coroutine(policy, result)
    function, _, _ = innermost(fn, args, kwargs)
    awaited = type(result) is AsyncGeneratorType
    if function is None or not _is(inspect.isasyncgenfunction if awaited else inspect.isgeneratorfunction, function):
        return result
    if hold is None:
        _refuse_generator(policy, function, no_generators)
    return held(hold, fn, awaited=awaited)(*args, **kwargs)


def innermost(
    fn: Callable[..., Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any] | None, tuple[Any, ...], dict[str, Any]]:
    """
    Return the user's function and its arguments, seen through the policies between.

    A pipeline calls ``outer.call(inner.call, fn, *args)``; for *outer* the first argument is no argument of the user's.
    """
    while args and callable(args[0]) and _is_policys_own(fn):
        fn, args = args[0], args[1:]
    bound: Any = fn
    if isinstance(bound, Bound):
        fn, args, kwargs = bound.func, bound.args, bound.keywords
    return _guarded_by_ours(fn), args, kwargs


def mark(fn: F, wrapper: Callable[..., Any]) -> F:
    """Give *wrapper* the looks of *fn*, which it guards, so that `innermost` sees through it."""
    # An instance's attributes are its own; a function's are part of it.
    wrapper = wraps(fn)(wrapper) if inspect.isroutine(fn) else wraps(fn, updated=())(wrapper)
    setattr(wrapper, _GUARDS, fn)
    return cast(F, wrapper)


_GUARDS = "__halfopen_guards__"


def guards(wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that *wrapper*, which `mark` has seen, guards."""
    guarded: Callable[..., Any] = getattr(wrapper, _GUARDS)
    return guarded


def _is_same(one: object, other: object) -> bool:
    return one is other


def _guarded_by_ours(fn: Any) -> Any:
    while True:
        inner: Any = getattr(fn, _GUARDS, None)
        # A stranger's wrapper copies the attributes of what it wraps, this one too; but not what it wraps itself.
        if inner is None or not _is_same(inner, getattr(fn, "__wrapped__", None)):
            return fn
        # A bound method stays bound: the methods of two instances are two functions.
        fn = MethodType(inner, fn.__self__) if isinstance(fn, MethodType) else inner


def _is_policys_own(fn: object) -> bool:
    owner = getattr(fn, "__self__", None)
    return getattr(fn, "__name__", "") in ("call", "acall") and hasattr(owner, "acall") and hasattr(owner, "name")


def _is(question: Callable[[Any], bool], fn: Any) -> bool:
    while isinstance(fn, partial):
        fn = fn.func
    return question(fn) or (not inspect.isroutine(fn) and question(type(fn).__call__))


def refuse_what_is_no_function(policy: CallPolicy, fn: object) -> None:
    """Raise TypeError for what no policy can guard."""
    if isinstance(fn, type):
        raise TypeError(f"{_kind(policy)} guards calls, not the class {fn.__qualname__}; decorate its methods")
    if isinstance(fn, property):
        raise TypeError(f"{_kind(policy)} cannot guard a property; decorate the getter below @property")
    if not callable(fn):
        raise TypeError(f"{_kind(policy)} cannot guard {type(fn).__name__!r} objects: they are not callable")


def _kind(policy: CallPolicy) -> str:
    return f"{type(policy).__name__} {policy.name!r}"


def _sync(policy: CallPolicy, fn: Callable[..., Any]) -> Callable[..., Any]:
    call = policy.call

    def guarded(*args: Any, **kwargs: Any) -> Any:
        return call(fn, *args, **kwargs)

    return guarded


def _async(policy: CallPolicy, fn: Callable[..., Any]) -> Callable[..., Any]:
    acall = policy.acall

    async def guarded(*args: Any, **kwargs: Any) -> Any:
        return await acall(fn, *args, **kwargs)

    return guarded


def _generator(
    policy: CallPolicy, fn: Callable[..., Any], hold: Hold | None, no_generators: str | None
) -> Callable[..., Any]:
    if hold is None:
        _refuse_generator(policy, fn, no_generators)
    return held(hold, fn, awaited=_is(inspect.isasyncgenfunction, fn))


def _refuse_generator(policy: CallPolicy, fn: Callable[..., Any], no_generators: str | None) -> NoReturn:
    while isinstance(fn, partial):
        fn = fn.func
    reason = no_generators or _NO_GENERATORS
    raise TypeError(f"{_kind(policy)} cannot guard the generator {getattr(fn, '__qualname__', fn)!s}: {reason}")


def held(hold: Hold, fn: Callable[..., Any], *, awaited: bool) -> Callable[..., Any]:
    """Make a generator function that runs the generator of *fn* while it has *hold*, or an async one."""
    return _held_async_generator(hold, fn) if awaited else _held_generator(hold, fn)


def _held_generator(hold: Hold, fn: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with hold.hold():
            items: Generator[Any, Any, Any] = fn(*args, **kwargs)
            return (yield from items)

    return guarded


def _held_async_generator(hold: Hold, fn: Callable[..., Any]) -> Callable[..., Any]:
    async def guarded(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        async with hold.ahold():
            inner = fn(*args, **kwargs)
            try:
                step = inner.__anext__()
                while True:
                    try:
                        item = await step
                    except StopAsyncIteration:
                        return
                    try:
                        sent = yield item
                    except GeneratorExit:
                        raise
                    except BaseException as thrown:
                        step = inner.athrow(thrown)
                    else:
                        step = inner.asend(sent)
            finally:
                await inner.aclose()

    return guarded
