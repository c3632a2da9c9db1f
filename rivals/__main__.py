"""`python -m rivals`: play the known half-open faults and print who passes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from rivals.adapters import ADAPTERS
from rivals.run import ROOT, Cell, installed_version, run_cells
from rivals.scenarios import SCENARIOS
from rivals.table import (
    PAGE,
    README,
    README_BEGIN,
    README_END,
    as_json,
    as_markdown,
    as_signs,
    as_text,
    write_between,
    write_page,
)

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cells that were asked for; return 1 if halfopen fails any, 2 for bad usage, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    scenarios, libraries = _chosen(options.only or [])
    cells: dict[tuple[str, str], Cell] = {}
    interrupted = False
    try:
        _run(cells, scenarios, libraries, options.jobs)
    except KeyboardInterrupt:
        interrupted = True
        print("\ninterrupted; what was finished so far:", file=sys.stderr)
    render = as_json if options.json else as_markdown if options.markdown else as_text
    print(render(_in_order(cells, scenarios, libraries), scenarios, libraries))
    if interrupted:
        return 130
    _write_page(cells, options.only)
    return _verdict(cells)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rivals", description=__doc__)
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        choices=[*SCENARIOS, *ADAPTERS],
        help="a scenario or a library; may be given several times; docs/comparison.md is not written then",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument(
        "--jobs", type=int, default=min(4, 2 * (os.cpu_count() or 1)), help="cells at a time (%(default)s)"
    )
    return parser


def _chosen(only: list[str]) -> tuple[list[str], list[str]]:
    scenarios = [name for name in SCENARIOS if name in only] or list(SCENARIOS)
    libraries = [name for name in ADAPTERS if name in only] or list(ADAPTERS)
    return scenarios, libraries


def _run(cells: dict[tuple[str, str], Cell], scenarios: list[str], libraries: list[str], jobs: int) -> None:
    total = len(scenarios) * len(libraries)
    for number, cell in enumerate(run_cells(scenarios, libraries, jobs), 1):
        cells[cell.scenario, cell.library] = cell
        line = f"[{number:>3}/{total}] {cell.library}: {cell.scenario}: {cell.verdict.result} ({cell.verdict.evidence})"
        print(line, file=sys.stderr, flush=True)


def _in_order(
    cells: dict[tuple[str, str], Cell], scenarios: list[str], libraries: list[str]
) -> dict[tuple[str, str], Cell]:
    keys = [(scenario, library) for scenario in scenarios for library in libraries]
    return {key: cells[key] for key in keys if key in cells}


def _write_page(cells: dict[tuple[str, str], Cell], only: list[str] | None) -> None:
    if only:
        return
    missing = [library for library in ADAPTERS if installed_version(library) is None]
    if missing:
        print(f"not written, since {', '.join(missing)} is not installed: {PAGE.relative_to(ROOT)}", file=sys.stderr)
        return
    table = cells, list(SCENARIOS), list(ADAPTERS)
    write_page(as_markdown(*table))
    print(f"written: {PAGE.relative_to(ROOT)}", file=sys.stderr)
    if write_between(README_BEGIN, README_END, as_signs(*table), README):
        print(f"written: {README.relative_to(ROOT)}", file=sys.stderr)


def _verdict(cells: dict[tuple[str, str], Cell]) -> int:
    bad = [cell for (_, library), cell in cells.items() if library == "halfopen" and cell.verdict.result != "pass"]
    for cell in bad:
        print(f"halfopen does not pass {cell.scenario}: {cell.verdict.evidence}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
