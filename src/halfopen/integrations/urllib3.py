"""Guard urllib3: ``GuardedPoolManager()``, or `guard_manager` for a manager that exists."""

from __future__ import annotations

from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import ConnectTimeoutError, EmptyPoolError, HTTPError, LocationValueError, ReadTimeoutError

from halfopen.errors import CallTimeoutError, RejectedError
from halfopen.integrations._dialect import Dialect
from halfopen.integrations._guard import Guard
from halfopen.integrations._http import Request, host_key, seconds_left
from halfopen.integrations._raw_body import hold_body
from halfopen.integrations._settling import Evidence, Settling
from halfopen.integrations._urllib3 import Timed, put_before_pools, too_late

__all__ = ["DIALECT", "EVIDENCE", "GuardedPoolManager", "guard_manager"]

DIALECT = Dialect(__name__, HTTPError, ConnectTimeoutError, ReadTimeoutError)
EVIDENCE = Evidence(ill=(HTTPError, HTTPException, OSError), ours=(LocationValueError, EmptyPoolError))


class GuardedPoolManager(urllib3.PoolManager):
    """
    Send each request through a circuit breaker, or any policies, of its host (``https://example.com:443``).

    Each attempt is a call of its own: urllib3's retries stand outside, and a refusal ends them. The body is part of the
    call. A refusal is a `urllib3.exceptions.HTTPError`, too; timeouts are cut to the ambient deadline.

    Args:
        num_pools: Of the manager, as all further keywords but *guard*.
        headers: Of the manager.
        guard: A family of breakers (`Registry.keyed`), a breaker, any policy, several of them, outermost first, or a
            function from the key to one of these; default a family of its own. What is used is the attribute `guard`.
    """

    guard: Any

    def __init__(self, num_pools: int = 10, headers: Any = None, *, guard: Any = None, **pool: Any) -> None:
        super().__init__(num_pools, headers, **pool)
        guard_manager(self, guard)


def guard_manager(manager: urllib3.PoolManager, guard: Any = None) -> Any:
    """Guard what *manager*, perhaps a `ProxyManager`, sends from now on; return the policies that do it."""
    led = Guard(guard, EVIDENCE, _hold, lambda response: response.close())
    put_before_pools(manager, type("Guarded", (_Guarded,), {"_guard": led}))
    manager.guard = led.policies  # type: ignore[attr-defined]  # not every manager is ours
    return led.policies


class _RefusedError(HTTPError):
    """Carries a refusal past urllib3's retries, which would take one that is a `TimeoutError` for a lost connection."""

    def __init__(self, refusal: RejectedError) -> None:
        self.refusal = refusal


class _Guarded(Timed):
    _guard: Guard
    scheme: str
    host: str
    port: int | None

    def urlopen(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().urlopen(*args, **kwargs)  # type: ignore[misc]  # of the pool
        except _RefusedError as carrier:
            raise DIALECT.of(carrier.refusal) from None

    def _make_request(self, conn: Any, method: str, url: str, **kwargs: Any) -> Any:
        attempt = super()._make_request
        target = urlsplit(url) if "://" in url else None  # a whole address goes to a proxy
        key = host_key(self.scheme, self.host, self.port)
        if target is not None:
            key = host_key(target.scheme, target.hostname or "", target.port)
        try:
            seconds_left()
            return self._guard.call(key, lambda _: attempt(conn, method, url, **kwargs), Request(method, url))
        except RejectedError as refusal:
            raise _RefusedError(refusal) from None
        except CallTimeoutError as error:
            raise ReadTimeoutError(self, url, str(error)) from error  # type: ignore[arg-type]


def _hold(request: Request, response: Any, settling: Settling) -> None:
    if not settling.answered(response):
        hold_body(request.method, response, settling, too_late)
