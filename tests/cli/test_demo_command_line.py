"""The command `halfopen`: subcommands are loaded when called, and a missing click is said in one line."""

from __future__ import annotations

import subprocess
import sys

import click
from click.testing import CliRunner

from halfopen.cli import COMMANDS, main

WITHOUT_CLICK = "import sys; sys.modules['click'] = None; from halfopen.cli import main; main()"
LOADED = (
    "import sys; from halfopen.cli import main; main(['--help'], standalone_mode=False); print(sorted(sys.modules))"
)


def test_the_version_is_shown() -> None:
    result = CliRunner().invoke(main, ["--version"])

    assert 0 == result.exit_code
    assert result.output.startswith("halfopen ")


def test_the_help_lists_every_subcommand_and_the_exit_codes() -> None:
    result = CliRunner().invoke(main, ["--help"])

    assert 0 == result.exit_code
    assert all(f"  {name}" in result.output for name in COMMANDS)
    assert "130 interrupted" in " ".join(result.output.split())


def test_every_subcommand_can_be_loaded() -> None:
    context = click.Context(main)

    assert all(isinstance(main.get_command(context, name), click.Command) for name in COMMANDS)


def test_an_unknown_subcommand_is_bad_input() -> None:
    assert 2 == CliRunner().invoke(main, ["nonsense"]).exit_code


def test_the_help_loads_no_subcommand() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)

    assert "'halfopen.cli'" in done.stdout
    assert "halfopen.cli.demo" not in done.stdout
    assert "'rich'" not in done.stdout


def test_without_click_one_line_says_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_CLICK], capture_output=True, text=True, check=False)

    assert 2 == done.returncode
    assert "halfopen: the command line needs click; run: pip install 'halfopen[cli]'\n" == done.stderr
