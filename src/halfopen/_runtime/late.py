"""Parts of the standard library that few programs need at once: `import halfopen` does not wait for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from logging import Logger
    from random import Random

__all__ = ["CHANCE", "logger"]


def logger() -> Logger:
    """Return the logger of the package."""
    import logging

    return logging.getLogger("halfopen")


class _Chance:
    """
    The system's source of chance, made when it is first asked.

    It keeps no state: it costs no memory for each breaker and does not repeat itself after a fork.
    """

    def __getattr__(self, name: str) -> Any:
        import random

        value = getattr(random.SystemRandom(), name)
        setattr(self, name, value)
        return value


CHANCE = cast("Random", _Chance())
