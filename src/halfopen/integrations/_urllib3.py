"""What urllib3 and requests, which stands on it, share: attempts and bodies that end by the ambient deadline."""

from __future__ import annotations

from contextlib import suppress
from socket import SHUT_RD
from typing import Any

import urllib3
from urllib3.exceptions import ReadTimeoutError
from urllib3.util import Timeout

from halfopen._runtime.deadline import AMBIENT
from halfopen.integrations._http import past, seconds_left, shorter

__all__ = ["Timed", "put_before_pools", "shortened", "too_late"]


def put_before_pools(manager: urllib3.PoolManager, first: type) -> None:
    """Let a manager make pools whose first base is *first*."""
    pools: Any = manager.pool_classes_by_scheme
    guarded: Any = {
        scheme: type(f"{first.__name__}{pool.__name__}", (first, pool), {}) for scheme, pool in pools.items()
    }
    manager.pool_classes_by_scheme = guarded
    manager.clear()


class Timed:
    """Goes before a connection pool, so that an attempt ends by the ambient deadline, headers that trickle included."""

    def _make_request(self, conn: Any, method: str, url: str, **kwargs: Any) -> Any:
        make = getattr(super(), "_make_request")  # noqa: B009  (of the pool)
        line = AMBIENT.get()
        if line is None:
            return make(conn, method, url, **kwargs)

        cuts: list[bool] = []
        response: Any = None

        def cut() -> None:
            cuts.append(True)
            with suppress(Exception):  # it has ended, or is not connected
                # A connection that ends with its answer has handed the socket over to it.
                (conn.sock.shutdown if conn.sock is not None else response._sock_shutdown)(SHUT_RD)

        timer = line[1].call_at(line[0], cut)
        try:
            timed = {**kwargs, "timeout": shortened(kwargs.get("timeout")), "preload_content": False}
            response = make(conn, method, url, **timed)
            if kwargs.get("preload_content", True):
                response.read(cache_content=True)
        except Exception as error:
            if not past(line) or isinstance(error, TimeoutError):
                raise
            raise too_late("before the answer came") from error
        finally:
            timer.cancel()
        if cuts:  # headers that end early look like whole ones
            response.close()
            raise too_late("before the answer came")
        return response


def shortened(timeout: Any) -> Timeout:
    """Return a timeout (seconds, a pair, None or urllib3's own) that ends by the ambient deadline."""
    if isinstance(timeout, Timeout):
        cut = timeout.clone()
    else:
        connect, read = _pair(timeout)
        cut = Timeout(connect=connect, read=read)
    cut.total = shorter(cut.total, seconds_left())  # type: ignore[arg-type]  # its default is a mark
    return cut


def too_late(when: str = "while the body was read") -> ReadTimeoutError:
    """Return the error for a call that outlasts its deadline."""
    return ReadTimeoutError(None, "", f"the deadline passed {when}")  # type: ignore[arg-type]


def _pair(timeout: Any) -> Any:
    return timeout if type(timeout) in (tuple,) else (timeout, timeout)
