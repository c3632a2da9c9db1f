"""`halfopen convert`: writes halfopen.toml beside what it cannot translate, and overwrites nothing unasked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from halfopen.cli import main
from halfopen.config import load

CASE = Path(__file__).parent.parent / "config" / "cases" / "application.yml"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WAIT", raising=False)
    return tmp_path


def run(*args: object) -> Result:
    return CliRunner().invoke(main, list(map(str, args)))


def test_halfopen_toml_is_written_with_a_note_for_what_has_no_twin(here: Path) -> None:
    result = run("convert", CASE)

    assert 0 == result.exit_code
    assert f"{CASE}:8: note: " in result.stdout
    assert (
        "# - resilience4j.circuitbreaker.configs.default.registerHealthIndicator"
        in (here / "halfopen.toml").read_text()
    )
    assert len(load(CASE).entries) == len(load(here / "halfopen.toml").entries)


def test_a_file_that_is_there_is_overwritten_only_by_force(here: Path) -> None:
    (here / "halfopen.toml").write_text("mine")

    result = run("convert", CASE)

    assert 2 == result.exit_code
    assert "halfopen: halfopen.toml is there already; --force overwrites it\n" == result.stderr
    assert "mine" == (here / "halfopen.toml").read_text()
    assert 0 == run("convert", CASE, "--force").exit_code
    assert "mine" != (here / "halfopen.toml").read_text()


def test_a_dash_is_standard_output(here: Path) -> None:
    result = run("convert", CASE, "-o", "-")

    assert result.stdout.startswith("# Converted from application.yml.\n")
    assert [] == list(here.iterdir())


def test_the_result_is_data_too(here: Path) -> None:
    data = json.loads(run("convert", CASE, "--json", "-o", here / "new.toml").stdout)

    assert (here / "new.toml").read_text() == data["text"]
    assert {"path", "text", "line"} == set(data["notes"][0])


def test_a_file_with_mistakes_writes_nothing(here: Path) -> None:
    source = here / "application.yml"
    source.write_text("resilience4j.circuitbreaker.instances.a: {failureRateThreshold: 150, slidingWindowSize: 0}")

    result = run("convert", source)

    assert (2, 2) == (result.exit_code, len(result.stderr.splitlines()))
    assert not (here / "halfopen.toml").exists()


def test_an_output_that_cannot_be_written_is_one_line(here: Path) -> None:
    result = run("convert", CASE, "-o", here / "nowhere" / "x.toml")

    assert (2, 1) == (result.exit_code, len(result.stderr.splitlines()))
