"""What a gateway tells Prometheus."""

from __future__ import annotations

import re
import threading
from typing import Any

from halfopen import Registry
from halfopen.gateway._traffic import Traffic
from halfopen.instrumentation.metrics import metrics_of
from halfopen.instrumentation.prometheus import TEXT, render
from tests.gateway.support import Partner, Reply, ask, broken, hang, raw, until


def counted(port: int, name: str) -> dict[str, float]:
    """Return the series of one metric that are not 0, by the value of their last label."""
    text = ask(port, "/metrics", method="GET").body.decode()
    found = re.findall(rf'^{name}\{{(?:.*,)?\w+="([^"]*)"\}} (\S+)$', text, re.MULTILINE)
    return {label: float(value) for label, value in found if float(value)}


def requests(port: int) -> dict[str, float]:
    return counted(port, "halfopen_gateway_requests_total")


def test_every_outcome_is_there_with_0_before_the_first_request(serving: Any) -> None:
    got = ask(serving(queue=True), "/metrics", method="GET")

    lines = got.body.decode().splitlines()
    assert (200, TEXT) == (got.status, got.headers["content-type"])
    for outcome in ("answered", "stored", "refused", "failed", "invalid", "broken_off"):
        assert f'halfopen_gateway_requests_total{{name="acme",outcome="{outcome}"}} 0' in lines
    assert 'halfopen_gateway_turned_away_total{reason="unknown_partner"} 0' in lines
    assert 'halfopen_circuit_breaker_state{name="acme",state="closed"} 1' in lines
    assert 'halfopen_queue_messages{queue="gateway",state="ready"} 0' in lines


def test_a_request_is_counted_by_what_the_program_got(partner: Partner, serving: Any, registry: Registry) -> None:
    port = serving(queue=True, store_and_forward=False)
    statuses = iter([200, 404, 500])
    partner.answer = lambda seen: Reply(next(statuses))

    for _ in range(3):
        ask(port, "/to/acme/x", b"1")
    registry.circuit_breaker("acme").trip(wait=60)
    refused = ask(port, "/to/acme/x", b"1")
    stored = ask(port, "/to/acme/x", b"1", headers={"Prefer": "respond-async"})
    invalid = ask(port, "/to/acme/x", method="GET", headers={"Halfopen-Stream": "s"})

    assert (503, 202, 400) == (refused.status, stored.status, invalid.status)
    # A program may have its answer a moment before its request is counted.
    assert until(lambda: {"answered": 3, "refused": 1, "stored": 1, "invalid": 1} == requests(port))
    assert {"acme": 6} == counted(port, "halfopen_gateway_request_duration_seconds_count")


def test_what_breaks_is_no_answer(partner: Partner, serving: Any) -> None:
    port = serving(timeout=2.0)

    partner.answer = lambda seen: Reply(act=hang)
    too_slow = ask(port, "/to/acme", b"1")
    partner.answer = lambda seen: Reply(act=broken(1_000_000))
    cut = raw(port, b"POST /to/acme HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n1")

    assert 504 == too_slow.status
    assert b"200" in cut
    assert until(lambda: {"failed": 1, "broken_off": 1} == requests(port))


def test_a_request_under_way_is_shown(partner: Partner, serving: Any) -> None:
    port = serving()
    going = threading.Event()

    def wait(seen: Any) -> Reply:
        going.wait(60)
        return Reply()

    partner.answer = wait
    program = threading.Thread(target=ask, args=(port, "/to/acme", b"1"))
    program.start()
    shown = until(lambda: {"acme": 1} == counted(port, "halfopen_gateway_requests_in_progress"))
    going.set()
    program.join(60)

    assert shown
    assert until(lambda: {} == counted(port, "halfopen_gateway_requests_in_progress"))


def test_who_is_turned_away_makes_no_series_of_his_own(serving: Any) -> None:
    port = serving()

    for number in range(20):
        ask(port, f"/to/nobody-{number}", b"1")
    ask(port, "/to/acme/../x", b"1")
    ask(port, "/to/acme", b"1", headers={"Origin": "https://evil.example"})

    turned_away = {"unknown_partner": 20, "bad_path": 1, "browser": 1}
    assert until(lambda: turned_away == counted(port, "halfopen_gateway_turned_away_total"))
    assert "nobody" not in ask(port, "/metrics", method="GET").body.decode()


def test_metrics_are_shown_to_nobody_without_the_token(serving: Any) -> None:
    port = serving(gateway={"token": "secret"})

    refused = ask(port, "/metrics", method="GET")
    shown = ask(port, "/metrics", method="GET", headers={"Halfopen-Token": "secret"})

    assert (401, 200) == (refused.status, shown.status)
    assert b'turned_away_total{reason="no_token"} 1' in shown.body


def test_partners_without_room_share_a_name() -> None:
    registry = Registry()
    metrics = metrics_of(registry, max_names=2)
    traffic = Traffic()
    traffic.know(["a", "b", "c", "d"])
    metrics.add_gateway(traffic)

    for name in ("a", "c", "d"):
        traffic.begin(name, None).end(answered=True)  # type: ignore[arg-type]  # sends nothing

    text = render(registry)
    assert 'halfopen_gateway_requests_total{name="__other__",outcome="broken_off"} 2' in text
    assert 'halfopen_gateway_request_duration_seconds_count{name="__other__"} 2' in text
    assert "halfopen_metric_names_dropped_total 2" in text
    assert 'name="c"' not in text


def test_a_source_is_added_once_and_can_be_taken_away() -> None:
    registry = Registry()
    metrics = metrics_of(registry)
    traffic = Traffic()
    traffic.know(["a"])

    metrics.add_gateway(traffic)
    end = metrics.add_gateway(traffic)
    shown = render(registry)
    end()

    assert 1 == shown.count('halfopen_gateway_requests_in_progress{name="a"}')
    assert "halfopen_gateway" not in render(registry)
