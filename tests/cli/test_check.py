"""`halfopen check`: mistakes on standard error, one per line; exit codes; JSON; explanations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from halfopen.cli import main

CASES = Path(__file__).parent.parent / "config" / "cases"
FOUR = CASES / "config_four_mistakes.toml"
GOOD = '[breaker.a]\n[timeout.a]\nseconds = 2\n[pipeline.a]\npolicies = ["breaker.a", "timeout.a"]\n'


def run(*args: object) -> Result:
    return CliRunner().invoke(main, list(map(str, args)))


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "halfopen.toml"
    path.write_text(GOOD)
    return path


def test_a_right_file_is_said_to_be_right(good: Path) -> None:
    result = run("check", good)

    assert (0, "") == (result.exit_code, result.stderr)
    assert f"{good}: 3 policies, no mistakes\n" == result.stdout


def test_four_mistakes_are_four_lines_on_standard_error() -> None:
    result = run("check", FOUR)

    lines = result.stderr.splitlines()
    assert (1, "", 4) == (result.exit_code, result.stdout, len(lines))
    assert [f"{FOUR}:{number}: " for number in (4, 5, 6, 9)] == [line.split(" ", 1)[0] + " " for line in lines]
    assert "did you mean failure_rate_threshold?" in lines[0]


def test_verbose_shows_the_lines_of_the_file_and_what_is_allowed() -> None:
    result = run("check", FOUR, "--verbose")

    assert "5 | window = " in result.stderr
    assert "allowed: one of automatic_half_open, " in result.stderr


def test_json_has_the_same_four() -> None:
    result = run("check", FOUR, "--json")

    data = json.loads(result.stdout)
    assert (1, False, 4) == (result.exit_code, data["ok"], len(data["mistakes"]))
    assert {
        "path": "breaker.payments.failure_rate_treshold",
        "value": 0.5,
        "kind": "unknown_key",
        "suggestion": "failure_rate_threshold",
        "file": str(FOUR),
        "line": 4,
    }.items() <= data["mistakes"][0].items()


@pytest.mark.parametrize("content", [None, b"\xff", b"= =", b"x" * 2_000_000])
def test_what_cannot_be_read_is_bad_input(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "halfopen.toml"
    if content is not None:
        path.write_bytes(content)

    result = run("check", path)

    assert (2, 1) == (result.exit_code, len(result.stderr.splitlines()))


def test_a_directory_is_bad_input(tmp_path: Path) -> None:
    result = run("check", tmp_path)

    assert (2, f"{tmp_path}: this is a directory, not a file\n") == (result.exit_code, result.stderr)


@pytest.mark.parametrize("args", [(), ("--nonsense", "x"), ("x", "--traffic", "0"), ("x", "--traffic", "fast")])
def test_wrong_options_are_one_line(args: tuple[str, ...]) -> None:
    result = run("check", *args)

    assert (2, 1) == (result.exit_code, len(result.stderr.splitlines()))
    assert result.stderr.startswith("halfopen: check: ")


def test_explanations_have_their_arithmetic(good: Path) -> None:
    result = run("check", good, "--explain", "--traffic", "600/m")

    assert 0 == result.exit_code
    assert "50 calls / 10 per second = 5 s" in result.stdout
    assert "One call: at most 1 attempt, and at most 2s" in result.stdout


def test_explanations_are_data_too(good: Path) -> None:
    data = json.loads(run("check", good, "--explain", "--json", "--traffic", "1/s").stdout)

    by_title = {each["title"]: each for each in data["explanations"]}
    assert 50.0 == by_title["breaker.a"]["figures"]["opens_after_seconds"]
    assert 2.0 == by_title["pipeline.a"]["figures"]["worst_case_seconds"]


def test_what_has_no_bound_is_null_in_json(tmp_path: Path) -> None:
    path = tmp_path / "halfopen.toml"
    path.write_text('[breaker.a]\n[pipeline.a]\npolicies = ["breaker.a"]')

    data = json.loads(run("check", path, "--explain", "--json").stdout)

    assert data["explanations"][1]["figures"]["worst_case_seconds"] is None


def test_an_unwise_pipeline_fails_only_when_strict(tmp_path: Path) -> None:
    path = tmp_path / "halfopen.toml"
    path.write_text('[breaker.a]\n[retry.a]\non = ["OSError"]\n[pipeline.a]\npolicies = ["retry.a", "breaker.a"]')

    result = run("check", path)

    assert 0 == result.exit_code
    assert "unwise: pipeline.a: " in result.stdout
    assert 1 == run("check", path, "--strict").exit_code
    assert json.loads(run("check", path, "--json").stdout)["unwise"]


def test_the_notes_on_a_file_of_resilience4j_are_printed_with_their_lines() -> None:
    path = CASES / "application.yml"

    result = run("check", path)

    assert 0 == result.exit_code
    assert f"{path}:8: note: resilience4j.circuitbreaker.configs.default.registerHealthIndicator: " in result.stdout


def test_modules_are_imported_unless_it_is_not_wanted(tmp_path: Path) -> None:
    path = tmp_path / "halfopen.toml"
    path.write_text('[breaker.a]\nresult = "nowhere_at_all:function"')

    assert 1 == run("check", path).exit_code
    assert 0 == run("check", path, "--no-import").exit_code


def test_what_goes_wrong_unexpectedly_is_one_line_unless_verbose(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("something\nelse")

    monkeypatch.setattr("halfopen.config.loading.checked", broken)

    result = run("check", good)

    assert (1, "halfopen check: RuntimeError: something else\n") == (result.exit_code, result.stderr)
    assert "Traceback" in run("check", good, "--verbose").stderr


def test_yaml_without_pyyaml_is_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "halfopen.yaml"
    path.write_text("breaker: {}")
    monkeypatch.setitem(sys.modules, "yaml", None)

    result = run("check", path)

    assert 2 == result.exit_code
    assert "pip install 'halfopen[yaml]'" in result.stderr


COMPLETE = "from halfopen.cli import main; main(prog_name='halfopen')"


def complete(shell: str, words: str, number: int) -> str:
    environment = {
        **os.environ,
        "_HALFOPEN_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(number) if shell != "fish" else words.rpartition(" ")[2],
    }
    done = subprocess.run(
        [sys.executable, "-c", COMPLETE], capture_output=True, text=True, check=False, env=environment
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_options_and_files(shell: str) -> None:
    assert "check" in complete(shell, "halfopen ch", 1)
    assert "--explain" in complete(shell, "halfopen check --ex", 2)
    assert "file" in complete(shell, "halfopen check half", 2)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_completion_script_is_printed_as_documented(shell: str) -> None:
    environment = {**os.environ, "_HALFOPEN_COMPLETE": f"{shell}_source"}

    done = subprocess.run(
        [sys.executable, "-c", COMPLETE], capture_output=True, text=True, check=False, env=environment
    )

    assert "halfopen" in done.stdout
    assert "_HALFOPEN_COMPLETE" in done.stdout


def test_modules_beside_the_caller_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_module_of_the_project.py").write_text("def failed(value): return value is None")
    (tmp_path / "halfopen.toml").write_text('[breaker.a]\nresult = "a_module_of_the_project:failed"')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])

    result = run("check", "halfopen.toml")

    assert 0 == result.exit_code, result.stderr


def test_the_gateway_and_its_partners_are_checked_with_the_policies(tmp_path: Path) -> None:
    path = tmp_path / "halfopen.toml"
    path.write_text(
        '[gateway]\nport = 99999\n[breaker.a]\nwindow = "no"\n[partner.x]\nurl = "ftp://x"\n[partner.y]\nurl = "http://y"\n'
    )

    result = run("check", path)

    lines = [line.split(" ")[0] for line in result.stderr.splitlines()]
    assert (1, [f"{path}:{number}:" for number in (2, 4, 6)]) == (result.exit_code, sorted(lines))


def test_a_file_with_a_gateway_and_no_mistakes_is_right(tmp_path: Path) -> None:
    path = tmp_path / "halfopen.toml"
    path.write_text(f'[gateway]\n[partner.x]\nurl = "http://x"\nbreaker = "breaker.a"\n{GOOD}')

    result = run("check", path, "--no-import")

    assert (0, "") == (result.exit_code, result.stderr)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["chek"], "halfopen: there is no command 'chek'; did you mean check?\n"),
        (["zzz"], "halfopen: there is no command 'zzz'; `halfopen --help` lists them\n"),
        (["--bogus"], "halfopen: No such option"),
    ],
)
def test_a_wrong_command_is_one_line(words: list[str], line: str) -> None:
    result = run(*words)

    assert 2 == result.exit_code
    assert result.stderr.startswith(line)
    assert 1 == len(result.stderr.splitlines())


def test_without_a_command_there_is_help() -> None:
    result = run()

    assert "Usage:" in result.output
    assert "convert" in result.output
