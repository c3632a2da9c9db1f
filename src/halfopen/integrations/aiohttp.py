"""Guard aiohttp clients: ``ClientSession(middlewares=[GuardMiddleware()])``."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp

from halfopen._runtime.deadline import AMBIENT, remaining
from halfopen.errors import CallTimeoutError, RejectedError
from halfopen.integrations._dialect import Dialect
from halfopen.integrations._guard import Guard
from halfopen.integrations._http import bodiless, host_key, seconds_left
from halfopen.integrations._settling import Evidence, Settling

__all__ = ["DIALECT", "EVIDENCE", "GuardMiddleware"]

DIALECT = Dialect(__name__, aiohttp.ClientConnectionError, aiohttp.ConnectionTimeoutError, aiohttp.SocketTimeoutError)
EVIDENCE = Evidence(ill=(aiohttp.ClientError, OSError), ours=(aiohttp.InvalidURL,))


class GuardMiddleware:
    """
    Send each request through a circuit breaker, or any policies, of its host (``https://example.com:443``).

    The body is part of the call. A refusal is an `aiohttp.ClientConnectionError`, too; timeouts are cut to the ambient
    deadline.

    Args:
        guard: A family of breakers (`Registry.keyed`), a breaker, any policy, several of them, outermost first, or a
            function from the key to one of these; default a family of its own. What is used is the attribute `guard`.
    """

    def __init__(self, *, guard: Any = None) -> None:
        self._guard = Guard(guard, EVIDENCE, _hold, _discard)
        self.guard = self._guard.policies

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send a request through the policies of its host."""

        async def send(request: aiohttp.ClientRequest) -> aiohttp.ClientResponse:
            left = seconds_left()
            limit = asyncio.timeout(left)
            try:
                async with limit:
                    response = await handler(request)
            except TimeoutError as error:
                if limit.expired():
                    raise aiohttp.SocketTimeoutError("the deadline passed before the answer came") from error
                raise
            _end_by_deadline(response)
            return response

        key = host_key(request.url.scheme, request.url.host or "", request.url.port)
        try:
            response: aiohttp.ClientResponse = await self._guard.acall(key, send, request)
        except (RejectedError, CallTimeoutError) as error:
            raise DIALECT.of(error) from None
        return response


def _end_by_deadline(response: aiohttp.ClientResponse) -> None:
    """Let the body end by the ambient deadline, as `ClientTimeout.total` would."""
    line, connection = AMBIENT.get(), response.connection
    if line is None or connection is None:
        return
    content = response.content

    def cut() -> None:
        content.set_exception(aiohttp.SocketTimeoutError("the deadline passed while the body was read"))

    timer = asyncio.get_running_loop().call_later(max(remaining(line), 0), cut)
    connection.add_callback(timer.cancel)


def _hold(request: aiohttp.ClientRequest, response: aiohttp.ClientResponse, settling: Settling) -> None:
    if settling.answered(response):
        return
    connection, content = response.connection, response.content
    if connection is None or content.is_eof() or bodiless(request.method, response.status, response.headers):
        settling.ended()
        return

    def released() -> None:
        error = content.exception()
        if content.is_eof():
            settling.ended()
        elif getattr(getattr(content, "_timer", None), "_cancelled", False):
            settling.raised(TimeoutError())  # the session's total time; the content itself is not told of it
        elif error is None or type(error) is aiohttp.ClientConnectionError:
            settling.closed()  # aiohttp sets exactly this class where the caller closes early
        else:
            settling.raised(error)

    connection.add_callback(released)


async def _discard(response: aiohttp.ClientResponse) -> None:
    response.close()
