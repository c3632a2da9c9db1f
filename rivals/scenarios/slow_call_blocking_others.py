"""Slow calls run side by side, or one after the other."""

from __future__ import annotations

import time

from rivals.stage import Call, Stage, Verdict, fails, passes

FAULT = "The breaker holds a lock while the guarded call runs: one slow call makes everybody else wait."
RIGHT = "8 callers at once, closed, 0.2 s each, take about 0.2 s together (less than 0.8 s)."
NEEDS = ()
COLOURS = ("sync", "async")

CALLERS = 8


def play(stage: Stage) -> Verdict:
    stage.build()
    calls = [Call(seconds=0.2) for _ in range(CALLERS)]
    began = time.monotonic()

    stage.start(*calls, wait=False)
    stage.wait_for(lambda: all(call.finished.is_set() for call in calls), 5.0)

    took = time.monotonic() - began
    seen = f"{CALLERS} callers × 0.2 s took {took:.1f} s"
    return passes(seen) if took < 0.8 else fails(seen)
