"""A gRPC server without generated code, whose methods do what their names say."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

SERVICE = "fault.Service"


class GrpcFaultServer:
    """
    Methods are ``/fault.Service/<kind>``; the request says what to do, such as ``ok``, ``hang`` or ``UNAVAILABLE``.

    Attributes:
        mode: What to do whatever the request says; empty: the request says.
        pushback: Milliseconds that the server asks to be left alone, if any.
        seen: The requests.
    """

    def __init__(self) -> None:
        self.mode = ""
        self.pushback: str | None = None
        self.seen: list[str] = []
        self.ending = threading.Event()
        self._pool = ThreadPoolExecutor(8)
        self.grpc = grpc.server(self._pool)
        handlers = {
            "UnaryUnary": grpc.unary_unary_rpc_method_handler(self._one),
            "UnaryStream": grpc.unary_stream_rpc_method_handler(self._many),
            "StreamUnary": grpc.stream_unary_rpc_method_handler(
                lambda sent, context: self._one(b"".join(sent), context)
            ),
            "StreamStream": grpc.stream_stream_rpc_method_handler(
                lambda sent, context: self._many(b"".join(sent), context)
            ),
        }
        self.grpc.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        self.port = self.grpc.add_insecure_port("127.0.0.1:0")
        self.grpc.start()

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _one(self, sent: bytes, context: Any) -> bytes:
        self._behave(sent.decode(), context)
        return b"answer"

    def _many(self, sent: bytes, context: Any) -> Iterator[bytes]:
        wanted = sent.decode()
        if wanted == "endless":
            while context.is_active() and not self.ending.wait(0.001):
                yield b"more"
            return
        if wanted.startswith("midway-"):
            yield b"first"
        self._behave(wanted.removeprefix("midway-"), context)
        yield from (b"one", b"two", b"three")

    def _behave(self, wanted: str, context: Any) -> None:
        self.seen.append(wanted)
        wanted = self.mode or wanted
        if wanted == "hang":
            self.ending.wait(60)
        elif wanted == "raise":
            raise KeyError(wanted)
        elif wanted != "ok":
            if self.pushback is not None:
                context.set_trailing_metadata((("grpc-retry-pushback-ms", self.pushback),))
            context.abort(getattr(grpc.StatusCode, wanted), "as asked")

    def stop(self) -> None:
        self.ending.set()
        self.grpc.stop(0).wait()
        self._pool.shutdown()


@contextmanager
def serving_grpc() -> Iterator[GrpcFaultServer]:
    """Run a server for the length of a block."""
    server = GrpcFaultServer()
    try:
        yield server
    finally:
        server.stop()
