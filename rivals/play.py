"""
Play one scenario with one library in one colour, in this process.

    python -m rivals.play herd pybreaker sync

prints one line of JSON. `python -m rivals` starts one such process per cell, since a library may hang or spoil the
interpreter.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings

from rivals import wall_clock
from rivals.adapters import Adapter, load_adapter
from rivals.scenarios import load_scenario
from rivals.stage import Stage, Verdict

__all__ = ["play"]


def play(scenario: str, adapter: Adapter, colour: str) -> Verdict:
    """Play *scenario* with *adapter* in *colour*, or say why that cannot be."""
    module = load_scenario(scenario)
    needs = (*module.NEEDS, colour)
    for need in needs:
        if need in adapter.lacks:
            return Verdict("n/a", adapter.lacks[need])
    verdict: Verdict = module.play(Stage(adapter, colour))
    return verdict


def main() -> None:
    """Play what the command line says, print the verdict, and leave without waiting for hung calls."""
    scenario, library, colour = sys.argv[1:]
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    if scenario == "clock_step":
        wall_clock.install()
    verdict = play(scenario, load_adapter(library), colour)
    print(json.dumps({"result": verdict.result, "evidence": verdict.evidence}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
