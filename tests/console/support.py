"""What the tests of the console share: a shop with a breaker, a served console, and a reader of event streams."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from halfopen import CircuitBreaker, CountWindow, HalfOpen, Registry
from halfopen.console import Console, Identity, app
from halfopen.console._server import ConsoleServer, listen

TOKENS = {
    "dana-secret": Identity("dana", "operator"),
    "lee-secret": Identity("lee", "operator"),
    "vic-secret": Identity("vic"),
}
DANA = {"authorization": "Bearer dana-secret"}


class Sick(Exception):
    pass


def sick() -> None:
    raise Sick


def shop(*names: str) -> Registry:
    """Return a registry with breakers that open after five of ten calls failed."""
    registry = Registry()
    for name in names or ("payments",):
        registry.circuit_breaker(
            name,
            window=CountWindow(10),
            minimum_calls=5,
            wait_in_open=60.0,
            half_open=HalfOpen(permitted_calls=3),
        )
    return registry


def fail(breaker: CircuitBreaker, times: int = 5) -> None:
    """Make failing calls."""
    for _ in range(times):
        with suppress(Exception):
            breaker.call(sick)


def console_of(registry: Registry | None, **options: Any) -> Console:
    """Return a console of a process named ``web-1``."""
    return app(registry, **{"tokens": TOKENS, "process": "web-1", "hosts": None, **options})


class Operator:
    """Somebody at the console, by its JSON API."""

    def __init__(self, client: httpx.AsyncClient, token: str | None = "dana-secret") -> None:
        self.client = client
        self.headers = {} if token is None else {"authorization": f"Bearer {token}"}

    async def get(self, path: str, **options: Any) -> httpx.Response:
        return await self.client.get(path, headers=self.headers, **options)

    async def snapshot(self) -> dict[str, Any]:
        document: dict[str, Any] = (await self.get("/api/snapshot")).json()
        return document

    async def csrf(self) -> str:
        csrf: str | None = (await self.get("/api/session")).json()["csrf"]
        return csrf or ""

    async def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        csrf = {"halfopen-csrf": await self.csrf()}
        return await self.client.post(path, json=body, headers={**self.headers, **csrf, **headers})

    async def order(self, name: str, action: str, **changes: Any) -> httpx.Response:
        """Give an order to a breaker as the page would, from a fresh look."""
        epochs = await self.epochs(name)
        body = {
            "action": action,
            "scope": "all",
            "reason": "INC-1",
            "ends_in": 900,
            "typed_name": name,
            "seen_epochs": epochs,
            "request_id": uuid.uuid4().hex,
            **changes,
        }
        return await self.post(f"/api/breakers/{quote(name, safe='')}/actions", body)

    async def epochs(self, name: str) -> dict[str, int]:
        for breaker in (await self.snapshot())["breakers"]:
            if breaker["name"] == name:
                return {one["id"]: one["epoch"] for one in breaker["processes"]}
        return {}


_HELD: list[socket.socket] = []


def _hold(port: int) -> None:
    """Keep a port for a while from everybody but who asks for this very one, as a server that comes back does."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with suppress(OSError):
        held.bind(("127.0.0.1", port))
    _HELD.append(held)
    while len(_HELD) > 3:
        _HELD.pop(0).close()


class Served:
    """A console on a real server, in a thread."""

    def __init__(self, console: Console, port: int = 0) -> None:
        self.console = console
        self._listening = listen("127.0.0.1", port)
        self.port = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        started = threading.Event()
        self._server = ConsoleServer(console, ready=started.set)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listening]}, daemon=True)
        self._thread.start()
        assert started.wait(60)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._listening.close()
        _hold(self.port)


@contextmanager
def served(registry: Registry | None, *, port: int = 0, **options: Any) -> Iterator[Served]:
    server = Served(console_of(registry, **options), port)
    try:
        yield server
    finally:
        server.stop()


def read_events(stream: Iterator[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Return the events of a stream as (id, name, data); comments come as ("", "comment", {})."""
    fields: dict[str, str] = {}
    for line in stream:
        if line.startswith(":"):
            yield "", "comment", {}
        elif line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            yield fields["id"], fields["event"], json.loads(fields["data"])
            fields = {}


def until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait until something is so; return it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"it was never so: {condition}")


async def until_async(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := await condition():
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"it was never so: {condition}")


def audit_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@asynccontextmanager
async def operating(
    registry: Registry | None, *, token: str | None = "dana-secret", **options: Any
) -> AsyncIterator[Operator]:
    """Yield somebody who gives orders to a console of *registry*, in this very process."""
    console = console_of(registry, **options)
    transport = httpx.ASGITransport(console, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        try:
            yield Operator(client, token)
        finally:
            await console.stop()
