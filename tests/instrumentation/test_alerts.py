"""The alert rules: each fires when it should, and a broken one is caught."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from halfopen.instrumentation.metrics import catalogue
from tests.instrumentation.broken_rules import BROKEN

ALERTS = Path(__file__).parents[2] / "alerts"
RULES = (ALERTS / "rules.yml").read_text(encoding="utf-8")
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not here")


def promtool(*arguments: object, cwd: Path = ALERTS) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False)


@needs_promtool
def test_the_rules_are_well_formed() -> None:
    checked = promtool("check", "rules", "rules.yml")

    assert 0 == checked.returncode, checked.stdout + checked.stderr
    assert "18 rules found" in checked.stdout


@needs_promtool
def test_the_scenarios_fire_what_they_should() -> None:
    tested = promtool("test", "rules", "rules_test.yml")

    assert 0 == tested.returncode, tested.stdout + tested.stderr


@needs_promtool
@pytest.mark.slow
@pytest.mark.parametrize(("right", "wrong"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_a_broken_rule_is_caught(right: str, wrong: str, tmp_path: Path) -> None:
    assert 1 == RULES.count(right), "the rule reads otherwise by now"
    shutil.copy(ALERTS / "rules_test.yml", tmp_path)
    (tmp_path / "rules.yml").write_text(RULES.replace(right, wrong), encoding="utf-8")

    tested = promtool("test", "rules", "rules_test.yml", cwd=tmp_path)

    assert 0 != tested.returncode


def test_every_alert_fires_in_a_scenario() -> None:
    alerts = {rule["alert"] for group in yaml.safe_load(RULES)["groups"] for rule in group["rules"] if "alert" in rule}
    scenarios = yaml.safe_load((ALERTS / "rules_test.yml").read_text(encoding="utf-8"))["tests"]

    fired = {case["alertname"] for test in scenarios for case in test["alert_rule_test"] if case["exp_alerts"]}

    assert alerts == fired


def test_every_alert_is_broken_in_some_way() -> None:
    alerts = re.split(r"(?m)^  - (?:alert|record): ", RULES)[1:]

    unbroken = [text.split("\n")[0] for text in alerts if not any(right in text for _, right, _ in BROKEN)]

    assert [] == unbroken


def test_the_rules_name_only_metrics_and_label_values_that_exist() -> None:
    known = {metric.name: metric for metrics in catalogue().values() for metric in metrics}
    wrong: list[str] = []

    for name, matchers in re.findall(r"\b(halfopen_[a-z_]+)\b(?:\{([^}]*)\})?", RULES.replace("name:halfopen_", "")):
        if name not in known:
            wrong.append(name)
            continue
        allowed = dict(zip(known[name].labels, known[name].values, strict=True))
        for label, values in re.findall(r'(\w+)!?=~?"([^"]*)"', matchers):
            wrong += [f"{name}: {label}={value}" for value in values.split("|") if value not in allowed.get(label, ())]

    assert [] == wrong
