"""The console's picture as text for terminals."""

from __future__ import annotations

import io
import sys
from collections import Counter
from typing import Any, TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from halfopen.cli._remote import clean

__all__ = ["STATES", "duration", "header", "screen", "table"]

STATES = {
    "open": ("■ open", "bold red"),
    "half_open": ("◐ half-open", "bold yellow"),
    "recovering": ("▲ recovering", "bold cyan"),
    "forced_open": ("🔒 forced open", "bold magenta"),
    "disabled": ("+ forced closed", "bold"),
    "metrics_only": ("◎ observed only", "bold"),
    "gone": ("✕ gone", "dim"),
    "closed": ("● closed", "green"),
}
"""State → how it is shown, worst first."""

_ORDER = list(STATES)
_HEADS = ("circuit", "state", "next", "asked/s", "refused/s")
_GAP = 2
_NAME = 8
"""Columns that are left of a name in the narrowest window; the reason below the table has all of it."""
_WHY = 30
"""Columns below which the reasons stand under the table and not in it."""


def screen() -> Console:
    """Return standard output for rich; what its encoding cannot hold is shown as a question mark."""
    output: Any = sys.stdout
    if isinstance(output, io.TextIOWrapper):
        output.reconfigure(errors="replace")
    return Console(file=cast("TextIO", output), highlight=False)


def duration(seconds: float) -> str:
    """Return seconds as people read them."""
    whole = max(int(seconds), 0)
    if whole < 90:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def header(snapshot: dict[str, Any], note: str = "") -> Text:
    """Return one line: how many circuits are in which state."""
    counts = Counter(breaker["state"] for breaker in snapshot["breakers"])
    line = Text(" ".join(filter(None, ["halfopen", clean(snapshot["environment"])])) + "  ", style="bold")
    for state, (shown, style) in STATES.items():
        if counts[state]:
            line.append(f"{counts[state]} {shown[2:]}  ", style)
    gone = [clean(process["id"]) for process in snapshot["processes"] if process["gone"]]
    if gone:
        line.append(f"gone: {', '.join(gone)}  ", "bold")
    return line.append(note, "dim")


def table(
    snapshot: dict[str, Any], *, width: int, everything: bool = False, height: int | None = None
) -> RenderableType:
    """Return the circuits, worst first, for *width* columns; at most *height* of them."""
    breakers = [each for each in snapshot["breakers"] if everything or each["state"] != "closed"]
    breakers.sort(key=lambda each: (_ORDER.index(each["state"]), -each["refused_rate"], each["name"]))
    rows = [_row(breaker, snapshot["time"]) for breaker in breakers[:height]]
    spare = width - _needed(rows)
    beside = spare >= _WHY
    shown = _grid(beside=beside, counted=height is not None)
    for row in rows:
        shown.add_row(*row if beside else (_cut(row[0], rows, spare), *row[1:-1]))
    if len(breakers) > len(rows):
        shown.add_row(f"and {len(breakers) - len(rows)} more")
    if not breakers:
        shown.add_row("every circuit is closed")
    return shown if beside else Group(shown, *_reasons(rows, height))


def _needed(rows: list[tuple[Text, ...]]) -> int:
    cells = zip(map(Text, _HEADS), *(row[:-1] for row in rows), strict=True)
    return sum(max(each.cell_len for each in column) + _GAP for column in cells)


def _grid(*, beside: bool, counted: bool) -> Table:
    shown = Table(box=None, pad_edge=False, expand=beside)
    for name in _HEADS:
        shown.add_column(name, justify="right" if name.endswith("/s") else "left", no_wrap=True)
    if beside:
        # Where the lines are counted, each circuit has one.
        shown.add_column("why", ratio=1, no_wrap=counted, overflow="ellipsis")
    return shown


def _cut(name: Text, rows: list[tuple[Text, ...]], spare: int) -> Text:
    widest = max(row[0].cell_len for row in rows)
    shown = name.copy()
    shown.truncate(max(widest + min(spare + _GAP, 0), _NAME), overflow="ellipsis")
    return shown


def _reasons(rows: list[tuple[Text, ...]], height: int | None) -> list[Text]:
    told = [Text.assemble(row[0], ": ", row[-1]) for row in rows if row[-1]]
    if height is None:
        return [Text(), *told] if told else []
    for each in told:
        each.no_wrap, each.overflow = True, "ellipsis"
    room = max(height - len(rows) - 1, 0)
    return [Text(), *told[:room]] if room and told else []


def _row(breaker: dict[str, Any], now: float) -> tuple[Text, ...]:
    text, style = STATES[breaker["state"]]
    members = breaker["processes"]
    if len(members) > 1:
        inside = sum(not one["gone"] and one["state"] == breaker["state"] for one in members)
        text += f", {inside} of {len(members)}"
    return (
        Text(clean(breaker["name"])),
        Text(text, style),
        Text(_next(members, now)),
        Text(f"{breaker['asked_rate']:g}"),
        Text(f"{breaker['refused_rate']:g}"),
        Text(clean(breaker["why"] or "")),
    )


def _next(members: list[dict[str, Any]], now: float) -> str:
    here = [one for one in members if not one["gone"]]
    trials = [one["next_trial"] for one in here if one["next_trial"] is not None]
    if trials:
        left = min(trials) - now
        return f"trial in {duration(left)}" if left > 0 else "next call is a trial"
    half = next((one for one in here if one["state"] == "half_open"), None)
    if half is not None:
        done = sum(slot.startswith(("succeeded", "failed")) for slot in half["trials"])
        return f"{done} of {len(half['trials'])} trials"
    ends = [one["ends_at"] for one in here if one["ends_at"] is not None]
    return f"ends in {duration(min(ends) - now)}" if ends else ""
