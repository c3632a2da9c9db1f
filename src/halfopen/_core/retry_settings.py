"""What can be set on a retry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from halfopen._core.attempts import Limits
from halfopen._core.checking import Checks
from halfopen._core.retry_backoff import constant, exponential
from halfopen._core.settings import Call

__all__ = ["DEFAULT_BACKOFF", "Errors", "RetrySettings"]

Errors = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]
"""Errors by class, or a question asked of each."""

DEFAULT_BACKOFF = exponential()
_ERRORS = "an exception class (below Exception), a tuple of them, or a function of the exception"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """The settings of a `Retry`; its arguments explain them."""

    name: str
    on: Errors
    ignore: type[Exception] | tuple[type[Exception], ...] = ()
    attempts: int | None = 3
    backoff: float | Callable[[int, Any], float] = DEFAULT_BACKOFF
    total: float | None = None
    budget: Any = None
    result: Callable[[Any], bool] | None = None
    only_if: Callable[[Call], bool] | None = None
    retry_after_cap: float = 60.0

    def __post_init__(self) -> None:
        for listed in ("on", "ignore"):
            if isinstance(getattr(self, listed), (list, set, frozenset)):
                object.__setattr__(self, listed, tuple(getattr(self, listed)))
        self._check()
        if isinstance(self.backoff, (int, float)):
            object.__setattr__(self, "backoff", constant(self.backoff))

    @property
    def limits(self) -> Limits:
        """What the pure decision needs of them."""
        return Limits(attempts=self.attempts, total=self.total, retry_after_cap=self.retry_after_cap)

    def _check(self) -> None:
        checks = Checks()
        checks.text("name", self.name)
        self._check_errors(checks)
        checks.whole("attempts", self.attempts, 1, optional=True)
        if not callable(self.backoff):
            checks.seconds("backoff", self.backoff, zero=True)
        checks.seconds("total", self.total, optional=True)
        if self.attempts is None and self.total is None:
            checks.wrong("attempts", None, "attempts=None needs total: something must end the attempts", "conflict")
        if self.budget is not None and not hasattr(self.budget, "take"):
            checks.wrong("budget", self.budget, "a RetryBudget", "wrong_type")
        checks.callable("result", self.result, optional=True)
        checks.callable("only_if", self.only_if, optional=True)
        checks.seconds("retry_after_cap", self.retry_after_cap, zero=True)
        checks.done()

    def _check_errors(self, checks: Checks) -> None:
        if not _is_errors(self.on) and (isinstance(self.on, type) or not callable(self.on)):
            checks.wrong("on", self.on, _ERRORS, "wrong_type")
        elif self.on == () and self.result is None:
            checks.wrong(
                "on", self.on, "on names no error and result is not set: nothing would ever be retried", "conflict"
            )
        if not _is_errors(self.ignore):
            checks.wrong("ignore", self.ignore, "an exception class (below Exception) or a tuple of them", "wrong_type")


def _is_errors(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_errors, cast(tuple[object, ...], value)))
    return isinstance(value, type) and issubclass(value, Exception)
