"""Serve a console with uvicorn, so that it ends in good order though its streams never do."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import uvicorn

from halfopen.console._app import Console
from halfopen.errors import ConfigError, Mistake

__all__ = ["ConsoleServer", "listen"]


def listen(host: str, port: int) -> socket.socket:
    """
    Return a socket that listens.

    Raises:
        ConfigError: The address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host.strip("[]"), port))
    except OSError as error:
        listening.close()
        raise ConfigError(
            [Mistake("port", port, f"an address of this machine that is free: {error.strerror}")]
        ) from error
    return listening


class ConsoleServer(uvicorn.Server):
    """
    A server of one console.

    Args:
        console: From `app`.
        ready: Called once it listens.
    """

    def __init__(self, console: Console, *, ready: Callable[[], object] | None = None) -> None:
        self._console = console
        self._ready = ready
        super().__init__(
            uvicorn.Config(
                console,
                access_log=False,
                log_level="warning",
                server_header=False,
                date_header=False,
                proxy_headers=False,
                ws="none",
                lifespan="on",
                timeout_graceful_shutdown=5,
            )
        )

        console.cut_off_by(self._abort)

    def _abort(self, client: Any) -> None:
        for connection in list(self.server_state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None and getattr(connection, "client", None) == client:
                transport.abort()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets=sockets)
        if self._ready is not None and not self.should_exit:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> Any:
        """End the streams first: they would hold the end up."""
        self._console.end_streams()
        await super().shutdown(sockets=sockets)
