"""A call from before the trip returns, successfully, during the trial call."""

from __future__ import annotations

import threading
import time

from rivals.stage import Call, Down, Stage, Verdict, fails, passes

FAULT = "A call admitted while closed succeeds late, during the trial call: that closes the circuit."
RIGHT = "Still half-open: only the trial call decides."
NEEDS = ()
COLOURS = ("sync", "async")


def play(stage: Stage) -> Verdict:
    return play_late(stage, error=None)


def play_late(stage: Stage, error: Exception | None) -> Verdict:
    """Let a call that began while closed report during a trial call; it raises *error*, if given."""
    stage.build(open_time=0.3)
    gate, trial_gate = threading.Event(), threading.Event()
    late = Call(gate=gate, error=error)
    stage.start(late)
    if not stage.trip(limit=0.6):
        gate.set()
        return passes("cannot happen: one call at a time")
    time.sleep(0.35)
    trial = Call(gate=trial_gate, error=Down())
    stage.start(trial)

    gate.set()
    late.finished.wait(2.0)
    state = stage.state
    trial_gate.set()
    trial.finished.wait(2.0)

    if state == "half_open":
        return passes("no effect")
    return fails("the late success closed it" if state == "closed" else "the late failure re-opened it")
