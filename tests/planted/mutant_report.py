"""What became of the mutants, held against what docs/correctness.md says of those that live."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.planted.mutants import Mutant

__all__ = ["ALIVE", "HUNG", "KILLED", "NO_TEST", "report"]

PAGE = Path(__file__).parents[2] / "docs" / "correctness.md"

KILLED, HUNG, ALIVE, NO_TEST = "killed", "hung", "alive", "no test"


def report(verdicts: dict[Mutant, str]) -> int:
    """Print the table of the modules, and what differs from docs/correctness.md; return the exit code."""
    tallies: dict[str, Counter[str]] = {}
    for mutant, verdict in verdicts.items():
        tallies.setdefault(mutant.module, Counter())[verdict] += 1
    print("| module | planted | killed | alive | not run |\n|---|--:|--:|--:|--:|")
    for module, tally in sorted(tallies.items()):
        print(f"| `{module}` | {tally.total()} | {tally[KILLED] + tally[HUNG]} | {tally[ALIVE]} | {tally[NO_TEST]} |")
    named = explained() & {mutant.name for mutant in verdicts}
    living = {mutant.name for mutant, verdict in verdicts.items() if verdict in (ALIVE, NO_TEST)}
    for name in sorted(living - named):
        print(f"alive, and not explained: {name}")
    for name in sorted(named - living):
        print(f"explained, but killed: {name}")
    return int(living != named)


def explained() -> set[str]:
    """Return the mutants that docs/correctness.md names as equivalent."""
    page = PAGE.read_text(encoding="utf-8")
    _, _, table = page.partition("<!-- mutants that live -->")
    cells = re.findall(r"^\| *(`[^|]*?) *\|", table.partition("<!-- end of mutants -->")[0], re.MULTILINE)
    return {mutant for cell in cells for group in cell.split(";") for mutant in _of_group(group)}


def _of_group(group: str) -> Iterator[str]:
    """Yield the names behind ``module.function`` 1–3, 5."""
    named = re.fullmatch(r" *`([\w.]+)` ([\d–, ]+)", group)
    if named is None:
        raise ValueError(f"docs/correctness.md names no mutants in {group!r}")
    for part in named[2].split(","):
        first, _, last = part.strip().partition("–")
        yield from (f"{named[1]} {number}" for number in range(int(first), int(last or first) + 1))
