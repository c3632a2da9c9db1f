"""Run every cell of the table, each colour of it in a process of its own, and put the colours together."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from subprocess import PIPE

from rivals.adapters import ADAPTERS
from rivals.scenarios import load_scenario
from rivals.stage import Verdict

__all__ = ["ROOT", "Cell", "installed_version", "run_cells", "run_colour", "together"]

ROOT = Path(__file__).parent.parent
TIME_LIMIT = 30.0
_CALLERS = {"sync": "threads", "async": "tasks"}
_running: set[subprocess.Popen[str]] = set()
_RANK = {"fails": 2, "pass": 1, "n/a": 0}


@dataclass(frozen=True)
class Cell:
    """
    One scenario with one library, all colours taken together.

    Attributes:
        scenario: The row.
        library: The column.
        verdict: The worse of the two colours.
    """

    scenario: str
    library: str
    verdict: Verdict


def installed_version(library: str) -> str | None:
    """Return the version of *library* in this environment, None if it is not installed."""
    try:
        return version(library)
    except PackageNotFoundError:
        return None


def run_cells(scenarios: Sequence[str], libraries: Sequence[str], jobs: int) -> Iterator[Cell]:
    """Yield each cell as it is finished, *jobs* at a time."""
    with ThreadPoolExecutor(jobs) as pool:
        cells = [pool.submit(run_cell, scenario, library) for library in libraries for scenario in scenarios]
        try:
            for cell in as_completed(cells):
                yield cell.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(_running):
                process.kill()


def run_cell(scenario: str, library: str) -> Cell:
    """Run one cell."""
    if library not in ADAPTERS:
        raise KeyError(library)
    if installed_version(library) is None:
        return Cell(scenario, library, Verdict("n/a", "not installed"))
    colours = load_scenario(scenario).COLOURS
    return Cell(scenario, library, together({colour: run_colour(scenario, library, colour) for colour in colours}))


def run_colour(scenario: str, library: str, colour: str, time_limit: float = TIME_LIMIT) -> Verdict:
    """Play one colour of a cell in a process of its own; a process that exceeds *time_limit* seconds hangs."""
    command = [sys.executable, "-m", "rivals.play", scenario, library, colour]
    # A session of its own: Ctrl-C is for the parent, which then ends its children.
    with subprocess.Popen(command, cwd=ROOT, stdout=PIPE, stderr=PIPE, text=True, start_new_session=True) as process:
        _running.add(process)
        try:
            out, err = process.communicate(timeout=time_limit)
        except subprocess.TimeoutExpired:
            process.kill()
            return Verdict("fails", f"hangs: no end after {time_limit:.0f} s")
        finally:
            _running.discard(process)
    return _read(process.returncode, out, err)


def _read(code: int, out: str, err: str) -> Verdict:
    lines = out.strip().splitlines()
    if code == 0 and lines:
        return Verdict(**json.loads(lines[-1]))
    last = err.strip().splitlines()[-1:] or ["no message"]
    return Verdict("fails", f"crashed ({code}): {last[0]}")


def together(verdicts: dict[str, Verdict]) -> Verdict:
    """Return the worse of the colours' *verdicts*, and name the colour where the other did better."""
    worst = max(verdicts.values(), key=lambda verdict: _RANK[verdict.result])
    of_it = [colour for colour, verdict in verdicts.items() if verdict.result == worst.result]
    played = [colour for colour, verdict in verdicts.items() if verdict.result != "n/a"]
    if len(of_it) < len(played):
        return Verdict(worst.result, f"{worst.evidence} ({_CALLERS[of_it[0]]})")
    return worst
