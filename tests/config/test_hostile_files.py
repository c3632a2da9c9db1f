"""Files that nobody writes on purpose: each is refused in one line that can be seen, none with an error of our own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from halfopen import Mistake, Registry
from halfopen.cli import main

Write = Callable[..., Path]
Mistakes = Callable[..., list[Mistake]]

LONG = "9" * 5000

ONE_LINE = {
    "a number of many digits": ("a.toml", f"[breaker.a]\nminimum_calls = {LONG}", ":2: a number has too many digits"),
    "the same in hexadecimal": ("a.toml", f"[breaker.a]\nminimum_calls = 0x{LONG}", ":2: a number has too many digits"),
    "the same in YAML": ("a.yaml", f"breaker:\n  a: {{minimum_calls: {LONG}}}", ":2: breaker.a.minimum_calls"),
    "both": ("a.yaml", f"breaker:\n  a: {{minimum_calls: 0x{LONG}}}", ":2: breaker.a.minimum_calls"),
    "a date that is none": ("a.yaml", "breaker:\n  a: {minimum_calls: 2020-13-45}", "month must be in 1..12"),
    "a date": ("a.toml", "[timeout.t]\nseconds = 2020-01-01T00:00:00Z", "not '2020-01-01T00:00:00+00:00'"),
    "a key that is a list": ("a.yaml", "? [a, b]\n: c", ":1: a key has to be a text"),
    "control characters in a name": ("a.toml", '[breaker."\\u001b[2J"]\nwindo = 1', ':2: breaker."\\u001b[2J".windo'),
    "a name that turns the line": ("a.toml", '[breaker."\\u202ea"]\nwindo = 1', ':2: breaker."\\u202ea".windo'),
    "a line break in a name": ("a.toml", '[breaker."a\\nb"]\nwindo = 1', ':2: breaker."a\\nb".windo'),
    "a module that is a number": ("a.yml", "resilience4j:\n  retry: 3", ":2: resilience4j.retry is a table"),
    "modules that are a text": ("a.yml", "resilience4j: x", ":1: resilience4j is a table of modules"),
    "old Mac line ends": ("a.toml", "[breaker.a]\rwindow = 5\r", "not TOML"),
    "UTF-16": ("a.toml", "[breaker.a]\n".encode("utf-16"), "is not UTF-8"),
    "a zero byte": ("a.toml", b"[breaker.a]\n\0\n", ":2: not TOML"),
    "an order to run": ("a.yaml", "breaker: !!python/object/apply:os.getcwd []", "a table of policies"),
    "an alias of itself": ("a.yaml", "breaker: &x\n  a: *x", "nested too deeply"),
}
COMMANDS = {
    "check": ["check"],
    "explain": ["check", "--explain"],
    "describe": ["describe"],
    "diff": ["diff", "{}"],
    "convert": ["convert", "-o", "-"],
}


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.mark.parametrize("what", ONE_LINE)
@pytest.mark.parametrize("command", COMMANDS)
def test_one_line_says_what_is_wrong(write: Write, what: str, command: str) -> None:
    name, text, words = ONE_LINE[what]
    path = write(text, name)

    result = run(*(word.format(path) for word in COMMANDS[command]), path)

    lines = result.stderr.splitlines()
    assert result.exit_code in (1, 2)
    assert {True} == {words in line and line.isprintable() for line in lines}
    assert len(lines) == (2 if command == "diff" else 1)


@pytest.mark.parametrize("what", ONE_LINE)
def test_the_same_is_json_where_that_is_wanted(write: Write, what: str) -> None:
    name, text, words = ONE_LINE[what]

    for command in (["check"], ["describe"], ["convert", "-o", "-"]):
        data = json.loads(run(*command, "--json", write(text, name)).stdout)
        assert (False, True) == (data["ok"], words.removeprefix(":") in data["mistakes"][0]["message"])


@pytest.mark.parametrize("what", ONE_LINE)
def test_the_lines_of_the_file_are_shown_as_what_can_be_seen(write: Write, what: str) -> None:
    name, text, _ = ONE_LINE[what]

    shown = run("check", "--verbose", write(text, name)).stderr

    assert {True} == {line.isprintable() for line in shown.splitlines()}


@pytest.mark.parametrize("what", ONE_LINE)
def test_a_registry_refuses_it_and_goes_on(write: Write, what: str) -> None:
    name, text, _ = ONE_LINE[what]
    path = write("{}" if name.endswith("l") and not name.endswith(".toml") else "", name)
    registry = Registry.from_file(path)

    write(text, name)

    assert not registry._source.try_again("for a test")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes there")
def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    pipe, loop, dangling = tmp_path / "pipe.toml", tmp_path / "loop.toml", tmp_path / "dangling.toml"
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    dangling.symlink_to(tmp_path / "nowhere")

    results = [run("check", path) for path in (pipe, loop, dangling, tmp_path, "/dev/zero")]

    assert [2] * 5 == [result.exit_code for result in results]
    assert [1] * 5 == [len(result.stderr.splitlines()) for result in results]


def test_a_symbolic_link_that_is_moved_is_a_change(tmp_path: Path) -> None:
    # As the volumes of Kubernetes change their files.
    for number in (3, 4):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "halfopen.toml").write_text(f"[breaker.a]\nminimum_calls = {number}")
    data, path = tmp_path / "data", tmp_path / "halfopen.toml"
    data.symlink_to(tmp_path / "3")
    path.symlink_to(data / "halfopen.toml")
    registry = Registry.from_file(path)
    source = registry._source

    before = source._look()
    fresh = tmp_path / "fresh"
    fresh.symlink_to(tmp_path / "4")
    fresh.replace(data)

    assert before == source._seen != source._look()
    assert ("breaker.a",) == registry.reload().changed
    assert 4 == registry.circuit_breaker("a").settings.minimum_calls
