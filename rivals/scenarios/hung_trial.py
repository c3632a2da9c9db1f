"""The trial call hangs and never reports."""

from __future__ import annotations

import threading
import time

from rivals.stage import Call, Stage, Verdict, fails, passes

FAULT = "The trial call hangs for ever: nobody else is admitted again, however healthy the dependency is by now."
RIGHT = "12 open times later and on, one call per open time: healthy ones come through while the trial call hangs."
NEEDS = ()
COLOURS = ("sync", "async")

OPEN_TIME = 0.1
CALLERS = 5


def play(stage: Stage) -> Verdict:
    verdict = _play(stage, None)
    helper = stage.adapter.timeout_helper
    if verdict.result == "pass" or helper is None:
        return verdict
    helped = _play(stage, OPEN_TIME)
    if helped.result == "pass":
        return passes(f"with its {helper} around each call; without, {verdict.evidence}")
    return verdict


def _play(stage: Stage, timeout_helper: float | None) -> Verdict:
    stage.build(open_time=OPEN_TIME, trial_timeout=OPEN_TIME, timeout_helper=timeout_helper)
    stage.trip()
    time.sleep(OPEN_TIME * 1.2)
    stage.start(Call(gate=threading.Event()), wait=False)
    time.sleep(OPEN_TIME * 12)

    later = [_call_and_wait(stage) for _ in range(CALLERS)]

    answered = sum(call.answered for call in later)
    blocked = sum(not call.finished.is_set() for call in later)
    if answered:
        return passes(f"{answered} of {CALLERS} later calls answered")
    return fails(f"{CALLERS} of {CALLERS} later calls {'blocked' if blocked else 'refused'}")


def _call_and_wait(stage: Stage) -> Call:
    call = stage.call(Call(), 0.5)
    time.sleep(OPEN_TIME * 1.1)
    return call
