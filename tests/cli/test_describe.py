"""`halfopen describe`: policies and pipelines as text, as Mermaid and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from halfopen.cli import main


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "halfopen.toml"
    path.write_text('[breaker.a]\n[timeout.a]\nseconds = 2\n[pipeline.a]\npolicies = ["breaker.a", "timeout.a"]')
    return path


def run(*args: object) -> Result:
    return CliRunner().invoke(main, list(map(str, args)))


def test_a_file_is_described_as_text(file: Path) -> None:
    result = run("describe", file)

    assert 0 == result.exit_code
    assert "1. CircuitBreaker 'a'" in result.stdout


def test_a_file_is_described_as_a_flowchart(file: Path) -> None:
    assert run("describe", file, "--mermaid").stdout.startswith("flowchart TB\n")


def test_a_file_is_described_as_data(file: Path) -> None:
    data = json.loads(run("describe", file, "--json").stdout)

    assert ["breaker", "timeout", "pipeline"] == [each["kind"] for each in data["policies"]]


def test_two_forms_at_once_are_refused(file: Path) -> None:
    assert 2 == run("describe", file, "--json", "--mermaid").exit_code


def test_a_file_with_mistakes_is_bad_input(tmp_path: Path) -> None:
    result = run("describe", tmp_path / "none.toml")

    assert (2, 1) == (result.exit_code, len(result.stderr.splitlines()))
