"""The console's picture as text for terminals."""

from __future__ import annotations

import io
import sys
from collections import Counter
from typing import Any, TextIO, cast

from rich.console import Console
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


def table(snapshot: dict[str, Any], *, everything: bool = False, height: int | None = None) -> Table:
    """Return the circuits, worst first; at most *height* of them."""
    breakers = [each for each in snapshot["breakers"] if everything or each["state"] != "closed"]
    breakers.sort(key=lambda each: (_ORDER.index(each["state"]), -each["refused_rate"], each["name"]))
    shown = Table(box=None, pad_edge=False, expand=True)
    for name, right in (("circuit", False), ("state", False), ("next", False), ("asked/s", True), ("refused/s", True)):
        shown.add_column(name, justify="right" if right else "left", no_wrap=True)
    # Where the lines are counted, each circuit has one.
    shown.add_column("why", ratio=1, no_wrap=height is not None, overflow="ellipsis")
    for breaker in breakers[:height]:
        shown.add_row(*_row(breaker, snapshot["time"]))
    if height is not None and len(breakers) > height:
        shown.add_row(f"and {len(breakers) - height} more", "", "", "", "", "")
    if not breakers:
        shown.add_row("every circuit is closed", "", "", "", "", "")
    return shown


def _row(breaker: dict[str, Any], now: float) -> tuple[Any, ...]:
    text, style = STATES[breaker["state"]]
    members = breaker["processes"]
    if len(members) > 1:
        inside = sum(not one["gone"] and one["state"] == breaker["state"] for one in members)
        text += f", {inside} of {len(members)}"
    return (
        Text(clean(breaker["name"])),
        Text(text, style),
        _next(members, now),
        f"{breaker['asked_rate']:g}",
        f"{breaker['refused_rate']:g}",
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
