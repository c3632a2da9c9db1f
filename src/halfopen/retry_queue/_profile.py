"""What is settled per partner: limits, schedule, trial calls, quirks. Data, no code."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from halfopen.errors import ConfigError, Mistake

__all__ = ["LaneProfile", "MessageSchedule"]

_MINUTE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSchedule:
    """
    When it is a message's turn again, after its own failures only.

    Attributes:
        first: Seconds after the first failure.
        factor: Growth per failure.
        cap: The longest wait, in seconds.
        jitter: Share by which a wait is lengthened or shortened at random, in [0, 1).
        attempt_limit: Tries before the message is a dead letter. Failed trial calls do not count.
    """

    first: float = 5 * _MINUTE
    factor: float = 2.0
    cap: float = 60 * _MINUTE
    jitter: float = 0.1
    attempt_limit: int = 10

    def delay(self, tries: int, rng: random.Random) -> float:
        """Return seconds to wait after so many *tries*."""
        step = min(max(tries, 1) - 1, 64)
        return float(min(self.first * self.factor**step, self.cap) * rng.uniform(1 - self.jitter, 1 + self.jitter))

    @property
    def horizon(self) -> float:
        """Return the longest wait, jitter included: a row due later than this was written by a wrong clock."""
        return self.cap * (1 + self.jitter)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneProfile:
    """
    How one partner is treated.

    Attributes:
        limit: Most messages in flight, over all processes: the partner's bulkhead.
        rate: Most sends begun per second in this process; None: no limit.
        timeout: Seconds a send may take; handed to the sender.
        trial_timeout: The same for trial calls; shorter, so that a hanging partner is found out soon.
        lease_margin: Seconds a lease lasts beyond the longest send.
        trial_size: Bytes above which a message is taken for a trial call only if nothing else waits.
        schedule: When a message is tried again.
        receipt_deadline: Seconds until an outstanding receipt is overdue.
        receipt_resends: Resends after an overdue receipt, then the message is a dead letter.
        receipt_failures: True tells the breaker of an overdue receipt.
        refusals_to_hold: Refusals of one kind in a row that hold the lane.
        back_end_tries: Tries after the partner's catch-all error, then `error`.
        spread: Seconds over which lanes that recover together start.
        after_inconclusive: Lane empty, a success, no failure, and half-open is over: ``close`` or ``reopen``.
        slow_call_duration: A success longer than this halves the send window; None: what the breaker calls slow.
        duplicate_texts: Error texts with which this partner means "I have it", normalised.
        retry_statuses: HTTP statuses to take as a failure beyond the table.
        refuse_statuses: HTTP statuses to take as a refusal beyond the table.
        dispositions: AS2 error texts this partner uses, and the verdict each stands for.
    """

    limit: int = 8
    rate: float | None = None
    timeout: float = 60.0
    trial_timeout: float = 30.0
    lease_margin: float = 30.0
    trial_size: int = 1_000_000
    schedule: MessageSchedule = field(default_factory=MessageSchedule)
    receipt_deadline: float = 1800.0
    receipt_resends: int = 2
    receipt_failures: bool = False
    refusals_to_hold: int = 5
    back_end_tries: int = 3
    spread: float = 5.0
    after_inconclusive: Literal["close", "reopen"] = "close"
    slow_call_duration: float | None = None
    duplicate_texts: frozenset[str] = frozenset()
    retry_statuses: frozenset[int] = frozenset()
    refuse_statuses: frozenset[int] = frozenset()
    dispositions: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        mistakes = [
            Mistake(name, getattr(self, name), "a number above 0")
            for name in ("limit", "timeout", "trial_timeout", "receipt_deadline", "refusals_to_hold", "back_end_tries")
            if not _positive(getattr(self, name))
        ]
        if self.rate is not None and not _positive(self.rate):
            mistakes.append(Mistake("rate", self.rate, "a number above 0, or None"))
        if not _positive(self.schedule.attempt_limit):
            mistakes.append(Mistake("schedule.attempt_limit", self.schedule.attempt_limit, "a number above 0"))
        if not 0 <= self.schedule.jitter < 1:
            mistakes.append(Mistake("schedule.jitter", self.schedule.jitter, "a share in [0, 1)"))
        if mistakes:
            raise ConfigError(mistakes)

    @property
    def lease(self) -> float:
        """Return seconds a lease lasts: longer than the longest send."""
        return max(self.timeout, self.trial_timeout) + self.lease_margin

    @property
    def stale_round(self) -> float:
        """Return seconds after which another process's trial calls are taken for those of a dead one."""
        return 2 * self.lease


def _positive(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf")
