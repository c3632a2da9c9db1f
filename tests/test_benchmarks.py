"""The benchmarks run, leave out what is not installed, and show the targets beside what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.measure import BARE, Case, Loop, Measured, measure
from benchmarks.report import as_markdown, as_text
from benchmarks.suites import SUITES, cases_of
from benchmarks.suites._breakers import ALL, BREAKERS
from benchmarks.weight import Weights


def counting(calls: list[int]) -> Loop:
    def loop(number: int) -> None:
        calls.append(number)
        sum(range(number))

    return loop


def measured(above: float) -> Measured:
    contestants = {name: lambda: counting([]) for name in (BARE, "halfopen")}
    case = Case("sync call", contestants, target=220)
    return Measured(case, 1, {BARE: [20e-9, 30e-9, 40e-9], "halfopen": [(20 + above) / 1e9, 1.0, (40 + above) / 1e9]})


def test_all_contestants_take_part_in_every_round() -> None:
    calls: dict[str, list[int]] = {BARE: [], "halfopen": []}
    case = Case("x", {name: lambda made=made: counting(made) for name, made in calls.items()})  # type: ignore[misc]

    rounds = [len(result.rounds[BARE]) for result in measure(case, threads=1, rounds=3, seconds=1e-4)]

    assert [1, 2, 3] == rounds
    assert all(len(set(made[-3:])) == 1 for made in calls.values())


def test_the_calls_of_a_round_are_divided_among_the_threads() -> None:
    calls: list[int] = []
    case = Case("x", {BARE: lambda: counting(calls)})

    list(measure(case, threads=4, rounds=1, seconds=1e-4))

    assert 1 == len(set(calls[-4:]))


def test_the_time_above_bare_is_the_median_of_the_differences_within_a_round() -> None:
    result = measured(above=200)

    assert 200 == pytest.approx(result.above_ns("halfopen"))
    assert 30 == pytest.approx(result.total_ns(BARE))


@pytest.mark.parametrize(("above", "word"), [(219, "reached"), (221, "missed")])
def test_a_target_stands_beside_what_was_measured(above: float, word: str) -> None:
    text = as_text([measured(above)], [], [])

    assert text.splitlines()[-1].split() == ["sync", "call", "1", "≤", "220", "ns", "above", str(above), word]


def test_what_is_not_installed_is_left_out_with_a_note() -> None:
    text = as_markdown([measured(200)], [Weights("import", {"halfopen": 30.0}, 40.0)], ["hyx", "purgatory"])

    assert "Not installed, so left out: hyx, purgatory." in text


def test_every_case_measures_halfopen_against_a_bare_loop() -> None:
    cases = [case for suite in SUITES for case in cases_of(suite)]

    assert [] == [case.name for case in cases if not {BARE, "halfopen"} <= set(case.contestants)]


def test_the_command_prints_json_and_writes_markdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "bench.md"

    code = main(["--quick", "--only", "generator", "--json", "--markdown", str(page)])

    printed = json.loads(capsys.readouterr().out)
    assert (0, ["generator of 3"]) == (code, [row["case"] for row in printed["speed"]])
    assert sorted(set(ALL) - set(BREAKERS)) == sorted(printed["missing"])
    assert "generator of 3" in page.read_text(encoding="utf-8")
