"""The connection of a program: uvicorn's own, with limits on size and time of a request's head, and clear refusals."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ._problems import Problem

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

    from ._app import Gateway
    from ._settings import GatewaySettings

__all__ = ["Connection", "connection_class"]

_NOT_HTTP = Problem(400, "not-http", "this is not a request in HTTP/1.1")
_TUNNEL = Problem(501, "no-tunnels", "the gateway makes no tunnels; post to /to/PARTNER/path")
_FOREIGN = Problem(400, "no-proxy", "the gateway is no proxy for any URL; post to /to/PARTNER/path")
_VERSION = Problem(505, "http-version", "the gateway speaks HTTP/1.1 and HTTP/1.0")
_FAULTY = Problem(400, "bad-header", "a request in HTTP/1.0 has no Transfer-Encoding")
_EXPECTATION = Problem(417, "unknown-expectation", "the only expectation known is 100-continue")
_HOST = Problem(400, "bad-header", "a request in HTTP/1.1 has one header Host")
_BUSY = Problem(503, "too-many-connections", "the gateway has as many connections as it takes", retry_after=1.0)
_LINGER = 5.0


class Connection(HttpToolsProtocol):
    """
    One connection; each request's `scope` names it as ``halfopen.connection``.

    Attributes:
        on_lost: Called when the program goes away in the middle of an exchange.
    """

    gateway: Gateway
    on_lost: Callable[[], object] | None = None

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._head = 0
        self._in_head = True
        self._refusal: Problem | None = None
        self._timer: asyncio.TimerHandle | None = None
        # With pipelined requests this is not `cycle`, which is the last one that was read.
        self._running: RequestResponseCycle | None = None

    @property
    def settings(self) -> GatewaySettings:
        """What counts now."""
        return self.gateway.settings

    # ── the connection ──

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.settings.max_connections:
            transport.write(_BUSY.raw())
            transport.close()
            return
        self._set_timer(self.settings.header_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_timer(None)
        super().connection_lost(exc)
        self._leave()

    def break_off(self) -> None:
        """End a response that cannot be finished; the program sees that it is incomplete."""
        if self._running is not None:
            self._running.disconnected = True
        self.transport.close()

    @property
    def silent(self) -> bool:
        """Whether nothing of the present answer has gone out."""
        return self._running is not None and not self._running.response_started

    def _leave(self) -> None:
        """End the exchange in progress: nobody waits for its answer."""
        running, lost = self._running, self.on_lost
        self.on_lost = None
        if running is None or running.response_complete:
            return
        running.disconnected = True
        running.message_event.set()
        if lost is not None:
            lost()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        if self.parser is None or self.transport.is_closing():
            return
        super().data_received(data)
        if self._in_head and self._head and self._timer is None and not self.transport.is_closing():
            # Not the first request: its time begins with its first byte.
            self._set_timer(self.settings.header_timeout)

    def send_400_response(self, msg: str) -> None:
        self._set_timer(None)
        running = self._running
        if running is not None and running.response_started and not running.response_complete:
            self.break_off()  # whatever we wrote now would be taken for a part of that response
            return
        self._leave()
        self.transport.write((self._refusal or _NOT_HTTP).raw())
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        pass  # the program asked whether; it is answered in HTTP/1.1

    # ── the head of a request ──

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["halfopen.connection"] = self  # type: ignore[typeddict-unknown-key]
        self._head, self._in_head = 0, True

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        if self._in_head:
            super().on_header(name, value)  # trailers are no headers (RFC 9110, 6.5.1)

    def _count(self, more: int) -> None:
        self._head += more
        if self._head > self.settings.max_header:
            words = f"the head of a request is at most {self.settings.max_header} bytes"
            self._refuse(Problem(431, "head-too-large", words))

    def on_headers_complete(self) -> None:
        self._set_timer(None)
        self._in_head = False
        assert self.parser is not None
        if self.parser.get_method() == b"CONNECT":
            self._refuse(_TUNNEL)
        if not self.url.startswith(b"/"):
            self._refuse(_FOREIGN)
        self._check_head(self.parser.get_http_version())
        super().on_headers_complete()

    def _check_head(self, version: str) -> None:
        if version not in ("1.0", "1.1"):
            self._refuse(_VERSION)
        hosts = 0
        for name, value in self.headers:
            if name == b"host":
                hosts += 1
            elif name == b"transfer-encoding" and version == "1.0":
                self._refuse(_FAULTY)  # whoever passes it on may see another end of it (RFC 9112, 6.1)
            elif name == b"expect" and value.strip().lower() != b"100-continue":
                self._refuse(_EXPECTATION)
        if hosts > 1 or (not hosts and version == "1.1"):
            self._refuse(_HOST)

    def _refuse(self, problem: Problem) -> None:
        self._refusal = problem
        raise httptools.HttpParserError(problem.detail)

    # ── time ──

    def on_message_complete(self) -> None:
        self._in_head, self._head = True, 0
        if self.cycle.response_complete:
            self._set_timer(None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        answered = self._running
        super().on_response_complete()
        if answered is not None and answered.more_body and not self.transport.is_closing():
            # Answered before the body had come: the rest is read and thrown away, but not for long.
            self._set_timer(_LINGER)

    def _set_timer(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None:
            self._timer = self.loop.call_later(seconds, self._too_slow, seconds)

    def _too_slow(self, seconds: float) -> None:
        self._timer = None
        if self._running is not None and not self._running.response_complete:
            self._set_timer(seconds)  # an answer to an earlier request is still on its way
            return
        if self._in_head and self._head and not self.transport.is_closing():
            words = f"the head of a request must be here within {math.ceil(seconds)} s"
            self.transport.write(Problem(408, "head-too-slow", words).raw())
        self.transport.close()


def connection_class(gateway: Gateway) -> type[Connection]:
    """Return the class for connections to *gateway*."""
    return type("Connection", (Connection,), {"gateway": gateway})
