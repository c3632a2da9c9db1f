"""Each wrong rule of the recording's README is planted, and the recorded scenarios notice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.planted.planting import NotPlanted, changed_sources
from tests.planted.wrong_rules import WRONG_RULES, Change

ROOT = Path(__file__).parents[2]


def noticed(number: int) -> int:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.planted", "--first", str(number)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert 0 == ran.returncode, ran.stderr
    return json.loads(ran.stdout)["noticed"]


def test_all_37_wrong_rules_are_here_once() -> None:
    assert 37 == len({rule.rule for rule in WRONG_RULES}) == len(WRONG_RULES)


def test_the_right_rules_are_noticed_by_no_scenario() -> None:
    assert 0 == noticed(0)


@pytest.mark.parametrize("number", range(1, 38), ids=[rule.slug for rule in WRONG_RULES])
def test_a_wrong_rule_is_noticed(number: int) -> None:
    assert 1 == noticed(number)


def test_a_change_that_does_not_fit_the_source_is_an_error() -> None:
    with pytest.raises(NotPlanted, match="found 0 times"):
        changed_sources([Change("no such text", "")])
