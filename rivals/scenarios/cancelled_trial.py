"""The caller of the trial call gives up."""

from __future__ import annotations

import threading
import time

from rivals.stage import Call, Stage, Verdict, fails, passes

FAULT = "The trial call is cancelled by its caller, which says nothing about the dependency: that closes or re-opens."
RIGHT = "Neither closed nor open afterwards, and the next call is admitted at once: the permit came back."
NEEDS = ()
COLOURS = ("async",)


def play(stage: Stage) -> Verdict:
    stage.build(open_time=0.4)
    stage.trip()
    time.sleep(0.45)
    trial = Call(gate=threading.Event())
    stage.start(trial)

    trial.cancel()
    state = stage.state
    following = stage.call(Call())

    if state == "closed":
        return fails("the cancelled call closed it")
    if not following.answered:
        return fails("the cancelled call re-opened it" if state == "open" else "its permit was lost")
    return passes("permit back, still half-open")
