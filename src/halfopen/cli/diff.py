"""`halfopen diff`: what another version of a configuration file would change."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from halfopen.cli.files import FAILED, FileCommand, as_json_option, guarded, print_json, verbose_option
from halfopen.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from halfopen.config import Configuration

__all__ = ["diff"]

_HELP = """
Show what NEW sets differently from OLD, setting by setting; a default that is written out is no difference.

\b
Exit codes:
  0  done; with --exit-code: no difference
  1  with --exit-code: there are differences
  2  a file has mistakes or cannot be read
"""


@click.command("diff", cls=FileCommand, help=_HELP)
@click.argument("old", type=click.Path())
@click.argument("new", type=click.Path())
@click.option("--exit-code", "as_code", is_flag=True, help="End with 1 if there are differences.")
@as_json_option
@verbose_option
@guarded
def diff(old: str, new: str, as_code: bool, as_json: bool, verbose: bool) -> None:
    """Compare two files."""
    from halfopen.config import load
    from halfopen.config.differences import differences

    loaded: list[Configuration] = []
    mistakes: list[Mistake] = []
    for file in (old, new):
        try:
            loaded.append(load(file, imports=False))
        except ConfigError as error:
            mistakes += error.mistakes
    if mistakes:
        raise ConfigError(mistakes)
    found = differences(*loaded)
    if as_json:
        print_json({"ok": True, "old": old, "new": new, "differences": [asdict(each) for each in found]})
    else:
        click.echo("\n".join(map(str, found)) if found else "no difference")
    sys.exit(FAILED if as_code and found else 0)
