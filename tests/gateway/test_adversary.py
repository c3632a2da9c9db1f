"""What a hostile program or partner found in the gateway."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from threading import Thread
from typing import Any

import pytest

from halfopen import Registry
from halfopen.gateway import Gateway, GatewaySettings, PartnerSettings
from tests.faulty import listening
from tests.gateway.support import Got, Partner, Reply, ask, gateway_serving, hang, raw, until
from tests.gateway.test_limits import status_and_kind

HEAD = b"POST /to/acme/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n"


def answering(answer: bytes) -> AbstractContextManager[str]:
    """Run a partner that answers everything with these bytes and hangs up; give its URL."""

    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(answer)

    return listening(serve)


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


@pytest.mark.parametrize("host", [b"", b"Host: localhost\r\n"], ids=["without", "with"])
def test_a_program_that_speaks_http_1_0_is_served(partner: Partner, serving: Callable[..., int], host: bytes) -> None:
    got = raw(serving(), b"POST /to/acme/x HTTP/1.0\r\n" + host + b"Content-Length: 2\r\n\r\nhi")

    assert 200 == status_and_kind(got)[0]
    assert b"connection: close" in got.lower()
    assert b"hi" == partner.seen[0].body


@pytest.mark.parametrize("site", ["none", "same-origin"])
def test_what_a_browser_does_by_itself_is_no_page_s_doing(serving: Callable[..., int], site: str) -> None:
    assert 200 == ask(serving(), "/health", method="GET", headers={"Sec-Fetch-Site": site}).status


def test_with_a_token_a_page_may_be_where_it_is(serving: Callable[..., int]) -> None:
    port = serving(gateway={"token": "secret"})

    got = ask(port, "/to/acme/x", b"x", headers={"Sec-Fetch-Site": "cross-site", "Halfopen-Token": "secret"})

    assert 200 == got.status


def test_a_program_that_waits_for_100_continue_gets_it_and_its_answer(
    partner: Partner, serving: Callable[..., int]
) -> None:
    with socket.create_connection(("127.0.0.1", serving()), timeout=60) as connection:
        connection.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        interim = connection.recv(65536)
        connection.sendall(b"hi")
        final = connection.recv(65536)

    assert b"HTTP/1.1 100 Continue\r\n\r\n" == interim
    assert final.startswith(b"HTTP/1.1 200 ")
    assert b"hi" == partner.seen[0].body
    assert "expect" not in partner.seen[0].headers


@pytest.mark.parametrize(
    "interim", [b"100 Continue", b"102 Processing", b"103 Early Hints\r\nLink: </a>"], ids=["100", "102", "103"]
)
def test_interim_answers_of_the_partner_are_no_answers(serving: Callable[..., int], interim: bytes) -> None:
    with answering(b"HTTP/1.1 " + interim + b"\r\n\r\nHTTP/1.1 201 Made\r\nContent-Length: 2\r\n\r\nhi") as url:
        got = ask(serving(url=url), "/to/acme/x", b"hi")

    assert (201, b"hi") == (got.status, got.body)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"204 None\r\n\r\n", 204),
        (b"204 None\r\nContent-Length: 0\r\n\r\n", 204),
        (b'304 Same\r\nContent-Length: 100\r\nETag: "a"\r\n\r\n', 304),
    ],
)
def test_answers_that_have_no_body_get_none(serving: Callable[..., int], answer: bytes, status: int) -> None:
    with answering(b"HTTP/1.1 " + answer) as url:
        got = raw(serving(url=url), HEAD + b"Content-Length: 2\r\n\r\nhi")

    head, _, body = got.partition(b"\r\n\r\n")
    assert (b"HTTP/1.1 %d" % status, b"") == (head[:12], body)
    assert b"transfer-encoding" not in head.lower()


@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_a_question_about_a_body_gets_its_length(partner: Partner, serving: Callable[..., int], method: str) -> None:
    partner.answer = lambda seen: Reply(body=b"x" * 1234)

    got = ask(serving(), "/to/acme/x", method=method)

    assert ("1234", 1234 if method == "GET" else 0) == (got.headers["content-length"], len(got.body))


def test_an_upload_that_the_partner_refuses_in_the_middle_ends_with_its_answer(
    serving: Callable[..., int], registry: Registry
) -> None:
    with refusing_early() as url:
        got = ask(serving(url=url), "/to/acme/x", (b"x" * 65536 for _ in range(100)))

    assert (413, b"too large") == (got.status, got.body)
    assert 0 == registry.circuit_breaker("acme").snapshot().failures


def refusing_early() -> AbstractContextManager[str]:
    """Run a partner that reads the beginning of a request, says 413, and swallows the rest."""

    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 413 No\r\nConnection: close\r\nContent-Length: 9\r\n\r\ntoo large")
        connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            while connection.recv(65536):
                pass

    return listening(serve)


def hanging_up_on_the_second() -> AbstractContextManager[str]:
    """Run a partner that answers the first request on each connection, and hangs up on the second."""

    def serve(connection: socket.socket) -> None:
        with suppress(ConnectionResetError):
            if connection.recv(65536):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                connection.recv(65536)

    return listening(serve)


@pytest.mark.parametrize(("method", "statuses"), [("GET", {200}), ("PUT", {200}), ("POST", {200, 502})])
def test_a_kept_connection_that_the_partner_ends_costs_only_what_may_not_be_repeated(
    serving: Callable[..., int], method: str, statuses: set[int]
) -> None:
    with hanging_up_on_the_second() as url:
        port = serving(url=url)

        got = [ask(port, "/to/acme/x", b"hi" if method != "GET" else None, method=method) for _ in range(4)]

    assert statuses == {each.status for each in got}
    assert {"unknown"} >= {each.json["delivery"] for each in got if each.status == 502}
