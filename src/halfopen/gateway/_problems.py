"""What the gateway answers itself: problem documents (RFC 9457)."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from halfopen.errors import CallTimeoutError, CircuitOpenError, RateLimitedError, RejectedError

__all__ = ["Problem", "Send", "of_refusal", "problem", "send_json"]

Send = Callable[[Any], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

_TYPE = "urn:halfopen:problem:"
_LONGEST_DETAIL = 500


@dataclass(frozen=True, slots=True)
class Problem:
    """
    An answer of the gateway's own.

    Attributes:
        kind: The last part of its type: ``circuit-open``.
        detail: One sentence for people.
        members: Further members for programs, such as ``circuit``; `delivery` says ``none`` or ``unknown``.
        retry_after: Seconds for the header Retry-After.
        headers: Further headers.
    """

    status: int
    kind: str
    detail: str
    members: dict[str, Any] = field(default_factory=dict[str, Any])
    retry_after: float | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def body(self) -> bytes:
        """Return the document."""
        document = {
            "type": _TYPE + self.kind,
            "title": _title(self.kind),
            "status": self.status,
            "detail": self.detail[:_LONGEST_DETAIL],
            **self.members,
        }
        return json.dumps(document).encode()

    def head(self, length: int) -> Headers:
        """Return its headers."""
        headers: Headers = [
            (b"content-type", b"application/problem+json"),
            (b"content-length", b"%d" % length),
            (b"cache-control", b"no-store"),
            *self.headers,
        ]
        if self.retry_after is not None:
            headers.append((b"retry-after", b"%d" % max(1, math.ceil(self.retry_after))))
        return headers

    async def send(self, send: Send) -> None:
        """Answer with it."""
        body = self.body()
        await send({"type": "http.response.start", "status": self.status, "headers": self.head(len(body))})
        await send({"type": "http.response.body", "body": body})

    def raw(self) -> bytes:
        """Return the whole answer as it goes over a connection that ends with it."""
        body = self.body()
        lines = [b"HTTP/1.1 %d %s" % (self.status, HTTPStatus(self.status).phrase.encode())]
        lines += [name + b": " + value for name, value in [*self.head(len(body)), (b"connection", b"close")]]
        return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _title(kind: str) -> str:
    return kind.replace("-", " ").capitalize()


def problem(status: int, kind: str, detail: str, **members: Any) -> Problem:
    """Make a problem with further members."""
    return Problem(status, kind, detail, members)


def of_refusal(error: RejectedError | CallTimeoutError, partner: str) -> Problem:
    """Return the problem that a policy's error is."""
    members: dict[str, Any] = {"partner": partner, "delivery": "none"}
    later = None if isinstance(error, CallTimeoutError) else error.retry_after
    if isinstance(error, CircuitOpenError):
        members |= {
            "circuit": error.name,
            "state": str(error.state),
            "reason": str(error.reason),
            "next_trial_at": _moment(later),
            "retry_after": later,
        }
        return Problem(503, "circuit-open", str(error), members, later if later is not None else _again_after(error))
    if isinstance(error, CallTimeoutError):
        return Problem(504, "timeout", str(error), {**members, "delivery": "unknown"})
    members |= {"policy": error.name, "retry_after": later}
    if isinstance(error, RateLimitedError):
        return Problem(429, "rate-limited", str(error), members, later)
    return Problem(503, "too-many-calls", str(error), members, later if later is not None else 1.0)


def _again_after(error: CircuitOpenError) -> float:
    """Return when asking again makes sense where nobody can know: trial calls end soon, orders of people do not."""
    return 60.0 if error.reason == "forced_open" else 1.0


def _moment(later: float | None) -> str | None:
    if later is None:
        return None
    try:
        moment = datetime.fromtimestamp(time.time() + later, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


async def send_json(send: Send, status: int, document: Any, headers: Headers | None = None) -> None:
    """Answer with a JSON document."""
    body = json.dumps(document).encode()
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *(headers or [])]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
