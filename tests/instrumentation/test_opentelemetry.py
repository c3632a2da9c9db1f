"""Metrics and span events through the OpenTelemetry API, read by the SDK and its Prometheus exporter."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from halfopen import CircuitBreaker, CircuitOpenError, Registry, Retry
from halfopen._core.histogram import DURATION_BUCKETS, Histogram
from halfopen.instrumentation._samples import Kind, Scrape, flat
from halfopen.instrumentation.metrics import catalogue, metrics_of
from halfopen.instrumentation.opentelemetry import Instruments, SpanEvents, spread
from halfopen.testing import FakeClock
from tests.instrumentation.everything import Everything


@pytest.fixture(scope="module")
def exported() -> tuple[Scrape, str]:
    """Return a scrape, and what OpenTelemetry's exporter made of this very scrape."""
    everything = Everything(resilience4j=False)
    for _ in range(5):
        everything.step()
    scrape = everything.metrics.scrape()
    registry = CollectorRegistry()
    provider = MeterProvider([PrometheusMetricReader(registry=registry)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(everything.metrics, "scrape", lambda: scrape)
        Instruments(everything.metrics, meter_provider=provider)
        text = generate_latest(registry).decode()
    provider.shutdown()
    return scrape, text


def test_the_exporters_names_are_ours(exported: tuple[Scrape, str]) -> None:
    scrape, text = exported
    ours = {header.name.removesuffix("_total") for header in scrape.headers.values()}

    theirs = {family.name for family in text_string_to_metric_families(text) if family.samples} - {
        "target_info",
        "target",
    }

    assert ours >= theirs
    # Absent while unknown, as in our own set.
    assert ours - theirs <= {"halfopen_hedge_delay_seconds"}


def test_the_exporters_types_are_ours(exported: tuple[Scrape, str]) -> None:
    _, text = exported
    ours = {metric.name.removesuffix("_total"): metric.header.kind for rows in catalogue().values() for metric in rows}

    theirs = {family.name: family.type for family in text_string_to_metric_families(text) if family.name in ours}

    assert {name: str(ours[name]) for name in theirs} == theirs


def test_the_exporters_numbers_are_ours(exported: tuple[Scrape, str]) -> None:
    scrape, text = exported
    theirs = {
        (sample.name, _values(sample.labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    compared = 0

    for header, series in scrape.series().items():
        suffix = "_count" if header.kind is Kind.HISTOGRAM else ""
        for labels, values in series:
            key = (header.name + suffix, _values(dict(labels)))
            if key in theirs:
                assert values[-1] == theirs[key], key
                compared += 1

    assert compared > 300


def _values(labels: dict[str, str]) -> frozenset[tuple[str, str]]:
    """Return the values, with the label where it decides: from and to take the same values."""
    ends = {label: label.rsplit("_", 1)[-1] for label in labels if not label.startswith("otel_scope")}
    return frozenset((end if end in ("from", "to") else "", labels[label]) for label, end in ends.items())


def test_the_buckets_are_ours(exported: tuple[Scrape, str]) -> None:
    _, text = exported

    bounds = re.findall(r'halfopen_circuit_breaker_call_duration_seconds_bucket\{.*?"healthy".*?le="([^"]+)"', text)

    assert [*map(str, DURATION_BUCKETS), "+Inf"] == bounds[: len(DURATION_BUCKETS) + 1]


def test_names_and_units_follow_the_rules_of_the_semantic_conventions() -> None:
    rows = [metric for metrics in catalogue().values() for metric in metrics]

    assert {"circuit_breaker.failure.ratio", "circuit_breaker.slow_call.ratio"} == {
        metric.otel for metric in rows if metric.otel_unit == "1"
    }
    assert [] == [m.otel for m in rows if not re.fullmatch(r"1|s|\{[a-z]+\}", m.otel_unit)]
    assert [] == [m.otel for m in rows if re.search(r"_total|_?seconds|[^a-z_.]", m.otel)]
    assert [] == [m.otel for m in rows if (m.otel_unit == "s") != ("_seconds" in m.name)]
    assert len(rows) == len({metric.otel for metric in rows})


def test_attributes_are_namespaced(exported: tuple[Scrape, str]) -> None:
    _, text = exported

    labels = {
        label
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if family.name.startswith("halfopen")
        for label in sample.labels
    } - {"le"}

    assert {label for label in labels if not label.startswith(("halfopen_", "otel_scope_"))} == set()
    assert {
        "halfopen_circuit_breaker_name",
        "halfopen_circuit_breaker_state",
        "halfopen_transition_from",
        "halfopen_queue_message_state",
        "halfopen_store_operation",
        "halfopen_outcome",
    } <= labels


def points(reader: InMemoryMetricReader, name: str) -> list[Any]:
    data = reader.get_metrics_data()
    assert data is not None
    return [
        point
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.data.data_points
    ]


def test_histograms_have_the_same_buckets_and_sums_over_several_exports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfopen.instrumentation.opentelemetry._SAME_EXPORT", 0.0)
    clock = FakeClock()
    registry = Registry(clock=clock)
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    Instruments(registry, meter_provider=provider)
    breaker = registry.circuit_breaker("one")
    rng = random.Random(2)

    for _ in range(3):
        for _ in range(50):
            seconds = rng.lognormvariate(-2, 2)
            breaker.call(lambda: clock.advance(seconds))  # noqa: B023  (called at once)
        found = {p.attributes["halfopen.outcome"]: p for p in points(reader, "halfopen.circuit_breaker.call.duration")}
    ours = metrics_of(registry).scrape().series()
    values = next(
        values for header, series in ours.items() if header.name.endswith("call_duration_seconds")
        for labels, values in series if ("outcome", "success") in labels
    )  # fmt: skip
    cumulative = [sum(found["success"].bucket_counts[: place + 1]) for place in range(len(DURATION_BUCKETS) + 1)]

    assert list(values[:-2]) == cumulative
    assert pytest.approx(values[-2], rel=1e-3) == found["success"].sum
    provider.shutdown()


def test_two_registries_share_the_instruments_of_one_provider() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    for name in ("one", "two"):
        registry = Registry()
        Instruments(registry, meter_provider=provider)
        Instruments(registry, meter_provider=provider)  # twice is once
        registry.circuit_breaker(name).call(str)

    calls, started = (
        {
            point.attributes["halfopen.circuit_breaker.name"]: point
            for point in points(reader, f"halfopen.circuit_breaker.{metric}")
            if point.attributes.get("halfopen.outcome") == "success"
        }
        for metric in ("call.duration", "trials")
    )

    assert {"one": 1, "two": 1} == {name: point.count for name, point in calls.items()}
    assert {"one": 0, "two": 0} == {name: point.value for name, point in started.items()}
    provider.shutdown()


@pytest.mark.parametrize("seed", range(20))
def test_spread_values_make_the_same_histogram(seed: int) -> None:
    rng = random.Random(seed)
    true, rebuilt = Histogram(), Histogram()
    for _ in range(rng.randrange(1, 60)):
        true.add(rng.lognormvariate(-2, 2))

    values = tuple(flat([true.snapshot()])[0])
    for value, times in spread(DURATION_BUCKETS, (0,) * len(values), values):
        for _ in range(times):
            rebuilt.add(value)

    assert true.snapshot().counts == rebuilt.snapshot().counts
    assert pytest.approx(true.snapshot().sum, rel=0.02, abs=0.02) == rebuilt.snapshot().sum


def traced() -> tuple[Any, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider.get_tracer("test"), exporter


def fail() -> None:
    raise ConnectionError


def test_a_traced_call_shows_the_move_it_caused_and_its_refusal() -> None:
    tracer, exporter = traced()
    registry = Registry()
    spans = SpanEvents(registry)
    spans.start()
    breaker: CircuitBreaker = registry.circuit_breaker("bank", consecutive_failures=1)

    with tracer.start_as_current_span("opens"), pytest.raises(ConnectionError):
        breaker.call(fail)
    with tracer.start_as_current_span("refused"), pytest.raises(CircuitOpenError):
        breaker.call(fail)
    spans.stop()
    with tracer.start_as_current_span("untold"), pytest.raises(CircuitOpenError):
        breaker.call(fail)

    opened, refused, untold = exporter.get_finished_spans()
    moved = next(event for event in opened.events if event.name == "halfopen.circuit_breaker.transition")
    assert ("closed", "open", "consecutive", "bank") == (
        moved.attributes["halfopen.transition.from"],
        moved.attributes["halfopen.transition.to"],
        moved.attributes["halfopen.reason"],
        moved.attributes["halfopen.circuit_breaker.name"],
    )
    rejected = next(event for event in refused.events if event.name == "halfopen.circuit_breaker.rejection")
    assert "open" == rejected.attributes["halfopen.reason"]
    assert [] == [event.name for event in untold.events if event.name.startswith("halfopen")]


def test_a_traced_call_shows_its_retries() -> None:
    tracer, exporter = traced()
    registry = Registry()
    SpanEvents(registry).start()
    retry = Retry("bank", on=ConnectionError, attempts=2, backoff=0.0001, bus=registry.bus)

    with tracer.start_as_current_span("call"), pytest.raises(ConnectionError):
        retry.call(fail)

    events = [event for event in exporter.get_finished_spans()[0].events if event.name == "halfopen.retry.scheduled"]
    assert [("bank", 1, "ConnectionError")] == [
        (e.attributes["halfopen.retry.name"], e.attributes["halfopen.retry.attempt"], e.attributes["error.type"])
        for e in events
    ]


def test_only_the_api_is_imported() -> None:
    program = (
        "import sys, halfopen.instrumentation.opentelemetry\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])"
    )

    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "[]" == ran.stdout.strip()
