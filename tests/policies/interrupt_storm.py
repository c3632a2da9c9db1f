"""
Interrupt calls of a policy at random instants while threads contend, in a process of its own; print how often.

    python tests/policies/interrupt_storm.py KIND SEED SECONDS

Ends with status 1 and a reason, or the stacks of all threads, where a place is lost or somebody waits for ever.
"""

from __future__ import annotations

import faulthandler
import gc
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from halfopen.adaptive_concurrency import AdaptiveConcurrency
from halfopen.bulkhead import Bulkhead
from halfopen.rate_limiter import RateLimiter

PATIENCE = 30.0


class Interrupt(BaseException):
    pass


def work() -> None:
    return None


def block(policy: Any) -> None:
    with policy.acquire():
        work()


class Storm:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.quiet = Bulkhead("quiet", 1)
        self.busy = Bulkhead("busy", 1, max_waiting=5)
        self.adaptive = AdaptiveConcurrency("adaptive")
        self.spaced = RateLimiter("spaced", 1e5, burst=1, max_wait=60)
        self.armed = self.over = False
        self.hits = self.turns = 0

    def action(self, kind: str) -> Callable[[], None]:
        return {
            "call": lambda: self.quiet.call(work),
            "block": lambda: block(self.quiet),
            "busy": lambda: self.busy.call(work),
            "busy_block": lambda: block(self.busy),
            "adaptive": lambda: self.adaptive.call(work),
            "adaptive_block": lambda: block(self.adaptive),
            "rate": lambda: self.spaced.call(work),
            "rate_block": lambda: block(self.spaced),
        }[kind]

    def contend(self, policy: Any) -> list[threading.Thread]:
        def others() -> None:
            while not self.over:
                policy.call(time.sleep, 0.00001)
                self.turns += 1

        threads = [threading.Thread(target=others, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        return threads

    def interrupt(self, *_: object) -> None:
        # Raises once for each arming, whatever comes later: in code that tidies up, in a join, at the end.
        if self.armed:
            self.armed = False
            raise Interrupt

    def strike(self, action: Callable[[], None]) -> None:
        """Run *action* until a signal comes in the midst of it."""
        try:
            self.armed = True
            # Again and again: a signal just before a system call that waits is looked at only when the next one comes.
            signal.setitimer(signal.ITIMER_REAL, self.rng.uniform(2e-6, 60e-6), 0.02)
            for _ in range(30):
                action()
            self.armed = False
        except Interrupt:
            self.hits += 1
        finally:
            self.armed = False

    def run(self, kind: str, seconds: float) -> None:
        shared = {"busy": self.busy, "rate": self.spaced}.get(kind.removesuffix("_block"))
        threads = [] if shared is None else self.contend(shared)
        signal.signal(signal.SIGALRM, self.interrupt)
        action, end = self.action(kind), time.monotonic() + seconds
        while time.monotonic() < end:
            self.strike(action)
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.over = True
        for thread in threads:
            thread.join(PATIENCE)
            if thread.is_alive():
                faulthandler.dump_traceback()
                raise SystemExit(f"a thread waits for ever, after {self.hits} interrupts and {self.turns} turns")

    def inspect(self) -> None:
        gc.collect()
        for policy in (self.quiet, self.busy, self.adaptive):
            if policy.snapshot().in_use:
                raise SystemExit(f"{policy!r} after {self.hits} interrupts")
        if self.busy.snapshot().waiting or self.spaced.snapshot().waiting:
            raise SystemExit("somebody is left in line")


def main(kind: str, seed: str, seconds: str) -> None:
    # A hang shows where everybody stands, before the caller's patience ends.
    faulthandler.dump_traceback_later(float(seconds) + PATIENCE + 10, exit=True)
    storm = Storm(int(seed))
    storm.run(kind, float(seconds))
    storm.inspect()
    faulthandler.cancel_dump_traceback_later()
    print(storm.hits)


if __name__ == "__main__":
    main(*sys.argv[1:])
