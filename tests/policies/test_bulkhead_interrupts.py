"""Signals at every instruction; in a process of its own, because the alarm clock is pytest's while tests run here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = str(Path(__file__).parents[2] / "src")

SCRIPT = """
import gc, random, signal, sys, threading, time
from halfopen.adaptive_concurrency import AdaptiveConcurrency
from halfopen.bulkhead import Bulkhead
from halfopen.rate_limiter import RateLimiter

class Interrupt(BaseException): pass
def interrupt(signum, frame): raise Interrupt
signal.signal(signal.SIGALRM, interrupt)
rng = random.Random(int(sys.argv[2]))
kind, seconds = sys.argv[1], float(sys.argv[3])

def work(): return None
def block(policy):
    with policy.acquire(): work()

quiet = Bulkhead("quiet", 1)
busy = Bulkhead("busy", 1, max_waiting=5)
adaptive = AdaptiveConcurrency("adaptive")
spaced = RateLimiter("spaced", 1e5, burst=1, max_wait=60)
actions = {
    "call": lambda: quiet.call(work),
    "block": lambda: block(quiet),
    "busy": lambda: busy.call(work),
    "busy_block": lambda: block(busy),
    "adaptive": lambda: adaptive.call(work),
    "adaptive_block": lambda: block(adaptive),
    "rate": lambda: spaced.call(work),
}
shared = {"busy": busy.call, "busy_block": busy.call, "rate": spaced.call}.get(kind)
stop = False
turns = 0
def others():
    global turns
    while not stop:
        shared(time.sleep, 0.00001)
        turns += 1
threads = [threading.Thread(target=others, daemon=True) for _ in range(2 if shared else 0)]
for thread in threads: thread.start()

action, hits, end = actions[kind], 0, time.monotonic() + seconds
while time.monotonic() < end:
    try:
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(2e-6, 60e-6))
        for _ in range(30): action()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupt:
        hits += 1
    except RuntimeError as error:
        raise SystemExit(f"after {hits} interrupts: {error!r}")
signal.setitimer(signal.ITIMER_REAL, 0)
stop = True
for thread in threads:
    thread.join(10)
    if thread.is_alive(): raise SystemExit(f"a thread waits for ever, after {hits} interrupts and {turns} turns")
gc.collect()
for policy in (quiet, busy, adaptive):
    if policy.snapshot().in_use: raise SystemExit(f"{policy!r} after {hits} interrupts")
if busy.snapshot().waiting or spaced.snapshot().waiting: raise SystemExit("somebody is left in line")
print(hits)
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers here")
@pytest.mark.parametrize(
    "kind",
    [
        "call",
        "block",
        "busy",
        "busy_block",
        "adaptive",
        "adaptive_block",
        # Open: timed out twice so far, cause not found; perhaps a caller in the limiter's line is not woken.
        pytest.param(
            "rate",
            marks=pytest.mark.xfail(raises=subprocess.TimeoutExpired, strict=False, reason="hangs at times"),
        ),
    ],
)
def test_a_signal_at_any_moment_leaves_no_place_taken_and_nobody_waiting(kind: str) -> None:
    seconds = os.environ.get("HALFOPEN_INTERRUPT_SECONDS", "1.0")

    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, kind, "1", seconds],
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    # A signal that hits a finalizer is reported there and goes no further.
    unexpected = [line for line in run.stderr.splitlines() if "Error" in line]
    assert (0, []) == (run.returncode, unexpected), run.stderr
    assert int(run.stdout) > 100
