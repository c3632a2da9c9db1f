"""Guard httpx2 clients: ``httpx2.Client(transport=GuardedTransport())``."""

from __future__ import annotations

import httpx2

from halfopen.integrations import _httpx, _httpx_body

__all__ = ["DIALECT", "EVIDENCE", "AsyncGuardedTransport", "GuardedTransport"]

DIALECT = _httpx.dialect_of(httpx2, __name__)
EVIDENCE = _httpx.evidence_of(httpx2)


class _Body(_httpx_body.Body, httpx2.SyncByteStream):
    pass


class _AsyncBody(_httpx_body.AsyncBody, httpx2.AsyncByteStream):
    pass


class GuardedTransport(_httpx.Transport, httpx2.BaseTransport):
    """
    Send each request through a circuit breaker, or any policies, of its host (``https://example.com:443``).

    The body is part of the call. A refusal is a `httpx2.ConnectError`, too; timeouts are cut to the ambient deadline.

    Args:
        transport: What sends; default an `httpx2.HTTPTransport`.
        guard: A family of breakers (`Registry.keyed`), a breaker, any policy, several of them, outermost first, or a
            function from the key to one of these; default a family of its own. What is used is the attribute `guard`.
    """

    _httpx = httpx2
    _dialect = DIALECT
    _evidence = EVIDENCE
    _body = _Body
    _own = httpx2.HTTPTransport


class AsyncGuardedTransport(_httpx.AsyncTransport, httpx2.AsyncBaseTransport):
    """
    The same for `httpx2.AsyncClient`, on asyncio and trio.

    Args:
        transport: What sends; default an `httpx2.AsyncHTTPTransport`.
        guard: As for `GuardedTransport`.
    """

    _httpx = httpx2
    _dialect = DIALECT
    _evidence = EVIDENCE
    _body = _AsyncBody
    _own = httpx2.AsyncHTTPTransport
