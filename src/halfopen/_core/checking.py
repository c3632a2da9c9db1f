"""Validation that finds every mistake before it raises."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from halfopen.errors import ConfigError, Mistake

__all__ = ["Checks", "is_coroutine_function", "nearest", "usable_seconds"]


class Checks:
    """Collect the mistakes of one set of settings; `done` raises them together."""

    __slots__ = ("_prefix", "mistakes")

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self.mistakes: list[Mistake] = []

    def wrong(self, path: str, value: Any, allowed: str, kind: str = "out_of_range") -> None:
        """Note one mistake."""
        self.mistakes.append(Mistake(self._prefix + path, value, allowed, kind))

    def unknown(self, name: str, value: Any, known: Iterable[str]) -> None:
        """Note a setting that does not exist, with the nearest one that does."""
        names = sorted(known)
        allowed = "one of " + ", ".join(names)
        self.mistakes.append(Mistake(self._prefix + name, value, allowed, "unknown_key", nearest(name, names)))

    def whole(self, path: str, value: Any, low: int, high: float = math.inf, *, optional: bool = False) -> None:
        """Want a whole number from *low* to *high*."""
        if optional and value is None:
            return
        limits = f"a whole number of at least {low}" if high == math.inf else f"a whole number from {low} to {high}"
        if isinstance(value, bool) or not isinstance(value, int):
            self.wrong(path, value, limits, "wrong_type")
        elif not low <= value <= high:
            self.wrong(path, value, limits)

    def seconds(self, path: str, value: Any, *, optional: bool = False, zero: bool = False) -> None:
        """Want a finite number of seconds above 0, or from 0 on."""
        self.number(path, value, "a number of seconds", optional=optional, zero=zero)

    def number(
        self, path: str, value: Any, what: str = "a number", *, optional: bool = False, zero: bool = False
    ) -> None:
        """Want a finite number above 0, or from 0 on."""
        if optional and value is None:
            return
        allowed = f"{what} of at least 0" if zero else f"{what} greater than 0"
        if not _is_number(value):
            self.wrong(path, value, allowed, "wrong_type")
        elif not _is_finite(value) or value < 0 or (value == 0 and not zero):
            self.wrong(path, value, allowed)

    def share(self, path: str, value: Any, *, optional: bool = False, zero: bool = False) -> None:
        """Want a share in (0, 1], or in [0, 1]."""
        if optional and value is None:
            return
        allowed = "a share in [0, 1]" if zero else "a share in (0, 1]"
        if not _is_number(value):
            self.wrong(path, value, allowed, "wrong_type")
        elif not 0 <= value <= 1 or (value == 0 and not zero):
            self.wrong(path, value, allowed)

    def callable(self, path: str, value: Any, *, optional: bool = False) -> None:
        """Want something that can be called and answers at once: a coroutine as an answer would always be true."""
        if optional and value is None:
            return
        if not callable(value):
            self.wrong(path, value, "something that can be called", "wrong_type")
        elif is_coroutine_function(value):
            self.wrong(path, value, "a plain function, no coroutine function", "wrong_type")

    def flag(self, path: str, value: Any) -> None:
        """Want True or False."""
        if not isinstance(value, bool):
            self.wrong(path, value, "True or False", "wrong_type")

    def text(self, path: str, value: Any) -> None:
        """Want a text that is not empty."""
        if not isinstance(value, str):
            self.wrong(path, value, "a text", "wrong_type")
        elif not value:
            self.wrong(path, value, "a text that is not empty")

    def done(self) -> None:
        """
        End the check.

        Raises:
            ConfigError: Something was wrong.
        """
        if self.mistakes:
            raise ConfigError(self.mistakes)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond every float
        return False


def is_coroutine_function(value: Any) -> bool:
    """Say whether a call of *value*, which can be called, makes a coroutine, which nobody would await."""
    from inspect import iscoroutinefunction

    return iscoroutinefunction(value) or iscoroutinefunction(type(value).__call__)


def usable_seconds(seconds: Any) -> float | None:
    """Return *seconds* if it is a finite number of at least 0, else None."""
    return float(seconds) if _is_number(seconds) and _is_finite(seconds) and seconds >= 0 else None


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the one of *known* that was probably meant by *name*; None if none is near."""
    from difflib import get_close_matches

    found = get_close_matches(name, list(known), 1)
    return found[0] if found else None
