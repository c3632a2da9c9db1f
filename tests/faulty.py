"""What the servers that misbehave in tests share: a port of their own, silence, bad manners, and an end."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

__all__ = ["FaultyHandler", "FaultyServer", "closed_port", "hang", "listening", "reset", "running", "until"]

S = TypeVar("S", bound="FaultyServer")
_HELD: list[socket.socket] = []


class FaultyServer(ThreadingHTTPServer):
    """
    A server on a port of its own.

    Attributes:
        ending: Set once the test is over, for answers that wait.
    """

    daemon_threads = True
    request_queue_size = 128
    handler: type[BaseHTTPRequestHandler]

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), self.handler)
        self.ending = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent: connections that break are the point here."""


class FaultyHandler(BaseHTTPRequestHandler):
    """A handler that logs nothing."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass


def reset(handler: Any) -> None:
    """Break the connection without an answer."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    # The handler's files hold the socket, too: it ends only with the last of them.
    handler.rfile.close()
    handler.wfile.close()
    handler.connection.close()
    handler.close_connection = True


def hang(handler: Any) -> None:
    """Answer nothing until the end of the test."""
    handler.server.ending.wait(60)
    handler.close_connection = True


@contextmanager
def running(server: S) -> Iterator[S]:
    """Serve on a thread for the length of a block."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.ending.set()
            server.shutdown()
            thread.join()


@contextmanager
def listening(serve: Callable[[socket.socket], object]) -> Iterator[str]:
    """Hand each connection to *serve*, one after the other, and close it; give the URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    serve(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(60)


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
