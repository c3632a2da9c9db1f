"""A listener has a bug and raises."""

from __future__ import annotations

import time

from rivals.stage import Call, Down, Stage, Verdict, fails, passes

FAULT = "A listener raises: the caller gets its exception instead of the answer, or the state goes wrong."
RIGHT = "A failing call raises the dependency's error, the trial call is answered, and the circuit closes."
NEEDS = ("listener",)
COLOURS = ("sync", "async")


def play(stage: Stage) -> Verdict:
    told = 0

    def listener() -> None:
        nonlocal told
        told += 1
        raise ZeroDivisionError("a bug in the listener")

    stage.build(open_time=0.2, listener=listener)
    failing = [stage.call(Call(error=Down())) for _ in range(3)]
    time.sleep(0.25)
    trial = stage.call(Call())

    if not told:
        return fails("the listener was never told")
    masked = sum(isinstance(call.raised, ZeroDivisionError) for call in [*failing, trial])
    if masked:
        return fails(f"{masked} of 4 callers got the listener's error")
    if not trial.answered or stage.state != "closed":
        return fails(f"the state went wrong: {stage.state}")
    return passes("no call noticed")
