"""
Pipeline: policies around a function, in the order they read.

`halfopen._core.plans` knows what is wrong with an order; here policies are chained, and a retry is told of the breaker
around it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Literal, ParamSpec, TypeVar, cast

from halfopen._breaker.built import times_built
from halfopen._core.checking import Checks
from halfopen._core.plan_pictures import describe_mermaid, describe_text
from halfopen._core.plan_steps import step_of
from halfopen._core.plans import Finding, Step, lint
from halfopen._core.settings import Call
from halfopen._pipeline.following import following, replace
from halfopen._pipeline.parts import Parts, check, flattened, nested, refuse_what_is_no_policy
from halfopen._pipeline.recommended import NOTHING, recommended
from halfopen._pipeline.watching import breaker_around, is_retry, users_elsewhere, wire_retries
from halfopen._runtime.bus import Bus
from halfopen._runtime.chaining import chained
from halfopen._runtime.clock import Clock
from halfopen._runtime.policy import Bound, is_async, mark, refuse_what_is_no_function
from halfopen._runtime.wiring import note_function, note_part
from halfopen._runtime.wrappers import kind_of
from halfopen.circuit_breaker import CircuitBreaker
from halfopen.typing import Classifier, Policy

__all__ = ["Finding", "Pipeline"]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K")

_UNFINISHED = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR | inspect.CO_COROUTINE
"""Flags of functions whose call does nothing yet."""


class Pipeline(Parts):
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

    __slots__ = ()

    def __init__(self, *policies: Policy, name: str = "pipeline") -> None:
        for policy in policies:
            refuse_what_is_no_policy(policy)
        flat = tuple(flattened(policies, {}))
        check(name, flat)
        self.name = name
        self._take(policies, flat)
        for policy in policies:
            if isinstance(policy, Pipeline):
                note_part(policy, self)
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
        fallback: Any = NOTHING,
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
        policies = recommended(
            name,
            on=on,
            timeout=timeout,
            attempts=attempts,
            only_if=only_if,
            total=total,
            limit=limit,
            budget=budget,
            fallback=fallback,
            classify=classify,
            clock=clock,
            bus=bus,
        )
        return cls(*policies, name=name)

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
        nested(self.flat, fn)
        kind = kind_of(fn)
        generates = kind in ("generator", "async_generator")
        guarded = following(self, fn, kind) if generates else chained(self, fn, awaited=is_async(fn))
        guarded = mark(fn, guarded)
        note_function(self, guarded)
        return guarded

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
            return self._unfinished(fn)(*args, **kwargs)  # type: ignore[no-any-return]  # as fn does
        # A partial in a partial becomes one, and its own arguments would look like the call's.
        if kwargs and self.binds and code is not None:
            return self.chain(Bound(fn, *args, **kwargs))  # type: ignore[no-any-return]  # as fn does
        return self.chain(fn, *args, **kwargs) if kwargs else self.chain(fn, *args)  # type: ignore[no-any-return]  # as fn does

    def _unfinished(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        if is_async(fn):
            raise TypeError(
                f"Pipeline {self.name!r} cannot guard {fn.__qualname__}() through call(): await acall() instead"
            )
        return self(fn)

    async def acall(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Await *fn* through every policy; raise what it, or one of them, raises."""
        if kwargs and self.binds and getattr(fn, "__code__", None) is not None:
            return await self.achain(Bound(fn, *args, **kwargs))  # type: ignore[no-any-return]  # as fn does
        return await self.achain(fn, *args, **kwargs)  # type: ignore[no-any-return]  # as fn does

    def configure(self, *policies: Policy) -> None:
        """
        Let calls that begin from now on go through *policies*; functions guarded before, and pipelines around, follow.

        Each call goes through either all of the old policies or all of the new ones.

        Raises:
            ConfigError: There is no policy, or one is there twice; nothing has changed.
            TypeError: Something is not a policy, or a function that is guarded already cannot be guarded by one of
                them; nothing has changed.
        """
        replace(self, policies)

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
        if not is_retry(policy):
            return {}
        around = breaker_around(self.flat, place)
        watched = policy.breaker
        elsewhere = around is not None and watched not in (None, around)
        return {
            "watches": getattr(watched, "name", None) if elsewhere else None,
            "shared_with": tuple(sorted(other.name for other in users_elsewhere(self, policy, around))),
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
