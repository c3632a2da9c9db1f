"""Counters of this process and the gauges of the store, under the names of the metrics page."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from ._rows import Outcome

__all__ = ["AGE_BUCKETS", "LaneStats", "QueueStats", "Tally"]

AGE_BUCKETS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStats:
    """
    One lane, for the console.

    Attributes:
        waits_for: What keeps it from sending: ``hold``, ``open`` and the other breaker states, ``due``, ``seats``, or
            empty.
        drain_seconds: Estimated seconds until its backlog is gone at the last pace, once it may be sent; None where
            unknown.
    """

    lane: str
    breaker: str | None
    messages: dict[str, int]
    send_window: int
    hold: str | None
    waits_for: str
    oldest: float | None
    drain_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """
    The queue at one instant. The counters are this process's own; the gauges are the store's.

    Attributes:
        messages: By ``ready``, ``delayed``, ``in_flight``, ``awaiting_receipt``, ``error`` and ``dead``.
        oldest_message: Enqueue time of the oldest live message, Unix seconds; None when empty.
        attempts: Finished attempts by outcome.
        commands: ``retry``, ``resend``, ``resubmit`` and the others carried out.
        completion_age_buckets: Cumulative counts for `AGE_BUCKETS`, enqueue to done.
        store_up: Whether the store took the last write.
        lanes_held: Lanes that are held, by an order or for a configuration that partners refuse.
        alerts: Alerts raised by kind, those included that were too many to tell.
    """

    queue: str
    messages: dict[str, int]
    oldest_message: float | None
    attempts: dict[str, int]
    commands: dict[str, int]
    enqueued: int
    completed: int
    dead_letters: int
    completion_age_buckets: tuple[int, ...]
    completion_age_sum: float
    store: str
    store_up: bool
    lanes_held: int = 0
    alerts: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(slots=True)
class Tally:
    """The counters of one process."""

    attempts: Counter[str] = field(default_factory=lambda: Counter(success=0, failure=0, ignored=0))
    commands: Counter[str] = field(default_factory=lambda: Counter(retry=0, resend=0, resubmit=0, cancel=0))
    enqueued: int = 0
    completed: int = 0
    dead_letters: int = 0
    ages: list[int] = field(default_factory=lambda: [0] * (len(AGE_BUCKETS) + 1))
    age_sum: float = 0.0
    store_up: bool = True
    lock: threading.Lock = field(default_factory=threading.Lock)

    def attempt(self, outcome: Outcome) -> None:
        """Count a finished attempt."""
        with self.lock:
            self.attempts[outcome] += 1

    def done(self, age: float) -> None:
        """Count a message that reached its goal after so many seconds."""
        with self.lock:
            self.completed += 1
            self.ages[bisect_left(AGE_BUCKETS, age)] += 1
            self.age_sum += age

    def dead(self, number: int = 1) -> None:
        """Count dead letters."""
        with self.lock:
            self.dead_letters += number

    def accepted(self) -> None:
        """Count an enqueued message."""
        with self.lock:
            self.enqueued += 1

    def command(self, order: str) -> None:
        """Count a command carried out."""
        with self.lock:
            self.commands[order] += 1

    def cumulative(self) -> tuple[int, ...]:
        """Return the age buckets as a histogram wants them."""
        sums: list[int] = []
        total = 0
        for number in self.ages:
            total += number
            sums.append(total)
        return tuple(sums)
