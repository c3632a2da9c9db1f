"""
Pipeline: policies around a function, in the order they read.

`halfopen._core.plans` knows what is wrong with an order; here policies are chained, and a retry is told of the breaker
around it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Literal, ParamSpec, TypeVar, cast

from halfopen._breaker.built import times_built
from halfopen._core.checking import Checks
from halfopen._core.plan_pictures import describe_mermaid, describe_text
from halfopen._core.plan_steps import step_of
from halfopen._core.plans import Finding, Step, lint
from halfopen._core.settings import Call
from halfopen._runtime.bus import Bus
from halfopen._runtime.chaining import chain
from halfopen._runtime.clock import Clock
from halfopen._runtime.policy import is_async, mark, refuse_what_is_no_function
from halfopen._runtime.wiring import users_of, wire
from halfopen._runtime.wrappers import kind_of
from halfopen.circuit_breaker import CircuitBreaker
from halfopen.classification import Failures
from halfopen.typing import Classifier, Policy

__all__ = ["Finding", "Pipeline"]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K")

_NOTHING: Any = object()
_UNFINISHED = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR | inspect.CO_COROUTINE
"""Flags of functions whose call does nothing yet."""


class Pipeline:
    """
    Guard calls with several policies, the first one outermost.

    A pipeline is a policy itself: a decorator for functions and coroutine functions, `call`, `acall`, and a part of
    other pipelines. Generators are guarded where every policy in it can guard them.

    A `Retry` learns here which circuit breaker is around it, the nearest one outside, and stops trying once that opens;
    unless it was told ``breaker=`` itself.

    Args:
        policies: Outermost first.
        name: For messages and `describe`.

    Raises:
        ConfigError: There is no policy, one is there twice, or the name is none.
        TypeError: Something is not a policy.

    Example:
        >>> from halfopen import CircuitBreaker, Timeout
        >>> pipeline = Pipeline(CircuitBreaker("search"), Timeout("search", 2), name="search")
        >>> @pipeline
        ... def search(words):
        ...     return words.split()
        >>> search("to be")
        ['to', 'be']
    """

    __slots__ = ("__weakref__", "_afirst", "_arest", "_first", "_rest", "flat", "name", "policies")

    _first: Callable[..., Any]
    _rest: tuple[Callable[..., Any], ...]
    _afirst: Callable[..., Awaitable[Any]]
    _arest: tuple[Callable[..., Any], ...]

    policies: tuple[Policy, ...]
    """The policies as they were given."""

    flat: tuple[Policy, ...]
    """The policies with those of nested pipelines in their places."""

    def __init__(self, *policies: Policy, name: str = "pipeline") -> None:
        for policy in policies:
            _refuse_what_is_no_policy(policy)
        self.policies = policies
        self.flat = tuple(_flat(policies))
        self.name = name
        _check(name, self.flat)
        chained: list[Any] = list(self.flat)
        self._first, self._rest = chained[0].call, tuple(policy.call for policy in chained[1:])
        self._afirst, self._arest = chained[0].acall, tuple(policy.acall for policy in chained[1:])
        wire_retries(self)

    @classmethod
    def standard(
        cls,
        name: str,
        *,
        on: type[Exception] | tuple[type[Exception], ...] = (ConnectionError, TimeoutError),
        timeout: float = 10.0,
        attempts: int = 3,
        only_if: Callable[[Call], bool] | None = None,
        total: float | None = None,
        limit: int | None = 25,
        budget: Any = None,
        fallback: Any = _NOTHING,
        classify: Classifier | None = None,
        clock: Clock | None = None,
        bus: Bus | None = None,
    ) -> Pipeline:
        """
        Make the pipeline we recommend: Fallback, CircuitBreaker, Retry, Bulkhead, Timeout.

        The fallback answers whatever comes of the rest, refusals as well. The breaker is around the retry, so that one
        call is one piece of evidence and an open circuit ends the retries. The bulkhead is inside the retry, so that no
        place is held by a call that sleeps. The timeout bounds each attempt; a call is slow for the breaker when it
        took longer than one attempt may.

        Args:
            name: Of the pipeline and of every policy in it.
            on: Errors that are retried and, together with refusals, answered by *fallback*.
            timeout: Seconds for each attempt.
            attempts: So many at most; 1 for no retry.
            only_if: Says of a `Call` whether it may be repeated; calls that change something usually may not.
            total: Seconds within which the last attempt begins; default as long as the attempts take.
            limit: Calls at once; None for no bulkhead.
            budget: The `RetryBudget` to share with other pipelines; default one of its own, a fifth of the calls.
            fallback: A value, or a function of the error; not given, errors reach the caller.
            classify: Says which calls are failures, for the breaker.
            clock: Where not the system's.
            bus: Where events go.

        Raises:
            ConfigError: A setting is wrong.
        """
        from halfopen._core.settings import HalfOpen
        from halfopen.bulkhead import Bulkhead
        from halfopen.errors import RejectedError
        from halfopen.fallback import Fallback
        from halfopen.retry import Retry, RetryBudget
        from halfopen.timeout import Timeout

        errors = on if isinstance(on, tuple) else (on,)
        each = Timeout(name, timeout, clock=clock, bus=bus)
        policies: list[Policy] = []
        if fallback is not _NOTHING:
            policies.append(Fallback(name, fallback, on=(*errors, RejectedError), clock=clock))
        breaker = CircuitBreaker(
            name,
            slow_call_duration=timeout,
            half_open=HalfOpen(trial_timeout=max(60.0, 2 * timeout)),
            classify=classify or Failures(),
            clock=clock,
            bus=bus,
        )
        policies.append(breaker)
        if attempts != 1:
            retry = Retry(
                name,
                on=errors,
                attempts=attempts,
                only_if=only_if,
                total=total,
                budget=budget or RetryBudget(clock=clock),
                retry_after_cap=timeout,
                clock=clock,
                bus=bus,
            )
            policies.append(retry)
        if limit is not None:
            policies.append(Bulkhead(name, limit, clock=clock))
        return cls(*policies, each, name=name)

    def __call__(self, fn: F, /) -> F:
        """
        Guard every call of *fn*.

        Raises:
            TypeError: *fn* cannot be guarded: a class, a property, not callable, or of a kind that one of the policies
                cannot guard; that one says why.
        """
        if _is_descriptor(fn):
            descriptor: Any = fn
            return cast("F", type(descriptor)(self(descriptor.__func__)))
        refuse_what_is_no_function(self, fn)
        # Each policy says by itself what it cannot guard. Generators are guarded by the nested decorators.
        nested = functools.reduce(lambda inner, policy: policy(inner), reversed(self.flat), fn)
        if kind_of(fn) in ("generator", "async_generator"):
            return nested
        awaited = is_async(fn)
        calls = (self._afirst, *self._arest) if awaited else (self._first, *self._rest)
        return mark(fn, chain(fn, calls, awaited=awaited))

    def call(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """
        Call *fn* through every policy; raise what it, or one of them, raises.

        A generator function is guarded as the decorator does it.

        Raises:
            TypeError: *fn* is a coroutine function, for which there is `acall`, or a generator function that one of the
                policies cannot guard.
        """
        code: Any = getattr(fn, "__code__", None)
        if code is not None and code.co_flags & _UNFINISHED:
            return cast("R", self._unfinished(fn)(*args, **kwargs))
        return cast("R", self._first(*self._rest, fn, *args, **kwargs))

    def _unfinished(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        if is_async(fn):
            raise TypeError(
                f"Pipeline {self.name!r} cannot guard {fn.__qualname__}() through call(): await acall() instead"
            )
        return self(fn)

    async def acall(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Await *fn* through every policy; raise what it, or one of them, raises."""
        return cast("R", await self._afirst(*self._arest, fn, *args, **kwargs))

    def find(self, kind: type[K]) -> K | None:
        """Return the outermost policy of a class, those of nested pipelines included; None if there is none."""
        return next((policy for policy in self.flat if isinstance(policy, kind)), None)

    def lint(self) -> tuple[Finding, ...]:
        """Return the mistakes in order and settings, each with its reason; none is an error by itself."""
        return lint(self._plan())

    def describe(self, form: Literal["text", "mermaid"] = "text") -> str:
        """
        Return what a call goes through, outermost first.

        Args:
            form: ``text`` for lines with the most that one call may come to, ``mermaid`` for a flowchart.

        Raises:
            ConfigError: *form* is another one.
        """
        checks = Checks()
        if form not in ("text", "mermaid"):
            checks.wrong("form", form, '"text" or "mermaid"')
        checks.done()
        return (describe_mermaid if form == "mermaid" else describe_text)(self.name, self._plan())

    def _plan(self) -> Sequence[Step]:
        return [step_of(policy, **self._known_of(policy, place)) for place, policy in enumerate(self.flat)]

    def _known_of(self, policy: Any, place: int) -> dict[str, Any]:
        if isinstance(policy, CircuitBreaker):
            return {"made": times_built(policy.name)}
        if not _is_retry(policy):
            return {}
        around = _breaker_around(self.flat, place)
        watched = policy.breaker
        elsewhere = around is not None and watched not in (None, around)
        return {
            "watches": getattr(watched, "name", None) if elsewhere else None,
            "shared_with": tuple(sorted(other.name for other in _others(self, policy, around))),
        }

    def __iter__(self) -> Iterator[Policy]:
        return iter(self.policies)

    def __len__(self) -> int:
        return len(self.policies)

    def __repr__(self) -> str:
        return f"<Pipeline {self.name!r}: {' → '.join(type(policy).__name__ for policy in self.policies)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.name, self.policies)


def _rebuild(kind: type[Pipeline], name: str, policies: tuple[Policy, ...]) -> Pipeline:
    return kind(*policies, name=name)


def _is_descriptor(fn: object) -> bool:
    return isinstance(fn, (staticmethod, classmethod))


def _flat(policies: Sequence[Policy]) -> Iterator[Policy]:
    for policy in policies:
        if isinstance(policy, Pipeline):
            yield from policy.flat
        else:
            yield policy


def _refuse_what_is_no_policy(policy: Any) -> None:
    if isinstance(policy, type):
        raise TypeError(f"a pipeline is made of policies, not of the class {policy.__name__}: make one of it")
    asked = getattr(policy, "_need_key", None)
    if asked is not None:
        asked()
    missing = [part for part in ("call", "acall") if not callable(getattr(policy, part, None))]
    missing += [] if callable(policy) else ["__call__"]
    missing += [] if hasattr(policy, "name") else ["name"]
    if missing:
        lacks = ", ".join(missing)
        raise TypeError(f"a pipeline is made of policies; {policy!r} is none: it lacks {lacks}")


def _check(name: str, flat: Sequence[Policy]) -> None:
    checks = Checks()
    checks.text("name", name)
    if not flat:
        checks.wrong("policies", flat, "there are none: a pipeline needs at least one policy", "missing")
    for number, policy in enumerate(flat):
        if any(policy is earlier for earlier in flat[:number]):
            again = f"{type(policy).__name__} {policy.name!r} is there twice; make a second one, or leave it out"
            checks.wrong(f"policies[{number + 1}]", policy, again, "conflict")
    checks.done()


# Retries and the breakers around them


def _is_retry(policy: object) -> bool:
    # By name, so that a pipeline without a retry does not import it.
    return any(kind.__module__ == "halfopen.retry" and kind.__name__ == "Retry" for kind in type(policy).__mro__)


def _breaker_around(flat: Sequence[Policy], place: int) -> Policy | None:
    return next((policy for policy in reversed(flat[:place]) if _is_breaker(policy)), None)


def _is_breaker(policy: object) -> bool:
    # A family of breakers is one as well: which of them is around a retry, the call's key says.
    return isinstance(policy, CircuitBreaker) or isinstance(getattr(policy, "_other", None), CircuitBreaker)


def wire_retries(pipeline: Pipeline) -> None:
    """Tell each retry of the breaker around it."""
    for place, policy in enumerate(pipeline.flat):
        if _is_retry(policy):
            wire(pipeline, policy, _breaker_around(pipeline.flat, place))


def _others(pipeline: Pipeline, retry: Any, around: Policy | None) -> list[Pipeline]:
    """Return the pipelines that use the retry under another breaker, but those around and inside this one."""
    own = {*map(id, pipeline.flat)}
    others: list[Pipeline] = []
    for user in users_of(retry):
        parts = {*map(id, user.flat)}
        place = next(number for number, policy in enumerate(user.flat) if policy is retry)
        elsewhere = _breaker_around(user.flat, place) is not around
        if elsewhere and not (parts <= own or own <= parts):
            others.append(user)
    return others
