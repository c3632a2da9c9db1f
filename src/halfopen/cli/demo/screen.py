"""How the story is shown: live with rich on a terminal, as plain lines everywhere else."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TextIO

from halfopen.cli.demo.narrator import Line
from halfopen.cli.demo.scene import Scene
from halfopen.cli.demo.story import clock_face

__all__ = ["LiveScreen", "PlainLines", "Screen", "screen_for"]

_STATUS_EVERY = 20.0
_STATUS_SECONDS = 2.0


class Screen(Protocol):
    """What the stage shows its scenes on."""

    def __enter__(self) -> Screen: ...

    def __exit__(self, *_: object) -> None: ...

    def show(self, scene: Scene) -> None:
        """Show the present moment."""
        ...


def screen_for(stream: TextIO, *, plain: bool) -> Screen:
    """Return a live screen where *stream* is a terminal and rich is installed, plain lines otherwise."""
    if plain or not stream.isatty() or os.environ.get("TERM") == "dumb":
        return PlainLines(stream)
    try:
        return LiveScreen(stream)
    except ModuleNotFoundError:
        return PlainLines(stream)


class PlainLines:
    """Each sentence of the story as it falls, and a line of figures now and then."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._told = 0
        self._next_status = 0.0

    def __enter__(self) -> PlainLines:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, scene: Scene) -> None:
        """Print what is new."""
        for line in scene.lines[self._told :]:
            self._say(line.at, line.text)
        self._told = len(scene.lines)
        if scene.now >= self._next_status:
            self._next_status = scene.now + max(_STATUS_EVERY, _STATUS_SECONDS * scene.speed)
            self._say(scene.now, "  " + _figures(scene))

    def _say(self, at: float, text: str) -> None:
        print(f"{clock_face(at):>5}  {text}", file=self._stream, flush=True)


def _figures(scene: Scene) -> str:
    account, rates = scene.account, scene.rates
    parts = [
        scene.state.replace("_", "-"),
        f"sent {rates.sent:.0f}/s, refused {rates.refused:.0f}/s, failed {rates.failed:.0f}/s",
        f"delivered {account.delivered:,}, kept {account.outstanding:,}",
    ]
    if scene.next_trial is not None:
        parts.append(f"next trial in {scene.next_trial:.0f} s")
    return " · ".join(parts)


class LiveScreen:
    """
    The whole picture, redrawn in place.

    Raises:
        ModuleNotFoundError: rich is not installed.
    """

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        from halfopen.cli.demo.picture import picture

        self._console = Console(file=stream)
        self._draw: Callable[[Scene, int], Any] = picture
        self._live: AbstractContextManager[Live] = Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._shown: Live | None = None
        self._lines: tuple[Line, ...] = ()

    def __enter__(self) -> LiveScreen:
        self._shown = self._live.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._live.__exit__(*exc)
        # The picture is gone; what happened stays.
        for line in self._lines:
            print(f"{clock_face(line.at):>5}  {line.text}", file=self._console.file)
        self._console.file.flush()

    def show(self, scene: Scene) -> None:
        """Redraw."""
        self._lines = scene.lines
        if self._shown is not None:
            self._shown.update(self._draw(scene, self._console.size.height), refresh=True)


def utf8(stream: TextIO) -> None:
    """Let *stream* take every character; what it cannot show becomes a question mark."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None and stream is not sys.__stdin__:
        reconfigure(errors="replace")
