"""The breakers of each library, made with its defaults; what is not installed is not in `BREAKERS`."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from importlib import import_module
from itertools import count
from typing import Any, ClassVar

__all__ = ["ALL", "BREAKERS", "Breakers"]

Function = Callable[..., Any]
_NEVER = 10**9
_HOUR = 3600
_numbers = count()


class Breakers(ABC):
    """
    One library's breakers.

    Attributes:
        module: What is imported to use them.
        styles: The calling styles it has: ``call``, ``keywords``, ``acall``, ``block``, ``refused``, ``failing``,
            ``generator``.
    """

    module: ClassVar[str]
    styles: ClassVar[frozenset[str]]

    def __init__(self) -> None:
        self.library: Any = import_module(self.module)

    @abstractmethod
    def make(self, failures: int | None = None) -> Any:
        """Make a breaker with the defaults; with *failures*, one that opens for an hour after so many in a row."""

    def closed(self, fn: Function) -> Function:
        """Guard *fn* with a closed breaker."""
        guard: Function = self.make()(fn)
        return guard

    def aclosed(self, fn: Function) -> Function:
        """Guard the coroutine function *fn* with a closed breaker."""
        return self.closed(fn)

    def never_opening(self, fn: Function) -> Function:
        """Guard *fn* with a breaker that records failures and stays closed."""
        guard: Function = self.make(failures=_NEVER)(fn)
        return guard

    def refusing(self, fn: Function) -> Function:
        """Guard *fn* with a breaker that real failures have opened."""
        breaker = self.make(failures=3)

        def fail() -> None:
            raise ValueError

        failing = breaker(fail)
        for _ in range(5):
            with contextlib.suppress(Exception):
                failing()
        guard: Function = breaker(fn)
        return guard

    def block(self) -> Callable[[], AbstractContextManager[Any]]:
        """Return what makes the context manager of one block."""
        breaker: AbstractContextManager[Any] = self.make()
        return lambda: breaker


class _HalfOpen(Breakers):
    module = "halfopen"
    styles = frozenset({"call", "keywords", "acall", "block", "refused", "failing", "generator"})

    def make(self, failures: int | None = None) -> Any:
        if failures is None:
            return self.library.CircuitBreaker("benchmark")
        return self.library.CircuitBreaker(
            "benchmark",
            failure_rate_threshold=None,
            consecutive_failures=failures,
            wait_in_open=self.library.constant(_HOUR),
        )

    def block(self) -> Callable[[], AbstractContextManager[Any]]:
        acquire: Callable[[], AbstractContextManager[Any]] = self.make().acquire
        return acquire


class _PyBreaker(Breakers):
    module = "pybreaker"
    styles = frozenset({"call", "keywords", "block", "refused", "failing", "generator"})

    def make(self, failures: int | None = None) -> Any:
        return self.library.CircuitBreaker() if failures is None else self.library.CircuitBreaker(failures, _HOUR)

    def block(self) -> Callable[[], AbstractContextManager[Any]]:
        calling: Callable[[], AbstractContextManager[Any]] = self.make().calling
        return calling


class _CircuitBreaker(Breakers):
    module = "circuitbreaker"
    styles = frozenset({"call", "keywords", "acall", "block", "refused", "failing", "generator"})

    def make(self, failures: int | None = None) -> Any:
        if failures is None:
            return self.library.CircuitBreaker(name="benchmark")
        return self.library.CircuitBreaker(failures, _HOUR, name="benchmark")


class _AioBreaker(Breakers):
    module = "aiobreaker"
    styles = frozenset({"call", "keywords", "acall", "refused", "failing", "generator"})

    def make(self, failures: int | None = None) -> Any:
        if failures is None:
            return self.library.CircuitBreaker()
        return self.library.CircuitBreaker(failures, timedelta(seconds=_HOUR))


class _Purgatory(Breakers):
    module = "purgatory"
    styles = frozenset({"call", "keywords", "acall", "block", "refused", "failing"})

    def make(self, failures: int | None = None) -> Any:
        return self._factory(self.library.SyncCircuitBreakerFactory, failures)(f"benchmark {next(_numbers)}")

    def aclosed(self, fn: Function) -> Function:
        guard: Function = self._factory(self.library.AsyncCircuitBreakerFactory, None)("benchmark")(fn)
        return guard

    def refusing(self, fn: Function) -> Function:
        factory = self._factory(self.library.SyncCircuitBreakerFactory, 3)

        def fail() -> None:
            raise ValueError

        for _ in range(5):
            with contextlib.suppress(Exception):
                factory("benchmark")(fail)()
        guard: Function = factory("benchmark")(fn)
        return guard

    def block(self) -> Callable[[], AbstractContextManager[Any]]:
        factory = self._factory(self.library.SyncCircuitBreakerFactory, None)
        return lambda: factory.get_breaker("benchmark")

    @staticmethod
    def _factory(kind: Any, failures: int | None) -> Any:
        return kind() if failures is None else kind(default_threshold=failures, default_ttl=_HOUR)


class _Hyx(Breakers):
    module = "hyx.circuitbreaker"
    styles = frozenset({"acall"})

    def make(self, failures: int | None = None) -> Any:
        return self.library.consecutive_breaker()


class _Interlock(Breakers):
    module = "interlock"
    styles = frozenset({"call", "keywords", "acall", "block", "refused", "failing"})

    def make(self, failures: int | None = None) -> Any:
        if failures is None:
            return self.library.CircuitBreaker(name="benchmark")
        config = self.library.Config(minimum_number_of_calls=failures, wait_duration_in_open=_HOUR)
        return self.library.CircuitBreaker(name="benchmark", config=config)


class _Resilix(Breakers):
    module = "resilix"
    styles = frozenset({"call", "keywords", "acall", "refused", "failing"})

    def make(self, failures: int | None = None) -> Any:
        return self.library.CircuitBreaker() if failures is None else self.library.CircuitBreaker(failures, _HOUR)


ALL: dict[str, type[Breakers]] = {
    "halfopen": _HalfOpen,
    "pybreaker": _PyBreaker,
    "circuitbreaker": _CircuitBreaker,
    "aiobreaker": _AioBreaker,
    "purgatory": _Purgatory,
    "hyx": _Hyx,
    "interlock-cb": _Interlock,
    "resilix": _Resilix,
}


def _installed() -> dict[str, Breakers]:
    found: dict[str, Breakers] = {}
    for library, breakers in ALL.items():
        with contextlib.suppress(ImportError):
            found[library] = breakers()
    return found


BREAKERS = _installed()
