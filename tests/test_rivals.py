"""halfopen passes every scenario of the comparison, and each scenario can fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rivals.adapters import ADAPTERS
from rivals.run import Cell, run_colour, together
from rivals.scenarios import SCENARIOS, load_scenario
from rivals.stage import Verdict
from rivals.table import as_json, as_markdown, as_text, write_page

CELLS = [(scenario, colour) for scenario in SCENARIOS for colour in load_scenario(scenario).COLOURS]

# Which naive breaker fails which scenario, and what is seen of it.
CONTROLS = {
    "herd": ("NAIVE", "20 of 20 callers reached it"),
    "hung_trial": ("SLOTTED", "5 of 5 later calls refused"),
    "cancelled_trial": ("NAIVE", "the cancelled call re-opened it"),
    "late_success": ("NAIVE", "the late success closed it"),
    "late_failure": ("NAIVE", "the late failure re-opened it"),
    "ignored_trial": ("NAIVE", "the excluded error closed it"),
    "recursion": ("SLOTTED", "refuses its own inner call"),
    "raising_classifier": ("SLOTTED", "5 of 5 later calls refused"),
    "raising_listener": ("NAIVE", "4 of 4 callers got the listener's error"),
    "interrupt": ("NAIVE", "the interrupted call re-opened it"),
    "clock_step": ("NAIVE", "1 h forward ends the open time at once, 1 h back prolongs it by 1 h"),
    "slow_call_blocking_others": ("LOCKED", "8 callers × 0.2 s took"),
}


def played(scenario: str, library: str, colour: str, wanted: tuple[str, str]) -> Verdict:
    """Play until it ends as wanted, four times at most: scenarios go by the watch, and the machine may be busy."""
    for _ in range(4):
        verdict = run_colour(scenario, library, colour, time_limit=120.0)
        if wanted == (verdict.result, verdict.evidence[: len(wanted[1])]):
            break
    return verdict


@pytest.mark.parametrize(("scenario", "colour"), CELLS)
def test_halfopen_passes(scenario: str, colour: str) -> None:
    verdict = played(scenario, "halfopen", colour, ("pass", ""))

    assert "pass" == verdict.result, verdict.evidence


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_breaker_with_the_fault_fails(scenario: str) -> None:
    breaker, evidence = CONTROLS[scenario]
    colour = load_scenario(scenario).COLOURS[0]

    verdict = played(scenario, f"tests.naive_breakers:{breaker}", colour, ("fails", evidence))

    assert ("fails", evidence) == (verdict.result, verdict.evidence[: len(evidence)])


def test_a_scenario_that_does_not_end_hangs() -> None:
    verdict = run_colour("herd", "halfopen", "sync", time_limit=0.05)

    assert Verdict("fails", "hangs: no end after 0 s") == verdict


def test_a_scenario_that_crashes_fails_with_the_last_line_of_its_error() -> None:
    verdict = run_colour("herd", "no.such:ADAPTER", "sync")

    assert Verdict("fails", "crashed (1): ModuleNotFoundError: No module named 'no'") == verdict


def test_a_cell_shows_the_worse_colour_and_names_it() -> None:
    threads, tasks = Verdict("pass", "fine"), Verdict("fails", "20 of 20")

    assert Verdict("fails", "20 of 20 (tasks)") == together({"sync": threads, "async": tasks})
    assert tasks == together({"sync": tasks, "async": tasks})
    assert tasks == together({"sync": Verdict("n/a", "asyncio only"), "async": tasks})


def test_every_table_shows_every_result() -> None:
    cells = {("herd", name): Cell("herd", name, Verdict("pass", f"fine with {name}")) for name in ADAPTERS}

    tables = [render(cells, ["herd"], list(ADAPTERS)) for render in (as_text, as_markdown, as_json)]

    assert [len(ADAPTERS)] * 3 == [table.count("fine with ") for table in tables]
    assert "pass" == json.loads(tables[2])["scenarios"]["herd"]["halfopen"]["result"]


def test_the_page_keeps_what_stands_outside_the_markers(tmp_path: Path) -> None:
    page = tmp_path / "comparison.md"
    write_page("old", page)
    page.write_text(page.read_text(encoding="utf-8") + "\nAfter.\n", encoding="utf-8")

    write_page("new", page)

    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Comparison")
    assert text.endswith("\nAfter.\n")
    assert ("old" in text, text.count("new")) == (False, 1)
