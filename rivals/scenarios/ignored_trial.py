"""The trial call never left the process."""

from __future__ import annotations

import time

from rivals.stage import Call, NeverSent, Stage, Verdict, fails, passes

FAULT = "The trial call ends with an exception the user excluded (it never reached the dependency): that closes."
RIGHT = "Not closed, and a healthy call one open time later is answered."
NEEDS = ("ignore",)
COLOURS = ("sync", "async")


def play(stage: Stage) -> Verdict:
    stage.build(open_time=0.2, ignore=NeverSent)
    stage.trip()
    time.sleep(0.25)

    stage.call(Call(error=NeverSent()))
    state = stage.state
    time.sleep(0.25)
    following = stage.call(Call())

    if state == "closed":
        return fails("the excluded error closed it")
    if not following.answered:
        return fails("later calls are refused")
    return passes("no evidence, " + ("permit back" if state == "half_open" else "waits once more"))
