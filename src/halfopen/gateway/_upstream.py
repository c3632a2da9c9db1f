"""The client side: one pool of connections for each partner, on aiohttp (chosen in `benchmarks/gateway.py`)."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Literal

import aiohttp
from yarl import URL

from ._errors import BadAnswerError, BrokenOffError, NoEvidenceError, NotSentError, TooSlowError
from ._problems import problem
from ._settings import PartnerSettings

__all__ = ["Answer", "Upstream", "tls_of"]

_OWN_ONLY = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
_LARGEST_FIELD = 64 * 1024
# A partner closes idle connections after a time of its own; a POST on one that is closing is not repeated.
_IDLE = 4.0


class Answer:
    """
    A partner's answer; its body is read at most once.

    Attributes:
        status_code: Its status.
        headers: By name, whatever the case.
        raw_headers: As they came.
        length: What Content-Length says.
    """

    __slots__ = ("_kept", "_name", "_response", "headers", "length", "raw_headers", "status_code")

    def __init__(self, name: str, response: aiohttp.ClientResponse) -> None:
        self._name = name
        self._response = response
        self._kept: bytes | None = None
        self.status_code = response.status
        self.headers: Mapping[str, str] = response.headers
        self.raw_headers = response.raw_headers
        length = response.headers.get("Content-Length", "")
        self.length = int(length) if length.isascii() and length.isdigit() else None

    async def parts(self) -> AsyncIterator[bytes]:
        """
        Yield the body as it comes.

        Raises:
            BrokenOffError: The connection broke.
            TooSlowError: Nothing came for too long.
        """
        if self._kept is not None:
            yield self._kept
            return
        content = self._response.content
        try:
            while part := await content.readany():
                yield part
        except (aiohttp.ClientError, OSError, EOFError) as error:
            raise _failed(self._name, error) from error

    async def read(self, limit: int) -> bytes | None:
        """Return the whole body; None if it is larger than *limit* bytes, of which then a part is lost."""
        if self._kept is None:
            read = bytearray()
            async for part in self.parts():
                read += part
                if len(read) > limit:
                    return None
            self._kept = bytes(read)
        return self._kept

    def close(self) -> None:
        """Give the connection back if the body was read, else close it."""
        self._response.close() if self._kept is None else self._response.release()


class Upstream:
    """
    Sends requests to one partner, and to nobody else: no redirects, no proxies, no cookies.

    Args:
        settings: The partner.
        time_limit: Seconds for a whole exchange.
    """

    def __init__(self, settings: PartnerSettings, time_limit: float) -> None:
        self._name = settings.name
        self._base = settings.url.rstrip("/")
        self._settings = settings
        self._timeout = aiohttp.ClientTimeout(
            total=time_limit, connect=None, sock_connect=settings.connect_timeout, sock_read=settings.timeout
        )
        self._session: aiohttp.ClientSession | None = None

    def open(self) -> None:
        """Make the pool; in the event loop that uses it."""
        settings = self._settings
        connector = aiohttp.TCPConnector(limit=settings.connections, keepalive_timeout=_IDLE, ssl=tls_of(settings))
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_OWN_ONLY,
            auto_decompress=False,
            timeout=self._timeout,
            max_field_size=_LARGEST_FIELD,
            max_line_size=_LARGEST_FIELD,
        )

    async def close(self) -> None:
        """Close the pool."""
        if self._session is not None:
            await self._session.close()

    async def send(
        self,
        method: str,
        target: str,
        headers: Iterable[tuple[str, str]],
        body: bytes | AsyncIterator[bytes],
        length: int | None,
    ) -> Answer:
        """
        Make one request; return the answer once its headers are here.

        Args:
            target: What is appended to the partner's URL: path and query.
            length: Of a body that is a stream; None: it is sent in chunks.

        Raises:
            NotSentError: There was no connection.
            BrokenOffError: It broke, or the answer is not HTTP.
            TooSlowError: No answer in time.
            NoEvidenceError: The partner's certificate, or an answer, shows a mistake that is nobody's illness.
        """
        assert self._session is not None
        listed = list(headers)
        data: Any = body
        if isinstance(body, bytes):
            data = body or None
            if not body and method not in ("GET", "HEAD", "OPTIONS", "TRACE", "DELETE"):
                listed.append(("Content-Length", "0"))
        elif length is not None:
            listed.append(("Content-Length", str(length)))
        try:
            response = await self._session.request(
                method, URL(self._base + target, encoded=True), headers=listed, data=data, allow_redirects=False
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _failed(self._name, error) from error
        if not 100 <= response.status < 600:
            response.close()
            raise BadAnswerError(f"{response.status} is no status that HTTP has")
        return Answer(self._name, response)


def _failed(name: str, error: Exception) -> Exception:
    """Return what an error of the client means here."""
    what = f"{type(error).__name__}: {error}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError) or isinstance(
        error.__cause__, ssl.SSLCertVerificationError
    ):
        members = {"partner": name, "delivery": "none"}
        return NoEvidenceError(name, problem(502, "bad-certificate", f"the certificate of {name}: {error}", **members))
    if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)):
        return NotSentError(what)
    if isinstance(error, TimeoutError):
        return TooSlowError(f"no answer from {name} in time")
    if isinstance(error, (aiohttp.InvalidURL, aiohttp.ClientResponseError, ValueError)):
        return BadAnswerError(what)
    return BrokenOffError(what)


def tls_of(settings: PartnerSettings) -> ssl.SSLContext | Literal[True]:
    """
    Return how a partner's certificate is checked, and with which one we show ourselves.

    Raises:
        OSError: A file is not there, or holds something else.
    """
    if not settings.url.startswith("https:"):
        return True
    context = ssl.create_default_context(cafile=settings.ca or None)
    if settings.certificate:
        context.load_cert_chain(settings.certificate, settings.key or None)
    return context
