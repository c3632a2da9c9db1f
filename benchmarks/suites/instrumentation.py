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
from halfopen import CircuitBreaker, CircuitOpenError, Registry
from halfopen.instrumentation._durations import Durations
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
    from halfopen import Outcome

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


def scrape_ms(rounds: int = 15) -> list[float]:
    """Return the CPU milliseconds of scrapes of 1,000 breakers, the first one, which prepares the text, left out."""
    registry = Registry()
    metrics_of(registry, max_names=BREAKERS)
    for number in range(BREAKERS):
        breaker = registry.circuit_breaker(f"partner-{number}")
        for _ in range(30):
            breaker.call(_work)
    render(registry)
    taken: list[float] = []
    for _ in range(rounds):
        began = time.process_time()
        render(registry)
        taken.append((time.process_time() - began) * 1000)
    return taken


if __name__ == "__main__":
    times = scrape_ms()
    print(
        f"scrape of {BREAKERS:,} breakers: median {statistics.median(times):.1f} ms of CPU,"
        f" best {min(times):.1f}, worst {max(times):.1f}; target {SCRAPE_TARGET_MS} ms"
    )
