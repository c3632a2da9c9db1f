"""`halfopen gateway`: run the egress gateway that a configuration file describes."""

from __future__ import annotations

import logging
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from halfopen.errors import ConfigError, HalfOpenError

__all__ = ["gateway"]


@click.command("gateway")
@click.option(
    "--config", "path", default="halfopen.toml", show_default=True, type=click.Path(path_type=Path),
    help="The file with [gateway], [partner.NAME] and the policies.",
)  # fmt: skip
@click.option("--check", is_flag=True, help="Only read and check the file.")
@click.option("--json", "as_json", is_flag=True, help="Say where it listens as one line of JSON.")
def gateway(path: Path, check: bool, as_json: bool) -> None:
    """
    Send what programs post to /to/PARTNER/path on to the partner, through its pipeline.

    SIGTERM and Ctrl-C let exchanges in flight end; SIGHUP reads the file again: policies, partners, limits.
    Exit codes: 0 ended in good order, 2 the file is wrong, or its address or queue cannot be used.
    """
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    parts = _loaded()
    try:
        if check:
            found = parts.read(path)
            count = len(found.partners)
            click.echo(f"{path}: {count} {'partner' if count == 1 else 'partners'}, no mistakes")
            return
        parts.run(parts.gateway_from_file(path), ready=partial(_say, as_json=as_json))
    except (ConfigError, HalfOpenError) as error:
        click.echo(f"halfopen gateway: {error}", err=True)
        raise SystemExit(2) from None


def _loaded() -> Any:
    try:
        import halfopen.gateway
    except ModuleNotFoundError as missing:
        click.echo(f"halfopen gateway needs {missing.name}; run: pip install 'halfopen[cli,gateway]'", err=True)
        raise SystemExit(2) from None
    return halfopen.gateway


def _say(url: str, *, as_json: bool) -> None:
    if as_json:
        import json

        click.echo(json.dumps({"url": url}))
    else:
        click.echo(f"listening on {url}; post to {url}/to/PARTNER/path")
    sys.stdout.flush()
