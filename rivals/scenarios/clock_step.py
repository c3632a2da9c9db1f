"""The wall clock is set while the circuit is open."""

from __future__ import annotations

import time

from rivals import wall_clock
from rivals.stage import Call, Stage, Verdict, fails, passes

FAULT = "The wall clock is set by an hour while the circuit is open: it ends early, or stays open for an hour."
RIGHT = "Set forward: still refused before the open time is over. Set back: answered after it."
NEEDS = ()
COLOURS = ("sync", "async")


def play(stage: Stage) -> Verdict:
    early = _answered(stage, step=+3600.0, wait=0.1)
    late = _answered(stage, step=-3600.0, wait=1.0)
    if early and not late:
        return fails("1 h forward ends the open time at once, 1 h back prolongs it by 1 h")
    if early:
        return fails("1 h forward ends the open time at once")
    if not late:
        return fails("1 h back prolongs the open time by 1 h")
    return passes("no effect")


def _answered(stage: Stage, step: float, wait: float) -> bool:
    stage.build(open_time=0.8)
    stage.trip()
    wall_clock.shift(step)
    time.sleep(wait)
    try:
        return stage.call(Call()).answered
    finally:
        wall_clock.shift(-step)
