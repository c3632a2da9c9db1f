"""`halfopen status`: the circuits of a console, once."""

from __future__ import annotations

import json
from typing import Any

import click

from halfopen.cli._remote import DEFAULT_URL, OneLine, Remote, console_options
from halfopen.cli._shown import header, screen, table

__all__ = ["status"]


@click.command("status", cls=OneLine)
@click.argument("url", default=DEFAULT_URL, envvar="HALFOPEN_CONSOLE")
@console_options
@click.option("--json", "as_json", is_flag=True, help="The console's whole snapshot.")
@click.option("--all", "everything", is_flag=True, help="Show closed circuits too.")
def status(url: str, token: str | None, as_json: bool, everything: bool) -> None:
    """
    Show the circuits of the console at URL that are not closed.

    Exit codes: 0 every circuit is closed, 1 some are not, 2 no console answers.
    """
    snapshot: dict[str, Any] = Remote(url, token).get("api/snapshot")
    if as_json:
        click.echo(json.dumps(snapshot, ensure_ascii=False).encode("utf-8", "backslashreplace"))
    else:
        shown = screen()
        shown.print(header(snapshot))
        shown.print(table(snapshot, width=shown.width, everything=everything))
    if any(breaker["state"] != "closed" for breaker in snapshot["breakers"]):
        raise SystemExit(1)
