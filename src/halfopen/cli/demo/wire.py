"""How the hub posts a message: over `http.client` from threads, over asyncio streams from tasks."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import socket
import ssl
import time
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any
from urllib.parse import quote, urlsplit

from halfopen.cli.demo.errors import BadInput
from halfopen.cli.demo.messages import Message

__all__ = ["Connection", "Endpoint", "NotTaken", "apost", "fetch"]

_IDLE = 2.0
_REPEATABLE = frozenset({408, 425, 429})
_NEVER_MENDS = frozenset({501, 505})


class NotTaken(Exception):
    """
    The partner answered, but not with 2xx.

    Attributes:
        status: The HTTP status; a circuit breaker judges the answer by it.
    """

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status

    def __str__(self) -> str:
        return f"HTTP {self.status}"

    @property
    def worth_repeating(self) -> bool:
        """Return whether the same message may be taken later (the standard's table for AS2 senders)."""
        return self.status in _REPEATABLE or (self.status >= 500 and self.status not in _NEVER_MENDS)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a partner listens."""

    scheme: str
    host: str
    port: int
    path: str = "/as2"

    @classmethod
    def of(cls, url: str) -> Endpoint:
        """
        Read *url*.

        Raises:
            BadInput: It is not a whole http or https URL.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise BadInput(f"--partner {url}: {error}; write it like http://127.0.0.1:8080/as2") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(f"--partner {url} is no http or https URL; write it like http://127.0.0.1:8080/as2")
        path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~") + (f"?{parts.query}" if parts.query else "")
        return cls(parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80), path)

    @property
    def authority(self) -> str:
        """Return host and port, as they stand in a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    def tls(self) -> ssl.SSLContext | None:
        """Return what TLS needs, or None for plain HTTP."""
        return ssl.create_default_context() if self.scheme == "https" else None

    def check(self, timeout: float = 5.0) -> None:
        """
        Connect once and hang up.

        Raises:
            BadInput: Nobody listens there.
        """
        try:
            socket.create_connection((self.host, self.port), timeout).close()
        except (OSError, UnicodeError) as error:
            why = str(getattr(error, "strerror", None) or error).lower()
            raise BadInput(
                f"cannot reach {self}: {why}; start the partner, or correct --partner (nothing was sent)"
            ) from None


def _headers(message: Message) -> dict[str, str]:
    name = re.sub(r"[^\x20-\x7e]|[\"\\]", "_", message.letter.name)
    return {
        "AS2-Version": "1.0",
        "AS2-From": "HUB",
        "AS2-To": "PARTNER",
        "Message-ID": message.message_id,
        "Date": formatdate(),
        "Subject": name,
        "Content-Type": "application/EDIFACT",
        "Content-Disposition": f'attachment; filename="{name}"',
        "Content-Length": str(len(message.letter.body)),
        **message.headers,
    }


class Connection:
    """One sender thread's own connection, kept open between messages."""

    def __init__(self, endpoint: Endpoint, tls: ssl.SSLContext | None, timeout: float) -> None:
        self._endpoint = endpoint
        self._http: http.client.HTTPConnection
        if tls is None:
            self._http = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=timeout)
        else:
            self._http = http.client.HTTPSConnection(endpoint.host, endpoint.port, timeout=timeout, context=tls)
        self._used = 0.0

    def post(self, message: Message) -> int:
        """
        Hand *message* over; return the status of the answer.

        Raises:
            NotTaken: The answer was not 2xx.
            OSError: There was no answer.
        """
        # Partners hang up on idle connections, and a message sent into one that is closing has an unknown fate.
        if time.monotonic() - self._used > _IDLE:
            self._http.close()
        try:
            self._http.request("POST", self._endpoint.path, message.letter.body, _headers(message))
            answer = self._http.getresponse()
            answer.read()
        except BaseException:
            self._http.close()
            raise
        self._used = time.monotonic()
        if not 200 <= answer.status < 300:
            raise NotTaken(answer.status)
        return answer.status

    def close(self) -> None:
        """Close it, from the thread that uses it."""
        self._http.close()

    def hang_up(self) -> None:
        """End what is under way, from any thread."""
        sock = self._http.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


async def apost(endpoint: Endpoint, context: ssl.SSLContext | None, message: Message, timeout: float) -> int:
    """
    Hand *message* over on a connection of its own; return the status of the answer.

    Raises:
        NotTaken: The answer was not 2xx.
        OSError: There was no answer; `TimeoutError` is one.
    """
    async with asyncio.timeout(timeout):
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
        try:
            fields = {"Host": endpoint.authority, **_headers(message), "Connection": "close"}
            head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
            writer.write(f"POST {endpoint.path} HTTP/1.1\r\n{head}\r\n".encode() + message.letter.body)
            await writer.drain()
            status = await _status(reader)
        finally:
            writer.close()
    if not 200 <= status < 300:
        raise NotTaken(status)
    return status


async def _status(reader: asyncio.StreamReader) -> int:
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise ConnectionResetError(f"no whole HTTP answer: {error}") from None
        found = re.match(rb"HTTP/1\.[01] (\d{3})\b", head)
        if found is None:
            raise ConnectionAbortedError("the answer is no HTTP")
        if (status := int(found[1])) >= 200:
            return status


def fetch(endpoint: Endpoint, path: str, timeout: float) -> Any:
    """Return the JSON that the partner of the demo shows at *path*."""
    connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=timeout)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()
