"""What the commands about configuration files share: how they report, and how they fail."""

from __future__ import annotations

import functools
import json
import linecache
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import IO, Any, TypeVar

import click

from halfopen.errors import ConfigError, Mistake

__all__ = [
    "BAD_INPUT", "FAILED", "BadInput", "FileCommand", "as_json_option", "guarded", "plain", "print_json", "report",
    "verbose_option",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])

FAILED, BAD_INPUT = 1, 2

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="Show the lines of the file, what is allowed, and tracebacks."
)


class BadInput(click.ClickException):
    """Nothing was done; one line says why."""

    exit_code = BAD_INPUT

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"halfopen: {_one_line(self.message)}", err=True)


class FileCommand(click.Command):
    """A command that tells of wrong options in one line."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        try:
            return super().make_context(*args, **extra)
        except click.UsageError as error:
            raise BadInput(f"{self.name}: {error.format_message()}") from None


def guarded(command: F) -> F:
    """Turn what a command may raise into a line on standard error and an exit code."""

    @functools.wraps(command)
    def run(*, as_json: bool, verbose: bool, **given: Any) -> None:
        try:
            command(as_json=as_json, verbose=verbose, **given)
        except ConfigError as error:
            if as_json:
                print_json({"ok": False, "mistakes": [plain(mistake) for mistake in error.mistakes]})
            report(error.mistakes, verbose=verbose)
            sys.exit(BAD_INPUT)
        except (click.ClickException, click.exceptions.Exit, BrokenPipeError):
            raise
        except Exception as error:
            if verbose:
                traceback.print_exc()
            name = click.get_current_context().info_name
            click.echo(f"halfopen {name}: {type(error).__name__}: {_one_line(str(error))}", err=True)
            sys.exit(FAILED)

    return run  # type: ignore[return-value]  # the same options


def report(mistakes: Iterable[Mistake], *, verbose: bool) -> None:
    """Print each mistake on standard error, in one line unless *verbose*."""
    for mistake in mistakes:
        click.echo(_one_line(str(mistake)), err=True)
        if not verbose:
            continue
        if mistake.file is not None and mistake.line is not None:
            click.echo(f"    {mistake.line:>4} | {_visible(linecache.getline(mistake.file, mistake.line))}", err=True)
        if mistake.kind == "unknown_key":
            click.echo(f"         allowed: {mistake.allowed}", err=True)


def plain(mistake: Mistake) -> dict[str, Any]:
    """Return a mistake as data that JSON can hold."""
    names = ("path", "value", "kind", "allowed", "suggestion", "file", "line")
    return {**{name: getattr(mistake, name) for name in names}, "message": str(mistake)}


def print_json(data: Any) -> None:
    """Print data as JSON; what JSON does not know is null (infinity) or text."""
    known = json.loads(json.dumps(data, default=str), parse_constant=lambda _: None)
    click.echo(json.dumps(known, indent=2, ensure_ascii=False))


def _visible(line: str) -> str:
    # A file may hold what would steer the terminal.
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in line.rstrip().replace("\t", "    "))


def _one_line(text: str) -> str:
    return " ".join(text.split("\n"))
