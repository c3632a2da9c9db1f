"""Notice a breaker that is made again and again: one made for each request never sees enough calls to trip."""

from __future__ import annotations

from collections import OrderedDict

from halfopen._runtime.late import logger

__all__ = ["forget_built", "note_built", "times_built"]

OFTEN = 20
_REMEMBERED = 1000

_built: OrderedDict[str, int] = OrderedDict()


def note_built(name: str) -> None:
    """Log a warning, once, when a breaker of the same name is made for the 20th time."""
    count = _built.pop(name, 0) + 1
    _built[name] = count
    if len(_built) > _REMEMBERED:
        _built.popitem(last=False)
    if count == OFTEN:
        logger().warning(
            "a circuit breaker named %r was made %d times; one that is made for each request never trips: "
            "keep it, or ask a Registry for it",
            name,
            count,
        )


def times_built(name: str) -> int:
    """Return how many breakers of this name were made by hand, as far as is remembered."""
    return _built.get(name, 0)


def forget_built() -> None:
    """Count anew, as in a fresh process; for tests that share one."""
    _built.clear()
