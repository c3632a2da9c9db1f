"""The Grafana dashboard is what its script builds, and asks for nothing that is not exposed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from halfopen.instrumentation.metrics import catalogue

DASHBOARDS = Path(__file__).parents[2] / "dashboards"
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


def _expressions() -> list[str]:
    return [target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", [])]
