"""Breakers with the usual half-open faults, to show that each scenario of the comparison can fail."""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

from rivals import wall_clock
from rivals.adapters import Adapter, Guard, Wishes

__all__ = ["LOCKED", "NAIVE", "SLOTTED"]


class NaiveBreaker:
    """Count failures in a row; once the wait is over, whoever reports first decides, by the wall clock."""

    def __init__(self, wishes: Wishes, slots: bool, lock: bool) -> None:
        self._wishes = wishes
        self._slots = slots
        self._lock: contextlib.AbstractContextManager[Any] = threading.Lock() if lock else contextlib.nullcontext()
        self._failures = 0
        self._trials = 0
        self.state = "closed"

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(call: Any) -> Any:
            with self._lock, self._judged():
                return fn(call)

        async def aguarded(call: Any) -> Any:
            with self._judged():
                return await fn(call)

        return aguarded if inspect.iscoroutinefunction(fn) else guarded

    @contextlib.contextmanager
    def _judged(self) -> Iterator[None]:
        self._admit()
        try:
            yield
        except BaseException as error:
            self._failed() if self._is_failure(error) else self._succeeded()
            raise
        self._succeeded()

    def _admit(self) -> None:
        if self.state == "open" and wall_clock.now() >= self._opened_at + self._wishes.open_time:
            self.state = "half_open"
            self._trials = 0
        if self.state == "open" or (self._slots and self.state == "half_open" and self._trials):
            raise RuntimeError("refused")
        self._trials += 1

    def _is_failure(self, error: BaseException) -> bool:
        if self._wishes.predicate is not None:
            return self._wishes.predicate(error)
        return self._wishes.ignore is None or not isinstance(error, self._wishes.ignore)

    def _failed(self) -> None:
        self._failures += 1
        if self.state == "half_open" or self._failures >= self._wishes.failures:
            self.state = "open"
            self._opened_at = wall_clock.now()
        self._tell()

    def _succeeded(self) -> None:
        self._failures = 0
        self.state = "closed"
        self._tell()

    def _tell(self) -> None:
        if self._wishes.listener is not None:
            self._wishes.listener()


class _Naive(Adapter):
    name = "naive"

    def __init__(self, *, slots: bool = False, lock: bool = False) -> None:
        self._slots = slots
        self._lock = lock

    def build(self, wishes: Wishes, colour: str) -> Guard:
        breaker = NaiveBreaker(wishes, self._slots, self._lock)
        return Guard(breaker, lambda: breaker.state)


NAIVE = _Naive()
SLOTTED = _Naive(slots=True)
LOCKED = _Naive(lock=True)
