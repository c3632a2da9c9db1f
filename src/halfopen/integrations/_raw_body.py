"""The body of a urllib3 response, or of its kin's, as the last part of a call."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import cache
from socket import SHUT_RD
from typing import Any
from weakref import ref

from halfopen._runtime.deadline import AMBIENT
from halfopen.integrations._http import bodiless, past
from halfopen.integrations._settling import Settling

__all__ = ["Hold", "hold_body"]


def hold_body(
    method: str, response: Any, settling: Settling, too_late: Callable[[], Exception], held: type | None = None
) -> None:
    """
    Let a response settle the call when its body ends, breaks off or is closed.

    Args:
        method: Of the request.
        response: urllib3's.
        settling: What waits for the end.
        too_late: Makes the error for a body that is read beyond the deadline.
        held: What goes before the response's class, where its methods are coroutines.
    """
    if response.closed or bodiless(method, response.status, response.headers):
        settling.ended()
    elif hasattr(response, "_halfopen"):
        response._halfopen.settlings.append(settling)
    else:
        response._halfopen = Hold(response, settling, too_late)
        response.__class__ = _held(held or _HeldBody, response.__class__)


class Hold:
    """Who waits for the end of a body, and the deadline that cuts it off: one read may last for many packets."""

    __slots__ = ("cut", "line", "reading", "settlings", "timer", "too_late")

    def __init__(self, response: Any, settling: Settling, too_late: Callable[[], Exception]) -> None:
        self.settlings = [settling]
        self.too_late = too_late
        self.cut = self.reading = False
        self.line = line = AMBIENT.get()
        self.timer = None if line is None else line[1].call_at(line[0], _cutting(ref(response)))

    @contextmanager
    def reads(self, response: Any) -> Generator[None]:
        """Settle as what a read in the block comes to."""
        before, self.reading = self.reading, True
        try:
            yield
            if self.cut or (past(self.line) and not response.closed):
                raise self.too_late()
        except BaseException as error:
            late = isinstance(error, Exception) and past(self.line) and type(error) is not type(self.too_late())
            reason = self.too_late() if late else error
            self.told(lambda settling: settling.raised(reason))
            if late:
                raise reason from error
            raise
        finally:
            self.reading = before
        if response.closed:
            self.told(Settling.ended)

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
            with suppress(Exception):  # the same for niquests, whose `shutdown` does nothing
                alive.connection.sock.shutdown(SHUT_RD)

    return cut


@cache
def _held(first: Any, kind: Any) -> Any:
    # The class is swapped because urllib3 makes its responses itself, and whoever reads them wants its own.
    return type(kind.__name__, (first, kind), {"__module__": kind.__module__})


class _HeldBody:
    _halfopen: Hold
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
        with self._halfopen.reads(self):
            return read(*args, **kwargs)
