"""`halfopen watch`: the console's picture in a terminal, live."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Generator, Iterator
from typing import Any

import click

from halfopen.cli._remote import DEFAULT_URL, OneLine, Remote, Unreachable, clean, console_options
from halfopen.cli._shown import STATES, header, screen, table

__all__ = ["Picture", "watch"]

STALE = 3.0
"""Seconds without news after which the picture is no longer live."""
_PLACES = {"process": ("processes", "id"), "breaker": ("breakers", "name"), "queue": ("queues", "name")}


class Picture:
    """A snapshot, and the patches on top of it."""

    def __init__(self) -> None:
        self.document: dict[str, Any] | None = None
        self.heard = 0.0

    def take(self, name: str, data: Any) -> bool:
        """Take an event of the stream; return False if a patch does not fit, so that a new snapshot is needed."""
        if name == "snapshot":
            self.document = data
        elif self.document is None or (data["version"] > self.document["version"] != data["base"]):
            return False
        elif data["version"] > self.document["version"]:
            for change in data["changes"]:
                self._change(change)
            self.document |= {"version": data["version"], "time": data["time"]}
        self.heard = time.monotonic()
        return True

    def _change(self, change: list[Any]) -> None:
        document = self.document
        assert document is not None
        kind, fields = change[0], change[-1]
        if kind == "event":
            document["events"] = [*document["events"], fields][-200:]
        elif kind == "store":
            document["store"] = {**(document["store"] or {}), **fields}
        elif kind == "member":
            breaker = _one(document["breakers"], "name", change[1], {"processes": []})
            _merge(breaker["processes"], "id", change[2], fields, {})
        elif kind in _PLACES:
            place, key = _PLACES[kind]
            _merge(document[place], key, change[1], fields, {"processes": []} if kind == "breaker" else {})


def _one(rows: list[dict[str, Any]], key: str, name: str, new: dict[str, Any]) -> dict[str, Any]:
    for row in rows:
        if row[key] == name:
            return row
    rows.append({key: name, **new})
    return rows[-1]


def _merge(rows: list[dict[str, Any]], key: str, name: str, fields: Any, new: dict[str, Any]) -> None:
    if fields is None:
        rows[:] = [row for row in rows if row[key] != name]
    else:
        _one(rows, key, name, new).update(fields)


class _Follower(threading.Thread):
    """Keeps a picture true from the stream, and asks again when that ends."""

    def __init__(self, remote: Remote) -> None:
        super().__init__(daemon=True)
        self.picture = Picture()
        self.trouble = ""
        self._remote = remote

    def age(self) -> float:
        """Return the seconds since something was heard."""
        return time.monotonic() - self.picture.heard

    def run(self) -> None:
        while True:
            try:
                for name, data in self._remote.events():
                    self.trouble = ""
                    if not self.picture.take(name, data):
                        break
                else:
                    self.trouble = "the stream ended"
            except Exception as error:
                self.trouble = str(error) or type(error).__name__
            time.sleep(1.0)


@click.command("watch", cls=OneLine)
@click.argument("url", default=DEFAULT_URL, envvar="HALFOPEN_CONSOLE")
@console_options
@click.option("--all", "everything", is_flag=True, help="Show closed circuits too.")
@click.option("--once", is_flag=True, help="Show one picture and end, for scripts.")
def watch(url: str, token: str | None, everything: bool, once: bool) -> None:
    """
    Watch the circuits of the console at URL, live, worst first; Ctrl-C ends it.

    Where standard output is no terminal, each change of state is a line.

    Exit codes: 0 ended, 2 no console answers.
    """
    remote = Remote(url, token)
    remote.get("api/snapshot")  # so that what is wrong is said at once
    follower = _Follower(remote)
    follower.start()
    shown = screen()
    with contextlib.suppress(KeyboardInterrupt), _sigterm_as_ctrl_c():
        _wait(follower)
        if once:
            shown.print(_page(follower, everything, shown.width, None))
        elif shown.is_terminal:
            _live(shown, follower, everything)
        else:
            _lines(follower)


@contextlib.contextmanager
def _sigterm_as_ctrl_c() -> Generator[None]:
    """Let SIGTERM end the command as Ctrl-C does, so that the terminal is given back."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _wait(follower: _Follower) -> None:
    end = time.monotonic() + 10
    while follower.picture.document is None:
        if time.monotonic() > end:
            raise Unreachable(f"the console sends no picture: {follower.trouble}")
        time.sleep(0.05)


def _live(shown: Any, follower: _Follower, everything: bool) -> None:
    from rich.live import Live

    def page() -> Any:
        return _page(follower, everything, shown.width, max(shown.height - 4, 1))

    with Live(page(), console=shown, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(0.25)
            live.update(page(), refresh=True)


def _lines(follower: _Follower) -> None:
    told: dict[str, str] = {}
    lost = False
    while True:
        document = follower.picture.document
        assert document is not None
        for line in _changes(told, list(document["breakers"])):
            click.echo(f"{time.strftime('%H:%M:%SZ', time.gmtime())} {line}")
        if (follower.age() >= STALE) is not lost:
            lost = not lost
            click.echo(f"the console is {'away: ' + follower.trouble if lost else 'back'}", err=True)
        time.sleep(0.25)


def _changes(told: dict[str, str], breakers: list[dict[str, Any]]) -> Iterator[str]:
    for breaker in breakers:
        name, state = breaker["name"], breaker["state"]
        if told.get(name, "closed") != state:
            yield clean(f"{name} {STATES[state][0][2:]}: {breaker['why'] or ''}")
        told[name] = state


def _page(follower: _Follower, everything: bool, width: int, height: int | None) -> Any:
    from rich.console import Group

    document = follower.picture.document
    assert document is not None
    age = follower.age()
    note = f"live, {age:.1f} s old" if age < STALE else f"NOT LIVE, {age:.0f} s old {follower.trouble}"
    shown = {**document, "time": document["time"] + age}
    return Group(header(shown, note), "", table(shown, width=width, everything=everything, height=height))
