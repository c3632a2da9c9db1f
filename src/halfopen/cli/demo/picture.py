"""The live picture, drawn with rich: state diagram, figures, the variants side by side, the story so far."""

from __future__ import annotations

import math
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from halfopen.cli.demo.account import Account
from halfopen.cli.demo.scene import Scene
from halfopen.cli.demo.story import clock_face

__all__ = ["picture"]

_COLOURS = {"closed": "green", "open": "red", "half_open": "yellow"}
_SIGNS = {"closed": "● closed", "open": "✗ open", "half_open": "◐ half-open", "none": "–", "killed": "☠ killed"}
_PARTNER = {"well": ("● well", "green"), "down": ("✗ 503", "red"), "cold": ("◐ cold", "yellow")}
_SLOTS = {"free": ("○", "dim"), "running": ("◐", "yellow"), "succeeded": ("✓", "green"), "failed": ("✗", "red")}

# State → where its box stands (row, column) and what it says.
_BOXES = {"closed": (0, 2, "CLOSED"), "open": (0, 44, "OPEN"), "half_open": (4, 22, "HALF-OPEN")}
_BOX = 15
_ROWS, _COLUMNS = 8, 76
_CHROME = 20
_BAR = 12
_KEPT_UNIT = 10


def picture(scene: Scene, height: int) -> RenderableType:
    """Draw *scene* for a terminal of *height* lines."""
    room = height - _CHROME - len(scene.others)
    parts: list[RenderableType] = [_header(scene), _circuit(scene), _variants(scene)]
    if scene.console and room > 3:
        parts.insert(1, _console(scene.console))
        room -= 1
    elif scene.console:
        parts[0] = _header(replace(scene, title=scene.console))
    if room > 0:
        parts.append(_story(scene, room))
    return Group(*parts)


def _header(scene: Scene) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(" halfopen demo ", style="bold reverse")
    text.append(f"  {scene.title}   ")
    text.append(clock_face(scene.now), style="bold")
    if scene.speed != 1:
        text.append(f"  at ×{scene.speed:g} speed", style="dim")
    return text


def _console(url: str) -> Text:
    return Text(" console  ", style="dim").append(url, style=f"link {url}")


def _circuit(scene: Scene) -> Panel:
    body = Group(_diagram(scene), Text(), _window(scene), _trials(scene), _rates(scene), _kept(scene))
    return Panel(body, border_style="dim")


def _diagram(scene: Scene) -> Text:
    canvas = [[" "] * _COLUMNS for _ in range(_ROWS)]

    def put(row: int, column: int, text: str) -> None:
        canvas[row][column : column + len(text)] = text

    put(0, 18, f"{scene.limit * 100:g} % of {scene.window} calls fail".center(25))
    put(1, 18, "─" * 24 + "▶")
    put(1, 61, "refuses at once")
    for row in (3, 4):
        put(row, 9, "▲" if row == 3 else "│")
        put(row, 47, "│")
        put(row, 55, "▲" if row == 3 else "│")
    put(4, 38, "wait over")
    put(5, 9, "╰" + "─" * 12)
    put(5, 37, "◀" + "─" * 9 + "╯")
    put(5, 55, "│")
    put(6, 2, f"{len(scene.trials)} trials succeed")
    put(6, 55, "│ one trial fails:")
    put(7, 29, "╰" + "─" * 25 + "╯ the wait doubles")
    for state, (row, column, label) in _BOXES.items():
        for offset, piece in enumerate(_box(label, lit=state == scene.state)):
            put(row + offset, column, piece)
    return _coloured(canvas, scene.state)


def _box(label: str, *, lit: bool) -> tuple[str, str, str]:
    # Thick walls and a dot, because colour alone tells some people nothing.
    inside = _BOX - 2
    if lit:
        return "┏" + "━" * inside + "┓", "┃" + f"● {label}".center(inside) + "┃", "┗" + "━" * inside + "┛"
    return "┌" + "─" * inside + "┐", "│" + label.center(inside) + "│", "└" + "─" * inside + "┘"


def _coloured(canvas: list[list[str]], state: str) -> Text:
    text = Text("\n".join("".join(line) for line in canvas), style="dim", no_wrap=True, overflow="crop")
    if state in _BOXES:
        row, column, _ = _BOXES[state]
        for line in range(row, row + 3):
            start = line * (_COLUMNS + 1) + column
            text.stylize(f"not dim bold {_COLOURS[state]}", start, start + _BOX)
    return text


def _window(scene: Scene) -> Text:
    text = Text(" window      ", no_wrap=True)
    if scene.state == "half_open":
        return text.append("rests while trial calls decide", style="dim")
    failures, calls = scene.failures, scene.calls
    text.append("✗" * failures, style="red")
    text.append("✓" * (calls - failures), style="green")
    text.append("·" * (scene.window - calls), style="dim")
    text.append(f"  {failures} of {calls} failed", style="bold")
    return text.append(" when it opened" if scene.state == "open" else f" (limit {scene.limit * 100:g} %)", style="dim")


def _trials(scene: Scene) -> Text:
    text = Text(" trial calls ", no_wrap=True)
    for slot in scene.trials:
        sign, style = _SLOTS.get(slot, (slot, ""))
        text.append(f"{sign} ", style=style)
    if scene.next_trial is None or not scene.wait:
        return text
    text.append(" last round failed; " if scene.step > 1 else " ", style="red")
    done = max(0.0, min(1.0, 1 - scene.next_trial / scene.wait))
    text.append("next in ")
    text.append(f"{scene.next_trial:3.0f} s ", style="bold")
    text.append("█" * round(_BAR * done), style="yellow")
    text.append("░" * (_BAR - round(_BAR * done)), style="dim")
    return text.append(f" of {scene.wait:.0f} s", style="dim")


def _rates(scene: Scene) -> Text:
    rates = scene.rates
    text = Text(" calls/s     ", no_wrap=True)
    text.append(f"sent {rates.sent:4.0f}   ", style="green" if rates.sent else "dim")
    text.append(f"refused {rates.refused:4.0f}   ", style="yellow" if rates.refused else "dim")
    return text.append(f"failed {rates.failed:4.0f}", style="red" if rates.failed else "dim")


def _kept(scene: Scene) -> Text:
    kept = scene.account.outstanding
    text = Text(f" kept     {kept:6,} ", no_wrap=True, overflow="crop")
    return text.append("▪" * min(55, math.ceil(kept / _KEPT_UNIT)), style="cyan")


def _variants(scene: Scene) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for title, width in ((" the same day", 16), ("partner", 8), ("circuit", 11)):
        table.add_column(title, min_width=width, no_wrap=True)
    for title in ("sick hits", "falls", "delivered", " kept", "given up"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_row(" halfopen", *_cells(scene.account), style="bold")
    for title, account in scene.others:
        table.add_row(f" {title}", *(_cells(account) if account else ["…"] * 7))
    return table


def _cells(account: Account) -> list[Text]:
    books = account.books
    partner = Text("not ours", "dim") if books is None else Text(*_PARTNER[books.condition])
    circuit = Text(_SIGNS.get(account.circuit, account.circuit), _COLOURS.get(account.circuit, "dim"))
    hits, falls = ("–", "–") if books is None else (f"{books.sick_hits:,}", f"{books.falls:,}")
    counts = (hits, falls, f"{account.delivered:,}", f"{account.outstanding:,}", f"{account.given_up:,}")
    return [partner, circuit, *map(Text, counts)]


def _story(scene: Scene, room: int) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    for line in scene.lines[-room:]:
        text.append(f"\n {clock_face(line.at):>5}  ", style="bold")
        text.append(line.text)
    return text
