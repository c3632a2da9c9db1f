"""The body of a urllib3 response, or of its kin's, as the last part of a call."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from functools import cache
from typing import Any
from weakref import ref

from halfopen._runtime.deadline import AMBIENT
from halfopen.integrations._http import bodiless, past
from halfopen.integrations._settling import Settling

__all__ = ["hold_body"]


def hold_body(method: str, response: Any, settling: Settling, too_late: Callable[[], Exception]) -> None:
    """
    Let a response settle the call when its body ends, breaks off or is closed.

    Args:
        method: Of the request.
        response: urllib3's.
        settling: What waits for the end.
        too_late: Makes the error for a body that is read beyond the deadline.
    """
    if response.closed or bodiless(method, response.status, response.headers):
        settling.ended()
    elif isinstance(response, _HeldBody):
        response._halfopen.settlings.append(settling)
    else:
        response._halfopen = _Hold(response, settling, too_late)
        response.__class__ = _held(response.__class__)


class _Hold:
    """Who waits for the end of a body, and the deadline that cuts it off: one read may last for many packets."""

    __slots__ = ("cut", "line", "reading", "settlings", "timer", "too_late")

    def __init__(self, response: Any, settling: Settling, too_late: Callable[[], Exception]) -> None:
        self.settlings = [settling]
        self.too_late = too_late
        self.cut = self.reading = False
        self.line = line = AMBIENT.get()
        self.timer = None if line is None else line[1].call_at(line[0], _cutting(ref(response)))

    def read(self, read: Any, *args: Any, **kwargs: Any) -> Any:
        self.reading = True
        try:
            return read(*args, **kwargs)
        except Exception as error:
            if not past(self.line):
                raise
            raise self.too_late() from error
        finally:
            self.reading = False

    def told(self, tell: Callable[[Settling], None]) -> None:
        for settling in self.settlings:
            tell(settling)
        if self.timer is not None:
            self.timer.cancel()


def _cutting(response: ref[Any]) -> Callable[[], None]:
    def cut() -> None:
        alive = response()
        if alive is not None:
            alive._halfopen.cut = True
            with suppress(Exception):  # it has ended meanwhile, or urllib3 is older than 2.3
                alive.shutdown()

    return cut


@cache
def _held(kind: Any) -> Any:
    # The class is swapped because urllib3 makes its responses itself, and whoever reads them wants its own.
    return type(kind.__name__, (_HeldBody, kind), {"__module__": kind.__module__})


class _HeldBody:
    _halfopen: _Hold
    closed: bool

    def read(self, *args: Any, **kwargs: Any) -> Any:
        return self._told(super().read, *args, **kwargs)  # type: ignore[misc]  # of the response

    def read1(self, *args: Any, **kwargs: Any) -> Any:
        return self._told(super().read1, *args, **kwargs)  # type: ignore[misc]  # of the response

    def drain_conn(self) -> None:
        self._told(super().drain_conn)  # type: ignore[misc]  # of the response

    def read_chunked(self, *args: Any, **kwargs: Any) -> Generator[bytes]:
        chunks = super().read_chunked(*args, **kwargs)  # type: ignore[misc]  # of the response
        while (chunk := self._told(next, chunks, None)) is not None:
            yield chunk

    def close(self) -> None:
        if not self._halfopen.reading:  # urllib3 closes what breaks off while it reads
            self._halfopen.told(Settling.closed)
        super().close()  # type: ignore[misc]  # of the response

    def _told(self, read: Any, *args: Any, **kwargs: Any) -> Any:
        hold = self._halfopen
        try:
            got = hold.read(read, *args, **kwargs)
            if hold.cut or (past(hold.line) and not self.closed):
                raise hold.too_late()
        except BaseException as error:
            reason = error
            hold.told(lambda settling: settling.raised(reason))
            raise
        if self.closed:
            hold.told(Settling.ended)
        return got
