"""Guard requests: ``session.mount("https://", GuardedAdapter())``."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import urlsplit

import requests
from requests import exceptions
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from halfopen.errors import CallTimeoutError, RejectedError
from halfopen.integrations._dialect import Dialect
from halfopen.integrations._guard import Guard
from halfopen.integrations._http import host_key
from halfopen.integrations._raw_body import hold_body
from halfopen.integrations._settling import Evidence, Settling
from halfopen.integrations._urllib3 import Timed, put_before_pools, shortened, too_late

__all__ = ["DIALECT", "EVIDENCE", "GuardedAdapter"]

DIALECT = Dialect(
    __name__,
    requests.ConnectionError,
    exceptions.ConnectTimeout,
    exceptions.ReadTimeout,
    {"request": None, "response": None},
)
EVIDENCE = Evidence(
    ill=(requests.RequestException, HTTPError, TimeoutError),
    ours=(exceptions.InvalidURL, exceptions.InvalidSchema, exceptions.MissingSchema, exceptions.InvalidHeader),
)


class GuardedAdapter(HTTPAdapter):
    """
    Send each request through a circuit breaker, or any policies, of its host (``https://example.com:443``).

    The body is part of the call. A refusal is a `requests.ConnectionError`, too; timeouts are cut to the ambient
    deadline. Retries given as *max_retries* stand inside: all of them are one call.

    Args:
        guard: A family of breakers (`Registry.keyed`), a breaker, any policy, several of them, outermost first, or a
            function from the key to one of these; default a family of its own. What is used is the attribute `guard`.
        adapter: Those of `HTTPAdapter`.
    """

    def __init__(self, *, guard: Any = None, **adapter: Any) -> None:
        super().__init__(**adapter)
        self._lead(guard)

    def _lead(self, guard: Any) -> None:
        self._guard = Guard(guard, EVIDENCE, _hold, lambda response: response.close())
        self.guard = self._guard.policies

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)  # type: ignore[misc]  # missing from the stubs
        self._lead(None)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make the pools; their connections end by the ambient deadline."""
        super().init_poolmanager(*args, **kwargs)
        put_before_pools(self.poolmanager, Timed)

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Any = None,
    ) -> requests.Response:
        """Send a request through the policies of its host."""
        send = partial(self._send, stream=stream, timeout=timeout, verify=verify, cert=cert, proxies=proxies)
        try:
            response: requests.Response = self._guard.call(_key(request), send, request)
        except (RejectedError, CallTimeoutError) as error:
            raise DIALECT.of(error, request=request) from None
        return response

    def _send(self, request: requests.PreparedRequest, *, timeout: Any, **how: Any) -> requests.Response:
        return super().send(request, timeout=shortened(timeout), **how)  # type: ignore[arg-type]  # urllib3's fits


def _hold(request: requests.PreparedRequest, response: requests.Response, settling: Settling) -> None:
    if not settling.answered(response):
        hold_body(request.method or "", response.raw, settling, too_late)


def _key(request: requests.PreparedRequest) -> str:
    target = urlsplit(request.url or "")
    return host_key(target.scheme, target.hostname or "", target.port)
