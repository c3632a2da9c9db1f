"""Ctrl-C strikes during trial calls."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from rivals import interrupts
from rivals.stage import Call, Down, Stage, Verdict, fails, passes

FAULT = "A KeyboardInterrupt during the trial call closes or re-opens the circuit, or one at a bad instant wedges it."
RIGHT = "It is no evidence and the next call is admitted; 150 of them at random instants leave it working."
NEEDS = ()
COLOURS = ("sync", "async")

STORM = 150
ROUND = 10  # interrupts per breaker


def play(stage: Stage) -> Verdict:
    interrupts.install()
    return _one(stage) or _storm(stage) or passes(f"no evidence; {STORM} at random instants survived")


def _one(stage: Stage) -> Verdict | None:
    stage.build(open_time=0.4, trial_timeout=0.4)
    stage.trip()
    time.sleep(0.45)

    interrupted = stage.call_here(Call(seconds=1.0, block=True, interrupt_after=0.05))
    state = stage.state
    following = stage.call(Call())

    if not isinstance(interrupted.raised, KeyboardInterrupt):
        return fails(f"turned it into {type(interrupted.raised).__name__}")
    if state == "closed":
        return fails("the interrupted call closed it")
    if not following.answered:
        return fails("the interrupted call re-opened it" if state == "open" else "its permit was lost")
    return None


def _storm(stage: Stage) -> Verdict | None:
    chance = random.Random(7)
    for number in range(1, STORM + 1):
        if number % ROUND == 1:
            stage.build(open_time=0.005, trial_timeout=0.005)
        for _ in range(3):
            stage.call_here(Call(error=Down()))
        time.sleep(0.006)
        stage.call_here(Call(interrupt_after=chance.uniform(2e-6, 60e-6)))
        if number % ROUND == 0 and not _recovers(stage):
            return fails("wedged by an interrupt at a bad instant")
    return None


def _recovers(stage: Stage) -> bool:
    return _within(1.0, lambda: stage.call(Call(), 0.5).answered)


def _within(limit: float, condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + limit
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.01)
    return False
