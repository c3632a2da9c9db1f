"""One small way to drive every HTTP client, so that one contract can be held against all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any, Protocol

import anyio.from_thread

TIMEOUT = 5.0


class Body(Protocol):
    """An open response: status, the next bytes, all the rest."""

    status: int

    def some(self) -> bytes: ...

    def rest(self) -> bytes: ...


class Client(Protocol):
    """
    A guarded client.

    Attributes:
        guard: Its policies.
        refusal: What its users catch where no connection could be made.
        timeout: What they catch where time ran out.
        broken: What they catch where a body breaks off.
    """

    guard: Any
    refusal: type[Exception]
    timeout: tuple[type[Exception], ...]
    broken: type[Exception]

    def get(self, url: str, *, method: str = "GET", timeout: float = TIMEOUT) -> tuple[int, bytes]: ...

    def open(self, url: str) -> Any: ...


class _Body:
    def __init__(self, status: int, some: Callable[[], bytes], rest: Callable[[], bytes]) -> None:
        self.status = status
        self.some = some
        self.rest = rest


class Httpx:
    def __init__(self, stack: ExitStack, guard: Any, library: str) -> None:
        httpx, ours = _modules(library)
        self._transport = ours.GuardedTransport(guard=guard)
        self.guard = self._transport.guard
        self._client = stack.enter_context(httpx.Client(transport=self._transport, timeout=TIMEOUT, trust_env=False))
        self.refusal, self.timeout, self.broken = httpx.ConnectError, (httpx.TimeoutException,), httpx.TransportError

    def get(self, url: str, *, method: str = "GET", timeout: float = TIMEOUT) -> tuple[int, bytes]:
        response = self._client.request(method, url, timeout=timeout, follow_redirects=True)
        return response.status_code, response.content

    @contextmanager
    def open(self, url: str) -> Iterator[Body]:
        with self._client.stream("GET", url) as response:
            chunks = response.iter_raw()
            yield _Body(response.status_code, lambda: next(chunks), lambda: b"".join(chunks))


class AsyncHttpx:
    def __init__(self, stack: ExitStack, guard: Any, library: str, backend: str) -> None:
        httpx, ours = _modules(library)
        self._portal = stack.enter_context(anyio.from_thread.start_blocking_portal(backend))
        self._transport = ours.AsyncGuardedTransport(guard=guard)
        self.guard = self._transport.guard
        self._client = httpx.AsyncClient(transport=self._transport, timeout=TIMEOUT, trust_env=False)
        stack.callback(self._portal.call, self._client.aclose)
        self.refusal, self.timeout, self.broken = httpx.ConnectError, (httpx.TimeoutException,), httpx.TransportError

    def get(self, url: str, *, method: str = "GET", timeout: float = TIMEOUT) -> tuple[int, bytes]:
        async def get() -> tuple[int, bytes]:
            response = await self._client.request(method, url, timeout=timeout, follow_redirects=True)
            return response.status_code, response.content

        return self._portal.call(get)

    @contextmanager
    def open(self, url: str) -> Iterator[Body]:
        async def send() -> Any:
            return await self._client.send(self._client.build_request("GET", url), stream=True)

        async def rest() -> bytes:
            return b"".join([chunk async for chunk in chunks])

        response = self._portal.call(send)
        chunks = response.aiter_raw()
        try:
            yield _Body(
                response.status_code, lambda: self._portal.call(chunks.__anext__), lambda: self._portal.call(rest)
            )
        finally:
            self._portal.call(response.aclose)


class Requests:
    def __init__(self, stack: ExitStack, guard: Any) -> None:
        import requests

        from halfopen.integrations.requests import GuardedAdapter

        self._session = stack.enter_context(requests.Session())
        self._session.trust_env = False
        adapter = GuardedAdapter(guard=guard)
        self.guard = adapter.guard
        self._session.mount("http://", adapter)
        self.refusal, self.timeout, self.broken = (
            requests.ConnectionError,
            (requests.Timeout, requests.ConnectionError),
            requests.RequestException,
        )

    def get(self, url: str, *, method: str = "GET", timeout: float = TIMEOUT) -> tuple[int, bytes]:
        response = self._session.request(method, url, timeout=timeout)
        return response.status_code, response.content

    @contextmanager
    def open(self, url: str) -> Iterator[Body]:
        with self._session.get(url, stream=True, timeout=TIMEOUT) as response:
            chunks = response.iter_content(5)
            yield _Body(response.status_code, lambda: next(chunks), lambda: b"".join(chunks))


class Urllib3:
    def __init__(self, stack: ExitStack, guard: Any) -> None:
        import urllib3

        from halfopen.integrations.urllib3 import GuardedPoolManager

        self._pools = stack.enter_context(GuardedPoolManager(guard=guard, retries=False))
        self.guard = self._pools.guard
        self.refusal = self.broken = urllib3.exceptions.HTTPError
        self.timeout = (urllib3.exceptions.TimeoutError,)

    def get(self, url: str, *, method: str = "GET", timeout: float = TIMEOUT) -> tuple[int, bytes]:
        import urllib3

        follow = urllib3.Retry(connect=0, read=0, other=0, status=0, redirect=3)
        response = self._pools.request(method, url, timeout=timeout, retries=follow if url.endswith("302") else False)
        return response.status, response.data

    @contextmanager
    def open(self, url: str) -> Iterator[Body]:
        response = self._pools.request("GET", url, preload_content=False, timeout=TIMEOUT)
        try:
            chunks = response.stream(5)
            yield _Body(response.status, lambda: next(chunks), lambda: b"".join(chunks))
        finally:
            response.close()


class Aiohttp:
    def __init__(self, stack: ExitStack, guard: Any) -> None:
        import aiohttp

        from halfopen.integrations.aiohttp import GuardMiddleware

        self._aiohttp = aiohttp
        self._portal = stack.enter_context(anyio.from_thread.start_blocking_portal("asyncio"))
        middleware = GuardMiddleware(guard=guard)
        self.guard = middleware.guard

        async def make() -> Any:
            return aiohttp.ClientSession(middlewares=[middleware], timeout=aiohttp.ClientTimeout(TIMEOUT))

        self._session = self._portal.call(make)
        stack.callback(self._portal.call, self._session.close)
        self.refusal, self.timeout, self.broken = aiohttp.ClientConnectionError, (TimeoutError,), aiohttp.ClientError

    def get(self, url: str, *, method: str = "GET", timeout: float = TIMEOUT) -> tuple[int, bytes]:
        async def get() -> tuple[int, bytes]:
            limit = self._aiohttp.ClientTimeout(timeout)
            async with self._session.request(method, url, timeout=limit) as response:
                return response.status, await response.read()

        return self._portal.call(get)

    @contextmanager
    def open(self, url: str) -> Iterator[Body]:
        async def send() -> Any:
            return await self._session.get(url)

        async def some() -> bytes:
            return await response.content.read(5)

        async def close() -> None:
            response.close()

        response = self._portal.call(send)
        try:
            yield _Body(response.status, lambda: self._portal.call(some), lambda: self._portal.call(response.read))
        finally:
            self._portal.call(close)


class Niquests:
    def __init__(self, stack: ExitStack, guard: Any) -> None:
        import niquests

        from halfopen.integrations.niquests import GuardedAdapter

        self._session = stack.enter_context(niquests.Session())
        self._session.trust_env = False
        adapter = GuardedAdapter(guard=guard)
        self.guard = adapter.guard
        self._session.mount("http://", adapter)
        self.refusal, self.timeout, self.broken = (
            niquests.ConnectionError,
            (niquests.Timeout, niquests.ConnectionError),
            niquests.RequestException,
        )

    def get(self, url: str, *, method: str = "GET", timeout: float = TIMEOUT) -> tuple[int, bytes]:
        response = self._session.request(method, url, timeout=timeout)
        return response.status_code, response.content or b""

    @contextmanager
    def open(self, url: str) -> Iterator[Body]:
        with self._session.get(url, stream=True, timeout=TIMEOUT) as response:
            chunks = response.iter_content(5)
            yield _Body(response.status_code, lambda: next(chunks), lambda: b"".join(chunks))


class AsyncNiquests:
    def __init__(self, stack: ExitStack, guard: Any) -> None:
        import niquests

        from halfopen.integrations.niquests import AsyncGuardedAdapter

        self._portal = stack.enter_context(anyio.from_thread.start_blocking_portal("asyncio"))

        async def make() -> Any:
            session = niquests.AsyncSession()
            session.trust_env = False
            adapter = AsyncGuardedAdapter(guard=guard)
            session.mount("http://", adapter)
            return session, adapter.guard

        self._session, self.guard = self._portal.call(make)
        stack.callback(self._portal.call, self._session.close)
        self.refusal, self.timeout, self.broken = (
            niquests.ConnectionError,
            (niquests.Timeout, niquests.ConnectionError),
            niquests.RequestException,
        )

    def get(self, url: str, *, method: str = "GET", timeout: float = TIMEOUT) -> tuple[int, bytes]:
        async def get() -> tuple[int, bytes]:
            response = await self._session.request(method, url, timeout=timeout)
            return response.status_code, response.content or b""

        return self._portal.call(get)

    @contextmanager
    def open(self, url: str) -> Iterator[Body]:
        async def send() -> Any:
            response = await self._session.get(url, stream=True, timeout=TIMEOUT)
            return response, await response.iter_content(5)

        async def rest() -> bytes:
            return b"".join([chunk async for chunk in chunks])

        response, chunks = self._portal.call(send)
        try:
            yield _Body(
                response.status_code, lambda: self._portal.call(chunks.__anext__), lambda: self._portal.call(rest)
            )
        finally:
            self._portal.call(response.close)


def _modules(library: str) -> tuple[Any, Any]:
    from importlib import import_module

    return import_module(library), import_module(f"halfopen.integrations.{library}")


CLIENTS: dict[str, Callable[[ExitStack, Any], Client]] = {
    "httpx": lambda stack, guard: Httpx(stack, guard, "httpx"),
    "httpx-asyncio": lambda stack, guard: AsyncHttpx(stack, guard, "httpx", "asyncio"),
    "httpx-trio": lambda stack, guard: AsyncHttpx(stack, guard, "httpx", "trio"),
    "httpx2": lambda stack, guard: Httpx(stack, guard, "httpx2"),
    "httpx2-asyncio": lambda stack, guard: AsyncHttpx(stack, guard, "httpx2", "asyncio"),
    "httpx2-trio": lambda stack, guard: AsyncHttpx(stack, guard, "httpx2", "trio"),
    "requests": Requests,
    "urllib3": Urllib3,
    "aiohttp": Aiohttp,
}

# It stands in an environment of its own (`make test-niquests`), because it replaces everybody's urllib3.
if find_spec("niquests") is not None:
    CLIENTS = {"niquests": Niquests, "niquests-async": AsyncNiquests}
