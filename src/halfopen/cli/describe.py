"""`halfopen describe`: the policies and pipelines of a configuration file."""

from __future__ import annotations

import click

from halfopen.cli.files import BadInput, FileCommand, as_json_option, guarded, print_json, verbose_option

__all__ = ["describe"]

_HELP = """
Show the policies and pipelines of a configuration file.

\b
Exit codes:
  0  done
  2  the file has mistakes or cannot be read
"""


@click.command("describe", cls=FileCommand, help=_HELP)
@click.argument("file", type=click.Path())
@click.option("--mermaid", is_flag=True, help="Print a Mermaid flowchart of the pipelines.")
@as_json_option
@verbose_option
@guarded
def describe(file: str, mermaid: bool, as_json: bool, verbose: bool) -> None:
    """Describe one file."""
    if mermaid and as_json:
        raise BadInput("give one of --mermaid and --json")
    from halfopen.config import load
    from halfopen.config.describing import describe_mermaid, describe_plain, describe_text

    configuration = load(file, imports=False)
    if as_json:
        print_json({"ok": True, **describe_plain(configuration)})
    else:
        click.echo((describe_mermaid if mermaid else describe_text)(configuration))
