"""Let each read and write of a synchronous httpx transport end by the ambient deadline."""

from __future__ import annotations

from typing import Any

from halfopen._runtime.deadline import time_left
from halfopen.integrations._http import shorter

__all__ = ["keep_time"]

_AT_LEAST = 0.001  # a timeout of 0 would mean "do not block" to the socket, and no timeout error


def keep_time(transport: Any) -> None:
    """
    Cut every timeout of *transport* to the deadline at the moment when it is used.

    httpx hands out no seam for it, so this stands before the network backend of its pool. A transport without one
    has its timeouts cut only when a request is sent.
    """
    pool = getattr(transport, "_pool", None)
    backend = getattr(pool, "_network_backend", None)
    if pool is not None and backend is not None and not isinstance(backend, _TimedBackend):
        pool._network_backend = _TimedBackend(backend)


def _left(timeout: float | None) -> float | None:
    left = time_left()
    return timeout if left is None else shorter(timeout, max(left, _AT_LEAST))


class _TimedBackend:
    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **how: Any) -> Any:
        return _TimedStream(self._backend.connect_tcp(host, port, timeout=_left(timeout), **how))

    def connect_unix_socket(self, path: str, timeout: float | None = None, **how: Any) -> Any:
        return _TimedStream(self._backend.connect_unix_socket(path, timeout=_left(timeout), **how))

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)


class _TimedStream:
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> Any:
        return self._stream.read(max_bytes, _left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left(timeout))

    def start_tls(self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None) -> Any:
        return _TimedStream(self._stream.start_tls(ssl_context, server_hostname, _left(timeout)))

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
