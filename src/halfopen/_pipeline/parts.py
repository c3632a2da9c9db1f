"""What a pipeline is made of, and the chain that calls go through."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any

from halfopen._core.checking import Checks
from halfopen.typing import Policy

__all__ = ["MOST_POLICIES", "Parts", "check", "flattened", "nested", "refuse_what_is_no_policy"]

MOST_POLICIES = 200
"""Each is at least one frame on the stack of every call, and Python allows 1,000."""


class Parts:
    """
    The part of a pipeline that knows its policies.

    Attributes:
        name: For messages.
        chain: Calls its first argument, with the others, through every policy.
        achain: Its asynchronous twin.
        binds: Whether every policy sees through `Bound`.
    """

    __slots__ = ("__weakref__", "achain", "binds", "chain", "flat", "name", "policies")

    name: str
    chain: partial[Any]
    achain: partial[Any]
    binds: bool

    policies: tuple[Policy, ...]
    """The policies as they were given."""

    flat: tuple[Policy, ...]
    """The policies with those of nested pipelines in their places."""

    def _take(self, policies: tuple[Policy, ...], flat: tuple[Policy, ...]) -> None:
        """Let calls that begin from now on go through *flat*."""
        self.policies, self.flat = policies, flat
        parts: list[Any] = list(flat)
        self.binds = all(type(policy).__module__.startswith("halfopen.") for policy in parts)
        first, *rest = parts
        self.chain = partial(first.call, *(policy.call for policy in rest))
        self.achain = partial(first.acall, *(policy.acall for policy in rest))


def flattened(policies: Sequence[Policy], instead: Mapping[Parts, Sequence[Policy]]) -> Iterator[Policy]:
    """Yield the policies with those of nested pipelines in their places, those of *instead* where it names one."""
    for policy in policies:
        if isinstance(policy, Parts):
            yield from flattened(instead.get(policy, policy.policies), instead)
        else:
            yield policy


def nested(flat: Sequence[Policy], fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate *fn* with each policy, the first one outermost; each says by itself what it cannot guard."""
    return reduce(lambda inner, policy: policy(inner), reversed(flat), fn)


def refuse_what_is_no_policy(policy: Any) -> None:
    """Raise TypeError for what cannot be a part of a pipeline."""
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


def check(name: str, flat: Sequence[Policy]) -> None:
    """Raise ConfigError for a name that is none, for no policies, and for one that is there twice."""
    checks = Checks()
    checks.text("name", name)
    if not flat:
        checks.wrong("policies", flat, "there are none: a pipeline needs at least one policy", "missing")
    if len(flat) > MOST_POLICIES:
        checks.wrong("policies", len(flat), f"at most {MOST_POLICIES}", "conflict")
    seen: set[int] = set()
    for number, policy in enumerate(flat, 1):
        if id(policy) in seen:
            again = f"{type(policy).__name__} {policy.name!r} is there twice; make a second one, or leave it out"
            checks.wrong(f"policies[{number}]", policy, again, "conflict")
        seen.add(id(policy))
    checks.done()
