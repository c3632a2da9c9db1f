"""`halfopen check`: find every mistake in a configuration file, and say what its settings come to."""

from __future__ import annotations

import math
import re
import sys
from typing import TYPE_CHECKING, Any

import click

from halfopen.cli.files import (
    BAD_INPUT,
    FAILED,
    FileCommand,
    as_json_option,
    guarded,
    plain,
    print_json,
    report,
    verbose_option,
)
from halfopen.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from halfopen.config import Configuration

__all__ = ["check"]

_HELP = """
Check a configuration file: halfopen.toml, the same as YAML, or the YAML of resilience4j; its gateway and partners, too.

Every mistake is printed on standard error, one per line, with file, line and path. Notes on what has no exact twin
here, and what is unwise about a pipeline, are printed on standard output.

\b
Exit codes:
  0  the file is right
  1  it has mistakes; with --strict also notes and unwise pipelines
  2  it cannot be read: missing, a directory, not UTF-8, not TOML or YAML, too large
"""

_TRAFFIC = re.compile(r"(\d+(?:\.\d+)?)\s*(?:/\s*(s|m|h))?", re.ASCII)
_PER = {None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


class Traffic(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic since click 8.4
    """Calls per second, given as ``10/s``, ``600/m`` or ``36000/h``."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = _TRAFFIC.fullmatch(str(value).strip())
        rate = float(found[1]) / _PER[found[2]] if found else 0.0
        if not 0 < rate < math.inf:
            self.fail(f"{value!r} is no traffic above 0 such as 10/s, 600/m or 36000/h", param, ctx)
        return rate


@click.command("check", cls=FileCommand, help=_HELP)
@click.argument("file", type=click.Path())
@click.option("--explain", is_flag=True, help="Say in plain sentences, with the arithmetic, what each policy does.")
@click.option(
    "--traffic", type=Traffic(), default="10/s", show_default=True, metavar="RATE", help="Calls for --explain."
)
@click.option("--strict", is_flag=True, help="Let notes and unwise pipelines fail too.")
@click.option("--no-import", "imports", is_flag=True, flag_value=False, default=True,
              help="Do not import the modules that the file names.")  # fmt: skip
@as_json_option
@verbose_option
@guarded
def check(file: str, explain: bool, traffic: float, strict: bool, imports: bool, as_json: bool, verbose: bool) -> None:
    """Check one file."""
    if imports and "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does: the file names modules of the project it lies in
    try:
        configuration = _loaded(file, imports)
    except ConfigError as error:
        if as_json:
            print_json(_plain(file, None, error.mistakes))
        report(error.mistakes, verbose=verbose)
        unreadable = any(mistake.kind == "unreadable" and not mistake.path for mistake in error.mistakes)
        sys.exit(BAD_INPUT if unreadable else FAILED)
    unwise = _unwise(configuration)
    if as_json:
        print_json(_plain(file, configuration, (), unwise, _explained(configuration, traffic) if explain else None))
    else:
        _print(configuration, unwise, _explained(configuration, traffic) if explain else [])
    sys.exit(FAILED if strict and (unwise or configuration.notes) else 0)


def _loaded(file: str, imports: bool) -> Configuration:
    from halfopen.config.items import Findings
    from halfopen.config.loading import checked, document

    findings = Findings(file)
    root, notes = document(file, findings)
    if root is not None and root.is_table and not {"gateway", "partner"}.isdisjoint(root.value):
        _check_gateway(file, imports)
    return checked(root, notes, findings, imports=imports)


def _check_gateway(file: str, imports: bool) -> None:
    try:
        from halfopen.gateway import read
    except ModuleNotFoundError as missing:
        words = f"gateway and partners were not checked, that needs {missing.name}; pip install 'halfopen[gateway]'"
        click.echo(f"halfopen check: {words}", err=True)
        return
    read(file, imports=imports)


def _unwise(configuration: Configuration) -> list[tuple[str, Any]]:
    from halfopen.config.describing import findings

    return findings(configuration)


def _explained(configuration: Configuration, traffic: float) -> list[Any]:
    from halfopen.config.explaining import explain

    return explain(configuration, traffic)


def _print(configuration: Configuration, unwise: list[tuple[str, Any]], explained: list[Any]) -> None:
    count = len(configuration.entries)
    click.echo(f"{configuration.file}: {count} {'policy' if count == 1 else 'policies'}, no mistakes")
    for note in configuration.notes:
        place = configuration.file if note.line is None else f"{configuration.file}:{note.line}"
        click.echo(f"{place}: note: {note}")
    for title, finding in unwise:
        click.echo(f"{configuration.file}: unwise: {title}: {finding.message} ({finding.code})")
    for explanation in explained:
        click.echo(f"\n{explanation.title}")
        for sentence in explanation.sentences:
            click.echo(f"  {sentence}")


def _plain(
    file: str,
    configuration: Configuration | None,
    mistakes: tuple[Mistake, ...],
    unwise: list[tuple[str, Any]] | None = None,
    explained: list[Any] | None = None,
) -> dict[str, Any]:
    data: dict[str, Any] = {"file": file, "ok": not mistakes, "mistakes": [plain(mistake) for mistake in mistakes]}
    if configuration is not None:
        data["policies"] = [entry.title for entry in configuration.entries]
        data["notes"] = [{"path": note.path, "text": note.text, "line": note.line} for note in configuration.notes]
        data["unwise"] = [{"pipeline": t, "code": each.code, "message": each.message} for t, each in unwise or ()]
    if explained is not None:
        data["explanations"] = [
            {"title": each.title, "sentences": each.sentences, "figures": dict(each.figures)} for each in explained
        ]
    return data
