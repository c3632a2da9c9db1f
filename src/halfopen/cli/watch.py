"""`halfopen watch`: the console's picture in a terminal, live."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import Any

import click

from halfopen.cli._remote import DEFAULT_URL, Remote, Unreachable, console_options
from halfopen.cli._shown import header, table

__all__ = ["Picture", "watch"]

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


@click.command("watch")
@click.argument("url", default=DEFAULT_URL, envvar="HALFOPEN_CONSOLE")
@console_options
@click.option("--all", "everything", is_flag=True, help="Show closed circuits too.")
@click.option("--once", is_flag=True, help="Show one picture and end, for scripts.")
def watch(url: str, token: str | None, everything: bool, once: bool) -> None:
    """
    Watch the circuits of the console at URL, live, worst first; Ctrl-C ends it.

    Exit codes: 0 ended, 2 no console answers.
    """
    from rich.console import Console

    remote = Remote(url, token)
    remote.get("api/session")
    follower = _Follower(remote)
    follower.start()
    screen = Console(file=sys.stdout, highlight=False)
    with contextlib.suppress(KeyboardInterrupt):
        if once:
            _wait(follower)
            screen.print(_page(follower, everything, None))
        else:
            _live(screen, follower, everything)


def _wait(follower: _Follower) -> None:
    end = time.monotonic() + 10
    while follower.picture.document is None:
        if time.monotonic() > end:
            raise Unreachable(f"the console sends no picture: {follower.trouble}")
        time.sleep(0.05)


def _live(screen: Any, follower: _Follower, everything: bool) -> None:
    from rich.live import Live

    _wait(follower)
    with Live(
        _page(follower, everything, screen.height - 4), console=screen, screen=True, refresh_per_second=4
    ) as live:
        while True:
            time.sleep(0.25)
            live.update(_page(follower, everything, screen.height - 4))


def _page(follower: _Follower, everything: bool, height: int | None) -> Any:
    from rich.console import Group

    document = follower.picture.document
    assert document is not None
    age = time.monotonic() - follower.picture.heard
    note = f"live, {age:.1f} s old" if age < 3 else f"NOT LIVE, {age:.0f} s old {follower.trouble}"
    shown = {**document, "time": document["time"] + age}
    return Group(header(shown, note), "", table(shown, everything=everything, height=height))
