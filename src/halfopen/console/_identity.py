"""Who asks, and what he may do: read-only until a token, a trusted proxy or the embedding application says who."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from starlette.requests import Request

__all__ = ["COOKIE", "CSRF_HEADER", "Access", "Identity", "Role"]

Role = Literal["viewer", "operator"]

COOKIE = "halfopen_console"
CSRF_HEADER = "halfopen-csrf"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Identity:
    """
    Somebody who asks.

    Attributes:
        name: Who; stands in the audit log.
        role: ``viewer`` sees, ``operator`` may also give orders.
    """

    name: str
    role: Role = "viewer"

    def __post_init__(self) -> None:
        if self.role not in ("viewer", "operator") or not self.name:
            raise ValueError(
                f"an identity has a name and the role viewer or operator, not {self.name!r}, {self.role!r}"
            )


_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^][@:/\s]+)(?::\d*)?", re.IGNORECASE)
SHORTEST_TOKEN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """
    How the console learns who asks.

    Attributes:
        tokens: Secret → identity. It comes as ``Authorization: Bearer …``, or as a cookie after signing in.
        identify: Asked first: the embedding application's own answer; None where it does not know.
        proxy_header: The header in which an authenticating proxy says who asks. Never trusted unless it is named here.
        trusted_proxies: Addresses from which that header counts.
        operators: The names, as the proxy says them, that may give orders; the others see.
        anonymous: Whether somebody unknown may look.
        hosts: Names under which the console may be asked; None: any. Keeps foreign pages from reading it by a name
            of theirs that points here.
    """

    tokens: Mapping[str, Identity]
    identify: Callable[[Request], Identity | None] | None
    proxy_header: str | None
    trusted_proxies: Collection[str]
    operators: Collection[str]
    anonymous: bool
    hosts: Collection[str] | None
    secret: bytes

    def __post_init__(self) -> None:
        for token, identity in self.tokens.items():
            if len(token.strip()) < SHORTEST_TOKEN:
                raise ValueError(f"the token of {identity.name!r} is shorter than {SHORTEST_TOKEN} characters")

    @staticmethod
    def new_secret() -> bytes:
        """Return the key of the CSRF tokens of one server run."""
        return secrets.token_bytes(32)

    def host_allowed(self, request: Request) -> bool:
        """Say whether the request came under a name of ours."""
        if self.hosts is None:
            return True
        found = _HOST.fullmatch(request.headers.get("host", ""))
        return found is not None and found[1].strip("[]").lower() in self.hosts

    def who(self, request: Request) -> Identity | None:
        """Return who asks; None if nobody says."""
        if self.identify is not None and (known := self.identify(request)) is not None:
            return known
        return self._by_proxy(request) or self._by_bearer(request) or self._by_cookie(request)

    def may_look(self, request: Request) -> bool:
        """Say whether the asker may see anything."""
        return self.anonymous or self.who(request) is not None

    def _by_proxy(self, request: Request) -> Identity | None:
        if self.proxy_header is None or request.client is None or request.client.host not in self.trusted_proxies:
            return None
        names = request.headers.getlist(self.proxy_header)
        if len(names) != 1 or not names[0]:  # of two, one is not the proxy's
            return None
        return Identity(names[0], "operator" if names[0] in self.operators else "viewer")

    def _by_bearer(self, request: Request) -> Identity | None:
        kind, _, shown = request.headers.get("authorization", "").partition(" ")
        return self.by_token(shown) if kind.lower() == "bearer" else None

    def by_token(self, shown: str) -> Identity | None:
        """Return whose token this is."""
        found = None
        for token, identity in self.tokens.items():
            if hmac.compare_digest(token.encode(), shown.encode("utf-8", "backslashreplace")):
                found = identity
        return found

    def _by_cookie(self, request: Request) -> Identity | None:
        shown = request.cookies.get(COOKIE, "")
        found = None
        for token, identity in self.tokens.items():
            if hmac.compare_digest(cookie_of(token).encode(), shown.encode()):
                found = identity
        return found

    def csrf(self, identity: Identity) -> str:
        """Return the CSRF token of an identity; another one after each start of the server."""
        return hmac.new(self.secret, identity.name.encode(), hashlib.sha256).hexdigest()

    def same_site(self, request: Request) -> bool:
        """Say whether a browser sent this from a page of ours, or no browser sent it."""
        origin = request.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
            return False
        return request.headers.get("sec-fetch-site", "none") in ("same-origin", "none")

    def csrf_right(self, request: Request, identity: Identity) -> bool:
        """Say whether the request shows the CSRF token of the asker."""
        shown = request.headers.get(CSRF_HEADER, "")
        return hmac.compare_digest(shown.encode(), self.csrf(identity).encode())


def cookie_of(token: str) -> str:
    """Return the cookie of a token: it outlives a restart, and does not tell the token."""
    return hmac.new(token.encode(), b"halfopen console session", hashlib.sha256).hexdigest()
