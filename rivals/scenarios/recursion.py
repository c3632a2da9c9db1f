"""The guarded function calls itself: the trial call contains calls through the same breaker."""

from __future__ import annotations

import time

from rivals.stage import Call, Down, Stage, Verdict, fails, passes

FAULT = "The guarded function calls itself. In half-open its inner call is refused, or the inner call's success closes."
RIGHT = "A healthy recursive trial call comes through; one whose outer part fails leaves the circuit open."
NEEDS = ()
COLOURS = ("sync", "async")


def play(stage: Stage) -> Verdict:
    healthy = _trial(stage, Call(inner=Call()))
    if not healthy.answered:
        return fails("refuses its own inner call")
    sick = _trial(stage, Call(inner=Call(), error=Down()))
    if not sick.finished.is_set():
        return fails("blocks on itself")
    if stage.state == "closed":
        return fails("closed by the inner call, though the trial call failed")
    return passes("the outer call decides")


def _trial(stage: Stage, call: Call) -> Call:
    stage.build(open_time=0.2)
    stage.trip()
    time.sleep(0.25)
    return stage.call(call)
