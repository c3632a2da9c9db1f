from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from halfopen import Registry
from halfopen.gateway import Gateway, GatewaySettings, PartnerSettings
from tests.gateway.support import Partner, Reply, ask, gateway_serving, raw, until

HEAD = b"POST /to/acme/x HTTP/1.1\r\nHost: localhost\r\n"


def status_and_kind(got: bytes) -> tuple[int, str]:
    head, _, body = got.partition(b"\r\n\r\n")
    kind = json.loads(body)["type"].rpartition(":")[2] if b"problem+json" in head else ""
    return int(head.split()[1]), kind


@pytest.mark.parametrize(
    ("sent", "status", "kind"),
    [
        (b"CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: x\r\n\r\n", 501, "no-tunnels"),
        (b"GET http://169.254.169.254/to/acme/x HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "no-proxy"),
        (b"GET //169.254.169.254/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "not-found"),
        (b"GET /to/169.254.169.254/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "unknown-partner"),
        (b"GET /to/http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "unknown-partner"),
        (b"GET /to/acme/../admin HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad-path"),
        (b"GET /to/acme/%2e%2E/admin HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad-path"),
        (b"GET /to/acme/a%2f..%2fadmin HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad-path"),
        (b"GET /to/acme/..\\admin HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad-path"),
        (b"GET /to/acme/x HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421, "wrong-host"),
        (b"GET /to/acme/x HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n", 403, "browser"),
        (HEAD + b"Sec-Fetch-Site: cross-site\r\nContent-Length: 1\r\n\r\nx", 403, "browser"),
        (HEAD + b"Sec-Fetch-Site: same-site\r\nContent-Length: 1\r\n\r\nx", 403, "browser"),
        (HEAD + b"Host: evil.example\r\n\r\n", 400, "bad-header"),
        (b"POST /to/acme/x HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 400, "bad-header"),
        (b"POST /to/acme/x HTTP/2.0\r\nHost: localhost\r\n\r\n", 505, "http-version"),
        (HEAD.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "bad-header"),
        (HEAD + b"Expect: banana\r\nContent-Length: 1\r\n\r\nx", 417, "unknown-expectation"),
        (HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 400, "not-http"),
        (HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "not-http"),
        (HEAD + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400, "not-http"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\nhi\n0\n\n", 400, "not-http"),
        (HEAD + b"Content-Length: +2\r\n\r\nhi", 400, "not-http"),
        (HEAD + b"X: a\r\n b\r\nContent-Length: 2\r\n\r\nhi", 400, "not-http"),
        (b"GET /to/acme/%2e/x HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad-path"),
        (b"GET /to/acme%2Fx HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "unknown-partner"),
        (b"GET /to/acme/x?" + b"q" * 40_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431, "head-too-large"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "not-http"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "not-http"),
        (HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "not-http"),
        (HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400, "not-http"),
        (HEAD + b"Content-Length: -1\r\n\r\n", 400, "not-http"),
        (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501, "unknown-transfer-encoding"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n", 400, "not-http"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n", 400, "not-http"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", 400, "not-http"),
        (HEAD + b"X: a\x00b\r\n\r\n", 400, "not-http"),
        (HEAD + b"Bad Name: 1\r\n\r\n", 400, "not-http"),
        (HEAD + b"X: \xe9\r\n\r\n", 400, "bad-header"),
        (HEAD + b"X: " + b"y" * 40_000 + b"\r\n\r\n", 431, "head-too-large"),
        (b"GET /to/acme/" + b"y" * 40_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431, "head-too-large"),
        (HEAD + b"X: y\r\n" * 20_000 + b"\r\n", 431, "head-too-large"),
        (HEAD + b"Content-Length: 2000000\r\n\r\n", 413, "body-too-large"),
    ],
    ids=lambda value: value[:60].decode("latin-1") if isinstance(value, bytes) else None,
)
def test_what_no_program_should_send_is_refused_clearly(
    partner: Partner, serving: Any, sent: bytes, status: int, kind: str
) -> None:
    port = serving(gateway={"max_body": 1_000_000, "idle_timeout": 2.0})

    got = raw(port, sent, answers=1)

    assert (status, kind) == status_and_kind(got)
    assert [] == partner.seen


def test_a_chunked_body_that_grows_too_large_is_a_413(partner: Partner, serving: Any, registry: Registry) -> None:
    port = serving(gateway={"max_body": 100_000})

    got = ask(port, "/to/acme/x", iter([b"x" * 60_000] * 2))

    assert (413, "body-too-large") == (got.status, got.kind)
    assert until(lambda: registry.circuit_breaker("acme").snapshot().counters.ignored == 1)


def test_a_head_that_trickles_is_a_408(serving: Any) -> None:
    got = raw(serving(gateway={"header_timeout": 0.3}), HEAD + b"X: a")

    assert (408, "head-too-slow") == status_and_kind(got)


def test_a_second_head_that_trickles_ends_the_connection(serving: Any) -> None:
    first = HEAD + b"Content-Length: 1\r\n\r\nx"

    got = raw(serving(gateway={"header_timeout": 0.3, "keep_alive": 60}), first + HEAD + b"X: a")

    assert got.startswith(b"HTTP/1.1 200 ")
    assert b"408 Request Timeout" in got


def test_a_silent_connection_is_closed(serving: Any) -> None:
    assert b"" == raw(serving(gateway={"header_timeout": 0.3}), b"")


@pytest.mark.parametrize("length", [10, 500_000], ids=["small", "streamed"])
def test_a_body_that_stalls_is_a_408_and_no_evidence(serving: Any, registry: Registry, length: int) -> None:
    port = serving(gateway={"idle_timeout": 0.3})

    got = raw(port, HEAD + b"Content-Length: %d\r\n\r\nx" % length, answers=1)

    assert (408, "body-too-slow") == status_and_kind(got)
    assert 0 == registry.circuit_breaker("acme").snapshot().counters.failures


def test_a_program_that_reads_nothing_is_cut_off(partner: Partner, serving: Any, registry: Registry) -> None:
    partner.answer = lambda seen: Reply(body=b"x" * 50_000_000)
    with socket.create_connection(("127.0.0.1", serving(gateway={"idle_timeout": 0.3})), timeout=60) as connection:
        connection.sendall(b"GET /to/acme/x HTTP/1.1\r\nHost: localhost\r\n\r\n")

        ignored = until(lambda: registry.circuit_breaker("acme").snapshot().counters.ignored == 1)

    assert ignored


def test_chunked_nonsense_in_mid_upload_ends_the_exchange(partner: Partner, serving: Any, registry: Registry) -> None:
    sent = HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n"

    got = raw(serving(), sent)

    assert (400, "not-http") == status_and_kind(got)
    assert 0 == registry.circuit_breaker("acme").snapshot().counters.failures


def test_more_connections_than_allowed_are_refused(serving: Any) -> None:
    port = serving(gateway={"max_connections": 2})
    held = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(2)]

    got = raw(port, b"")

    assert (503, "too-many-connections") == status_and_kind(got)
    for connection in held:
        connection.close()
    assert until(lambda: _is_served(port))


def _is_served(port: int) -> bool:
    try:
        return 200 == ask(port, "/to/acme/x", b"x").status
    except OSError:  # cut off with the request unread
        return False


def test_a_url_that_leads_back_to_the_gateway_is_a_loop() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    back = PartnerSettings(name="back", url=f"http://127.0.0.1:{listening.getsockname()[1]}/to/back")
    with gateway_serving(Gateway(GatewaySettings(), {"back": back}), listening) as port:
        looped = ask(port, "/to/back/x", b"x")

    assert (508, "loop") == (looped.status, looped.kind)


def test_a_token_is_asked_for_and_goes_no_further(partner: Partner, serving: Any) -> None:
    port = serving(gateway={"token": "secret"})

    without = ask(port, "/to/acme/x", b"x")
    wrong = ask(port, "/to/acme/x", b"x", headers={"Halfopen-Token": "secreT"})
    right = ask(port, "/to/acme/x", b"x", headers={"Halfopen-Token": "secret", "Host": "gateway.internal"})

    assert [401, 401, 200] == [without.status, wrong.status, right.status]
    assert ("no-token", "Halfopen-Token") == (without.kind, without.headers["www-authenticate"])
    assert "halfopen-token" not in partner.seen[0].headers


def test_health_and_partners_are_shown(serving: Any, registry: Registry) -> None:
    port = serving()
    registry.circuit_breaker("acme").trip(wait=30)

    assert {"status": "ok"} == ask(port, "/health", method="GET").json
    (shown,) = ask(port, "/partners", method="GET").json
    assert ("acme", "open") == (shown["name"], shown["state"])
    assert shown["circuit"] == ask(port, "/partners/acme", method="GET").json["circuit"]
    assert 404 == ask(port, "/partners/other", method="GET").status
    assert (405, "method-not-allowed") == ((got := ask(port, "/health")).status, got.kind)
    assert (404, "not-found") == ((got := ask(port, "/messages", method="GET")).status, got.kind)
