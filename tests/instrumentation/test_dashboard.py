"""The Grafana dashboard is what its script builds, and asks for nothing that is not exposed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from halfopen.instrumentation.metrics import catalogue

DASHBOARDS = Path(__file__).parents[2] / "dashboards"
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not here")
BOARD: dict[str, Any] = json.loads((DASHBOARDS / "halfopen.json").read_text(encoding="utf-8"))


def test_the_file_is_what_the_script_builds() -> None:
    checked = subprocess.run([sys.executable, DASHBOARDS / "build.py", "--check"], check=False)

    assert 0 == checked.returncode


def test_its_queries_name_only_metrics_that_exist() -> None:
    known = {
        metric.name + suffix
        for rows in catalogue().values()
        for metric in rows
        for suffix in (("_bucket", "_sum", "_count") if metric.header.bounds else ("",))
    }
    asked = set(re.findall(r"\bhalfopen_[a-z_]+\b", " ".join(_expressions())))

    assert set() == asked - known
    assert len(asked) > 35


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = BOARD["panels"]
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]

    assert len(panels) == len({panel["id"] for panel in panels})
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_every_query_obeys_the_variables() -> None:
    free = [expression for expression in _expressions() if "$job" not in expression or "$instance" not in expression]

    assert [] == free


# Of Grafana's list of value formats, those that a panel of ours may use.
UNITS = {"short", "s", "percentunit", "reqps", "cps"}
KEYS = {"type", "title", "description", "datasource", "fieldConfig", "options", "targets", "id", "gridPos"}
OPTIONS = {
    "timeseries": {"legend", "tooltip"},
    "stat": {"reduceOptions", "colorMode", "graphMode", "textMode"},
    "state-timeline": {"legend", "showValue", "mergeValues", "tooltip"},
}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def test_every_panel_has_what_grafana_reads_and_nothing_else() -> None:
    for panel in _panels():
        defaults = panel["fieldConfig"]["defaults"]
        assert KEYS == set(panel), panel["title"]
        assert OPTIONS[panel["type"]] == set(panel["options"])
        assert defaults["unit"] in UNITS
        assert set(defaults) <= {"unit", "min", "max", "custom", "mappings", "thresholds", "noValue"}
        assert ("custom" in defaults) == (panel["type"] == "timeseries")
        assert [] == panel["fieldConfig"]["overrides"]
        assert SOURCE == panel["datasource"]


def test_every_target_has_a_letter_of_its_own_and_asks_the_chosen_source() -> None:
    for panel in _panels():
        assert ["A", "B", "C", "D"][: len(panel["targets"])] == [target["refId"] for target in panel["targets"]]
        for target in panel["targets"]:
            assert SOURCE == target["datasource"]
            assert (panel["type"] == "stat") == target.get("instant", False)


def test_every_panel_has_a_title_of_its_own_below_a_row() -> None:
    titles = [panel["title"] for panel in BOARD["panels"]]

    assert len(titles) == len(set(titles))
    assert "row" == BOARD["panels"][0]["type"]


def test_every_row_is_filled_without_holes() -> None:
    wide: dict[int, list[tuple[int, int]]] = {}
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        wide.setdefault(place["y"], []).append((place["x"], place["x"] + place["w"]))

    for line in wide.values():
        ends = [0, *(end for _, end in sorted(line))]
        assert [begin for begin, _ in sorted(line)] == ends[:-1]


def test_every_variable_that_is_used_is_defined_and_the_other_way_round() -> None:
    text = json.dumps(BOARD)
    defined = [variable["name"] for variable in BOARD["templating"]["list"]]
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__all", "__rate_interval"}

    assert len(defined) == len(set(defined))
    assert set(defined) == used
    # A variable may only ask for those that stand before it.
    for place, variable in enumerate(BOARD["templating"]["list"]):
        asked = set(re.findall(r"\$(\w+)", str(variable.get("definition", ""))))
        assert asked <= set(defined[:place])


def test_legends_name_only_labels_that_their_series_have() -> None:
    for expression, legend in _queries():
        labels = set(re.findall(r"{{(\w+)}}", legend))
        grouped = [set(re.split(r",\s*", by)) for by in re.findall(r"\bby \(([^)]*)\)", expression)]
        kept = set() if expression.startswith("sum(") else set.intersection(*grouped) - {"le"}
        assert labels == kept, expression


@needs_promtool
def test_the_state_is_the_worst_of_all_processes(tmp_path: Path) -> None:
    state = next(panel for panel in _panels() if panel["type"] == "state-timeline")
    texts = {one["text"]: int(code) for code, one in state["fieldConfig"]["defaults"]["mappings"][0]["options"].items()}
    expression = re.sub(r"\$\w+", ".*", state["targets"][0]["expr"])
    seen = {"x": ("closed", "open"), "y": ("closed", "closed"), "z": ("half_open", "metrics_only")}
    series = [
        {"series": f'halfopen_circuit_breaker_state{{job="j",instance="{place}",name="{name}",state="{one}"}}',
         "values": str(int(one == there))}
        for name, states in seen.items() for place, there in enumerate(states) for one in texts
    ]  # fmt: skip
    wanted = [{"labels": f'{{name="{name}"}}', "value": min(map(texts.__getitem__, seen[name]))} for name in seen]
    test = {
        "input_series": series,
        "promql_expr_test": [{"expr": expression, "eval_time": "0m", "exp_samples": wanted}],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"rule_files": [], "tests": [test]}), encoding="utf-8")

    tested = subprocess.run(
        ["promtool", "test", "rules", tmp_path / "test.yml"], capture_output=True, text=True, check=False
    )

    assert 0 == tested.returncode, tested.stdout + tested.stderr


def _panels() -> list[dict[str, Any]]:
    return [panel for panel in BOARD["panels"] if panel["type"] != "row"]


def _queries() -> list[tuple[str, str]]:
    return [
        (target["expr"], target["legendFormat"].replace("__auto", ""))
        for panel in _panels()
        for target in panel["targets"]
    ]


def _expressions() -> list[str]:
    return [target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", [])]
