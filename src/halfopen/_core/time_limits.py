"""What can be set on a timeout, and what it counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from halfopen._core.checking import Checks
from halfopen._core.events import Event

__all__ = ["TimeoutFinished", "TimeoutOutcome", "TimeoutSettings", "TimeoutSnapshot"]


class TimeoutOutcome(StrEnum):
    """How a call under a `Timeout` ended."""

    SUCCESS = "success"
    FAILURE = "failure"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutSettings:
    """The settings of a `Timeout`; its arguments explain them."""

    name: str
    seconds: float
    trial: float | None = None
    worker_thread: bool = False
    max_threads: int = 16

    def __post_init__(self) -> None:
        checks = Checks()
        checks.text("name", self.name)
        checks.seconds("seconds", self.seconds)
        checks.seconds("trial", self.trial, optional=True)
        checks.flag("worker_thread", self.worker_thread)
        checks.whole("max_threads", self.max_threads, 1)
        if not checks.mistakes and self.trial is not None and self.trial > self.seconds:
            checks.wrong(
                "trial",
                self.trial,
                f"trial ({self.trial:g} s) is meant to be tighter than seconds ({self.seconds:g} s)",
                "conflict",
            )
        checks.done()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutFinished(Event):
    """
    A call under a timeout has ended.

    Attributes:
        outcome: How.
        left: Seconds that were left until the limit; negative where nothing interrupted the call.
    """

    outcome: TimeoutOutcome
    left: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutSnapshot:
    """
    A timeout's counters since it was made; every outcome is present from the start.

    Attributes:
        name: The timeout.
        calls: Ended calls by outcome.
        late: Calls that returned after the limit; among the successes, since nothing could interrupt them.
        interrupted: Calls that ended by cancellation from outside, `KeyboardInterrupt` and the like.
        refused: Calls that were not made: no time was left, or every worker thread was taken.
        threads: Worker threads that run a call now.
        threads_given_up: Those among them whose caller has left; they hold their places until they return.
        max_threads: The bound on *threads*; None without worker threads.
    """

    name: str
    calls: Mapping[TimeoutOutcome, int]
    late: int
    interrupted: int
    refused: int
    threads: int
    threads_given_up: int
    max_threads: int | None
