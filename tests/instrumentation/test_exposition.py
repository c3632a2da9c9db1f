"""The text formats, and what serves them."""

from __future__ import annotations

import asyncio
import gzip
import math
import shutil
import subprocess
import warnings
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from halfopen import Registry
from halfopen.instrumentation.exposition import OPENMETRICS, TEXT, negotiate
from halfopen.instrumentation.metrics import metrics_of
from halfopen.instrumentation.prometheus import Collector, MultiprocessWarning, asgi_app, render, wsgi_app
from tests.instrumentation.everything import Everything, FakeQueue

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def everything() -> Everything:
    made = Everything()
    for _ in range(10):
        made.step()
    return made


def samples(families: Any) -> Samples:
    """Return what does not change by itself from one moment to the next."""
    moving = ("timestamp", "time_in_state", "view_age", "available_permi")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
        if not any(word in sample.name for word in moving)
    }


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not here")
def test_promtool_finds_nothing_to_say() -> None:
    everything = Everything(resilience4j=False)
    everything.step()
    text = render(everything.metrics)

    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)

    assert (0, "", "") == (checked.returncode, checked.stdout, checked.stderr)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not here")
def test_promtool_reads_the_compatible_set(everything: Everything) -> None:
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=render(everything.metrics), capture_output=True, text=True, check=False
    )

    # Its names are not ours to choose; nothing else may be said of it, and nothing at all of ours.
    assert "error" not in checked.stderr
    assert [] == [line for line in checked.stderr.splitlines() if line.startswith("halfopen")]


def test_both_formats_say_the_same(everything: Everything) -> None:
    text = samples(parse_text(render(everything.metrics)))
    opened = samples(parse_openmetrics(render(everything.metrics, openmetrics=True)))

    assert text.keys() == opened.keys()
    assert 500 < len(text)
    assert text == opened


def test_the_collector_says_the_same(everything: Everything) -> None:
    registry = CollectorRegistry()
    registry.register(Collector(everything.metrics))

    collected = samples(parse_text(generate_latest(registry).decode()))

    assert samples(parse_text(render(everything.metrics))) == collected


def test_the_collector_warns_where_it_would_be_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "/run/somewhere")

    with pytest.warns(MultiprocessWarning, match=r"workers\.Workers"):
        Collector(Registry())


def test_the_collector_is_silent_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Collector(Registry())


def test_odd_names_survive_a_round_trip_through_both_parsers() -> None:
    registry = Registry()
    metrics_of(registry)
    odd = {'say "hi"', "back\\slash", "line\nbreak", "größe 大小", "per%cent %s", "comma,brace}", "\\n", '\\"'}
    for name in odd:
        registry.circuit_breaker(name)

    for families in (parse_text(render(registry)), parse_openmetrics(render(registry, openmetrics=True))):
        names = {sample.labels["name"] for family in families for sample in family.samples if "name" in sample.labels}
        assert odd == names


def test_a_name_that_no_encoding_knows_does_not_take_the_scrape_down() -> None:
    registry = Registry()
    metrics_of(registry)
    registry.circuit_breaker("half a \ud800 pair")
    registry.circuit_breaker("well")
    client = CollectorRegistry()
    client.register(Collector(registry))

    _, _, body = call_wsgi(wsgi_app(registry), REQUEST_METHOD="GET")

    for text in (body.decode(), generate_latest(client).decode()):
        names = {s.labels["name"] for family in parse_text(text) for s in family.samples if "name" in s.labels}
        assert {"half a \N{REPLACEMENT CHARACTER} pair", "well"} == names


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text; version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
         "text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        ("application/openmetrics-text;q=0.4, text/plain;q=0.5", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=much", False),
    ],
)  # fmt: skip
def test_accept_decides_the_format(accept: str, openmetrics: bool) -> None:
    assert openmetrics == negotiate(accept)


def call_wsgi(app: Any, **environ: str) -> tuple[str, dict[str, str], bytes]:
    answer: list[Any] = []
    body = b"".join(app(environ, lambda status, headers: answer.extend([status, dict(headers)])))
    return answer[0], answer[1], body


def call_asgi(app: Any, method: str, accept: str = "") -> tuple[int, dict[bytes, bytes], bytes]:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    scope = {"type": "http", "method": method, "headers": [(b"accept", accept.encode())]}
    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


def test_numbers_that_are_none_are_shown_as_prometheus_does() -> None:
    registry = Registry()
    queue = FakeQueue()
    queue.oldest = math.nan
    metrics_of(registry).add_queue(queue)
    age = "halfopen_queue_oldest_message_timestamp_seconds"

    shown = []
    for oldest in (math.nan, math.inf, -math.inf, 1.5):
        queue.oldest = oldest
        text = render(registry)
        list(parse_text(text))
        shown.append(text.split(f'\n{age}{{queue="hooks"}} ')[1].split("\n")[0])

    assert ["NaN", "+Inf", "-Inf", "1.5"] == shown


def test_the_wsgi_application_answers_in_the_format_asked_for() -> None:
    registry = Registry()
    app = wsgi_app(registry)

    status, headers, body = call_wsgi(app, REQUEST_METHOD="GET")
    _, other, opened = call_wsgi(app, REQUEST_METHOD="GET", HTTP_ACCEPT="application/openmetrics-text")

    assert ("200 OK", TEXT, str(len(body))) == (status, headers["Content-Type"], headers["Content-Length"])
    assert OPENMETRICS == other["Content-Type"]
    assert opened.endswith(b"# EOF\n")


def test_the_asgi_application_answers_in_the_format_asked_for() -> None:
    app = asgi_app(Registry())

    status, headers, body = call_asgi(app, "GET")
    head = call_asgi(app, "HEAD", "application/openmetrics-text")

    assert (200, TEXT.encode()) == (status, headers[b"content-type"])
    assert b"halfopen_build_info" in body
    assert (200, OPENMETRICS.encode(), b"") == (head[0], head[1][b"content-type"], head[2])


@pytest.mark.parametrize(
    ("encodings", "zipped"),
    [("gzip", True), ("gzip;q=1.0, deflate", True), ("br, *", True), ("", False), ("identity", False),
     ("gzip;q=0", False), ("*;q=0", False), ("*, gzip;q=0", False), ("gzip;q=x", False)],
)  # fmt: skip
def test_the_answer_is_zipped_for_those_who_take_it(encodings: str, zipped: bool) -> None:
    app = wsgi_app(Registry())

    _, headers, body = call_wsgi(app, REQUEST_METHOD="GET", HTTP_ACCEPT_ENCODING=encodings)
    _, head, nothing = call_wsgi(app, REQUEST_METHOD="HEAD", HTTP_ACCEPT_ENCODING=encodings)

    assert zipped == (headers.get("Content-Encoding") == "gzip")
    assert b"halfopen_build_info" in (gzip.decompress(body) if zipped else body)
    assert (str(len(body)), "Accept, Accept-Encoding") == (headers["Content-Length"], headers["Vary"])
    assert (head, b"") == (headers, nothing)


def test_other_methods_are_refused() -> None:
    registry = Registry()

    assert 405 == call_asgi(asgi_app(registry), "POST")[0]
    assert call_wsgi(wsgi_app(registry), REQUEST_METHOD="DELETE")[0].startswith("405")


def test_the_asgi_application_takes_part_in_the_lifespan() -> None:
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    sent: list[str] = []

    async def receive() -> dict[str, str]:
        return next(messages)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message["type"])

    asyncio.run(asgi_app(Registry())({"type": "lifespan"}, receive, send))  # type: ignore[arg-type]

    assert ["lifespan.startup.complete", "lifespan.shutdown.complete"] == sent
