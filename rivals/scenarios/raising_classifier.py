"""The user's predicate has a bug and raises during the trial call."""

from __future__ import annotations

import time

from rivals.stage import Call, Down, Stage, Verdict, fails, passes

FAULT = "The predicate that judges exceptions raises during the trial call: the permit is lost."
RIGHT = "Not closed by it, and a healthy call one open time later is answered."
NEEDS = ("predicate",)
COLOURS = ("sync", "async")

OPEN_TIME = 0.2


def play(stage: Stage) -> Verdict:
    broken = False

    def predicate(exc: BaseException) -> bool:
        if broken:
            raise ZeroDivisionError("a bug in the predicate")
        return True

    stage.build(open_time=OPEN_TIME, predicate=predicate)
    stage.trip()
    time.sleep(OPEN_TIME * 1.2)

    broken = True
    stage.call(Call(error=Down()))
    broken = False
    state = stage.state
    time.sleep(OPEN_TIME * 1.2)
    later = [stage.call(Call(), 0.5) for _ in range(5)]

    if state == "closed":
        return fails("the failed trial call closed it")
    if not any(call.answered for call in later):
        return fails("5 of 5 later calls refused")
    return passes("not wedged")
