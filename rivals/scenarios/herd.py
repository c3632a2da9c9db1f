"""Many callers arrive at the instant the wait ends, and the dependency is still down."""

from __future__ import annotations

import time

from rivals.stage import Call, Down, Stage, Verdict, fails, passes

FAULT = "20 callers arrive at the instant the open time ends, and the dependency is still down: all of them reach it."
RIGHT = "No more reach it than trial calls are permitted (1)."
NEEDS = ()
COLOURS = ("sync", "async")

CALLERS = 20


def play(stage: Stage) -> Verdict:
    stage.build(open_time=0.3)
    stage.trip()
    time.sleep(0.35)
    herd = [Call(error=Down(), seconds=0.15) for _ in range(CALLERS)]

    stage.start(*herd, wait=False)
    stage.wait_for(lambda: all(call.finished.is_set() for call in herd), 5.0)

    reached = sum(call.reached.is_set() for call in herd)
    seen = f"{reached} of {CALLERS} callers reached it"
    waited = max((call.took for call in herd if call.refused), default=0.0)
    if waited > 0.1:
        seen += f", the others waited {waited:.2f} s for their refusal"
    return passes(seen) if reached == 1 else fails(seen)
