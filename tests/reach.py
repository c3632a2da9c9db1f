"""
Print how often the model tests reach each state and each move: ``python -m tests.reach``.

Fails when one of them is reached by fewer walks than the test wants.
"""

from __future__ import annotations

import sys

from tests.core.machine import REACHED, wanted
from tests.core.test_model import FLOOR, WALKS, walk


def main() -> int:
    """Walk, print the table as Markdown, and return 1 when a count is below its floor."""
    walk(WALKS)
    print(f"{REACHED['walks']} walks; in how many of them each state and each move was reached (at least {FLOOR}):\n")
    print("| from | on | to | walks |\n|---|---|---|--:|")
    for place in wanted():
        old, on, new = ("", "", place) if isinstance(place, str) else place
        print(f"| {old} | {on} | {new} | {REACHED[place]} |")
    missed = [place for place in wanted() if REACHED[place] < FLOOR]
    print(f"\n{len(wanted()) - len(missed)} of {len(wanted())} reached often enough", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
