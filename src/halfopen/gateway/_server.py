"""Run a gateway: uvicorn, with connections of our own."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Generator, Mapping
from typing import Any

import uvicorn

from halfopen.errors import ConfigError, Mistake
from halfopen.registry import Registry

from ._app import Gateway
from ._protocol import connection_class
from ._reading import read
from ._reloading import follow
from ._settings import GatewaySettings

__all__ = ["gateway_from_file", "run", "serve"]

_log = logging.getLogger("halfopen.gateway")


def gateway_from_file(path: str | os.PathLike[str], *, names: Mapping[str, Any] | None = None) -> Gateway:
    """
    Make the gateway that a configuration file describes.

    Args:
        path: The file, where the policies are as well.
        names: Objects that the file may name, such as classifiers.

    Raises:
        ConfigError: Something is wrong; every mistake is named.
        StoreUnavailableError: The queue cannot be opened.
    """
    found = read(path, names=names)
    registry = Registry.from_file(path, names=names)
    gateway = Gateway(found.settings, found.partners, registry)
    follow(gateway, names or {})
    return gateway


def run(gateway: Gateway, *, ready: Callable[[str], object] | None = None) -> None:
    """
    Serve until SIGTERM or SIGINT; then let exchanges in flight end, and return.

    SIGHUP reads the file again: policies, partners and limits. What needs a restart is logged.

    Args:
        gateway: From `gateway_from_file`, or made by the program.
        ready: Called with the gateway's own URL once it listens.

    Raises:
        ConfigError: Its address cannot be listened on.
    """
    listening = _listening(gateway.settings)
    server = serve(gateway)
    with _orderly_end(server), contextlib.ExitStack() as stack:
        if hasattr(signal, "SIGHUP") and gateway.registry._source is not None:
            stack.callback(gateway.registry.reload_on_sighup())
        if ready is not None:
            _when_started(server, lambda: ready(_url(gateway.settings, listening)))
        server.run(sockets=[listening])


def serve(gateway: Gateway) -> uvicorn.Server:
    """Return the server of a gateway, for programs that run it in an event loop of theirs."""
    settings = gateway.settings
    config = uvicorn.Config(
        gateway,
        host=settings.host.strip("[]"),
        port=settings.port,
        http=connection_class(gateway),
        ws="none",
        lifespan="on",
        interface="asgi3",
        loop="auto",
        access_log=False,
        log_level="error",
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=int(settings.keep_alive) or 1,
        timeout_graceful_shutdown=int(settings.drain) or 1,
        ssl_certfile=settings.certificate or None,
        ssl_keyfile=settings.key or None,
    )
    return uvicorn.Server(config)


def _listening(settings: GatewaySettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host.strip("[]"), settings.port))
    except OSError as error:
        listening.close()
        allowed = f"an address of this machine that is free: {error.strerror}"
        raise ConfigError([Mistake("gateway.port", settings.port, allowed)]) from error
    return listening


def _url(settings: GatewaySettings, listening: socket.socket) -> str:
    scheme = "https" if settings.certificate else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{scheme}://{host}:{listening.getsockname()[1]}"


def _when_started(server: uvicorn.Server, tell: Callable[[], object]) -> None:
    startup = server.startup

    async def started(sockets: list[socket.socket] | None = None) -> None:
        await startup(sockets=sockets)
        if not server.should_exit:
            tell()

    server.startup = started  # type: ignore[method-assign]


@contextlib.contextmanager
def _orderly_end(server: uvicorn.Server) -> Generator[None]:
    """Let a signal end the server in good order also before it runs, and once more when uvicorn raises it again."""

    def end(*_: object) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
