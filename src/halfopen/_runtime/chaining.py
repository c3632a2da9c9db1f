"""Wrappers that call a function through a chain of policies: ``first.call(second.call, fn, *args)``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from halfopen._runtime.wrappers import _factory, _name, _signature

__all__ = ["chain"]

_SOURCE = """
def _h_factory({names}):
    {define} {name}({parameters}):
        return {wait}_h_0({rest}_h_fn, {call})
    return {name}
"""


def chain(fn: Callable[..., Any], calls: Sequence[Callable[..., Any]], *, awaited: bool) -> Callable[..., Any]:
    """
    Make a function that calls *fn* through *calls*, the outermost first.

    Chained calls cost less than nested decorators, and every policy can see the user's function and arguments.

    Args:
        fn: What is guarded.
        calls: The `call` of each policy, or the `acall` of each.
        awaited: Whether *calls* are `acall`.
    """
    parameters, call, _, _, defaults = _signature(fn)
    rest = [f"_h_{number}" for number in range(1, len(calls))]
    bound = {**{f"_h_{number}": each for number, each in enumerate(calls)}, "_h_fn": fn, **defaults}
    source = _SOURCE.format(
        names=", ".join(bound),
        define="async def" if awaited else "def",
        name=_name(fn),
        parameters=parameters,
        wait="await " if awaited else "",
        rest="".join(f"{each}, " for each in rest),
        call=call,
    )
    return _factory(source)(**bound)  # type: ignore[no-any-return]
