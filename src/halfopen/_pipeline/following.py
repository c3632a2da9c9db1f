"""Change what a pipeline in use is made of: functions guarded before, and pipelines around it, follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Any

from halfopen._pipeline.parts import Parts, check, flattened, nested, refuse_what_is_no_policy
from halfopen._pipeline.watching import is_retry, watch_anew
from halfopen._runtime.policy import guards, held
from halfopen._runtime.wiring import around, functions_of
from halfopen.typing import Policy

__all__ = ["following", "replace"]


def replace(pipeline: Parts, policies: tuple[Policy, ...]) -> None:
    """
    Let *pipeline* be made of *policies* from now on.

    Raises:
        ConfigError: There is no policy, or one is there twice, also in a pipeline around this one; nothing has changed.
        TypeError: Something is not a policy, or one cannot guard a function guarded already; nothing has changed.
    """
    for policy in policies:
        refuse_what_is_no_policy(policy)
    instead = {pipeline: policies}
    flats = {each: tuple(flattened(instead.get(each, each.policies), instead)) for each in _with_all_around(pipeline)}
    for each, flat in flats.items():
        check(each.name, flat)
        for fn in functions_of(each):
            nested(flat, guards(fn))
    retries = {id(part): part for each, flat in flats.items() for part in (*each.flat, *flat) if is_retry(part)}
    for each, flat in flats.items():
        each._take(instead.get(each, each.policies), flat)
    for retry in retries.values():
        watch_anew(retry, flats)


def _with_all_around(pipeline: Parts) -> list[Parts]:
    found = [pipeline]
    for each in found:
        found += [outer for outer in around(each) if outer not in found]
    return found


class _Nested:
    """A generator function, guarded by what its pipeline is made of when it is called."""

    def __init__(self, pipeline: Parts, fn: Callable[..., Any]) -> None:
        self._pipeline = pipeline
        self._fn = fn
        self._made: tuple[Sequence[Policy], Callable[..., Any]] = (pipeline.flat, nested(pipeline.flat, fn))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        flat, fn = self._made
        if flat is not self._pipeline.flat:
            flat = self._pipeline.flat
            fn = nested(flat, self._fn)
            self._made = (flat, fn)
        return fn(*args, **kwargs)


class _Nothing:
    def hold(self) -> AbstractContextManager[object]:
        return nullcontext()

    def ahold(self) -> AbstractAsyncContextManager[object]:
        return nullcontext()


def following(pipeline: Parts, fn: Callable[..., Any], kind: str) -> Callable[..., Any]:
    """Make a generator function, or an async one, that runs *fn* under what *pipeline* is then made of."""
    return held(_Nothing(), _Nested(pipeline, fn), awaited=kind == "async_generator")
