from __future__ import annotations

import http.client
import socket
import threading
from typing import Any

import pytest

from halfopen import Hedge, Registry, Retry, State, Timeout
from halfopen.circuit_breaker import CircuitBreaker
from halfopen.pipeline import Pipeline
from tests.gateway.support import Partner, Reply, ask, broken, closed_port, hang, raw, reset, until


def test_a_request_arrives_below_the_partners_url_and_its_answer_comes_back(partner: Partner, serving: Any) -> None:
    partner.answer = lambda seen: Reply(201, {"X-Kind": "order"}, b"created")
    port = serving()

    got = ask(port, "/to/acme/orders/7?a=1&b=%2F", b"hello", headers={"Content-Type": "text/edi"})

    assert (201, b"created", "order") == (got.status, got.body, got.headers["x-kind"])
    seen = partner.seen[0]
    assert ("POST", "/base/orders/7?a=1&b=%2F", b"hello") == (seen.method, seen.path, seen.body)
    assert "text/edi" == seen.headers["content-type"]
    assert f"127.0.0.1:{partner.server_port}" == seen.headers["host"]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD"])
def test_every_method_passes(partner: Partner, serving: Any, method: str) -> None:
    got = ask(serving(), "/to/acme", method=method)

    assert 200 == got.status
    assert (method, "/base") == (partner.seen[0].method, partner.seen[0].path)


def test_trace_headers_pass_and_those_of_the_connection_do_not(partner: Partner, serving: Any) -> None:
    partner.answer = lambda seen: Reply(headers={"Keep-Alive": "timeout=5", "Connection": "x-hop", "X-Hop": "1"})
    sent = {
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "a=b",
        "baggage": "k=v",
        "Authorization": "Basic eDp5",
        "Connection": "keep-alive, X-Mine",
        "X-Mine": "1",
        "TE": "trailers",
        "Proxy-Authorization": "secret",
        "Halfopen-Anything": "1",
    }

    got = ask(serving(), "/to/acme/x", b"", headers=sent)

    seen = partner.seen[0].headers
    assert sent["traceparent"] == seen["traceparent"]
    assert ("a=b", "k=v", "Basic eDp5") == (seen["tracestate"], seen["baggage"], seen["authorization"])
    assert "1.1 halfopen-" == seen["via"][:13]
    assert not {"x-mine", "te", "proxy-authorization", "halfopen-anything", "user-agent"} & seen.keys()
    assert not {"x-hop", "keep-alive"} & got.headers.keys()


def test_headers_of_the_configuration_overrule_those_of_the_program(partner: Partner, serving: Any) -> None:
    port = serving(headers={"Authorization": "Bearer ours"})

    ask(port, "/to/acme/x", b"", headers={"authorization": "Bearer theirs"})

    assert "Bearer ours" == partner.seen[0].headers["authorization"]


def test_bodies_without_a_length_stream_both_ways(partner: Partner, serving: Any) -> None:
    partner.answer = lambda seen: Reply(body=[seen.body[:100_000], seen.body[100_000:]])

    got = ask(serving(), "/to/acme/x", iter([b"a" * 100_000, b"b" * 100_000]))

    assert b"a" * 100_000 + b"b" * 100_000 == got.body
    assert "chunked" == partner.seen[0].headers["transfer-encoding"]


def test_the_answer_begins_before_the_partner_has_ended_it(partner: Partner, serving: Any) -> None:
    go_on = threading.Event()

    def parts() -> Any:
        yield b"first"
        go_on.wait(60)
        yield b"second"

    partner.answer = lambda seen: Reply(body=parts())
    connection = http.client.HTTPConnection("127.0.0.1", serving(), timeout=60)
    connection.request("POST", "/to/acme/x", b"x")
    response = connection.getresponse()

    first = response.read1(100)
    go_on.set()

    assert b"first" == first
    assert b"second" == response.read()
    connection.close()


def test_a_body_of_five_megabytes_arrives_whole(partner: Partner, serving: Any) -> None:
    body = bytes(range(256)) * 20_000
    partner.answer = lambda seen: Reply(body=seen.body)

    got = ask(serving(), "/to/acme/x", body)

    assert body == got.body
    assert str(len(body)) == partner.seen[0].headers["content-length"]


# What the breaker learns


def breaker_of(registry: Registry, **settings: Any) -> CircuitBreaker:
    return registry.circuit_breaker("acme", **{"consecutive_failures": 1, **settings})


def test_an_ill_answer_is_passed_on_and_is_a_failure_with_its_retry_after(
    partner: Partner, serving: Any, registry: Registry
) -> None:
    breaker = breaker_of(registry)
    partner.answer = lambda seen: Reply(503, {"Retry-After": "77"}, b"sick")

    got = ask(serving(), "/to/acme/x", b"x")

    assert (503, b"sick", "77") == (got.status, got.body, got.headers["retry-after"])
    assert State.OPEN == breaker.state
    assert 60 < breaker.snapshot().remaining_wait <= 77  # as it asked; by itself it would be 60 at most


def test_a_404_is_an_answer(partner: Partner, serving: Any, registry: Registry) -> None:
    breaker = breaker_of(registry)
    partner.answer = lambda seen: Reply(404, body=b"no")

    got = ask(serving(), "/to/acme/x", b"x")

    assert (404, b"no") == (got.status, got.body)
    assert 1 == breaker.snapshot().counters.successes


def test_no_connection_is_a_502_that_says_nothing_was_delivered(serving: Any, registry: Registry) -> None:
    breaker = breaker_of(registry)

    got = ask(serving(url=f"http://127.0.0.1:{closed_port()}"), "/to/acme/x", b"x")

    assert (502, "unreachable", "none") == (got.status, got.kind, got.json["delivery"])
    assert State.OPEN == breaker.state


def test_a_reset_is_a_502_that_says_delivery_is_unknown(partner: Partner, serving: Any, registry: Registry) -> None:
    breaker = breaker_of(registry)
    partner.answer = lambda seen: Reply(act=reset)

    got = ask(serving(), "/to/acme/x", b"x")

    assert (502, "broken-off", "unknown") == (got.status, got.kind, got.json["delivery"])
    assert State.OPEN == breaker.state


def test_no_answer_in_time_is_a_504(partner: Partner, serving: Any, registry: Registry) -> None:
    breaker = breaker_of(registry)
    partner.answer = lambda seen: Reply(act=hang)

    got = ask(serving(timeout=0.3), "/to/acme/x", b"x")

    assert (504, "too-slow", "unknown") == (got.status, got.kind, got.json["delivery"])
    assert State.OPEN == breaker.state


def test_an_answer_that_is_no_http_is_a_502(partner: Partner, serving: Any) -> None:
    def nonsense(handler: Any) -> None:
        handler.wfile.write(b"HTTP/9.9 what\r\n\r\n")
        handler.close_connection = True

    partner.answer = lambda seen: Reply(act=nonsense)

    got = ask(serving(), "/to/acme/x", b"x")

    assert (502, "broken-off") == (got.status, got.kind)


def test_a_body_that_breaks_off_is_a_failure_and_the_program_sees_it_broken(
    partner: Partner, serving: Any, registry: Registry
) -> None:
    breaker = breaker_of(registry)
    partner.answer = lambda seen: Reply(act=broken(200_000))

    with pytest.raises(http.client.IncompleteRead):
        ask(serving(), "/to/acme/x", b"x")

    assert State.OPEN == breaker.state


def test_a_small_body_that_breaks_off_is_a_502(partner: Partner, serving: Any, registry: Registry) -> None:
    breaker = breaker_of(registry)
    partner.answer = lambda seen: Reply(act=broken(200))

    got = ask(serving(), "/to/acme/x", b"x")

    assert (502, "broken-off") == (got.status, got.kind)
    assert State.OPEN == breaker.state


@pytest.fixture
def endless() -> Reply:
    def parts() -> Any:
        while True:
            yield b"x" * 10_000

    return Reply(body=parts())


def test_a_program_that_goes_away_in_mid_answer_is_no_evidence(
    partner: Partner, serving: Any, registry: Registry, endless: Reply
) -> None:
    breaker = breaker_of(registry)
    partner.answer = lambda seen: endless
    with socket.create_connection(("127.0.0.1", serving()), timeout=60) as connection:
        connection.sendall(b"GET /to/acme/x HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(1000)

    ignored = until(lambda: breaker.snapshot().counters.ignored == 1)

    assert ignored
    assert State.CLOSED == breaker.state


def test_a_program_that_goes_away_while_the_partner_thinks_is_no_evidence(
    partner: Partner, serving: Any, registry: Registry
) -> None:
    breaker = breaker_of(registry)
    partner.answer = lambda seen: Reply(act=hang)
    with socket.create_connection(("127.0.0.1", serving()), timeout=60) as connection:
        connection.sendall(b"POST /to/acme/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx")
        assert until(lambda: len(partner.seen) == 1)

    ignored = until(lambda: breaker.snapshot().counters.ignored == 1)

    assert ignored


def test_a_program_that_goes_away_in_mid_upload_is_no_evidence(
    partner: Partner, serving: Any, registry: Registry
) -> None:
    breaker = breaker_of(registry)
    with socket.create_connection(("127.0.0.1", serving()), timeout=60) as connection:
        connection.sendall(b"POST /to/acme/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\nxxx")
        assert until(lambda: partner.connections == 1)

    ignored = until(lambda: breaker.snapshot().counters.ignored == 1)

    assert ignored
    assert State.CLOSED == breaker.state


def test_a_redirect_is_not_followed_and_no_evidence(partner: Partner, serving: Any, registry: Registry) -> None:
    breaker = breaker_of(registry)
    partner.answer = lambda seen: Reply(307, {"Location": "http://169.254.169.254/"})

    got = ask(serving(), "/to/acme/x", b"x")

    assert (502, "redirect", "http://169.254.169.254/") == (got.status, got.kind, got.json["location"])
    assert 1 == len(partner.seen)
    assert 1 == breaker.snapshot().counters.ignored


# Refusals


def test_an_open_circuit_answers_at_once_with_a_problem(partner: Partner, serving: Any, registry: Registry) -> None:
    breaker_of(registry).trip(wait=300)

    got = ask(serving(), "/to/acme/x", b"x" * 500_000)

    assert (503, "circuit-open") == (got.status, got.kind)
    assert 200 <= int(got.headers["retry-after"]) <= 300
    told = got.json
    assert ("acme", "open", "open") == (told["circuit"], told["state"], told["reason"])
    assert told["next_trial_at"].endswith("Z")
    assert [] == partner.seen


def test_a_refusal_does_not_wait_for_the_body(serving: Any, registry: Registry) -> None:
    breaker_of(registry).trip(wait=300)

    with socket.create_connection(("127.0.0.1", serving()), timeout=60) as connection:
        connection.sendall(b"POST /to/acme/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
        got = connection.recv(65536)

    assert got.startswith(b"HTTP/1.1 503 ")


def test_the_same_connection_serves_on_after_a_refused_upload(serving: Any, registry: Registry) -> None:
    breaker = breaker_of(registry)
    breaker.trip(wait=300)
    connection = http.client.HTTPConnection("127.0.0.1", serving(), timeout=60)

    connection.request("POST", "/to/acme/x", b"x" * 300_000)
    refused = connection.getresponse()
    refused.read()
    breaker.reset()
    connection.request("POST", "/to/acme/x", b"y")

    assert (503, 200) == (refused.status, connection.getresponse().status)
    connection.close()


def test_recovery_goes_through_a_trial_call(partner: Partner, serving: Any, registry: Registry) -> None:
    breaker = breaker_of(registry)
    port = serving()
    breaker.trip(wait=300)

    assert 503 == ask(port, "/to/acme/x", b"x").status
    breaker.reset()
    breaker.trip(wait=0.1)
    assert until(lambda: 200 == ask(port, "/to/acme/x", b"x").status)
    assert until(lambda: ask(port, "/to/acme/x", b"x").status == 200 and breaker.state == State.CLOSED)


def test_a_pipelines_retry_repeats_only_what_may_be_repeated(
    partner: Partner, serving: Any, registry: Registry
) -> None:
    retry = Retry("acme", on=ConnectionError, attempts=3, backoff=lambda *_: 0.0)
    registry.add(Pipeline(CircuitBreaker("acme"), retry, Timeout("acme", 5), name="acme"))
    answers = iter([503, 503, 200] * 2)
    partner.answer = lambda seen: Reply(next(answers))
    port = serving(pipeline="pipeline.acme")

    put = ask(port, "/to/acme/x", b"x", method="PUT")
    post = ask(port, "/to/acme/x", b"x")

    assert (200, 503) == (put.status, post.status)
    assert ["PUT", "PUT", "PUT", "POST"] == [seen.method for seen in partner.seen]


def test_a_timeout_of_the_pipeline_is_a_504(partner: Partner, serving: Any, registry: Registry) -> None:
    registry.add(Pipeline(CircuitBreaker("acme"), Timeout("acme", 0.2), name="acme"))
    partner.answer = lambda seen: Reply(act=hang)

    got = ask(serving(pipeline="pipeline.acme"), "/to/acme/x", b"x")

    assert (504, "timeout") == (got.status, got.kind)


def test_many_programs_at_once_are_served(partner: Partner, serving: Any) -> None:
    port, got = serving(), []

    def program() -> None:
        for number in range(20):
            got.append(ask(port, f"/to/acme/{number}", b"x" * number).status)

    threads = [threading.Thread(target=program) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [200] * 160 == got


def test_pipelined_requests_are_answered_in_order(partner: Partner, serving: Any) -> None:
    partner.answer = lambda seen: Reply(body=seen.path.encode())
    one = b"POST /to/acme/%d HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx"
    last = b"POST /to/acme/3 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"

    got = raw(serving(), one % 1 + one % 2 + last)

    assert got.index(b"/base/1") < got.index(b"/base/2") < got.index(b"/base/3")


def test_headers_that_come_more_than_once_stay_so(partner: Partner, serving: Any) -> None:
    lines = b"Host: localhost\r\nX-A: 1\r\nCookie: a=1; b=2\r\nX-A: 2\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

    raw(serving(), b"POST /to/acme/x HTTP/1.1\r\n" + lines)

    assert ["1", "2"] == [value for name, value in partner.seen[0].listed if name == "x-a"]
    assert ["a=1; b=2"] == [value for name, value in partner.seen[0].listed if name == "cookie"]


def test_a_pipeline_that_does_not_fit_after_a_reload_leaves_the_old_one_in_force(
    partner: Partner, serving: Any, registry: Registry
) -> None:
    registry.add(Pipeline(CircuitBreaker("acme"), name="acme"))
    port = serving(pipeline="pipeline.acme")
    registry.put("pipeline", "acme", Pipeline(Hedge("acme", delay=1.0), name="acme"))

    assert [200, 200] == [ask(port, "/to/acme/x", b"x").status for _ in range(2)]


def test_a_pipeline_put_in_place_of_another_counts_at_once(partner: Partner, serving: Any, registry: Registry) -> None:
    registry.add(Pipeline(CircuitBreaker("acme"), name="acme"))
    port = serving(pipeline="pipeline.acme")
    ask(port, "/to/acme/x", b"x")
    shut = CircuitBreaker("other")
    shut.force_open()
    registry.put("pipeline", "acme", Pipeline(shut, name="acme"))

    got = ask(port, "/to/acme/x", b"x")

    assert (503, "forced_open") == (got.status, got.json["reason"])
    assert "60" == got.headers["retry-after"]


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_that_promises_a_body_it_cannot_have_passes(partner: Partner, serving: Any, status: int) -> None:
    partner.answer = lambda seen: Reply(act=lambda handler: _without_body(handler, status))

    got = ask(serving(), "/to/acme/x", method="GET")

    assert (status, b"") == (got.status, got.body)


def _without_body(handler: Any, status: int) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", "5")
    handler.end_headers()


def test_a_program_that_pipelines_and_goes_away_ends_its_first_exchange(
    partner: Partner, serving: Any, registry: Registry
) -> None:
    breaker = breaker_of(registry)
    partner.answer = lambda seen: Reply(act=hang)
    one = b"POST /to/acme/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx"
    with socket.create_connection(("127.0.0.1", serving()), timeout=60) as connection:
        connection.sendall(one * 3)
        assert until(lambda: len(partner.seen) == 1)

    assert until(lambda: breaker.snapshot().counters.ignored == 1)
    assert 1 == len(partner.seen)
