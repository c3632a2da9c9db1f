"""
Plant wrong rules and count the recorded scenarios that notice.

``python -m tests.planted`` prints the table of all; with numbers (1–37, 0 for none) only those, each as a line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys

from tests.planted.planting import plant
from tests.planted.wrong_rules import WRONG_RULES, WrongRule

NONE = WrongRule("(none)", 0, ())


def rule(number: int) -> WrongRule:
    return NONE if number == 0 else WRONG_RULES[number - 1]


def noticed(number: int, stop_at_first: bool) -> int:
    """Play the scenarios under one wrong rule; return how many differ."""
    planter = plant(rule(number))
    sys.modules.pop("tests.conformance.driver", None)
    from tests.conformance.driver import Driver, scenarios

    planter.check()
    found = 0
    for scenario in scenarios():
        try:
            Driver(scenario).run()
        except Exception:  # a difference, or the wrong rule broke the machine: noticed either way
            found += 1
            if stop_at_first:
                break
    return found


def table() -> None:
    print("| wrong rule | scenarios that notice | in the README's model |\n|---|--:|--:|")
    for number in range(len(WRONG_RULES) + 1):
        ran = subprocess.run(
            [sys.executable, "-m", "tests.planted", str(number)], capture_output=True, text=True, check=True
        )
        found = json.loads(ran.stdout)["noticed"]
        print(f"| {rule(number).rule} | {found} | {rule(number).noticed} |", flush=True)


def main(arguments: list[str]) -> None:
    numbers = [int(argument) for argument in arguments if argument.isdigit()]
    if not numbers:
        table()
    for number in numbers:
        found = noticed(number, stop_at_first="--first" in arguments)
        print(json.dumps({"rule": rule(number).rule, "noticed": found}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
