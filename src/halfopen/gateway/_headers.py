"""Which headers pass the gateway: all but those that belong to one connection, or to the gateway itself."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping

from halfopen.config.values import parse_duration

from ._problems import Problem

__all__ = [
    "KIND",
    "MIC",
    "STREAM",
    "VIA",
    "RawHeaders",
    "RequestHead",
    "passed_back",
    "passed_on",
    "prefers_async",
    "value_of",
]

RawHeaders = Iterable[tuple[bytes, bytes]]
Headers = list[tuple[str, str]]

VIA = f"halfopen-{uuid.uuid4().hex[:12]}"
"""This process in the header Via, by which a loop is found."""

OWN = b"halfopen-"
"""Headers of programs to the gateway begin so, and go no further."""

DEADLINE, KIND, MIC, STREAM = (OWN + name for name in (b"deadline", b"document-type", b"mic", b"stream"))

_HOP_BY_HOP = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
        b"trailer", b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
_NOT_PASSED_ON = _HOP_BY_HOP | {b"host", b"content-length", b"expect"}
_PLAIN = re.compile(rb"[^\x00-\x08\x0a-\x1f\x7f]*")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class RequestHead:
    """
    The head of a program's request, read once.

    Attributes:
        headers: Those that are passed on, as text; host, length and those of the connection are not among them.
        length: What Content-Length says; 0 for a request without a body; None for a chunked one.
        asynchronous: Whether it prefers a later answer to none (``Prefer: respond-async``).
        orders: What programs say to the gateway, by header: `DEADLINE`, `KIND`, `MIC`, `STREAM`.
        deadline: Seconds after which it is too late, from ``Halfopen-Deadline``; None: as configured.
        content_type: Its Content-Type, in lower case.
        message_id: Its Message-ID.
        wants_receipt: Whether it asks for an MDN.
        receipt_later: Whether that MDN comes later, by a request of the partner.
        via: What Via said.
        problem: Why it cannot be passed on; None if it can.
    """

    __slots__ = (
        "asynchronous", "content_type", "deadline", "headers", "length", "message_id", "orders", "problem",
        "receipt_later", "via", "wants_receipt",
    )  # fmt: skip

    def __init__(self, raw: RawHeaders, overruled: frozenset[bytes] = frozenset()) -> None:
        self.headers: Headers = []
        self.length: int | None = 0
        self.asynchronous = self.wants_receipt = self.receipt_later = False
        self.orders: dict[bytes, str] = {}
        self.deadline: float | None = None
        self.content_type = ""
        self.message_id: str | None = None
        self.via: list[str] = []
        self.problem: Problem | None = None
        listed = list(raw)
        dropped = _nominated(listed)
        for name, value in listed:
            if name in _NOT_PASSED_ON or name in dropped or name.startswith(OWN):
                self._note(name, value)
            elif name not in overruled:
                self._pass(name, value)
        self.headers.append(("via", ", ".join([*self.via, f"1.1 {VIA}"])))

    def _note(self, name: bytes, value: bytes) -> None:
        if name == b"content-length":
            self.length = int(value) if value.isdigit() else None
        elif name == b"transfer-encoding":
            self.length = None
            if value.strip().lower() != b"chunked":
                detail = f"a request body is plain or chunked, not {value.decode('latin-1')}"
                self.problem = Problem(501, "unknown-transfer-encoding", detail)
        elif name.startswith(OWN):
            self.orders[name] = value.decode("latin-1").strip()
            if name == DEADLINE:
                self.deadline = parse_duration(self.orders[name])
                if self.deadline is None or self.deadline <= 0:
                    self.problem = Problem(400, "bad-header", "Halfopen-Deadline is a duration such as 30m or 4h")

    def _pass(self, name: bytes, value: bytes) -> None:
        try:
            text = value.decode()
        except UnicodeDecodeError:
            self.problem = Problem(400, "bad-header", f"the header {name.decode('latin-1')} is not UTF-8")
            return
        if name == b"via":
            self.via.append(text)
            return
        if name == b"prefer" and prefers_async(text):
            self.asynchronous = True
            return
        if name == b"message-id":
            self.message_id = text
        elif name == b"content-type":
            self.content_type = text.lower()
        elif name == b"disposition-notification-to":
            self.wants_receipt = True
        elif name == b"receipt-delivery-option":
            self.receipt_later = True
        self.headers.append((name.decode("ascii"), text))

    @property
    def looped(self) -> bool:
        """Whether it came through this process already."""
        return any(VIA in each for each in self.via)


def _nominated(raw: RawHeaders) -> frozenset[bytes]:
    named = [value for name, value in raw if name == b"connection"]
    if not named or named in ([b"keep-alive"], [b"close"]):
        return frozenset()
    return frozenset(token.strip().lower() for value in named for token in value.split(b","))


def prefers_async(value: str) -> bool:
    """Say whether a Prefer header names ``respond-async`` (RFC 7240)."""
    return any(part.split(";")[0].strip().lower() == "respond-async" for part in value.split(","))


def passed_on(head: RequestHead, fixed: Mapping[str, str]) -> Headers:
    """Return the headers of the request to the partner."""
    return [*head.headers, *fixed.items()] if fixed else head.headers


def passed_back(raw: RawHeaders, status: int) -> list[tuple[bytes, bytes]] | None:
    """Return the headers of an answer for the program; None if there is one that no server may send."""
    lowered = [(name.lower(), value) for name, value in raw]
    dropped = _HOP_BY_HOP | _nominated(lowered)
    if status in (204, 304):  # without a body, whatever they say
        dropped = dropped | {b"content-length"}
    for name, value in lowered:
        if _PLAIN.fullmatch(value) is None or _NAME.fullmatch(name) is None:
            return None
    return [(name, value) for name, value in lowered if name not in dropped]


def value_of(raw: RawHeaders, wanted: bytes) -> bytes | None:
    """Return the first header of that name."""
    return next((value for name, value in raw if name == wanted), None)
