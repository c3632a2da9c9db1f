"""`halfopen diff`: differences setting by setting, and exit codes for CI."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from halfopen.cli import main


def run(*args: object) -> Result:
    return CliRunner().invoke(main, list(map(str, args)))


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    old, new = tmp_path / "old.toml", tmp_path / "new.toml"
    old.write_text("[breaker.a]\nminimum_calls = 5\n[timeout.b]\nseconds = 1")
    new.write_text("[breaker.a]\nminimum_calls = 6\n[timeout.c]\nseconds = 1")
    return old, new


def test_differences_are_listed(files: tuple[Path, Path]) -> None:
    result = run("diff", *files)

    assert 0 == result.exit_code
    assert ["- timeout.b", "~ breaker.a.minimum_calls: 5 → 6", "+ timeout.c"] == result.stdout.splitlines()


def test_no_difference_is_said(files: tuple[Path, Path]) -> None:
    assert (0, "no difference\n") == _told(run("diff", files[0], files[0], "--exit-code"))


def test_the_exit_code_tells_ci(files: tuple[Path, Path]) -> None:
    assert 1 == run("diff", *files, "--exit-code").exit_code


def test_differences_are_data_too(files: tuple[Path, Path]) -> None:
    data = json.loads(run("diff", *files, "--json").stdout)

    changed = {"title": "breaker.a", "change": "changed", "setting": "minimum_calls", "old": "5", "new": "6"}
    assert changed in data["differences"]


def test_mistakes_of_both_files_are_reported(files: tuple[Path, Path]) -> None:
    for path in files:
        path.write_text("[breaker.a]\nminimum_calls = 0")

    result = run("diff", *files)

    assert (2, "") == _told(result)
    assert [f"{path}:2: breaker.a.minimum_calls" for path in files] == [
        line.partition(" is ")[0] for line in result.stderr.splitlines()
    ]
    assert 2 == len(json.loads(run("diff", *files, "--json").stdout)["mistakes"])


def _told(result: Result) -> tuple[int, str]:
    return result.exit_code, result.stdout
