"""What a scenario wishes for, and what an adapter makes of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

__all__ = ["Adapter", "Guard", "Wishes"]


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """
    The breaker a scenario wants; an adapter grants what its library has a setting for.

    Attributes:
        failures: Failures in a row that open it.
        open_time: Seconds it stays open.
        failure: The exception that counts as a failure.
        ignore: The exception that is no evidence: the call never reached the dependency.
        predicate: Judges an exception, True for a failure; may raise.
        listener: Called, with no arguments, at whatever the library reports.
        trial_timeout: Seconds after which a trial call that has not reported is given up.

    One trial call and one success are wished for always: some libraries know nothing else.
    """

    failures: int = 3
    open_time: float = 0.3
    failure: type[Exception] = Exception
    ignore: type[Exception] | None = None
    predicate: Callable[[BaseException], bool] | None = None
    listener: Callable[[], None] | None = None
    trial_timeout: float | None = None


@dataclass(frozen=True)
class Guard:
    """
    One breaker of a library.

    Attributes:
        decorate: Guards a function, of the colour that was asked for.
        state: Returns ``closed``, ``open`` or ``half_open``.
    """

    decorate: Callable[[Callable[..., Any]], Callable[..., Any]]
    state: Callable[[], str]


class Adapter(ABC):
    """
    One library.

    Attributes:
        name: Its name on the package index.
        colours: ``sync``, ``async`` or both.
        lacks: Why a scenario's need cannot be met, by need: ``ignore``, ``predicate`` or ``listener``;
            and ``sync`` or ``async`` for a colour that is missing.
        timeout_helper: Name of the timeout the library ships beside its breaker, if any.
    """

    name: ClassVar[str]
    colours: ClassVar[tuple[str, ...]] = ("sync", "async")
    lacks: ClassVar[Mapping[str, str]] = {}
    timeout_helper: ClassVar[str | None] = None

    @abstractmethod
    def build(self, wishes: Wishes, colour: str) -> Guard:
        """Make a breaker as its documentation says, with every wish that it has a setting for."""

    def with_timeout(self, fn: Callable[..., Any], seconds: float, colour: str) -> Callable[..., Any]:
        """Put the library's own timeout around *fn*, inside the breaker."""
        raise NotImplementedError(f"{self.name} ships no timeout")
