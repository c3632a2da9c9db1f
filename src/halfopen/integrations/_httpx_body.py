"""The bodies of httpx's and httpx2's responses as the last part of a call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from halfopen._runtime.cancelling import cancel_at
from halfopen._runtime.deadline import Line
from halfopen.integrations._http import past
from halfopen.integrations._settling import Settling

__all__ = ["AsyncBody", "Body"]


class _Held:
    """A body that tells a permit how it ended."""

    def __init__(self, stream: Any, settling: Settling, timeout: type[Exception], line: Line | None) -> None:
        self._stream = stream
        self._settling = settling
        self._timeout = timeout
        self._line = line

    def _late(self) -> Exception:
        return self._timeout("the deadline of the call passed while its body was read")


class Body(_Held):
    """The synchronous body."""

    def __iter__(self) -> Iterator[bytes]:
        try:
            for chunk in self._stream:
                if past(self._line):
                    raise self._late()
                yield chunk
        except BaseException as error:
            self._settling.raised(error)
            raise
        self._settling.ended()

    def close(self) -> None:
        """Close the body; before its end the call is no evidence."""
        self._settling.closed()
        self._stream.close()


class AsyncBody(_Held):
    """The asynchronous body: an iterator and no generator, whose end trio would miss where a caller stops early."""

    _chunks: AsyncIterator[bytes]

    def __aiter__(self) -> AsyncBody:
        self._chunks = aiter(self._stream)
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self._next()
        except StopAsyncIteration:
            self._settling.ended()
            raise
        except BaseException as error:
            self._settling.raised(error)
            raise

    async def _next(self) -> bytes:
        line = self._line
        if line is None:
            return await anext(self._chunks)
        with cancel_at(line[0], line[1]) as scope:
            return await anext(self._chunks)
        raise self._late() from scope.cause

    async def aclose(self) -> None:
        """Close the body; before its end the call is no evidence."""
        self._settling.closed()
        await self._stream.aclose()
