"""What a server answers its own client when a refusal comes up from one of its dependencies."""

from __future__ import annotations

import json
import math
from http import HTTPStatus
from typing import NamedTuple, cast

from halfopen._runtime.deadline import DeadlinePassedError
from halfopen.errors import RateLimitedError, RejectedError

__all__ = ["Answer", "answer", "refusal_in"]


class Answer(NamedTuple):
    """
    An HTTP answer.

    Attributes:
        status: 503, 429 for a rate limiter, or 504 where the deadline had passed.
        headers: Content-Type, Content-Length, Cache-Control, and Retry-After where it is known.
        body: A problem document (RFC 9457) that names no circuit: strangers need not know what we depend on.
    """

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def line(self) -> str:
        """The status with its phrase, such as ``503 Service Unavailable``."""
        return f"{self.status} {HTTPStatus(self.status).phrase}"


def answer(refusal: RejectedError) -> Answer:
    """Return what to answer for a refusal."""
    status = _status(refusal)
    problem: dict[str, object] = {"type": "about:blank", "title": status.phrase, "status": status.value}
    later = refusal.retry_after
    headers = {"Content-Type": "application/problem+json", "Cache-Control": "no-store"}
    if later is not None and math.isfinite(later):
        # Whole seconds (RFC 9110, 10.2.3); rounded up, since to come too early is in vain.
        headers["Retry-After"] = str(max(math.ceil(later), 1))
        problem["detail"] = f"Try again in {headers['Retry-After']} s."
    body = json.dumps(problem).encode()
    return Answer(status.value, {**headers, "Content-Length": str(len(body))}, body)


def _status(refusal: RejectedError) -> HTTPStatus:
    if isinstance(refusal, RateLimitedError):
        return HTTPStatus.TOO_MANY_REQUESTS
    if isinstance(refusal, DeadlinePassedError):
        return HTTPStatus.GATEWAY_TIMEOUT
    return HTTPStatus.SERVICE_UNAVAILABLE


def refusal_in(error: BaseException) -> RejectedError | None:
    """Return the refusal that *error* is, or that is all there is in a group, as task groups raise them."""
    if isinstance(error, RejectedError):
        return error
    if isinstance(error, BaseExceptionGroup):
        found = [refusal_in(inner) for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions]
        if all(found):
            return max((each for each in found if each is not None), key=lambda each: each.retry_after or 0.0)
    return None
