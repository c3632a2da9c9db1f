"""A call from before the trip fails during the trial call."""

from __future__ import annotations

from rivals.scenarios.late_success import play_late
from rivals.stage import Down, Stage, Verdict

FAULT = "A call admitted while closed fails late, during the trial call: that re-opens the circuit."
RIGHT = "Still half-open: only the trial call decides."
NEEDS = ()
COLOURS = ("sync", "async")


def play(stage: Stage) -> Verdict:
    return play_late(stage, error=Down())
