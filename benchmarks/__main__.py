"""`python -m benchmarks`: measure what halfopen costs beside a bare call and the other libraries."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measure import Case, Measured, measure
from benchmarks.report import as_json, as_markdown, as_text
from benchmarks.suites import SUITES, cases_of, policies
from benchmarks.suites._breakers import ALL, BREAKERS
from benchmarks.weight import Weights, bytes_per_breaker, import_rounds

__all__ = ["main"]


@dataclass(frozen=True)
class Effort:
    """
    How much is measured.

    Attributes:
        rounds: Rounds per case.
        seconds: CPU time per contestant and round.
        imports: Rounds of imports.
        threads: The largest number of threads.
    """

    rounds: int
    seconds: float
    imports: int
    threads: int


FULL = Effort(rounds=31, seconds=0.02, imports=15, threads=8)
QUICK = Effort(rounds=7, seconds=0.005, imports=3, threads=8)


@dataclass
class Results:
    """What has been measured so far."""

    speeds: list[Measured] = field(default_factory=list)
    weights: list[Weights] = field(default_factory=list)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 130 after Ctrl-C, with what was measured until then printed."""
    options = _parser().parse_args(arguments)
    results = Results()
    interrupted = False
    try:
        _measure_all(results, options.suite or SUITES, options.only or "", QUICK if options.quick else FULL)
    except KeyboardInterrupt:
        interrupted = True
        print("\ninterrupted; what was measured so far:", file=sys.stderr)
    missing = _missing(results)
    render = as_json if options.json else as_text
    print(render(results.speeds, results.weights, missing))
    if options.markdown is not None:
        options.markdown.write_text(as_markdown(results.speeds, results.weights, missing), encoding="utf-8")
    return 130 if interrupted else 0


def _missing(results: Results) -> list[str]:
    missing = [library for library in ALL if library not in BREAKERS]
    if any(measured.case in policies.CASES for measured in results.speeds):
        missing += [library for library in policies.MISSING if library not in missing]
    return missing


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--suite", action="append", choices=SUITES, help="one suite; may be given several times")
    parser.add_argument("--only", metavar="TEXT", help="only cases whose name contains TEXT; `weight` for the weights")
    parser.add_argument("--quick", action="store_true", help="a few short rounds: a look, not a result")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="also write the tables as Markdown")
    return parser


def _measure_all(results: Results, suites: Sequence[str], only: str, effort: Effort) -> None:
    cases = [case for suite in suites for case in cases_of(suite) if only in case.name]
    runs = [(case, threads) for case in cases for threads in case.threads if threads <= effort.threads]
    for number, (case, threads) in enumerate(runs, 1):
        _measure_case(results, case, threads, effort, f"[{number}/{len(runs)}]")
    if only in "weight" and "breaker" in suites:
        _weigh(results, effort)


def _measure_case(results: Results, case: Case, threads: int, effort: Effort, place: str) -> None:
    what = f"{place} {case.name}, {threads} thread{'s' if threads > 1 else ''}"
    for done, measured in enumerate(measure(case, threads, effort.rounds, effort.seconds), 1):
        if done == 1:
            results.speeds.append(measured)
        _show(f"{what}: round {done} of {effort.rounds}", done == effort.rounds)


def _weigh(results: Results, effort: Effort) -> None:
    for done, weights in enumerate(import_rounds(effort.imports), 1):
        results.weights[:] = [weights]
        _show(f"import: round {done} of {effort.imports}", done == effort.imports)
    for calls in (0, 200):
        results.weights.append(bytes_per_breaker(calls))


def _show(line: str, last: bool) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="\n" if last else "", file=sys.stderr, flush=True)
    elif last:
        print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
