"""`halfopen console`: serve a console over the run directory of other processes."""

from __future__ import annotations

import logging
import secrets
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from halfopen._runtime.addresses import is_loopback
from halfopen.errors import HalfOpenError

__all__ = ["console"]


@click.command("console")
@click.option("--run-directory", type=click.Path(path_type=Path, file_okay=False), help="Where processes publish.")
@click.option("--queue", "queues", multiple=True, help="A retry queue to show: a SQLite file.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8765, show_default=True, type=click.IntRange(0, 65535), help="0: any that is free.")
@click.option("--audit", default="halfopen-audit.jsonl", show_default=True, type=click.Path(path_type=Path))
@click.option("--environment", default="", help="Shown at the top, such as PRODUCTION.")
@click.option("--operator", default="operator", show_default=True, help="The name that orders are given under.")
@click.option("--token", envvar="HALFOPEN_TOKEN", help="The operator's secret; default a new one, printed.")
@click.option("--read-only", is_flag=True, help="Nobody can give orders.")
@click.option("--proxy-header", help="The header in which an authenticating proxy on this machine says who asks.")
@click.option("--operator-name", "operators", multiple=True, help="Somebody who may give orders, as the proxy says.")
@click.option("--public-host", "hosts", multiple=True, help="A name under which browsers ask, beside localhost.")
def console(run_directory: Path | None, queues: tuple[str, ...], host: str, port: int, **options: Any) -> None:
    """
    Serve the live console.

    It shows the processes whose `halfopen.console.Member` publishes into the run directory. It listens on this
    machine only unless --host says otherwise; then a token or a proxy must say who asks, also to look. Exit codes:
    0 ended in good order, 2 bad input or an address that cannot be used.
    """
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    if run_directory is None and not queues:
        raise click.UsageError("there is nothing to show: give --run-directory or --queue")
    parts, server = _loaded()
    try:
        with ExitStack() as stack:
            _serve(parts, server, stack, run_directory, queues, host, port, options)
    except (HalfOpenError, OSError, ValueError) as error:
        click.echo(f"halfopen console: {error}", err=True)
        raise SystemExit(2) from None


def _loaded() -> tuple[Any, Any]:
    try:
        import halfopen.console
        import halfopen.console._server
    except ModuleNotFoundError as missing:
        click.echo(f"halfopen console needs {missing.name}; run: pip install 'halfopen[cli,console]'", err=True)
        raise SystemExit(2) from None
    return halfopen.console, halfopen.console._server


def _serve(
    parts: Any,
    server: Any,
    stack: ExitStack,
    run_directory: Path | None,
    queues: tuple[str, ...],
    host: str,
    port: int,
    options: dict[str, Any],
) -> None:
    from halfopen.retry_queue import RetryQueue

    if run_directory is not None:
        run_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    opened = [stack.enter_context(RetryQueue(path, name=Path(path).stem)) for path in queues]
    loopback = is_loopback(host)
    if not loopback and options["read_only"] and options["proxy_header"] is None:
        raise click.UsageError(f"on {host} nobody could look: give --proxy-header, or leave --read-only out")
    token = None if options["read_only"] else options["token"] or secrets.token_urlsafe(24)
    tokens = {} if token is None else {token: parts.Identity(options["operator"], "operator")}
    application = parts.app(
        run_directory=run_directory,
        queues=opened,
        audit=options["audit"],
        environment=options["environment"],
        tokens=tokens,
        proxy_header=options["proxy_header"],
        operators=options["operators"],
        anonymous=loopback,
        hosts=None if not loopback and not options["hosts"] else ("localhost", "127.0.0.1", "::1", *options["hosts"]),
    )
    listening = stack.enter_context(server.listen(host, port))
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listening.getsockname()[1]}/"

    def ready() -> None:
        click.echo(f"console at {url}")
        if token is not None and options["token"] is None:
            click.echo(f"to give orders: {url}#token={token}")
        sys.stdout.flush()

    server.ConsoleServer(application, ready=ready).run(sockets=[listening])
