"""An HTTP server on the standard library that misbehaves as the path, or its `mode`, says."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BODY = b"0123456789" * 10


class FaultServer(ThreadingHTTPServer):
    """
    Answers ``/ok`` and the like; with a `mode`, every path is answered in that way.

    Attributes:
        mode: The way for every path, such as ``hang``; empty: the path says.
        retry_after: The header of a 503, if any.
        seen: The paths that were asked for.
        pause: Seconds between the bytes of a trickle.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.mode = ""
        self.retry_after: str | None = None
        self.seen: list[str] = []
        self.pause = 0.02
        self.ending = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent: clients that go away are the point here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultServer

    def log_message(self, format: str, *args: Any) -> None:
        pass

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
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # The handler's files hold the socket, too: it ends only with the last of them.
        self.rfile.close()
        self.wfile.close()
        self.connection.close()
        self.close_connection = True

    def _hang(self, mode: str) -> None:
        self.server.ending.wait(60)
        self.close_connection = True

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


@contextmanager
def serving() -> Iterator[FaultServer]:
    """Run a server for the length of a block."""
    with FaultServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.ending.set()
            server.shutdown()
            thread.join()


_HELD: list[socket.socket] = []


def closed_port() -> int:
    """Return a port on which nobody listens, and will not: it stays taken."""
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    _HELD.append(held)
    port: int = held.getsockname()[1]
    return port


def until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Wait for what another thread does; return whether it came."""
    waiting = threading.Event()
    for _ in range(int(seconds / 0.005)):
        if condition():
            return True
        waiting.wait(0.005)
    return condition()
