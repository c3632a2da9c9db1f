"""How long a circuit stays open: a constant, an exponential series, or anything that can be called."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from halfopen._core.checking import Checks

if TYPE_CHECKING:
    from random import Random

__all__ = ["RETRY_AFTER_CAP", "Backoff", "Constant", "Exponential", "constant", "exponential"]

RETRY_AFTER_CAP = 600.0
"""Seconds to which a Retry-After is cut where the backoff names no cap of its own."""


@runtime_checkable
class Backoff(Protocol):
    """Seconds to wait at a step, counted from 1; *rng* is the breaker's own source of chance."""

    def __call__(self, step: int, rng: Random) -> float: ...


@dataclass(frozen=True, slots=True)
class Constant:
    """The same wait at every step."""

    seconds: float

    def __post_init__(self) -> None:
        checks = Checks()
        checks.seconds("seconds", self.seconds)
        checks.done()

    @property
    def cap(self) -> float:
        """Seconds to which a Retry-After is cut."""
        return max(self.seconds, RETRY_AFTER_CAP)

    def __call__(self, step: int, rng: Random) -> float:
        return float(self.seconds)

    def __str__(self) -> str:
        return f"{self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class Exponential:
    """A wait that grows by a factor at every step, spread by jitter, never above the cap."""

    first: float = 30.0
    factor: float = 2.0
    cap: float = 600.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        checks = Checks()
        checks.seconds("first", self.first)
        checks.number("factor", self.factor)
        checks.seconds("cap", self.cap)
        checks.share("jitter", self.jitter, zero=True)
        if not checks.mistakes and self.factor < 1:
            checks.wrong("factor", self.factor, "a number of at least 1")
        if not checks.mistakes and self.cap < self.first:
            checks.wrong("cap", self.cap, f"at least first ({self.first:g} s)", "conflict")
        checks.done()

    def __call__(self, step: int, rng: Random) -> float:
        base = min(self._uncapped(step), self.cap)
        if not self.jitter:
            return base
        # At the cap the spread is downwards only: the cap is a promise, and a fleet must not meet there either.
        return rng.uniform(base * (1 - self.jitter), min(base * (1 + self.jitter), self.cap))

    def _uncapped(self, step: int) -> float:
        if self.factor == 1:
            return self.first
        # One step beyond the cap is far enough; a larger power would overflow after some thousand failed rounds.
        reach = math.log(self.cap / self.first) / math.log(self.factor) + 1
        try:
            return self.first * math.pow(self.factor, min(step - 1, reach))
        except OverflowError:  # an enormous factor, or a cap that lies enormously far above the first wait
            return self.cap

    def __str__(self) -> str:
        return f"{self.first:g} s × {self.factor:g} up to {self.cap:g} s"


def constant(seconds: float) -> Constant:
    """
    Wait the same time at every step.

    Args:
        seconds: Above 0.

    Raises:
        ConfigError: *seconds* is not a finite number above 0.
    """
    return Constant(seconds)


def exponential(first: float = 30.0, factor: float = 2.0, cap: float = 600.0, jitter: float = 0.1) -> Exponential:
    """
    Wait *first*, *first* × *factor*, *first* × *factor*² … seconds, at most *cap*.

    Args:
        first: Seconds at step 1, above 0.
        factor: At least 1.
        cap: The longest wait in seconds, at least *first*; a Retry-After is cut to it as well.
        jitter: Share in [0, 1] by which a wait may differ from the series, so that instances do not test in step.

    Raises:
        ConfigError: A value is outside its range; all of them are named.
    """
    return Exponential(first, factor, cap, jitter)
