"""The protocols users may implement, and the types they meet."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, Protocol, TypeVar, runtime_checkable

from halfopen._core.backoff import Backoff
from halfopen._core.outcomes import Classified, Outcome
from halfopen._core.settings import Call
from halfopen._runtime.clock import Clock, TimerHandle

__all__ = ["Backoff", "Call", "Classified", "Classifier", "Clock", "Outcome", "Policy", "TimerHandle"]

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


@runtime_checkable
class Classifier(Protocol):
    """
    Says what a finished call means for the health of the dependency.

    Both methods run on the caller's thread, under no lock. One that raises makes the call `ignored`; the error is
    logged once for each breaker. A second value, seconds, is handed on as Retry-After.
    """

    def of_exception(self, error: Exception, /) -> Classified:
        """Judge a call that raised."""
        ...

    def of_result(self, value: Any, /) -> Classified:
        """Judge a call that returned."""
        ...


class Policy(Protocol):
    """What a pipeline is made of."""

    @property
    def name(self) -> str:
        """Return the name that events, metrics and errors carry."""
        ...

    def __call__(self, fn: F, /) -> F:
        """Guard every call of *fn*."""
        ...

    def call(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Make one guarded call."""
        ...

    async def acall(self, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Make one guarded call of a coroutine function."""
        ...
