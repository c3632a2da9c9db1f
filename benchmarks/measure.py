"""
Interleaved rounds, CPU time, medians.

A *loop* makes n calls. All loops of a case take turns, in an order shuffled anew for each round, so that whatever else
the machine does strikes them alike. What is reported is the median over the rounds of the CPU time per call, and of its
difference to the bare loop of the same round: the cost of looping and of the call itself drops out.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

__all__ = ["BARE", "Case", "Loop", "Measured", "measure"]

Loop = Callable[[int], None]
BARE = "bare"


@dataclass(frozen=True)
class Case:
    """
    One row: what is done, and by whom.

    Attributes:
        name: What one call does.
        contestants: Builds the loop of each library by its name; `BARE` must be among them.
        target: Nanoseconds above the bare loop that halfopen shall not exceed, if there is such a promise.
        threads: On how many threads at once; the calls are divided among them.
        note: What is special about it, for the reader.
    """

    name: str
    contestants: Mapping[str, Callable[[], Loop]]
    target: float | None = None
    threads: tuple[int, ...] = (1,)
    note: str = ""


@dataclass
class Measured:
    """
    Seconds of CPU time per call, one per round, by contestant.

    Attributes:
        case: What was measured.
        threads: How many threads made the calls.
    """

    case: Case
    threads: int
    rounds: dict[str, list[float]] = field(default_factory=dict)

    def total_ns(self, name: str) -> float:
        """Return the median nanoseconds of one call of *name*, looping included."""
        return statistics.median(self.rounds[name]) * 1e9

    def above_ns(self, name: str) -> float:
        """Return the median nanoseconds above the bare loop of the same round."""
        pairs = zip(self.rounds[name], self.rounds[BARE], strict=False)
        return statistics.median(mine - bare for mine, bare in pairs) * 1e9

    def spread_ns(self, name: str) -> float:
        """Return the distance between the quartiles of *name*, in nanoseconds; 0 for fewer than 4 rounds."""
        times = self.rounds[name]
        if len(times) < 4:
            return 0.0
        low, _, high = statistics.quantiles(times, n=4)
        return (high - low) * 1e9

    def names(self) -> list[str]:
        """Return the contestants that have finished a round, the bare call first."""
        return [name for name in self.case.contestants if self.rounds.get(name)]


def measure(case: Case, threads: int, rounds: int, seconds: float) -> Iterator[Measured]:
    """Yield the same `Measured` after each of *rounds*; a loop runs for about *seconds* of CPU time per round."""
    loops = {name: build() for name, build in case.contestants.items()}
    counts = {name: _calls_for(loop, seconds) for name, loop in loops.items()}
    measured = Measured(case, threads, {name: [] for name in loops})
    order = list(loops)
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            measured.rounds[name].append(_run(loops[name], counts[name], threads))
        yield measured


def _calls_for(loop: Loop, seconds: float) -> int:
    calls = 64
    while True:
        began = time.process_time()
        loop(calls)
        took = time.process_time() - began
        if took > seconds / 2:
            return max(64, int(calls * seconds / took))
        calls *= 4


def _run(loop: Loop, calls: int, threads: int) -> float:
    if threads == 1:
        began = time.thread_time()
        loop(calls)
        return (time.thread_time() - began) / calls
    share = calls // threads
    workers = [threading.Thread(target=loop, args=(share,)) for _ in range(threads)]
    began = time.process_time()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return (time.process_time() - began) / (share * threads)
