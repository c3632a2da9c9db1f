"""What the gRPC interceptors of both colours share: keys, codes, pushback, and refusals as `grpc.RpcError`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import grpc

from halfopen._core.outcomes import FAILURE, IGNORED, SUCCESS, Classified
from halfopen.errors import CallTimeoutError, RateLimitedError
from halfopen.integrations._dialect import Dialect
from halfopen.integrations._http import seconds_left, shorter

__all__ = ["GrpcEvidence", "dialect_of", "key_of", "pushback", "timeout_of"]

_ILL = frozenset({
    grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS,
})  # fmt: skip
_PUSHBACK = "grpc-retry-pushback-ms"


@dataclass(frozen=True, slots=True)
class GrpcEvidence:
    """
    Judges calls by their status code.

    UNAVAILABLE, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, INTERNAL, UNKNOWN and DATA_LOSS are failures, CANCELLED is
    ignored, any other code is the answer of a healthy service.
    """

    judges_results: ClassVar[bool] = False

    def of_exception(self, error: Exception, /) -> Classified:
        """Judge a call that raised."""
        if isinstance(error, CallTimeoutError):
            return FAILURE
        code = error.code() if isinstance(error, grpc.RpcError) and hasattr(error, "code") else None
        if code is None or code is grpc.StatusCode.CANCELLED:
            return IGNORED
        return (FAILURE, pushback(error)) if code in _ILL else SUCCESS

    def of_result(self, value: Any, /) -> Classified:
        """Judge a call that was answered."""
        return SUCCESS


def pushback(error: Any) -> float | None:
    """Return the seconds for which the server asks to be left alone (gRFC A6), if it does."""
    metadata: Iterable[tuple[str, Any]] = error.trailing_metadata() or ()
    for name, value in metadata:
        if name == _PUSHBACK and str(value).isdigit():
            return int(value) / 1000
    return None


def key_of(target: str) -> str:
    """Return ``grpc://host:port`` for a target such as ``dns:///host:port``; another target as it is."""
    plain = re.fullmatch(r"(?:(?:dns|ipv4|ipv6):(?://[^/]*/)?)?(\S+:\d+)", target)
    return f"grpc://{plain[1].lower()}" if plain else target


def timeout_of(details: Any) -> float | None:
    """Return the timeout of a call, cut to the ambient deadline."""
    return shorter(details.timeout, seconds_left())


def _code(error: Any) -> Any:
    if isinstance(error, CallTimeoutError):
        return grpc.StatusCode.DEADLINE_EXCEEDED
    limited = isinstance(error, RateLimitedError)
    return grpc.StatusCode.RESOURCE_EXHAUSTED if limited else grpc.StatusCode.UNAVAILABLE


def _no_metadata(error: Any) -> tuple[()]:
    return ()


def _details(error: Any) -> str:
    return str(error)


def _trailing(error: Any) -> tuple[tuple[str, str], ...]:
    later = getattr(error, "retry_after", None)
    return () if later is None else ((_PUSHBACK, str(round(later * 1000))),)


def dialect_of(module: str, base: Any) -> Dialect:
    """Return how refusals are told: UNAVAILABLE, RESOURCE_EXHAUSTED of a limiter, DEADLINE_EXCEEDED without time."""
    attributes: dict[str, Any] = {
        "code": _code,
        "details": _details,
        "initial_metadata": _no_metadata,
        "trailing_metadata": _trailing,
        "debug_error_string": _details,
    }
    return Dialect(module, base, base, base, attributes)
