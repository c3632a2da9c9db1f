"""A real Prometheus scrapes real processes: every query of the dashboards returns series."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from halfopen import Registry
from halfopen.instrumentation._samples import Kind
from halfopen.instrumentation.metrics import catalogue, metrics_of
from halfopen.instrumentation.prometheus import wsgi_app
from halfopen.instrumentation.resilience4j_prometheus import compatible_metrics
from tests.instrumentation.everything import serve
from tests.instrumentation.prometheus_server import Prometheus, needs_prometheus, running

pytestmark = [needs_prometheus, pytest.mark.slow]

DASHBOARDS = Path(__file__).parents[2] / "dashboards"
RULES = (DASHBOARDS.parent / "alerts" / "rules.yml").read_text(encoding="utf-8")
EXPRESSIONS = "\n".join(rule["expr"] for group in yaml.safe_load(RULES)["groups"] for rule in group["rules"]).replace(
    "name:halfopen_", "name:"
)

# What resilience4j's stock dashboard asks for: metrics, labels and functions as facts, in queries of our own.
_B = 'resilience4j_circuitbreaker_{}{{instance=~".+",name=~".+"{}}}'
RESILIENCE4J = [
    "sum by (state) (" + _B.format("state", "") + " == 1)",
    "max by (name, state) (" + _B.format("state", ',state=~"open|half_open|closed"') + ")",
    "sum by (name) (" + _B.format("failure_rate", "") + ")",
    "sum by (name) (" + _B.format("slow_call_rate", "") + ")",
    "sum by (name, kind) (" + _B.format("buffered_calls", ',kind=~"failed|successful"') + ")",
    "sum by (name) (" + _B.format("max_buffered_calls", "") + ")",
    "sum by (name, kind) (" + _B.format("slow_calls", "") + ")",
    "sum by (name, kind) (rate(" + _B.format("calls_seconds_count", ',kind=~"successful|failed|ignored"') + "[10s]))",
    "sum by (name) (rate(" + _B.format("calls_seconds_sum", ',kind="successful"') + "[10s]))",
    "max by (name) (" + _B.format("calls_seconds_max", ',kind="successful"') + ")",
    "sum by (name) (rate(" + _B.format("not_permitted_calls_total", ',kind="not_permitted"') + "[10s])) > 0",
    'sum by (name, kind) (rate(resilience4j_retry_calls_total{name=~".+",kind=~"successful_without_retry"}[10s])) > 0',
    'resilience4j_bulkhead_available_concurrent_calls{name=~".+"}'
    " <= on (name, instance) resilience4j_bulkhead_max_allowed_concurrent_calls",
]  # fmt: skip


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    command = [sys.executable, "-m", "tests.instrumentation.everything"]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=DASHBOARDS.parent)
        for _ in range(2)
    ]
    try:
        ports = [int(process.stdout.readline()) for process in processes if process.stdout]
        targets = [f"127.0.0.1:{port}" for port in ports]
        with running(tmp_path_factory.mktemp("prometheus"), targets, rules=_hurried(RULES)) as server:
            server.wait_for("count(rate(halfopen_build_info[10s])) == 2")
            server.wait_for("sum(rate(halfopen_circuit_breaker_transitions_total[10s])) > 0")
            yield server
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _hurried(rules: str) -> str:
    """Return the rules with seconds for minutes, so that a test need not wait for an hour."""
    rules = re.sub(r"\bfor: \w+", "for: 0s", rules).replace("interval: 15s", "interval: 300ms")
    rules = rules.replace("[15m]", "[20s]").replace("> 900", "> 10")
    return re.sub(r"\[(5m|10m|30m|1h)\]", "[8s]", rules)


def _queries() -> list[str]:
    board = json.loads((DASHBOARDS / "halfopen.json").read_text(encoding="utf-8"))
    expressions = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    return [*expressions, board["annotations"]["list"][0]["expr"]]


def _filled(expression: str) -> str:
    for variable in ("job", "instance", "name", "queue"):
        expression = expression.replace(f"${variable}", ".*")
    return expression.replace("$__rate_interval", "10s").replace("$__interval", "10s")


@pytest.mark.parametrize("expression", _queries())
def test_each_query_of_the_dashboard_returns_series(prometheus: Prometheus, expression: str) -> None:
    assert prometheus.wait_for(_filled(expression))


@pytest.mark.parametrize("expression", RESILIENCE4J)
def test_each_query_of_resilience4js_dashboard_returns_series(prometheus: Prometheus, expression: str) -> None:
    assert prometheus.wait_for(expression)


@pytest.mark.parametrize("selector", sorted(set(re.findall(r"\bhalfopen_[a-z_]+\b(?:\{[^}]*\})?", EXPRESSIONS))))
def test_each_selector_of_the_alert_rules_returns_series(prometheus: Prometheus, selector: str) -> None:
    assert prometheus.wait_for(selector)


@pytest.mark.parametrize("alert", re.findall(r"- alert: (\w+)", RULES))
def test_each_alert_fires_when_its_cause_is_there(prometheus: Prometheus, alert: str) -> None:
    assert prometheus.wait_for(f'ALERTS{{alertname="{alert}",alertstate="firing"}}', seconds=120)


def test_no_alert_fires_for_what_is_well(prometheus: Prometheus) -> None:
    fired = prometheus.query('ALERTS{alertstate="firing"}')

    assert [] == [one["metric"] for one in fired if one["metric"].get("name") == "healthy"]
    assert [] == [one["metric"] for one in fired if one["metric"].get("store") == "valkey"]


def test_the_variables_of_the_dashboards_are_filled(prometheus: Prometheus) -> None:
    names = set(prometheus.get("/api/v1/label/name/values"))
    instances = prometheus.get("/api/v1/label/instance/values", **{"match[]": "resilience4j_circuitbreaker_state"})

    assert {"healthy", "outage", "retry", "bulkhead"} <= names
    assert 2 == len(instances)


def test_every_metric_of_the_catalogue_is_scraped(prometheus: Prometheus) -> None:
    scraped = set(prometheus.get("/api/v1/label/__name__/values"))
    wanted = {
        metric.name + ("_count" if metric.header.bounds else "")
        for metrics in catalogue().values()
        for metric in metrics
    }

    assert set() == wanted - scraped


def test_every_metric_of_the_compatible_set_is_scraped(prometheus: Prometheus) -> None:
    scraped = set(prometheus.get("/api/v1/label/__name__/values"))
    wanted = {
        metric.name + ("_count" if metric.header.kind is Kind.SUMMARY else "")
        for metrics in compatible_metrics().values()
        for metric in metrics
    }

    assert set() == wanted - scraped


def test_a_state_is_one_of_seven_at_any_time(prometheus: Prometheus) -> None:
    sums = prometheus.query("sum by (instance, name) (halfopen_circuit_breaker_state)")

    assert {"1"} == {series["value"][1] for series in sums}


def test_odd_names_survive_the_way_through_prometheus(tmp_path: Path) -> None:
    registry = Registry()
    metrics_of(registry)
    odd = ['say "hi"', "back\\slash", "line\nbreak", "größe 大小", "per%cent %s", "comma,brace}", "nul\0"]
    for name in odd:
        registry.circuit_breaker(name)

    with running(tmp_path, [f"127.0.0.1:{serve(wsgi_app(registry)).server_port}"]) as server:
        found = server.wait_for("halfopen_circuit_breaker_minimum_calls")

    assert {*odd} == {series["metric"]["name"] for series in found}


def test_openmetrics_is_scraped_too(tmp_path: Path) -> None:
    registry = Registry()
    metrics_of(registry).registry.circuit_breaker("one")

    with running(tmp_path, [f"127.0.0.1:{serve(wsgi_app(registry)).server_port}"]) as server:
        server.wait_for("halfopen_circuit_breaker_transitions_total")
        metadata = server.get("/api/v1/metadata", metric="halfopen_circuit_breaker_call_duration_seconds")

    assert "seconds" == metadata["halfopen_circuit_breaker_call_duration_seconds"][0]["unit"]
