"""The transports for httpx and httpx2, which are alike but share no class: written once over both."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from halfopen._runtime.cancelling import cancel_at
from halfopen._runtime.deadline import AMBIENT
from halfopen.errors import CallTimeoutError, RejectedError
from halfopen.integrations._dialect import Dialect
from halfopen.integrations._guard import Guard
from halfopen.integrations._http import bodiless, host_key, seconds_left, shorter
from halfopen.integrations._httpx_time import keep_time
from halfopen.integrations._settling import Evidence, Settling

__all__ = ["AsyncTransport", "Transport", "dialect_of", "evidence_of"]

_OURS = (RejectedError, CallTimeoutError)


def evidence_of(httpx: ModuleType) -> Evidence:
    """Return what judges for breakers without a classifier; a full connection pool is no news of a host."""
    ours = (httpx.UnsupportedProtocol, httpx.LocalProtocolError, httpx.PoolTimeout)
    return Evidence(ill=(httpx.TransportError, TimeoutError), ours=ours)


def dialect_of(httpx: ModuleType, module: str) -> Dialect:
    """Return how refusals are told to users of the library."""
    return Dialect(module, httpx.ConnectError, httpx.ConnectTimeout, httpx.ReadTimeout, {"_request": None})


class Guarded:
    """What both colours share; a subclass in the library's own module says which library it is."""

    _httpx: ModuleType
    _dialect: Dialect
    _evidence: Evidence
    _body: Any
    _own: Any

    def __init__(self, transport: Any = None, *, guard: Any = None) -> None:
        self._transport = self._own() if transport is None else transport
        self._guard = Guard(guard, self._evidence, self._hold, self._discard)
        self.guard = self._guard.policies

    def _discard(self, response: Any) -> Any:
        raise NotImplementedError

    def _hold(self, request: Any, response: Any, settling: Settling) -> None:
        if settling.answered(response):
            return
        if bodiless(request.method, response.status_code, response.headers):
            settling.ended()
        else:
            response.stream = self._body(response.stream, settling, self._httpx.ReadTimeout, AMBIENT.get())


class Transport(Guarded):
    """The synchronous transport."""

    def __init__(self, transport: Any = None, *, guard: Any = None) -> None:
        super().__init__(transport, guard=guard)
        keep_time(self._transport)

    def handle_request(self, request: Any) -> Any:
        """Send a request through the policies of its host."""
        try:
            return self._guard.call(_key(request), self._send, request)
        except _OURS as error:
            raise self._dialect.of(error, request=request) from None

    def _send(self, request: Any) -> Any:
        _shorten(request)
        return self._transport.handle_request(request)

    def _discard(self, response: Any) -> Any:
        response.close()

    def close(self) -> None:
        """Close the transport inside."""
        self._transport.close()


class AsyncTransport(Guarded):
    """The asynchronous transport, for asyncio and trio."""

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request through the policies of its host."""
        try:
            return await self._guard.acall(_key(request), self._send, request)
        except _OURS as error:
            raise self._dialect.of(error, request=request) from None

    async def _send(self, request: Any) -> Any:
        _shorten(request)
        line = AMBIENT.get()
        if line is None:
            return await self._transport.handle_async_request(request)
        with cancel_at(line[0], line[1]) as scope:
            return await self._transport.handle_async_request(request)
        raise self._httpx.ReadTimeout("the deadline passed before the answer came") from scope.cause

    async def _discard(self, response: Any) -> Any:
        await response.aclose()

    async def aclose(self) -> None:
        """Close the transport inside."""
        await self._transport.aclose()


def _key(request: Any) -> str:
    return host_key(request.url.scheme, request.url.host, request.url.port)


def _shorten(request: Any) -> None:
    left = seconds_left()
    if left is not None:
        given = request.extensions.get("timeout", {})
        cut = {kind: shorter(given.get(kind), left) for kind in ("connect", "read", "write", "pool")}
        request.extensions = {**request.extensions, "timeout": cut}
