"""How long a retry waits: a constant or a growing series, spread by one of the three kinds of jitter."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from halfopen._core.checking import Checks

__all__ = [
    "Delays",
    "Jitter",
    "Rng",
    "constant",
    "decorrelated_jitter",
    "equal_jitter",
    "exponential",
    "full_jitter",
    "next_delay",
]


class Rng(Protocol):
    """A source of chance, such as `random.Random` or the module `random` itself."""

    def uniform(self, a: float, b: float, /) -> float:
        """Return a number between *a* and *b*."""
        ...


class Jitter(StrEnum):
    """How a delay is spread, in the terms of AWS's "Exponential Backoff And Jitter" (2015)."""

    NONE = "none"
    FULL = "full"
    EQUAL = "equal"
    DECORRELATED = "decorrelated"


@dataclass(frozen=True, slots=True)
class Delays:
    """
    Delays between attempts; made by `constant` and `exponential`.

    With b = min(cap, first × factor^(step − 1)) a delay is

    - ``none``: b
    - ``full``: anywhere in 0 … b
    - ``equal``: anywhere in b/2 … b
    - ``decorrelated``: anywhere in first … 3 × the delay before, at most the cap; *factor* plays no part
    """

    first: float
    factor: float
    cap: float
    jitter: Jitter

    def __post_init__(self) -> None:
        checks = Checks()
        checks.seconds("first", self.first, zero=True)
        checks.number("factor", self.factor)
        checks.seconds("cap", self.cap, zero=True)
        kinds = [kind.value for kind in Jitter]
        if self.jitter not in kinds:
            checks.wrong("jitter", self.jitter, "one of " + ", ".join(kinds))
        if not checks.mistakes and self.factor < 1:
            checks.wrong("factor", self.factor, "a number of at least 1")
        if not checks.mistakes and self.cap < self.first:
            checks.wrong("cap", self.cap, f"cap must be at least first ({self.first:g} s)", "conflict")
        checks.done()

    def __call__(self, step: int, rng: Rng) -> float:
        """Return the delay before retry number *step*, counted from 1."""
        base = self.base(step)
        if self.jitter == Jitter.FULL:
            return _within(rng, 0.0, base)
        if self.jitter == Jitter.EQUAL:
            return _within(rng, base / 2, base)
        if self.jitter == Jitter.DECORRELATED:
            return _within(rng, self.first, min(self.cap, 3 * base))
        return base

    def after(self, previous: float | None, step: int, rng: Rng) -> float:
        """Return the delay before retry number *step* when the one before it took *previous* seconds."""
        if self.jitter != Jitter.DECORRELATED:
            return self(step, rng)
        before = self.first if previous is None else max(previous, self.first)
        return _within(rng, self.first, min(self.cap, 3 * before))

    def base(self, step: int) -> float:
        """Return the delay at *step* before jitter."""
        if self.factor == 1 or self.first == 0:
            return float(self.first)
        # One step beyond the cap is far enough; a larger power would overflow.
        reach = math.log(self.cap / self.first) / math.log(self.factor) + 1
        grown: float = self.first * self.factor ** min(float(step - 1), reach)
        return min(grown, self.cap)

    def __str__(self) -> str:
        spread = "" if self.jitter == Jitter.NONE else f", {self.jitter} jitter"
        if self.cap == self.first:
            return f"{self.first:g} s{spread}"
        growth = "" if self.jitter == Jitter.DECORRELATED else f" × {self.factor:g}"
        return f"{self.first:g} s{growth} up to {self.cap:g} s{spread}"


def constant(seconds: float, jitter: str = "none") -> Delays:
    """
    Wait the same time before every retry.

    Args:
        seconds: At least 0.
        jitter: ``none``, ``full`` or ``equal``.

    Raises:
        ConfigError: A value is outside its range.
    """
    return Delays(seconds, 1.0, seconds, _jitter(jitter))


def exponential(first: float = 0.1, factor: float = 2.0, cap: float = 10.0, jitter: str = "full") -> Delays:
    """
    Wait *first*, *first* × *factor*, *first* × *factor*² … seconds, at most *cap*, spread by *jitter*.

    Args:
        first: Seconds before the first retry, at least 0.
        factor: At least 1.
        cap: The longest delay in seconds, at least *first*.
        jitter: ``none``, ``full``, ``equal`` or ``decorrelated``.

    Raises:
        ConfigError: A value is outside its range; all of them are named.
    """
    return Delays(first, factor, cap, _jitter(jitter))


def full_jitter(first: float = 0.1, factor: float = 2.0, cap: float = 10.0) -> Delays:
    """Wait anywhere between 0 and an exponential series: the least load on a dependency that many call."""
    return exponential(first, factor, cap, Jitter.FULL)


def equal_jitter(first: float = 0.1, factor: float = 2.0, cap: float = 10.0) -> Delays:
    """Wait between a half and the whole of an exponential series: spread, but never at once."""
    return exponential(first, factor, cap, Jitter.EQUAL)


def decorrelated_jitter(first: float = 0.1, cap: float = 10.0) -> Delays:
    """Wait between *first* and three times the delay before, at most *cap*."""
    return exponential(first, 3.0, cap, Jitter.DECORRELATED)


def next_delay(backoff: Callable[[int, Any], float], step: int, previous: float | None, rng: Rng) -> float:
    """
    Return the delay before retry number *step*, counted from 1, from any backoff.

    Raises:
        ValueError: The backoff returned something that is no finite number of at least 0.
    """
    delay = backoff.after(previous, step, rng) if isinstance(backoff, Delays) else backoff(step, rng)
    if not _is_delay(delay):
        raise ValueError(f"a backoff returns seconds of at least 0, not {delay!r}")
    return float(delay)


def _is_delay(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf


def _jitter(value: Any) -> Any:
    return Jitter(value) if isinstance(value, str) and value in list(Jitter) else value


def _within(rng: Rng, low: float, high: float) -> float:
    # Random.uniform may round up to a neighbour of its ends.
    return min(max(rng.uniform(low, high), low), high)
