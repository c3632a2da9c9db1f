"""Server-sent events as an ASGI response that can be ended from outside."""

from __future__ import annotations

import asyncio
from typing import Any

from halfopen.console._hub import Client, Hub

__all__ = ["EventStream"]

HEARTBEAT = 15.0
FAREWELL = 1.0
"""Seconds that a page which is let go has to take the end of its stream."""

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


class EventStream:
    """
    The stream of one page.

    It begins with what was missed since *last_id*, if the ring still has it, else with a snapshot.
    """

    def __init__(self, hub: Hub, last_id: str | None) -> None:
        self._hub = hub
        self._last_id = last_id

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve the stream until the page leaves, is too slow, or the console ends."""
        client = Client()
        self._hub.clients.add(client)
        sending = asyncio.ensure_future(self._send(client, send))
        leaving = asyncio.ensure_future(_left(receive))
        ended = asyncio.ensure_future(client.ended.wait())
        try:
            await asyncio.wait({sending, leaving, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._hub.clients.discard(client)
            client.ended.set()  # before Python 3.12, wait_for may swallow the cancellation
            for task in (sending, leaving, ended):
                task.cancel()
            await asyncio.wait({sending, leaving, ended}, timeout=FAREWELL)
            try:
                await asyncio.wait_for(send({"type": "http.response.body", "body": b""}), FAREWELL)
            except (TimeoutError, OSError):
                # A page that does not read cannot take the end either.
                self._hub.abort(scope.get("client"))

    async def _send(self, client: Client, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        missed = None if self._last_id is None else self._hub.picture.since(self._last_id)
        first = [self._hub.picture.snapshot_event()] if missed is None else missed
        await _write(send, b"retry: 2000\n\n" + b"".join(first))
        loop = asyncio.get_running_loop()
        beat = loop.time() + HEARTBEAT
        while not client.ended.is_set():
            try:
                event = await asyncio.wait_for(client.line.get(), max(beat - loop.time(), 0.001))
            except TimeoutError:
                event = b": still here\n\n"
                beat = loop.time() + HEARTBEAT
            await _write(send, event)


async def _write(send: Any, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _left(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
