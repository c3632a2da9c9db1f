"""`halfopen convert`: the YAML of resilience4j as a `halfopen.toml`."""

from __future__ import annotations

from pathlib import Path

import click

from halfopen.cli.files import BadInput, FileCommand, as_json_option, guarded, print_json, verbose_option

__all__ = ["convert"]

_HELP = """
Write the YAML of resilience4j, such as application.yml, as halfopen.toml.

Semantics are kept: the verdict of a half-open round by rate, no memory of flapping, no jitter unless there was some.
What has no exact twin stands in the new file as a comment, and is printed. Environment variables are written out with
their present values.

\b
Exit codes:
  0  done
  2  the file has mistakes or cannot be read, or the output is there already; nothing was written
"""


@click.command("convert", cls=FileCommand, help=_HELP)
@click.argument("source", type=click.Path())
@click.option(
    "-o", "--output", type=click.Path(), default="halfopen.toml", show_default=True, help="Where to; - for stdout."
)
@click.option("--force", is_flag=True, help="Overwrite the output.")
@as_json_option
@verbose_option
@guarded
def convert(source: str, output: str, force: bool, as_json: bool, verbose: bool) -> None:
    """Convert one file."""
    from halfopen.config import convert as converted

    text, notes = converted(source)
    if output != "-":
        _write(Path(output), text, force)
    if as_json:
        told = [{"path": note.path, "text": note.text, "line": note.line} for note in notes]
        print_json({"ok": True, "source": source, "output": output, "notes": told, "text": text})
    elif output == "-":
        click.echo(text, nl=False)
    else:
        click.echo(f"{output} is written; {len(notes)} {'note' if len(notes) == 1 else 'notes'}")
        for note in notes:
            click.echo(f"{source if note.line is None else f'{source}:{note.line}'}: note: {note}")


def _write(path: Path, text: str, force: bool) -> None:
    try:
        with path.open("w" if force else "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        raise BadInput(f"{path} is there already; --force overwrites it") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror or error}") from None
