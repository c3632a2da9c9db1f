"""Chains of policies, ``first.call(second.call, fn, *args)``, and wrappers that call a function through one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any, Protocol

from halfopen._runtime.policy import Bound
from halfopen._runtime.wrappers import _factory, _name, _signature

__all__ = ["Chained", "chained"]

_SOURCE = """
def _h_factory({names}):
    {define} {name}({parameters}):
        if _h_owner.{chain} is _h_chain:
            return {wait}{direct}
        return {wait}_h_owner.{chain}({call})
    return {name}
"""


class Chained(Protocol):
    """Whoever has a chain of policies: the one that counts at the moment of a call."""

    @property
    def chain(self) -> partial[Any]:
        """Return what calls its first argument, with the others, through every policy."""
        ...

    @property
    def achain(self) -> partial[Any]:
        """Return its asynchronous twin."""
        ...

    @property
    def binds(self) -> bool:
        """Whether every policy sees through `Bound`."""
        ...


def chained(owner: Chained, fn: Callable[..., Any], *, awaited: bool) -> Callable[..., Any]:
    """
    Make a function that calls *fn* through the chain that *owner* has at that moment.

    Chained calls cost less than nested decorators, and every policy can see the user's function and arguments.

    Args:
        owner: Has the chain.
        fn: What is guarded.
        awaited: Whether it is a coroutine function.
    """
    parameters, arguments, _, keywords, defaults = _signature(fn)
    chain = owner.achain if awaited else owner.chain
    # While the chain is the same as now, its parts are called without the detour, which would cost 80 ns.
    parts = {f"_h_{number}": part for number, part in enumerate((chain.func, *chain.args))}
    bound = {"_h_owner": owner, "_h_chain": chain, "_h_fn": fn, "_h_bound": Bound, **parts, **defaults}
    # A partial in a partial becomes one, and its own arguments would look like the call's.
    binds = owner.binds and keywords != "{}" and type(fn) is FunctionType
    call = f"_h_bound(_h_fn, {arguments})" if binds else f"_h_fn, {arguments}"
    source = _SOURCE.format(
        names=", ".join(bound),
        define="async def" if awaited else "def",
        name=_name(fn),
        parameters=parameters,
        chain="achain" if awaited else "chain",
        wait="await " if awaited else "",
        direct=f"_h_0({', '.join([*list(parts)[1:], call])})",
        call=call,
    )
    return _factory(source)(**bound)  # type: ignore[no-any-return]
