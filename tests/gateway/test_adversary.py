"""What a hostile program or partner found in the gateway."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest

from halfopen import Registry
from halfopen.gateway import Gateway, GatewaySettings, PartnerSettings
from tests.gateway.support import Got, Partner, Reply, ask, gateway_serving, hang, raw, until
from tests.gateway.test_limits import status_and_kind

HEAD = b"POST /to/acme/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n"


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Run a partner that answers everything with these bytes and hangs up; give its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)

        thread = Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(60)


def test_trailers_are_no_headers(partner: Partner, serving: Callable[..., int]) -> None:
    port = serving(queue=True)

    got = raw(port, CHUNKED + b"Origin: x\r\nMessage-ID: <m@x>\r\nHalfopen-Stream: s\r\nX-Trailer: 1\r\n\r\n")

    assert 200 == status_and_kind(got)[0]
    assert {"message-id", "origin", "x-trailer"}.isdisjoint(partner.seen[0].headers)
    assert b"hi" == partner.seen[0].body


def test_trailers_are_bounded_like_the_head(serving: Callable[..., int]) -> None:
    port = serving(gateway={"max_header": 1000})

    got = raw(port, CHUNKED + b"X-Trailer: " + b"x" * 1000 + b"\r\n\r\n")

    assert (431, "head-too-large") == status_and_kind(got)


@pytest.mark.parametrize("status", [b"099", b"600", b"999"])
def test_a_status_that_http_has_not_is_a_bad_answer(
    serving: Callable[..., int], registry: Registry, status: bytes
) -> None:
    with answering(b"HTTP/1.1 " + status + b" Odd\r\nContent-Length: 2\r\n\r\nhi") as url:
        got = ask(serving(url=url), "/to/acme/x", b"hi")

    assert (502, "broken-off", "unknown") == (got.status, got.kind, got.json["delivery"])
    assert 1 == registry.circuit_breaker("acme").snapshot().failures


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 503 No\r\nContent-Length: 100\r\n\r\ncut off",
        b"HTTP/1.1 503 No\r\nX-Odd: a\x0bb\r\nContent-Length: 2\r\n\r\nhi",
    ],
)
def test_a_refusal_of_the_partner_that_cannot_be_passed_on_is_a_502(
    serving: Callable[..., int], registry: Registry, answer: bytes
) -> None:
    with answering(answer) as url:
        got = ask(serving(url=url), "/to/acme/x", b"hi")

    assert (502, "broken-off") == (got.status, got.kind)
    assert 1 == registry.circuit_breaker("acme").snapshot().failures


@pytest.mark.parametrize("path", ["/to/acme/..;/admin", "/to/acme/a/..;x=1/..", "/to/acme/..%3Badmin", "/to/acme/.;/a"])
def test_dots_with_parameters_do_not_climb_out(partner: Partner, serving: Callable[..., int], path: str) -> None:
    got = ask(serving(), path, b"hi")

    assert (400, "bad-path", []) == (got.status, got.kind, partner.seen)


@pytest.mark.parametrize("query", ["after=" + "9" * 30, "after=-" + "9" * 30, "limit=" + "9" * 30])
def test_a_number_without_measure_is_no_accident(serving: Callable[..., int], query: str) -> None:
    got = ask(serving(queue=True), f"/messages?{query}", method="GET")

    assert got.status in (200, 400)


def test_a_dot_in_a_name_passes(partner: Partner, serving: Callable[..., int]) -> None:
    partner.answer = lambda seen: Reply()

    statuses: list[Any] = [ask(serving(), f"/to/acme/{name}", b"x").status for name in ("a..b", "..a", ".well-known/x")]

    assert [200, 200, 200] == statuses


def test_who_outlasts_the_drain_is_told_that_nobody_knows(partner: Partner, registry: Registry) -> None:
    settings = GatewaySettings(port=0, drain=1.0)
    gateway = Gateway(settings, {"acme": PartnerSettings(name="acme", url=partner.url)}, registry)
    partner.answer = lambda seen: Reply(act=hang)
    got: list[Got] = []

    with gateway_serving(gateway) as port:
        program = Thread(target=lambda: got.append(ask(port, "/to/acme/x", b"hi")))
        program.start()
        assert until(lambda: len(partner.seen) == 1)
    program.join(60)

    assert (503, "ending", "unknown") == (got[0].status, got[0].kind, got[0].json["delivery"])
    assert 0 == registry.circuit_breaker("acme").snapshot().failures
