"""`halfopen order`: tell a circuit what to do, through a console."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import click

from halfopen.cli._remote import DEFAULT_URL, OneLine, Remote, clean, console_options

__all__ = ["order", "seconds_until"]

_UNITS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(s|min|m|h|d)")


class _Refused(click.ClickException):
    exit_code = 1


def seconds_until(text: str, now: datetime | None = None) -> float | str:
    """
    Return the seconds that "15m", "1h", "18:00" (UTC) or an ISO time mean; "removed" stands for no end.

    Raises:
        click.BadParameter: It is none of them, or lies in the past.
    """
    moment = now or datetime.now(UTC)
    if text == "removed":
        return "until_removed"
    if found := _DURATION.fullmatch(text):
        return float(found[1]) * _UNITS[found[2]]
    try:
        if re.fullmatch(r"\d\d:\d\d", text):
            end = datetime.fromisoformat(f"{moment.date().isoformat()}T{text}:00+00:00")
            seconds = (end - moment).total_seconds() % 86400
        else:
            end = datetime.fromisoformat(text)
            seconds = ((end if end.tzinfo else end.replace(tzinfo=UTC)) - moment).total_seconds()
    except ValueError:
        raise click.BadParameter(f"{text!r} is no end: say 15m, 1h, 18:00 (UTC), an ISO time, or removed") from None
    if seconds <= 0:
        raise click.BadParameter(f"{text!r} is over already")
    return seconds


@click.group("order")
def order() -> None:
    """
    Tell a circuit what to do, through a console; it is written into the audit log there.

    Exit codes: 0 done, 1 refused or not yet heard of by every process, 2 bad input or no console.
    """


def _command(name: str, action: str, help_text: str, *, ends: bool = False, waits: bool = False) -> None:
    def run(**options: Any) -> None:
        _give(action, **options)

    command: Callable[..., Any] = run
    if ends:
        command = click.option(
            "--until", default="15m", show_default=True, help="15m, 1h, 18:00 (UTC), an ISO time, or removed."
        )(command)
    if waits:
        command = click.option("--until", default=None, help="How long until the next trial; default its backoff.")(
            command
        )
    command = click.option("--reason", required=action != "try_now", help="Why; kept in the audit log.")(command)
    command = click.option("--process", "processes", multiple=True, help="Only there; default everywhere.")(command)
    command = console_options(command)
    command = click.option("--url", default=DEFAULT_URL, envvar="HALFOPEN_CONSOLE", show_default=True)(command)
    command = click.argument("breaker", metavar="NAME")(command)
    order.command(name, cls=OneLine, help=help_text)(command)


_command("try-now", "try_now", "Begin a round of trial calls at once.")
_command("trip", "trip", "Open the circuit, as a failing call would.", waits=True)
_command("force-open", "force_open", "Refuse every call until an end.", ends=True)
_command("force-closed", "disable", "Let every call through, unrecorded, until an end.", ends=True)
_command("observe", "observe", "Let every call through, and only record, until an end.", ends=True)
_command("reset", "reset", "Close the circuit, with an empty window.")


def _give(
    action: str, breaker: str, url: str, token: str | None, processes: tuple[str, ...], reason: str | None,
    until: str | None = None,
) -> None:  # fmt: skip
    ends_in = None if until is None else seconds_until(until)
    remote = Remote(url, token)
    body = {
        "action": action,
        "scope": list(processes) or "all",
        "reason": reason,
        "ends_in": ends_in,
        "seen_epochs": _epochs(remote, breaker),
        "typed_name": breaker,
        "request_id": uuid.uuid4().hex,
        "source": "command line",
    }
    status, answer = remote.post(f"api/breakers/{quote(breaker, safe='')}/actions", body)
    if status != 202:
        mistakes = [f"{one['field']}: {one['error']}" for one in answer.get("mistakes", ())]
        raise _Refused(clean("; ".join(mistakes) or answer.get("error") or f"the console answered {status}"))
    for process in answer["obeyed"]:
        click.echo(clean(f"{breaker} on {process}: {answer['after'][process]}"))
    for process in answer["pending"]:
        click.echo(clean(f"{breaker} on {process}: not yet heard of"), err=True)
    for process in answer["changed"]:
        click.echo(clean(f"{breaker} on {process}: it changed meanwhile, nothing was done"), err=True)
    if answer["pending"] or answer["changed"]:
        raise SystemExit(1)


def _epochs(remote: Remote, name: str) -> dict[str, int]:
    for breaker in remote.get("api/snapshot")["breakers"]:
        if breaker["name"] == name:
            return {one["id"]: one["epoch"] for one in breaker["processes"]}
    raise click.UsageError(f"the console knows no breaker {name!r}")
