"""What can be set on the gateway and on each partner: the tables ``[gateway]`` and ``[partner.NAME]`` of a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from halfopen._runtime.addresses import is_loopback
from halfopen.errors import ConfigError, Mistake
from halfopen.retry_queue import LaneProfile

__all__ = ["GatewaySettings", "PartnerSettings"]

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """
    How the gateway listens, and what it takes from programs. Sizes are bytes, times are seconds.

    Attributes:
        host: Where to listen; anything but loopback needs a *token*.
        port: Where to listen; 0: any free port.
        token: What programs show in the header ``Halfopen-Token``; empty: nothing is asked for.
        certificate: Path of the PEM chain with which the gateway itself speaks TLS; empty: plain HTTP.
        key: Path of its key.
        queue: A SQLite file, or what PostgreSQL connects to; empty: nothing can be stored.
        max_body: The largest request body.
        max_header: The largest request head: request line and headers together.
        header_timeout: The time a program has for a request head, or for the TLS handshake.
        idle_timeout: The longest pause in a body, on either side.
        keep_alive: How long an idle connection of a program is kept.
        time_limit: The longest exchange, bodies included.
        max_connections: Connections of programs at once.
        drain: How long exchanges in flight may go on after SIGTERM.
    """

    host: str = "127.0.0.1"
    port: int = 8642
    token: str = field(default="", repr=False)
    certificate: str = ""
    key: str = ""
    queue: str = ""
    max_body: int = 1024 * MIB
    max_header: int = 32 * 1024
    header_timeout: float = 10.0
    idle_timeout: float = 30.0
    keep_alive: float = 60.0
    time_limit: float = 3600.0
    max_connections: int = 1000
    drain: float = 30.0

    def __post_init__(self) -> None:
        mistakes = _positive(
            self, "max_body", "max_header", "header_timeout", "idle_timeout", "keep_alive", "time_limit",
            "max_connections", "drain",
        )  # fmt: skip
        if not 0 <= self.port <= 65535:
            mistakes.append(Mistake("port", self.port, "a port, 0 to 65535"))
        if not self.token and not is_loopback(self.host):
            words = f"needed: {self.host} can be reached from elsewhere, so programs must show a token"
            mistakes.append(Mistake("token", "", words, "missing"))
        if bool(self.certificate) != bool(self.key):
            mistakes.append(Mistake("certificate", self.certificate, "given together with key", "conflict"))
        if mistakes:
            raise ConfigError(mistakes)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartnerSettings:
    """
    One partner: where it is, and what a call to it goes through.

    Attributes:
        url: Its base; what follows ``/to/NAME`` is appended.
        pipeline: The pipeline its calls go through, as ``pipeline.NAME``; empty: the breaker *breaker* alone.
        breaker: The breaker, as ``breaker.NAME``; empty: the one with the partner's name, made if need be.
        store_and_forward: Whether messages that are refused, or surely not delivered, are stored and sent later.
        as2: Whether the MDN in an answer decides, not the status alone.
        connect_timeout: Seconds for the connection, TLS included.
        timeout: Seconds for the beginning of the answer, and for each pause in it.
        connections: Connections to it at once.
        headers: Set on every request to it, in place of what the program sent.
        ca: Path of the PEM file with the authorities it is checked against; empty: the system's.
        certificate: Path of our client certificate, PEM.
        key: Path of its key; empty: in the same file.
        deadline: Seconds after which a stored message is too late; None: never.
        profile: How its stored messages are sent.
    """

    name: str
    url: str
    pipeline: str = ""
    breaker: str = ""
    store_and_forward: bool = False
    as2: bool = False
    connect_timeout: float = 5.0
    timeout: float = 60.0
    connections: int = 100
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    ca: str = ""
    certificate: str = ""
    key: str = ""
    deadline: float | None = None
    profile: LaneProfile = field(default_factory=LaneProfile)

    def __post_init__(self) -> None:
        mistakes = _positive(self, "connect_timeout", "timeout", "connections")
        if (wrong := _wrong_with(self.url)) is not None:
            mistakes.append(Mistake("url", self.url, wrong))
        if not self.name or "/" in self.name or not self.name.isprintable():
            mistakes.append(Mistake("name", self.name, "a text without a slash: it is a part of URLs"))
        if self.pipeline and self.breaker:
            words = "the pipeline has its own: give one of the two"
            mistakes.append(Mistake("breaker", self.breaker, words, "conflict"))
        for key, value in self.headers.items():
            if not key.isascii() or not value.isprintable() or not key.replace("-", "").isalnum():
                mistakes.append(Mistake(f"headers.{key}", value, "a header: a name, and a text in one line"))
        if mistakes:
            raise ConfigError(mistakes)


def _positive(settings: object, *names: str) -> list[Mistake]:
    values = {name: getattr(settings, name) for name in names}
    return [
        Mistake(name, value, "a number greater than 0")
        for name, value in values.items()
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf")
    ]


def _wrong_with(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "a URL such as https://partner.example/as2"
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return "a URL such as https://partner.example/as2"
    if parts.username is not None or parts.query or parts.fragment:
        return "a URL without user, query and fragment; credentials go into headers"
    return None if url.isascii() and url.isprintable() and " " not in url else "a URL in plain ASCII"
