"""
Write the Grafana dashboard: `python dashboards/build.py` makes `dashboards/halfopen.json`, `--check` compares.

One row answers one question, in the order in which somebody asks them who was just paged: what is open, since when,
what does it cost, was it right, what else refuses, what is waiting.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["PANELS", "Panel", "Query", "dashboard"]

TARGET = Path(__file__).with_name("halfopen.json")
WIDTH = 24
_B = "halfopen_circuit_breaker_"
_NAME = '{job=~"$job",instance=~"$instance",name=~"$name"}'
_QUEUE = '{job=~"$job",instance=~"$instance",queue=~"$queue"}'
_ALL = '{job=~"$job",instance=~"$instance"}'


@dataclass(frozen=True)
class Query:
    """One query of a panel and the legend of its series."""

    expression: str
    legend: str = "{{name}}"


@dataclass(frozen=True)
class Panel:
    """
    One panel.

    Attributes:
        unit: As Grafana names it.
        width: Of 24 columns.
        kind: ``timeseries``, ``stat``, ``table``, ``state-timeline`` or ``row``.
    """

    title: str
    queries: tuple[Query, ...] = ()
    about: str = ""
    unit: str = "short"
    width: int = 8
    kind: str = "timeseries"
    stacked: bool = False


def _of(metric: str, more: str = "", selector: str = _NAME) -> str:
    return metric + (selector if not more else selector[:-1] + "," + more + "}")


def _max(metric: str, more: str = "") -> str:
    return f"max by (name) ({_of(metric, more)})"


def _rate(metric: str, by: str, more: str = "", selector: str = _NAME) -> str:
    return f"sum by ({by}) (rate({_of(metric, more, selector)}[$__rate_interval]))"


def _quantile(share: float, metric: str, by: str, selector: str = _NAME) -> str:
    buckets = _rate(metric + "_bucket", by + ", le", "", selector)
    return f"histogram_quantile({share}, {buckets})"


def _row(title: str) -> Panel:
    return Panel(title, kind="row", width=WIDTH)


def _panel(title: str, *queries: tuple[str, str] | str, **more: Any) -> Panel:
    return Panel(title, tuple(Query(*((one,) if isinstance(one, str) else one)) for one in queries), **more)


_STATES = ("open", "half_open", "recovering", "forced_open", "disabled", "metrics_only", "closed")
_IS = {state: f'state="{state}"' for state in _STATES}
# The lowest number is the worst state that any process sees.
_CODE = " or ".join(f"{number} * ({_of(_B + 'state', _IS[state])} == 1)" for number, state in enumerate(_STATES, 1))
_REFUSING = 'state=~"open|half_open|recovering"'
_ORDERED = 'state=~"forced_open|disabled|metrics_only"'
_IN_STATE = _B + "time_in_state_seconds_total"
_ATTEMPTS = _rate("halfopen_retry_attempts_total", "name")
_RETRIED = _rate("halfopen_retry_calls_total", "name")
_FOR_PEOPLE = 'state=~"error|dead"'
_OLDEST = _of("halfopen_queue_oldest_message_timestamp_seconds", "", _QUEUE)

PANELS: tuple[Panel, ...] = (
    _row("What is open"),
    _panel(
        "Not closed now",
        (f"sum({_max(_B + 'state', _REFUSING)})", ""),
        about="Breakers that refuse or meter calls in at least one process.",
        kind="stat",
        width=4,
    ),
    _panel(
        "By order",
        (f"sum({_max(_B + 'state', _ORDERED)})", ""),
        about="Breakers in a state that an operator ordered.",
        kind="stat",
        width=4,
    ),
    _panel(
        "State",
        f"min by (name) ({_CODE})",
        about="Each breaker over time, in the worst case of all.",
        kind="state-timeline",
        width=16,
    ),
    _row("Since when, and why"),
    _panel(
        "Time in the present state",
        f"time() - {_max(_B + 'state_entered_timestamp_seconds')}",
        about="Of the process that moved last.",
        unit="s",
    ),
    _panel(
        "Moves per minute",
        (
            f"60 * {_rate(_B + 'transitions_total', 'name, from, to, reason')}",
            "{{name}}: {{from}} → {{to}} ({{reason}})",
        ),
        about="What moved, and the reason of each move.",
    ),
    _panel(
        "Share of time not closed",
        f"1 - {_rate(_IN_STATE, 'name', _IS['closed'])} / {_rate(_IN_STATE, 'name')}",
        about="Counted by the breakers themselves, so no missed scrape distorts it.",
        unit="percentunit",
    ),
    _row("What it costs"),
    _panel(
        "Calls let through",
        (_rate(_B + "call_duration_seconds_count", "name, outcome"), "{{name}} {{outcome}}"),
        unit="reqps",
        stacked=True,
    ),
    _panel(
        "Calls refused",
        (_rate(_B + "rejections_total", "name, reason"), "{{name}} {{reason}}"),
        about="open: the wait is not over; trial_budget: half-open, and all trial calls are taken.",
        unit="reqps",
        stacked=True,
    ),
    _panel(
        "≈ refused calls that would have succeeded",
        _rate(_B + "estimated_false_rejections_total", "name"),
        about="An estimate, right in order of magnitude. Exact numbers come from replaying recorded traffic.",
        unit="reqps",
    ),
    _row("Is it recovering"),
    _panel(
        "Next trial in",
        f"min by (name) ({_of(_B + 'next_trial_timestamp_seconds')}) - time()",
        about="Open breakers only. Negative while the wait is over and nobody calls.",
        unit="s",
    ),
    _panel("Trial calls", (_rate(_B + "trials_total", "name, outcome"), "{{name}} {{outcome}}"), unit="cps"),
    _panel(
        "Trial calls of this round",
        (_max(_B + "trial_calls_started"), "{{name}} started"),
        (_max(_B + "trial_calls_limit"), "{{name}} limit"),
    ),
    _panel("Step of the backoff", _max(_B + "backoff_step"), about="Grows with each failed round of trial calls."),
    _panel(
        "Late results and abandoned permits",
        (_rate(_B + "late_results_total", "name"), "{{name}} late"),
        (_rate(_B + "abandoned_permits_total", "name"), "{{name}} abandoned"),
        about="Late: reported after the circuit had moved on. Abandoned: thrown away unsettled, a bug in the caller.",
        unit="cps",
    ),
    _row("Was it right to open"),
    _panel(
        "Failures against the limit",
        _max(_B + "failure_ratio"),
        (_max(_B + "failure_ratio_threshold"), "{{name}} limit"),
        about="Share of failed calls in the window; absent below the minimum number of calls.",
        unit="percentunit",
    ),
    _panel(
        "Slow calls against the limit",
        _max(_B + "slow_call_ratio"),
        (_max(_B + "slow_call_ratio_threshold"), "{{name}} limit"),
        unit="percentunit",
    ),
    _panel(
        "Evidence in the window",
        (f"sum by (name, outcome) ({_of(_B + 'window_calls')})", "{{name}} {{outcome}}"),
        (_max(_B + "minimum_calls"), "{{name}} minimum"),
    ),
    _panel(
        "Durations, median and 99 %",
        (_quantile(0.5, _B + "call_duration_seconds", "name"), "{{name}} 50 %"),
        (_quantile(0.99, _B + "call_duration_seconds", "name"), "{{name}} 99 %"),
        unit="s",
    ),
    _panel("Slow calls", (_rate(_B + "slow_calls_total", "name, outcome"), "{{name}} {{outcome}}"), unit="cps"),
    _row("What observed breakers would do"),
    _panel(
        "Openings within the hour, had they not been observed only",
        (f"sum by (name, reason) (increase({_of(_B + 'dry_run_openings_total')}[1h]))", "{{name}} {{reason}}"),
        about="From a dry run beside each breaker that is observed.",
        width=12,
    ),
    _panel(
        "≈ calls that they would have refused",
        _rate(_B + "dry_run_rejections_total", "name"),
        about="Calls that ended while the dry run was open.",
        unit="reqps",
        width=12,
    ),
    _row("The other policies"),
    _panel(
        "Attempts per call",
        f"{_ATTEMPTS} / {_RETRIED}",
        about="1 is no retry at all; what an outage makes of it is the amplification.",
    ),
    _panel("Retried calls", (_rate("halfopen_retry_calls_total", "name, outcome"), "{{name}} {{outcome}}"), unit="cps"),
    _panel("Delays before further attempts, 90 %", _quantile(0.9, "halfopen_retry_delay_seconds", "name"), unit="s"),
    _panel(
        "Bulkheads: in use, waiting, limit",
        (f"sum by (name) ({_of('halfopen_bulkhead_in_use')})", "{{name}} in use"),
        (f"sum by (name) ({_of('halfopen_bulkhead_waiting')})", "{{name}} waiting"),
        (f"sum by (name) ({_of('halfopen_bulkhead_limit')})", "{{name}} limit"),
    ),
    _panel(
        "Refused by bulkheads and rate limiters",
        (_rate("halfopen_bulkhead_rejections_total", "name, reason"), "{{name}} {{reason}}"),
        (_rate("halfopen_rate_limiter_rejections_total", "name, reason"), "{{name}} {{reason}}"),
        unit="cps",
    ),
    _panel(
        "Timeouts and fallbacks",
        (_rate("halfopen_timeout_calls_total", "name", 'outcome="timeout"'), "{{name}} timed out"),
        (_rate("halfopen_fallback_calls_total", "name, outcome"), "{{name}} fallback {{outcome}}"),
        unit="cps",
    ),
    _row("What is waiting"),
    _panel(
        "Messages",
        (f"max by (queue, state) ({_of('halfopen_queue_messages', '', _QUEUE)})", "{{queue}} {{state}}"),
        about="Delayed: behind an open breaker or a held lane.",
        stacked=True,
    ),
    _panel("Age of the oldest", (f"time() - min by (queue) ({_OLDEST})", "{{queue}}"), unit="s"),
    _panel(
        "In and out",
        (_rate("halfopen_queue_enqueued_total", "queue", "", _QUEUE), "{{queue}} in"),
        (_rate("halfopen_queue_completed_total", "queue", "", _QUEUE), "{{queue}} out"),
        (_rate("halfopen_queue_attempts_total", "queue, outcome", "", _QUEUE), "{{queue}} attempts {{outcome}}"),
        (_rate("halfopen_queue_dead_letters_total", "queue", "", _QUEUE), "{{queue}} dead"),
        unit="cps",
    ),
    _panel(
        "From enqueued to done, 90 %",
        (_quantile(0.9, "halfopen_queue_completion_age_seconds", "queue", _QUEUE), "{{queue}}"),
        unit="s",
    ),
    _panel(
        "Held lanes, messages for people",
        (f"max by (queue) ({_of('halfopen_queue_lanes_held', '', _QUEUE)})", "{{queue}} lanes held"),
        (f"max by (queue, state) ({_of('halfopen_queue_messages', _FOR_PEOPLE, _QUEUE)})", "{{queue}} {{state}}"),
        about="Nothing moves here until somebody releases a lane, or retries, resubmits or cancels a message.",
    ),
    _panel(
        "Alerts of the queue within the hour",
        (
            f"sum by (queue, kind) (increase({_of('halfopen_queue_alerts_total', '', _QUEUE)}[1h]))",
            "{{queue}} {{kind}}",
        ),
    ),
    _row("The gateway"),
    _panel(
        "Requests of programs",
        (_rate("halfopen_gateway_requests_total", "name, outcome"), "{{name}} {{outcome}}"),
        about="answered: by the partner; stored: 202; refused: 503 or 429; failed: 502 or 504.",
        unit="reqps",
        stacked=True,
    ),
    _panel("Requests under way", f"sum by (name) ({_of('halfopen_gateway_requests_in_progress')})"),
    _panel(
        "Durations of requests, median and 99 %",
        (_quantile(0.5, "halfopen_gateway_request_duration_seconds", "name"), "{{name}} 50 %"),
        (_quantile(0.99, "halfopen_gateway_request_duration_seconds", "name"), "{{name}} 99 %"),
        unit="s",
    ),
    _panel(
        "Turned away",
        (_rate("halfopen_gateway_turned_away_total", "reason", "", _ALL), "{{reason}}"),
        about="Requests that came to no partner: unknown names, wrong tokens, pages in browsers.",
        unit="reqps",
    ),
    _row("The processes"),
    _panel(
        "Shared store",
        (f"min by (store) ({_of('halfopen_store_up', '', _ALL)})", "{{store}}"),
        about="1 while every process reaches it.",
    ),
    _panel("Versions", (f"count by (version) ({_of('halfopen_build_info', '', _ALL)})", "{{version}}")),
    _panel(
        "Names without series of their own",
        (f"sum({_of('halfopen_metric_names_dropped_total', '', _ALL)})", ""),
        about="Policies that share the name __other__. Above 0: raise max_names, or look for names made from requests.",
    ),
)


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana reads it."""
    return {
        "title": "halfopen",
        "uid": "halfopen",
        "tags": ["halfopen", "resilience"],
        "description": "Circuit breakers and the policies around them. Made by dashboards/build.py.",
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "annotations": {"list": [_openings()]},
        "templating": {"list": list(_variables())},
        "panels": list(_placed(PANELS)),
    }


def _source() -> dict[str, str]:
    return {"type": "prometheus", "uid": "${datasource}"}


def _openings() -> dict[str, Any]:
    opened = _of(_B + "transitions_total", 'from="closed",to="open"')
    return {
        "name": "Openings",
        "datasource": _source(),
        "enable": True,
        "iconColor": "red",
        "expr": f"sum by (name, reason) (increase({opened}[2m])) > 0",
        "step": "60s",
        "titleFormat": "{{name}} opened: {{reason}}",
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1}
    for name, label, query in (
        ("job", "Job", "label_values(halfopen_build_info, job)"),
        ("instance", "Instance", 'label_values(halfopen_build_info{job=~"$job"}, instance)'),
        ("name", "Policy", 'label_values({__name__=~"halfopen_.+",job=~"$job",name!=""}, name)'),
        ("queue", "Queue", 'label_values(halfopen_queue_messages{job=~"$job"}, queue)'),
    ):
        yield {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": _source(),
            "definition": query,
            "query": {"query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
            "refresh": 2,
            "includeAll": True,
            "allValue": ".*",
            "multi": True,
            "sort": 1,
            "current": {"text": "All", "value": "$__all"},
        }


def _placed(panels: Iterable[Panel]) -> Iterator[dict[str, Any]]:
    x = y = 0
    for number, panel in enumerate(panels, 1):
        height = 1 if panel.kind == "row" else 8
        if x + panel.width > WIDTH or panel.kind == "row":
            x, y = 0, y + (8 if x else 0)
        yield {**_drawn(panel), "id": number, "gridPos": {"x": x, "y": y, "w": panel.width, "h": height}}
        x += panel.width
        if panel.kind == "row":
            x, y = 0, y + 1
        elif x >= WIDTH:
            x, y = 0, y + 8


def _drawn(panel: Panel) -> dict[str, Any]:
    if panel.kind == "row":
        return {"type": "row", "title": panel.title, "collapsed": False, "panels": []}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _source(),
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": _OPTIONS[panel.kind],
        "targets": [
            {
                "refId": chr(65 + place),
                "expr": query.expression,
                "legendFormat": query.legend or "__auto",
                "datasource": _source(),
                **({"instant": True, "range": False} if panel.kind == "stat" else {"range": True}),
            }
            for place, query in enumerate(panel.queries)
        ],
    }


_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "none",
        "textMode": "value",
    },
    "state-timeline": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "showValue": "auto",
        "mergeValues": True,
        "tooltip": {"mode": "single", "sort": "none"},
    },
}
_COLOURS = {
    "closed": "green", "open": "red", "half_open": "yellow", "recovering": "blue",
    "forced_open": "dark-red", "disabled": "purple", "metrics_only": "light-blue",
}  # fmt: skip


def _field(panel: Panel) -> dict[str, Any]:
    field: dict[str, Any] = {"unit": panel.unit}
    if panel.unit == "percentunit":
        field |= {"min": 0, "max": 1}
    if panel.kind == "timeseries":
        stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
        field["custom"] = {"fillOpacity": 20 if panel.stacked else 0, "stacking": stacking, "spanNulls": False}
    elif panel.kind == "stat":
        steps = [{"color": "green", "value": None}, {"color": "red", "value": 1}]
        field |= {"noValue": "0", "thresholds": {"mode": "absolute", "steps": steps}}
    else:
        texts = {
            str(number): {"text": state, "color": _COLOURS[state], "index": number}
            for number, state in enumerate(_STATES, 1)
        }
        field["mappings"] = [{"type": "value", "options": texts}]
    return field


def main() -> int:
    """Write the file, or with ``--check`` say whether it is up to date."""
    text = json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"
    if "--check" in sys.argv[1:]:
        return int(not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text)
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
