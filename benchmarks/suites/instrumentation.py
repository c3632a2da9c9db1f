"""
What metrics add to a guarded call, and what a scrape takes.

Here the bare loop is a call guarded by a breaker without metrics, so "above bare" is what metrics add. The scrape is no
call: `python -m benchmarks.suites.instrumentation` times it.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

from benchmarks.measure import BARE, Case, Loop
from benchmarks.suites._loops import awaiting, calling
from halfopen import CircuitBreaker, CircuitOpenError, Outcome, Registry
from halfopen.instrumentation._durations import Durations, attach
from halfopen.instrumentation.metrics import metrics_of
from halfopen.instrumentation.prometheus import render

__all__ = ["CASES"]

BREAKERS = 1000
SCRAPE_TARGET_MS = 50
_KEPT: list[Registry] = []


def _work() -> None:
    """Do nothing."""


async def _awork() -> None:
    """Do nothing, as a coroutine."""


def _fail() -> None:
    raise ConnectionError


def _plain() -> CircuitBreaker:
    return CircuitBreaker("plain", failure_rate_threshold=1.0, minimum_calls=100)


def _measured() -> CircuitBreaker:
    registry = Registry()
    metrics_of(registry)
    _KEPT.append(registry)
    return registry.circuit_breaker("measured", failure_rate_threshold=1.0, minimum_calls=100)


def _failing(breaker: CircuitBreaker) -> Loop:
    def loop(calls: int) -> None:
        guarded = breaker(_fail)
        for number in range(calls):
            if number % 50 == 0:
                breaker.reset()
            try:  # noqa: SIM105  (suppress would be timed as well)
                guarded()
            except (ConnectionError, CircuitOpenError):
                pass

    return loop


def _counting(spread: bool) -> Loop:
    """Return a loop that counts durations in batches, as a breaker does: all in one bucket, or all over the buckets."""
    durations = Durations()
    batch = [0.0001 * 1.0022**step for step in range(5000)] if spread else [0.0001] * 5000
    random.Random(1).shuffle(batch)

    def loop(calls: int) -> None:
        for begin in range(0, calls, 5000):
            durations.add(Outcome.SUCCESS, batch[: min(5000, calls - begin)])

    return loop


def _nothing(calls: int) -> None:
    for _ in range(calls):
        pass


def _pair(name: str, loop: Callable[[CircuitBreaker], Loop], note: str = "", target: float | None = 60) -> Case:
    return Case(name, {BARE: lambda: loop(_plain()), "halfopen": lambda: loop(_measured())}, target, note=note)


_NOTE = "bare is the guarded call without metrics"
CASES = [
    _pair("sync call, metrics on", lambda breaker: calling(breaker(_work)), _NOTE),
    _pair("async call, metrics on", lambda breaker: awaiting(breaker(_awork)), _NOTE),
    _pair("failing call, metrics on", _failing, _NOTE + "; each is counted by itself", None),
    Case("durations of 0.1 ms, counted", {BARE: lambda: _nothing, "halfopen": lambda: _counting(False)}, 60),
    Case("durations from 0.1 ms to 6 s, counted", {BARE: lambda: _nothing, "halfopen": lambda: _counting(True)}, None),
]


def scrape_ms(rounds: int = 15, *, busy: bool = False) -> list[float]:
    """
    Return the CPU milliseconds of scrapes of 1,000 breakers, the first one, which prepares the text, left out.

    Args:
        rounds: How many.
        busy: Whether every breaker has calls between two scrapes, of all durations, some of them failing.
    """
    registry = Registry()
    metrics_of(registry, max_names=BREAKERS)
    breakers = [registry.circuit_breaker(f"partner-{number}") for number in range(BREAKERS)]
    for breaker in breakers:
        for _ in range(30):
            breaker.call(_work)
    render(registry)
    rng = random.Random(4)
    taken: list[float] = []
    for _ in range(rounds):
        for breaker in breakers if busy else ():
            for _ in range(10):
                how = Outcome.FAILURE if rng.random() < 0.1 else Outcome.SUCCESS
                attach(breaker).add(how, [rng.lognormvariate(-3, 1.5)])
                breaker.call(_work)
        began = time.process_time()
        render(registry)
        taken.append((time.process_time() - began) * 1000)
    return taken


if __name__ == "__main__":
    for kind in ("idle", "busy"):
        times = scrape_ms(busy=kind == "busy")
        print(
            f"scrape of {BREAKERS:,} {kind} breakers: median {statistics.median(times):.1f} ms of CPU,"
            f" best {min(times):.1f}, worst {max(times):.1f}; target {SCRAPE_TARGET_MS} ms"
        )
