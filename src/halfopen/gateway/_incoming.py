"""The body of a program's request: in memory if it is small, else a stream; bounded in size and in time."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from ._errors import ClientGoneError, NoEvidenceError
from ._problems import problem

__all__ = ["SMALL", "Incoming", "PulledBody"]

Receive = Callable[[], Awaitable[Any]]

SMALL = 64 * 1024
"""Bytes; a body announced as so long is read before the partner is called, so that it can be sent again."""


class Incoming:
    """
    A request's body.

    Attributes:
        whole: The body, once it is in memory as a whole.
        begun: Whether a part of it was handed out.
        failure: Why it did not come to its end. The client library wraps what a stream raises beyond recognition.
    """

    __slots__ = ("_ended", "_idle", "_limit", "_partner", "_receive", "_seen", "begun", "failure", "length", "whole")

    def __init__(self, receive: Receive, length: int | None, *, limit: int, idle: float, partner: str) -> None:
        self._receive = receive
        self._limit = limit
        self._idle = idle
        self._partner = partner
        self._seen = 0
        self._ended = length == 0
        self.length = length
        self.whole: bytes | None = b"" if length == 0 else None
        self.begun = False
        self.failure: NoEvidenceError | None = None

    @property
    def small(self) -> bool:
        """Whether it is held in memory, or will be."""
        return self.length is not None and self.length <= SMALL

    @property
    def again(self) -> bool:
        """Whether it can be read from its start."""
        return self.whole is not None or not self.begun

    async def settle(self) -> None:
        """
        Read a small body; others stay where they are.

        Raises:
            ClientGoneError: The program went away.
            NoEvidenceError: It is too slow.
        """
        if self.whole is None and self.small:
            parts = [part async for part in self._parts()]
            self.whole = parts[0] if len(parts) == 1 else b"".join(parts)

    def payload(self) -> bytes | AsyncIterator[bytes]:
        """Return the body to send: the whole of it, or a stream that can be read once."""
        return self.whole if self.whole is not None else self.parts()

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes."""
        if self.whole is not None:
            yield self.whole
            return
        self.begun = True
        async for part in self._parts():
            # A partner may answer and hang up in the middle: look at what it says before writing on into a reset.
            await asyncio.sleep(0)
            yield part

    async def _parts(self) -> AsyncIterator[bytes]:
        while not self._ended:
            part = await self.next()
            if part:
                yield part

    async def next(self) -> bytes:
        """Return what comes next; nothing once it has ended."""
        if self._ended:
            return b""
        try:
            return await self._next()
        except NoEvidenceError as error:
            self.failure = error
            raise

    async def _next(self) -> bytes:
        try:
            async with asyncio.timeout(self._idle):
                message = await self._receive()
        except TimeoutError:
            detail = f"nothing more of the request's body came within {self._idle:g} s"
            raise NoEvidenceError(self._partner, problem(408, "body-too-slow", detail)) from None
        if message["type"] != "http.request":
            raise ClientGoneError(self._partner)
        self._ended = not message.get("more_body", False)
        part: bytes = message.get("body", b"")
        self._seen += len(part)
        if self._seen > self._limit:
            detail = f"the body of a request is at most {self._limit} bytes"
            raise NoEvidenceError(self._partner, problem(413, "body-too-large", detail))
        return part


class PulledBody(io.RawIOBase):
    """A body for a thread to read, part by part, while the event loop receives it."""

    def __init__(self, incoming: Incoming, loop: asyncio.AbstractEventLoop) -> None:
        self._parts = incoming.parts()
        self._loop = loop
        self._rest = b""

    def readable(self) -> bool:
        """Say yes."""
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Return up to *size* bytes, at least one unless the body has ended."""
        if not self._rest:
            self._rest = asyncio.run_coroutine_threadsafe(anext(self._parts, b""), self._loop).result()
        if size < 0 or size >= len(self._rest):
            part, self._rest = self._rest, b""
        else:
            part, self._rest = self._rest[:size], self._rest[size:]
        return part
