"""An HTTP server on the standard library that misbehaves as the path, or its `mode`, says."""

from __future__ import annotations

from contextlib import AbstractContextManager

from tests.faulty import FaultyHandler, FaultyServer, closed_port, hang, reset, running, until

__all__ = ["BODY", "FaultServer", "closed_port", "serving", "until"]

BODY = b"0123456789" * 10


class _Handler(FaultyHandler):
    server: FaultServer

    def do_GET(self) -> None:
        self.server.seen.append(self.path)
        self.rfile.read(int(self.headers.get("content-length", 0)))
        mode = self.server.mode or self.path.partition("?")[0].strip("/")
        getattr(self, f"_{mode.replace('-', '_')}", self._status)(mode)

    do_POST = do_PUT = do_HEAD = do_GET

    def _ok(self, mode: str) -> None:
        self._answer(200, BODY)

    def _pair(self, mode: str) -> None:
        """Answer as soon as a second request has come."""
        until(lambda: len(self.server.seen) > 1 or self.server.ending.is_set())
        self._answer(200, BODY)

    def _status(self, mode: str) -> None:
        self._answer(int(mode), b"told " + mode.encode())

    def _empty(self, mode: str) -> None:
        self._answer(200, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        if self.server.retry_after is not None and status in (429, 503):
            self.send_header("Retry-After", self.server.retry_after)
        if status in (302, 307):
            self.send_header("Location", "/ok")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _reset(self, mode: str) -> None:
        reset(self)

    def _hang(self, mode: str) -> None:
        hang(self)

    def _trickle(self, mode: str) -> None:
        self._begin(BODY)
        for byte in BODY:
            self.wfile.write(bytes([byte]))
            if self.server.ending.wait(self.server.pause):
                break

    def _trickle_until_close(self, mode: str) -> None:
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        for byte in BODY:
            self.wfile.write(bytes([byte]))
            if self.server.ending.wait(self.server.pause):
                break

    def _break_off(self, mode: str) -> None:
        self._begin(BODY)
        self.wfile.write(BODY[:10])
        self.close_connection = True

    def _break_off_chunked(self, mode: str) -> None:
        self._chunked([BODY[:10]], end=False)
        self.close_connection = True

    def _chunks(self, mode: str) -> None:
        self._chunked([BODY[:50], BODY[50:]], end=True)

    def _reset_midway(self, mode: str) -> None:
        self._begin(BODY)
        self.wfile.write(BODY[:10])
        self.server.ending.wait(0.05)  # so that the bytes arrive before the reset, which would overtake them
        self._reset(mode)

    def _endless(self, mode: str) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while not self.server.ending.wait(0.001):
            self.wfile.write(b"a\r\n0123456789\r\n")

    def _begin(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()

    def _chunked(self, chunks: list[bytes], *, end: bool) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        if end:
            self.wfile.write(b"0\r\n\r\n")


class FaultServer(FaultyServer):
    """
    Answers ``/ok`` and the like; with a `mode`, every path is answered in that way.

    Attributes:
        mode: The way for every path, such as ``hang``; empty: the path says.
        retry_after: The header of a 503, if any.
        seen: The paths that were asked for.
        pause: Seconds between the bytes of a trickle.
    """

    handler = _Handler

    def __init__(self) -> None:
        super().__init__()
        self.mode = ""
        self.retry_after: str | None = None
        self.seen: list[str] = []
        self.pause = 0.02


def serving() -> AbstractContextManager[FaultServer]:
    """Run a server for the length of a block."""
    return running(FaultServer())
