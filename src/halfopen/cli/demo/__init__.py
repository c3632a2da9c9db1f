"""`halfopen demo`: a partner's bad day over real HTTP, with and without a circuit breaker."""

from __future__ import annotations

import json
import math
import shutil
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import click

from halfopen.cli.demo.errors import BadInput, Broken
from halfopen.cli.demo.story import DEFAULT_SPEED, MAX_SPEED, Story, clock_face

__all__ = ["demo"]

_HELP = """
Play a partner's bad day over real HTTP on 127.0.0.1, and prove that nothing is lost.

A partner (a process of its own) takes AS2 messages. At 0:50 it turns to 503; when it returns it is slow and falls over
if it gets more than a few requests at once. Programs (threads and tasks) post to halfopen's gateway, a process as well,
which keeps in a retry queue on disk what the partner cannot take. Its circuit breaker opens at 50 % of 20 calls, waits
30 s and twice as long after each failed trial, and closes after 3 trial calls. The same day is played by a hub with no
breaker and with a naive two-state breaker. Six minutes pass in about 40 s. The gateway's console shows it as well.

\b
Own messages, own partner:
  --messages DIR                 the story, with the files of DIR as the messages, round and round
  --partner URL                  no story: --count invented messages go to URL, at the true pace
  --partner URL --messages DIR   no story: each file of DIR goes to URL once

\b
Exit codes:
  0    every promise was kept
  1    a promise was broken
  2    bad input; nothing was sent
  130  interrupted (Ctrl-C)
"""


class _GoneWrong(click.ClickException):
    """The demo broke in the middle, said in one line."""

    exit_code = 1

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"halfopen demo: {self.message}", err=True)


class _Refused(_GoneWrong):
    """Bad input."""

    exit_code = 2


@click.command("demo", help=_HELP)
@click.option("--realtime", is_flag=True, help="Play at the true pace: about six minutes.")
@click.option(
    "--speed",
    type=float,
    metavar="N",
    help=f"Seconds of the story in one of yours.  [default: {DEFAULT_SPEED:g}; 1 with --partner; up to {MAX_SPEED:g}]",
)
@click.option("--seed", type=int, default=7, show_default=True, help="Fixes the invented messages and the jitter.")
@click.option("--port", type=int, default=0, metavar="N", help="Port of the partner.  [default: a free one]")
@click.option("--partner", metavar="URL", help="Send to this partner instead of playing the story.")
@click.option("--messages", "directory", type=click.Path(path_type=Path), metavar="DIR", help="Send the files of DIR.")
@click.option("--count", type=int, metavar="N", help="Messages to invent for --partner.  [default: 100]")
@click.option("--compare/--no-compare", default=True, help="Play the other two variants as well, or only halfopen's.")
@click.option("--plain", is_flag=True, help="Plain lines even on a terminal.")
@click.option(
    "--hub",
    type=click.Choice(["gateway", "memory"]),
    help="The gateway, or a hub in memory that needs no libraries.  [default: gateway; with --partner memory]",
)
@click.option("--db", type=click.Path(path_type=Path), metavar="FILE", help="Keep the gateway's queue in FILE.")
@click.option(
    "--kill-at",
    type=float,
    multiple=True,
    metavar="SECONDS",
    help="Kill the gateway (kill -9) after so many seconds of yours, and start it again. May be given several times.",
)
@click.option("--console/--no-console", default=None, help="Serve the gateway's console.  [default: yes]")
@click.option("--stay", is_flag=True, help="Keep the gateway and its console running after the summary, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON; the story goes to standard error.")
@click.option(
    "--sabotage",
    type=click.Choice(["lose", "repeat"]),
    help="Let the partner lose a message, or the hub repeat one, to see a promise break.",
)
def demo(as_json: bool, plain: bool, **chosen: Any) -> None:
    """Play the story."""
    from halfopen.cli.demo.screen import screen_for, utf8
    from halfopen.cli.demo.stage import perform

    for stream in (sys.stdout, sys.stderr):
        utf8(stream)
    screen = screen_for(sys.stderr if as_json else sys.stdout, plain=plain or as_json)
    try:
        with ExitStack() as processes:
            options = _options(**chosen)
            ending = perform(options, screen, processes)
            code = _report(options, ending, as_json=as_json)
            if options.stay and not ending.interrupted:
                _stay(ending, aside=as_json)
    except BadInput as error:
        raise _Refused(str(error)) from None
    except Broken as error:
        raise _GoneWrong(str(error)) from None
    except KeyboardInterrupt:
        click.echo("halfopen demo: interrupted", err=True)
        raise SystemExit(130) from None
    raise SystemExit(code)


def _options(
    *, realtime: bool, speed: float | None, seed: int, port: int, partner: str | None, directory: Path | None,
    count: int | None, compare: bool, sabotage: str | None, hub: str | None, db: Path | None,
    kill_at: tuple[float, ...], console: bool | None, stay: bool,
) -> Any:  # fmt: skip
    from halfopen.cli.demo.stage import Options

    if realtime and speed is not None:
        raise BadInput("--realtime is --speed 1; give one of the two")
    if speed is not None and not (math.isfinite(speed) and 0 < speed <= MAX_SPEED):
        raise BadInput(f"--speed is a number above 0 and up to {MAX_SPEED:g}, not {speed:g}; 10 is the usual pace")
    if not 0 <= port <= 65535:
        raise BadInput(f"--port is a number from 1 to 65535, not {port}; leave it out for a free one")
    if partner is not None and (port or sabotage):
        raise BadInput(f"{'--port' if port else '--sabotage'} is about the demo's own partner; leave out --partner")
    if count is not None and (partner is None or directory is not None):
        raise BadInput("--count is for invented messages: give it with --partner and without --messages")
    if count is not None and count < 1:
        raise BadInput(f"--count is a whole number from 1, not {count}")
    usual = DEFAULT_SPEED if partner is None and not realtime else 1.0
    pace = usual if speed is None else speed
    hub = _hub(hub, partner=partner, db=db, kill_at=kill_at, lasts=Story().accept_until / pace)
    return Options(
        hub=hub, db=db, kill_at=kill_at, speed=pace, seed=seed, port=port, partner=partner, directory=directory,
        count=100 if count is None else count, compare=compare, sabotage=sabotage,
        console=_console(console, hub=hub, partner=partner, stay=stay), stay=stay,
    )  # fmt: skip


def _console(wanted: bool | None, *, hub: str, partner: str | None, stay: bool) -> bool:
    if wanted and partner is not None:
        raise BadInput("--console is about the demo's story; for a gateway of yours: halfopen console --help")
    if stay and (hub == "memory" or wanted is False):
        reason = "it is left out by --no-console" if wanted is False else "the hub in memory has none"
        raise BadInput(f"--stay keeps the gateway's console, but {reason}")
    return partner is None and wanted is not False


def _hub(hub: str | None, *, partner: str | None, db: Path | None, kill_at: tuple[float, ...], lasts: float) -> str:
    chosen = hub or ("gateway" if partner is None else "memory")
    if partner is not None and chosen == "gateway":
        raise BadInput("--hub gateway is about the demo's story; for a partner of yours: halfopen gateway --help")
    if chosen == "memory" and (db is not None or kill_at):
        raise BadInput(f"{'--db' if db is not None else '--kill-at'} is about the gateway; it needs --hub gateway")
    for moment in kill_at:
        if not 0 < moment < lasts:
            raise BadInput(f"--kill-at is within the {lasts:.0f} s of yours that messages are sent, not {moment:g}")
    if chosen == "gateway":
        from halfopen.cli.demo.gateway import check_libraries

        check_libraries()
    return chosen


def _report(options: Any, ending: Any, *, as_json: bool) -> int:
    from halfopen.cli.demo import summary

    judged = [] if ending.interrupted else summary.judge(options.story, ending.ours, ending.others)
    kept = all(promise.kept for promise in judged)
    if as_json:
        ended = "interrupted" if ending.interrupted else "done"
        click.echo(json.dumps(summary.as_json(ending.accounts, judged, speed=options.speed, ended=ended), indent=2))
    else:
        click.echo(f"\n{summary.table(ending.accounts)}")
        _notes(options, ending)
        for promise in judged:
            _tell(promise)
        if not kept:
            click.echo("\na promise was broken")
    if ending.interrupted:
        return 130
    return 0 if kept else 1


def _tell(promise: Any) -> None:
    from halfopen.cli.demo.summary import parted

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    click.secho("✓" if promise.kept else "✗", fg="green" if promise.kept else "red", bold=True, nl=False)
    click.echo(f" {promise.text}{parted(promise, width)}{click.style(f'· {promise.figures}', dim=True)}")


def _notes(options: Any, ending: Any) -> None:
    if any(account.books is not None and account.books.rescued for account in ending.accounts):
        click.echo(f"* until its operators stepped in, at {clock_face(options.story.rescued_at)}")
    if ending.interrupted:
        ours = ending.ours
        fate = "and are gone" if options.db is None else f"the gateway's are in {options.db}: the next run sends them"
        click.echo(f"\ninterrupted at {clock_face(ours.now)}; {ours.outstanding:,} messages were not sent, {fate}")
    else:
        if ending.console and not options.stay:
            click.echo(f"the console was at {ending.console}; --stay keeps it")
        click.echo("")


def _stay(ending: Any, *, aside: bool) -> None:
    if not ending.console:
        return
    click.echo(f"\nthe console stays at {ending.console} until Ctrl-C", err=aside)
    click.echo(f"to give orders: {ending.orders}", err=aside)
    try:
        while True:
            time.sleep(1.0)
    except KeyboardInterrupt:
        click.echo("", err=aside)
