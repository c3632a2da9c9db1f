"""Guard httpx clients: ``httpx.Client(transport=GuardedTransport())``."""

from __future__ import annotations

import httpx

from halfopen.integrations import _httpx, _httpx_body

__all__ = ["DIALECT", "EVIDENCE", "AsyncGuardedTransport", "GuardedTransport"]

DIALECT = _httpx.dialect_of(httpx, __name__)
EVIDENCE = _httpx.evidence_of(httpx)


class _Body(_httpx_body.Body, httpx.SyncByteStream):
    pass


class _AsyncBody(_httpx_body.AsyncBody, httpx.AsyncByteStream):
    pass


class GuardedTransport(_httpx.Transport, httpx.BaseTransport):
    """
    Send each request through a circuit breaker, or any policies, of its host (``https://example.com:443``).

    The body is part of the call. A refusal is a `httpx.ConnectError`, too; timeouts are cut to the ambient deadline.

    Args:
        transport: What sends; default an `httpx.HTTPTransport`.
        guard: A family of breakers (`Registry.keyed`), a breaker, any policy, several of them, outermost first, or a
            function from the key to one of these; default a family of its own. What is used is the attribute `guard`.
    """

    _httpx = httpx
    _dialect = DIALECT
    _evidence = EVIDENCE
    _body = _Body
    _own = httpx.HTTPTransport


class AsyncGuardedTransport(_httpx.AsyncTransport, httpx.AsyncBaseTransport):
    """
    The same for `httpx.AsyncClient`, on asyncio and trio.

    Args:
        transport: What sends; default an `httpx.AsyncHTTPTransport`.
        guard: As for `GuardedTransport`.
    """

    _httpx = httpx
    _dialect = DIALECT
    _evidence = EVIDENCE
    _body = _AsyncBody
    _own = httpx.AsyncHTTPTransport
