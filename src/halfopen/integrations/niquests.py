"""Guard niquests: ``session.mount("https://", GuardedAdapter())``, or `AsyncGuardedAdapter` for an `AsyncSession`."""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
# (niquests brings a urllib3 of its own and stands in an environment of its own)

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import urlsplit

import niquests
from niquests import exceptions
from niquests.adapters import AsyncHTTPAdapter, HTTPAdapter, ReadTimeoutError, _HTTPError

from halfopen._runtime.cancelling import cancel_at
from halfopen.errors import CallTimeoutError, RejectedError
from halfopen.integrations._dialect import Dialect
from halfopen.integrations._guard import Guard
from halfopen.integrations._http import host_key, seconds_left, shorter
from halfopen.integrations._raw_body import Hold, hold_body
from halfopen.integrations._settling import Evidence, Settling

__all__ = ["DIALECT", "EVIDENCE", "AsyncGuardedAdapter", "GuardedAdapter"]

DIALECT = Dialect(
    __name__,
    exceptions.ConnectionError,
    exceptions.ConnectTimeout,
    exceptions.ReadTimeout,
    {"request": None, "response": None},
)
EVIDENCE = Evidence(
    ill=(exceptions.RequestException, _HTTPError, TimeoutError),
    ours=(exceptions.InvalidURL, exceptions.InvalidSchema, exceptions.MissingSchema, exceptions.InvalidHeader),
)


class GuardedAdapter(HTTPAdapter):  # type: ignore[misc]  # absent from this environment
    """
    Send each request through a circuit breaker, or any policies, of its host (``https://example.com:443``).

    The body is part of the call. A refusal is a `niquests.ConnectionError`, too; timeouts are cut to the ambient
    deadline. Multiplexed sessions send one by one: a promise of an answer could not be judged.

    Args:
        guard: A family of breakers (`Registry.keyed`), a breaker, any policy, several of them, outermost first, or a
            function from the key to one of these; default a family of its own. What is used is the attribute `guard`.
        adapter: Those of `HTTPAdapter`.
    """

    def __init__(self, *, guard: Any = None, **adapter: Any) -> None:
        super().__init__(**adapter)
        self._guard = Guard(guard, EVIDENCE, _hold, lambda response: response.close())
        self.guard = self._guard.policies

    def send(self, request: Any, stream: bool = False, timeout: Any = None, *args: Any, **how: Any) -> Any:
        """Send a request through the policies of its host."""
        send = partial(self._send, stream, timeout, args, how)
        try:
            return self._guard.call(_key(request), send, request)
        except (RejectedError, CallTimeoutError) as error:
            raise DIALECT.of(error, request=request) from None

    def _send(self, stream: bool, timeout: Any, args: Any, how: Any, request: Any) -> Any:
        return super().send(request, stream, _shortened(timeout), *args, **{**how, "multiplexed": False})


class AsyncGuardedAdapter(AsyncHTTPAdapter):  # type: ignore[misc]  # absent from this environment
    """The same for `niquests.AsyncSession`."""

    def __init__(self, *, guard: Any = None, **adapter: Any) -> None:
        super().__init__(**adapter)
        self._guard = Guard(guard, EVIDENCE, _hold, _discard)
        self.guard = self._guard.policies

    async def send(self, request: Any, stream: bool = False, timeout: Any = None, *args: Any, **how: Any) -> Any:
        """Send a request through the policies of its host."""
        send = partial(self._send, stream, timeout, args, how)
        try:
            return await self._guard.acall(_key(request), send, request)
        except (RejectedError, CallTimeoutError) as error:
            raise DIALECT.of(error, request=request) from None

    async def _send(self, stream: bool, timeout: Any, args: Any, how: Any, request: Any) -> Any:
        return await super().send(request, stream, _shortened(timeout), *args, **{**how, "multiplexed": False})


def _hold(request: Any, response: Any, settling: Settling) -> None:
    if not settling.answered(response):
        held = _AsyncHeldBody if isinstance(response, niquests.AsyncResponse) else None
        hold_body(request.method or "", response.raw, settling, _too_late, held)


class _AsyncHeldBody:
    _halfopen: Hold

    async def read(self, *args: Any, **kwargs: Any) -> Any:
        return await self._timed(super().read, *args, **kwargs)  # type: ignore[misc]  # of the response

    async def read1(self, *args: Any, **kwargs: Any) -> Any:
        return await self._timed(super().read1, *args, **kwargs)  # type: ignore[misc]  # of the response

    async def drain_conn(self) -> None:
        await self._timed(super().drain_conn)  # type: ignore[misc]  # of the response

    async def close(self) -> None:
        if not self._halfopen.reading:
            self._halfopen.told(Settling.closed)
        await super().close()  # type: ignore[misc]  # of the response

    async def _timed(self, read: Any, *args: Any, **kwargs: Any) -> Any:
        line = self._halfopen.line
        with self._halfopen.reads(self):
            if line is None:
                return await read(*args, **kwargs)
            with cancel_at(line[0], line[1]) as scope:
                return await read(*args, **kwargs)
            raise _too_late() from scope.cause


async def _discard(response: Any) -> None:
    await response.close()


def _too_late() -> Exception:
    error: Exception = ReadTimeoutError(None, "", "the deadline passed while the body was read")
    return error


def _shortened(timeout: Any) -> Any:
    left = seconds_left()
    if left is None:
        return timeout
    if isinstance(timeout, tuple):
        return tuple(shorter(each, left) for each in timeout)
    if hasattr(timeout, "clone"):
        timeout = timeout.clone()
        timeout.total = shorter(timeout.total if isinstance(timeout.total, (int, float)) else None, left)
        return timeout
    return shorter(timeout, left)


def _key(request: Any) -> str:
    target = urlsplit(request.url or "")
    return host_key(target.scheme, target.hostname or "", target.port)
