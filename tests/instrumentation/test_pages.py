"""The pages about metrics and alerts name what there is, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from halfopen.instrumentation.metrics import catalogue
from tests.instrumentation.broken_rules import BROKEN

ROOT = Path(__file__).parents[2]
METRICS = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
ALERTS = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
RULES = yaml.safe_load((ROOT / "alerts" / "rules.yml").read_text(encoding="utf-8"))


def tables() -> dict[str, str]:
    """Return the rows of the page's tables of metrics by full name."""
    found: dict[str, str] = {}
    for title, rows in re.findall(r"^\| `halfopen_([a-z_]*)…` \|.*\n\|---.*\n((?:\|.*\n)+)", METRICS, re.MULTILINE):
        for row in rows.splitlines():
            names, _, rest = row.removeprefix("| ").partition(" | ")
            for name in re.findall(r"`([a-z_]+)`", names):
                found[f"halfopen_{title}{name}"] = rest
    return found


def test_the_page_lists_every_metric_and_no_other() -> None:
    known = {metric.name for metrics in catalogue().values() for metric in metrics}

    assert known == set(tables())


def test_the_page_tells_types_labels_and_values() -> None:
    rows = tables()
    for metrics in catalogue().values():
        for metric in metrics:
            row = rows[metric.name]
            assert metric.header.kind.value in row, metric.name
            for label, values in zip(metric.labels, metric.values, strict=True):
                assert f"`{label}`" in row, metric.name
                # The seven states and the reasons of moves have tables of their own.
                if label not in ("state", "from", "to") and "transitions" not in metric.name:
                    assert [] == [value for value in values if value not in row], metric.name


def test_the_page_lists_every_alert_with_its_severity() -> None:
    alerts = {
        rule["alert"]: rule["labels"]["severity"]
        for group in RULES["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }

    listed = dict(re.findall(r"^\| (\w+)(?: \((\w+)\))? \|", ALERTS.split("|---|---|---|\n")[1], re.MULTILINE))

    assert {name: "" if severity == "warning" else severity for name, severity in alerts.items()} == listed
    assert f"has 2 recording rules and {len(alerts)} alerts" in ALERTS
    assert f"{len(BROKEN)} broken variants" in ALERTS
