"""A partner that answers as a function says and keeps books, a gateway in a thread, and a client that hides nothing."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from halfopen.gateway import Gateway, serve
from tests.faulty import FaultyHandler, FaultyServer, closed_port, hang, reset, running, until

__all__ = [
    "Got", "Partner", "Reply", "Seen", "ask", "broken", "closed_port", "gateway_serving", "hang", "partner_serving",
    "raw", "reset", "until",
]  # fmt: skip


@dataclass
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    listed: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Reply:
    """What the partner answers; `body` as several parts goes out in chunks."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | Iterable[bytes] = b"taken"
    act: Callable[[Any], None] | None = None


class _Handler(FaultyHandler):
    server: Partner

    def do_POST(self) -> None:
        body = self._chunked() if self.headers.get("transfer-encoding") else self._plain()
        listed = [(name.lower(), value) for name, value in self.headers.items()]
        seen = Seen(self.command, self.path, dict(listed), body, listed)
        self.server.seen.append(seen)
        reply = self.server.answer(seen)
        if reply.act is not None:
            reply.act(self)
            return
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self._send(reply.body)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST

    def _send(self, body: bytes | Iterable[bytes]) -> None:
        if isinstance(body, bytes):
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in body:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n\r\n")

    def _plain(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def _chunked(self) -> bytes:
        read = b""
        while size := int(self.rfile.readline(), 16):
            read += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return read


class Partner(FaultyServer):
    """A partner on a port of its own."""

    handler = _Handler

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Seen] = []
        self.connections = 0
        self.answer: Callable[[Seen], Reply] = lambda seen: Reply()

    def get_request(self) -> tuple[socket.socket, Any]:
        self.connections += 1
        return super().get_request()


def broken(promised: int) -> Callable[[Any], None]:
    """Promise so many bytes, send ten, and close."""

    def act(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(promised))
        handler.end_headers()
        handler.wfile.write(b"0123456789")
        handler.close_connection = True

    return act


def partner_serving() -> AbstractContextManager[Partner]:
    """Run a partner for the length of a block."""
    return running(Partner())


@contextmanager
def gateway_serving(gateway: Gateway, listening: socket.socket | None = None) -> Iterator[int]:
    """Run a gateway in a thread for the length of a block; give its port."""
    server = serve(gateway)
    with listening or socket.create_server(("127.0.0.1", 0), backlog=256) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            assert until(lambda: server.started or not thread.is_alive()), "the gateway did not start"
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive(), "the gateway did not end"


@dataclass
class Got:
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def kind(self) -> str:
        """The last part of a problem's type."""
        assert "application/problem+json" == self.headers["content-type"], self.body
        return str(self.json["type"]).rpartition(":")[2]


def ask(port: int, path: str, body: Any = None, *, method: str = "POST", headers: dict[str, str] | None = None) -> Got:
    """Make one request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body=body, headers=headers or {})
        response = connection.getresponse()
        return Got(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()


def raw(port: int, data: bytes, *, answers: int | None = None) -> bytes:
    """Send bytes; return what comes until the connection ends, or until so many whole answers have come."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(data)
        got = b""
        with suppress(ConnectionResetError):
            while _whole(got) != answers and (part := connection.recv(65536)):
                got += part
        return got


def _whole(got: bytes) -> int:
    """Count the answers that are there with all their body."""
    count = 0
    while b"\r\n\r\n" in got:
        head, _, rest = got.partition(b"\r\n\r\n")
        found = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        length = int(found[1]) if found else 0
        if len(rest) < length:
            break
        got, count = rest[length:], count + 1
    return count
