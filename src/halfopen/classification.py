"""What a finished call says about the dependency: `Failures`, and the HTTP statuses it reads."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from halfopen._core.checking import Checks, is_coroutine_function
from halfopen._core.outcomes import FAILURE, IGNORED, SUCCESS, Classified
from halfopen._runtime.retry_after import attribute, parse_retry_after, retry_after_of
from halfopen.errors import RejectedError

__all__ = ["Failures", "failed_status", "http_status", "is_cancellation", "is_refusal", "retry_after"]

Matcher = type[BaseException] | Callable[[Exception], bool]

_STATUS_FAILS = frozenset({408, 429})


@dataclass(frozen=True, slots=True)
class Failures:
    """
    Say which exceptions and results are failures.

    In this order: what `ignore` names is ignored; what `on` does not name is a success; an exception that carries an
    HTTP status is judged by it (408, 429 and 5xx are failures, every other status is an answer of a healthy service and
    a success); the rest is a failure.

    Args:
        on: A class of exceptions, a predicate on the exception, or a tuple of them.
        ignore: The same, for exceptions that are no evidence at all.
        result: Predicate on the returned value that is True for a failure. `failed_status` fits HTTP responses.
            Without it returned values are not looked at, except those handed to `Permit.result`, where a
            response's status counts.

    Raises:
        ConfigError: An argument is of another form.
    """

    on: Matcher | tuple[Matcher, ...] = Exception
    ignore: Matcher | tuple[Matcher, ...] = ()
    result: Callable[[Any], bool] | None = None

    def __post_init__(self) -> None:
        checks = Checks()
        _check_matchers(checks, "on", self.on)
        _check_matchers(checks, "ignore", self.ignore)
        checks.callable("result", self.result, optional=True)
        checks.done()

    @property
    def takes_all(self) -> bool:
        """Whether every exception without a status is a failure."""
        return self.on is Exception and not self.ignore

    @property
    def judges_results(self) -> bool:
        """Whether returned values of guarded functions are looked at."""
        return self.result is not None

    def of_exception(self, error: Exception, /) -> Classified:
        """Judge a call that raised."""
        if self.ignore and _matches(error, self.ignore):
            return IGNORED
        if self.on is not Exception and not _matches(error, self.on):
            return SUCCESS
        if not error.__dict__ and not _carries(type(error)):
            return FAILURE
        status = http_status(error)
        if status is None:
            return FAILURE, parse_retry_after(attribute(error, "retry_after"), time.time())
        return _by_status(status, error)

    def of_result(self, value: Any, /) -> Classified:
        """Judge a call that returned."""
        if self.result is not None:
            return (FAILURE, retry_after(value)) if self.result(value) else SUCCESS
        status = http_status(value)
        return SUCCESS if status is None else _by_status(status, value)


def _each(given: Any) -> tuple[Any, ...]:
    return given if isinstance(given, tuple) else (given,)  # pyright: ignore[reportUnknownVariableType]  (of anything)


def _check_matchers(checks: Checks, path: str, given: Any) -> None:
    for matcher in _each(given):
        right = issubclass(matcher, BaseException) if isinstance(matcher, type) else callable(matcher)
        if not right or is_coroutine_function(matcher):
            checks.wrong(path, matcher, "a class of exceptions, a plain predicate, or a tuple of them", "wrong_type")


def _matches(error: Exception, matchers: Any) -> bool:
    for matcher in _each(matchers):
        if isinstance(matcher, type):
            if isinstance(error, matcher):
                return True
        elif matcher(error):
            return True
    return False


NO_CARRIERS: set[type] = set()
"""Classes of exceptions that carry no status unless an instance has attributes of its own; they are found out once."""

_MAYBE_REFUSALS: frozenset[type] = frozenset({RejectedError, ExceptionGroup})
_TOLD_BY = ("response", "status_code", "status", "code", "retry_after", "__getattr__")


def _carries(kind: type) -> bool:
    if kind in NO_CARRIERS:
        return False
    if any(hasattr(kind, name) for name in _TOLD_BY) or not _MAYBE_REFUSALS.isdisjoint(kind.__mro__):
        return True
    if len(NO_CARRIERS) >= 1000:  # classes made at run time must not pile up
        NO_CARRIERS.clear()
    NO_CARRIERS.add(kind)
    return False


def _by_status(status: int, carrier: Any) -> Classified:
    if status in _STATUS_FAILS or status >= 500:
        return FAILURE, retry_after(carrier)
    return SUCCESS


def failed_status(value: Any) -> bool:
    """Say whether *value* is a response that tells of an ill service: 408, 429 or 5xx."""
    status = http_status(value)
    return status is not None and (status in _STATUS_FAILS or status >= 500)


def http_status(carrier: Any) -> int | None:
    """Return the HTTP status (100–599) that an exception or a response carries, if any."""
    response = attribute(carrier, "response")
    candidates = [(response, "status_code"), (response, "status")] if response is not None else []
    candidates += [(carrier, "status_code"), (carrier, "status"), (carrier, "code")]
    for holder, name in candidates:
        value = attribute(holder, name)
        if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
            return int(value)
    return None


def retry_after(carrier: Any, now: Callable[[], float] = time.time) -> float | None:
    """
    Return the seconds that a Retry-After asks for, given in seconds or as an HTTP date.

    Args:
        carrier: An exception or a response with `retry_after`, `headers`, or a `response` with `headers`.
        now: Returns Unix time, to which a date is compared.

    Returns:
        Seconds of at least 0, or None where there is none or it cannot be read (RFC 9110, 10.2.3).
    """
    return retry_after_of(carrier, now())


def _members(error: BaseException) -> tuple[BaseException, ...]:
    """Return the exceptions of a group; nothing for one that stands alone."""
    return cast("BaseExceptionGroup[BaseException]", error).exceptions if _is_group(error) else ()


def _is_group(error: object) -> bool:
    return isinstance(error, BaseExceptionGroup)


def is_refusal(error: BaseException) -> bool:
    """Say whether an inner policy refused the call: the dependency was not asked."""
    members = _members(error)
    return all(map(is_refusal, members)) if members else isinstance(error, RejectedError)


def is_cancellation(error: BaseException) -> bool:
    """Say whether *error* is asyncio's or trio's way of cancelling a task."""
    members = _members(error)
    if members:
        return all(map(is_cancellation, members))
    for module, name in (("asyncio", "CancelledError"), ("trio", "Cancelled")):
        loaded = sys.modules.get(module)
        if loaded is not None and isinstance(error, getattr(loaded, name)):
            return True
    return False
