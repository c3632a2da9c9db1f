"""The table of who passes: as text, as Markdown, as JSON, and between the markers of docs/comparison.md."""

from __future__ import annotations

import json
import platform
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from rivals.run import ROOT, Cell, installed_version
from rivals.scenarios import load_scenario

__all__ = [
    "PAGE",
    "README",
    "README_BEGIN",
    "README_END",
    "as_json",
    "as_markdown",
    "as_signs",
    "as_text",
    "write_between",
    "write_page",
]

PAGE = ROOT / "docs" / "comparison.md"
README = ROOT / "README.md"
BEGIN = "<!-- rivals: written by `make rivals`, do not edit below -->"
END = "<!-- rivals: end -->"
README_BEGIN = "<!-- comparison table -->"
README_END = "<!-- end of comparison table -->"
_SIGNS = {"pass": "✓", "fails": "✗", "n/a": "–"}

Cells = Mapping[tuple[str, str], Cell]


def as_text(cells: Cells, scenarios: Sequence[str], libraries: Sequence[str]) -> str:
    """Return the table for a terminal, and below it the evidence of each cell."""
    width = max(len(_title(scenario)) for scenario in scenarios)
    columns = [max(len(library), 5) for library in libraries]
    head = " " * width + "  " + "  ".join(name.ljust(w) for name, w in zip(libraries, columns, strict=True))
    rows = [head, "-" * len(head)]
    for scenario in scenarios:
        results = [_result(cells, scenario, library) for library in libraries]
        line = "  ".join(result.ljust(w) for result, w in zip(results, columns, strict=True))
        rows.append(f"{_title(scenario).ljust(width)}  {line}")
    scores = [_passed(cells, scenarios, library).replace(" of ", "/") for library in libraries]
    rows.append("passed".ljust(width) + "  " + "  ".join(s.ljust(w) for s, w in zip(scores, columns, strict=True)))
    return "\n".join([*rows, "", *_evidence(cells, scenarios)])


def as_markdown(cells: Cells, scenarios: Sequence[str], libraries: Sequence[str]) -> str:
    """Return the table, what each row means, and versions and method, as Markdown."""
    head = "| | " + " | ".join(f"**{name}**" if name == "halfopen" else name for name in libraries) + " |"
    rows = [head, "|---|" + "---|" * len(libraries)]
    for scenario in scenarios:
        texts = [_cell_text(cells, scenario, library) for library in libraries]
        rows.append(f"| {_title(scenario)} | " + " | ".join(texts) + " |")
    passed = [f"{_passed(cells, scenarios, library)}" for library in libraries]
    rows.append("| passed | " + " | ".join(passed) + " |")
    return "\n".join([*rows, "", *_meanings(scenarios), "", *_method(libraries)])


def as_signs(cells: Cells, scenarios: Sequence[str], libraries: Sequence[str]) -> str:
    """Return the table with nothing but signs in it, as Markdown."""
    rows = ["| | " + " | ".join(libraries) + " |", "|---|" + ":-:|" * len(libraries)]
    for scenario in scenarios:
        signs = [_SIGNS.get(_result(cells, scenario, library), "?") for library in libraries]
        rows.append(f"| {_title(scenario)} | " + " | ".join(signs) + " |")
    passed = [_passed(cells, scenarios, library).replace(" of ", "/") for library in libraries]
    rows.append("| passed | " + " | ".join(passed) + " |")
    return "\n".join(rows)


def as_json(cells: Cells, scenarios: Sequence[str], libraries: Sequence[str]) -> str:
    """Return versions and cells as JSON."""
    table = {
        scenario: {
            library: {"result": cell.verdict.result, "evidence": cell.verdict.evidence}
            for library in libraries
            if (cell := cells.get((scenario, library))) is not None
        }
        for scenario in scenarios
    }
    versions = {library: installed_version(library) for library in libraries}
    return json.dumps({"versions": versions, "scenarios": table}, indent=2, ensure_ascii=False)


def write_page(markdown: str, page: Path = PAGE) -> None:
    """Put *markdown* between the markers of *page*; make the page if there is none."""
    if not page.exists():
        page.write_text(_INTRODUCTION, encoding="utf-8")
    write_between(BEGIN, END, markdown, page)


def write_between(begin: str, end: str, markdown: str, page: Path) -> bool:
    """Put *markdown* between the markers *begin* and *end* of *page*; return False if they are not there."""
    text = page.read_text(encoding="utf-8")
    before, found, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found and found_end):
        return False
    page.write_text(f"{before}{begin}\n\n{markdown}\n\n{end}{after}", encoding="utf-8")
    return True


def _title(scenario: str) -> str:
    return scenario.replace("_", " ")


def _result(cells: Cells, scenario: str, library: str) -> str:
    cell = cells.get((scenario, library))
    return "?" if cell is None else cell.verdict.result


def _cell_text(cells: Cells, scenario: str, library: str) -> str:
    cell = cells.get((scenario, library))
    if cell is None:
        return "?"
    sign = _SIGNS[cell.verdict.result]
    return f"{sign} {cell.verdict.evidence}"


def _passed(cells: Cells, scenarios: Sequence[str], library: str) -> str:
    results = [_result(cells, scenario, library) for scenario in scenarios]
    played = [result for result in results if result in ("pass", "fails")]
    return f"{played.count('pass')} of {len(played)}"


def _evidence(cells: Cells, scenarios: Sequence[str]) -> list[str]:
    lines = []
    for scenario in scenarios:
        lines.append(f"{_title(scenario)}: {load_scenario(scenario).FAULT}")
        for (row, library), cell in cells.items():
            if row == scenario:
                lines.append(f"    {library:<15} {cell.verdict.result:<6} {cell.verdict.evidence}")
    return lines


def _meanings(scenarios: Sequence[str]) -> list[str]:
    lines = ["| row | the fault | what passes |", "|---|---|---|"]
    for scenario in scenarios:
        module = load_scenario(scenario)
        lines.append(f"| {_title(scenario)} | {module.FAULT} | {module.RIGHT} |")
    return lines


def _method(libraries: Sequence[str]) -> list[str]:
    versions = ", ".join(f"{library} {installed_version(library) or 'not installed'}" for library in libraries)
    python = f"CPython {platform.python_version()} on {platform.system()}"
    return [f"Tested: {versions}; {python}.", "", *textwrap.dedent(_METHOD).strip().splitlines()]


_METHOD = """
Method: one process per cell and colour (threads for synchronous callers, tasks of one event loop for asynchronous
ones), 30 seconds at most.
Each library is used through its decorator as its documentation shows, with one trial call permitted and one success
needed to close, where it has those settings, and with its own exclusion list, predicate, listener or timeout where the
scenario is about one.
✓ passes in every colour the library has, ✗ fails in at least one (named where the other passes), – cannot be asked
of it, with the reason.
A library that runs one call at a time cannot show the late results and is given them as passed.
One that limits no trial calls passes the hung trial for the same reason for which it fails the herd.
The wall clock is set by replacing `time.time` and `datetime.datetime` before the library is imported.
Sources of the scenarios and of the adapters: `rivals/`; run it yourself with `make rivals`.
"""

_INTRODUCTION = f"""# Comparison

Twelve ways in which circuit breakers are known to go wrong, most of them while half-open, played against halfopen and
the circuit breakers that can be installed from the Python package index.
The tables are the output of `make rivals`, which exits with an error if halfopen fails any row.
Libraries improve: run it again before you quote it.

{BEGIN}
{END}
"""
