"""The measured numbers as text, as Markdown and as JSON, with the targets beside them."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.measure import BARE, Measured
from benchmarks.weight import Weights

__all__ = ["as_json", "as_markdown", "as_text"]

OURS = "halfopen"


def as_text(speeds: Sequence[Measured], weights: Sequence[Weights], missing: Sequence[str]) -> str:
    """Return all tables for a terminal."""
    return "\n\n".join(_parts(speeds, weights, missing, _aligned))


def as_markdown(speeds: Sequence[Measured], weights: Sequence[Weights], missing: Sequence[str]) -> str:
    """Return all tables as Markdown."""
    return "\n\n".join(_parts(speeds, weights, missing, _piped)) + "\n"


def as_json(speeds: Sequence[Measured], weights: Sequence[Weights], missing: Sequence[str]) -> str:
    """Return every number as JSON; times in nanoseconds."""
    return json.dumps(
        {
            "machine": _machine(),
            "missing": list(missing),
            "speed": [_speed_json(measured) for measured in speeds],
            "weight": [{"name": w.name, "target": w.target, "values": w.values} for w in weights],
        },
        indent=2,
    )


def _parts(
    speeds: Sequence[Measured],
    weights: Sequence[Weights],
    missing: Sequence[str],
    table: Callable[[list[list[str]]], str],
) -> list[str]:
    tables = [table(rows) for rows in (_speed_rows(speeds), _weight_rows(weights), _target_rows(speeds, weights))]
    return [*_notes(missing), *(part for part in [tables[0], _case_notes(speeds), *tables[1:]] if part)]


def _case_notes(speeds: Sequence[Measured]) -> str:
    notes = dict.fromkeys(f"{m.case.name}: {m.case.note}." for m in speeds if m.case.note)
    return "  \n".join(notes)


def _notes(missing: Sequence[str]) -> list[str]:
    notes = [
        f"{_machine()}. Nanoseconds of CPU time above the bare call, medians of interleaved rounds; "
        "in brackets the whole call as a multiple of the bare one."
    ]
    if missing:
        notes.append(f"Not installed, so left out: {', '.join(missing)}.")
    return notes


def _machine() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}, {platform.system()}, {os.cpu_count()} CPUs"


def _speed_rows(speeds: Sequence[Measured]) -> list[list[str]]:
    if not speeds:
        return []
    libraries = _columns([measured.names() for measured in speeds])
    rows = [["ns per call", "threads", BARE, *libraries, "best rival / halfopen"]]
    for measured in speeds:
        cells = [_speed_cell(measured, library) for library in libraries]
        bare = f"{measured.total_ns(BARE):.0f}" if BARE in measured.names() else ""
        rows.append([measured.case.name, str(measured.threads), bare, *cells, _ratio_to_best(measured)])
    return rows


def _columns(names: Sequence[Sequence[str]]) -> list[str]:
    seen = dict.fromkeys(name for row in names for name in row if name != BARE)
    return sorted(seen, key=lambda name: (name != OURS, list(seen).index(name)))


def _speed_cell(measured: Measured, library: str) -> str:
    if library not in measured.names():
        return "–"
    ratio = measured.total_ns(library) / measured.total_ns(BARE)
    return f"+{measured.above_ns(library):.0f} ({ratio:.1f}×)"


def _ratio_to_best(measured: Measured) -> str:
    rivals = {name: measured.above_ns(name) for name in measured.names() if name not in (BARE, OURS)}
    if not rivals or OURS not in measured.names():
        return "–"
    best = min(rivals, key=rivals.__getitem__)
    return f"{rivals[best] / max(measured.above_ns(OURS), 0.1):.1f}× ({best})"


def _weight_rows(weights: Sequence[Weights]) -> list[list[str]]:
    if not weights:
        return []
    libraries = _columns([list(weight.values) for weight in weights])
    rows = [["weight", *libraries]]
    for weight in weights:
        rows.append([weight.name, *(_weight_cell(weight, library) for library in libraries)])
    return rows


def _weight_cell(weight: Weights, library: str) -> str:
    value = weight.values.get(library)
    return "–" if value is None else f"{value:.0f}"


def _target_rows(speeds: Sequence[Measured], weights: Sequence[Weights]) -> list[list[str]]:
    rows = [["target for halfopen", "threads", "target", "measured", ""]]
    for measured in speeds:
        if measured.case.target is not None and OURS in measured.names():
            above = measured.above_ns(OURS)
            rows.append(_target_row(measured.case.name, str(measured.threads), "ns above", measured.case.target, above))
    for weight in weights:
        if weight.target is not None and OURS in weight.values:
            rows.append(_target_row(weight.name, "", "ms", weight.target, weight.values[OURS]))
    return rows if len(rows) > 1 else []


def _target_row(name: str, threads: str, unit: str, target: float, measured: float) -> list[str]:
    return [name, threads, f"≤ {target:.0f} {unit}", f"{measured:.0f}", "reached" if measured <= target else "missed"]


def _speed_json(measured: Measured) -> dict[str, Any]:
    return {
        "case": measured.case.name,
        "threads": measured.threads,
        "target_above": measured.case.target,
        "note": measured.case.note,
        "rounds": len(measured.rounds[BARE]),
        "libraries": {
            name: {
                "total": round(measured.total_ns(name), 1),
                "above": round(measured.above_ns(name), 1),
                "quartile_distance": round(measured.spread_ns(name), 1),
            }
            for name in measured.names()
        },
    }


def _aligned(rows: list[list[str]]) -> str:
    if not rows:
        return ""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = ["  ".join(_justified(row, widths)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _justified(row: list[str], widths: list[int]) -> list[str]:
    pairs = list(zip(row, widths, strict=True))
    return [cell.rjust(width) if number else cell.ljust(width) for number, (cell, width) in enumerate(pairs)]


def _piped(rows: list[list[str]]) -> str:
    if not rows:
        return ""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|---|" + "--:|" * (len(rows[0]) - 1), *lines[1:]])
