"""The stay in HALF_OPEN: a round of trial calls."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from halfopen._core.events import TrialExpired
from halfopen._core.outcomes import FAILURE, IGNORED, SUCCESS, Outcome
from halfopen._core.states import Reason, Refusal, State
from halfopen._core.stays import StateObject
from halfopen._core.windows import Totals

if TYPE_CHECKING:
    from halfopen._core.circuit import Circuit

__all__ = ["HalfOpenRound"]


class HalfOpenRound(StateObject):
    """A few trial calls are admitted; their outcomes are the verdict."""

    kind = State.HALF_OPEN
    __slots__ = ("expired", "finished", "full_until", "ignored", "retry_hint", "totals", "trials")

    def __init__(self, circuit: Circuit, why: Reason | None, now: float) -> None:
        super().__init__(circuit, why, now)
        self.totals = Totals(0, 0, 0, 0)
        self.full_until = -math.inf
        self.ignored = 0
        self.trials: dict[int, float] = {}  # serial -> start of the lease, oldest first
        self.finished: list[tuple[float, Outcome, bool]] = []  # (start, outcome, slow), for showing
        self.expired: set[int] = set()
        self.retry_hint: float | None = None

    def admit(self, now: float, serial: int, eligible: bool) -> Refusal | None:
        if not eligible:
            return Refusal.NOT_ELIGIBLE
        trials = self.circuit.settings.half_open
        running = len(self.trials)
        if running >= trials.concurrent or self._started() + running >= trials.permitted_calls:
            self.full_until = self.due()
            return Refusal.TRIAL_BUDGET
        self.trials[serial] = now
        return None

    def _started(self) -> int:
        # "All must succeed" ends at the first failure, so what has reported are successes in a row.
        return self.totals.calls

    def settle(self, serial: int, outcome: Outcome, slow: bool, retry_after: float | None, now: float) -> None:
        self.full_until = -math.inf  # first, for an interrupt, and again, for a signal handler that calls in between
        started = self.trials.pop(serial, now)
        self.full_until = -math.inf
        if outcome is IGNORED:
            self.ignored += 1
        else:
            self._count(started, outcome is FAILURE, slow)
            if outcome is FAILURE:
                self.retry_hint = _later(self.retry_hint, retry_after)
        self._judge(now, Reason.TRIAL_FAILED)

    def _count(self, started: float, failed: bool, slow: bool) -> None:
        calls, failures, slow_calls, both = self.totals
        self.totals = Totals(calls + 1, failures + failed, slow_calls + slow, both + (failed and slow))
        self.finished.append((started, FAILURE if failed else SUCCESS, slow))
        self.circuit.counters.trial(failed)

    def tick(self, now: float) -> None:
        trials = self.circuit.settings.half_open
        while self.circuit.state is self and self.trials:
            serial, started = next(iter(self.trials.items()))
            if now < started + trials.trial_timeout:
                break
            self._expire(serial, started, now)
            self._judge(now, Reason.TRIAL_EXPIRED)
        if self.circuit.state is self:
            self._judge(now, Reason.TRIAL_FAILED)
        if self.circuit.state is self and now >= self._end():
            self._time_is_up(now)

    def _expire(self, serial: int, started: float, now: float) -> None:
        self.full_until = -math.inf
        self.expired.add(serial)
        del self.trials[serial]
        self.circuit.outstanding.pop(serial, None)
        self._count(started, failed=True, slow=False)
        self.circuit.counters.expired += 1
        self.circuit.tell(TrialExpired, epoch=self.epoch, running=now - started, at=now)

    def _judge(self, now: float, why_failed: Reason) -> None:
        passed = self.circuit.trial_rules.passed(self.totals)
        if passed is True:
            self.circuit.passed(now)
        elif passed is False:
            self.circuit.open(why_failed, now, self.retry_hint)
        elif self.ignored >= self.circuit.settings.half_open.ignored_limit:
            self.circuit.open(Reason.INCONCLUSIVE, now, self.retry_hint)

    def _time_is_up(self, now: float) -> None:
        if self.circuit.settings.half_open.after_max_duration is State.CLOSED:
            self.circuit.close(Reason.MAX_DURATION, now)
        else:
            self.circuit.open(Reason.MAX_DURATION, now, self.retry_hint)

    def _end(self) -> float:
        longest = self.circuit.settings.half_open.max_duration
        return math.inf if longest is None else self.entered + longest

    def adopt(self, now: float) -> None:
        self.full_until = -math.inf
        super().adopt(now)

    def due(self) -> float:
        return min(self._end(), self._first_lease())

    def _first_lease(self) -> float:
        for started in self.trials.values():
            return started + self.circuit.settings.half_open.trial_timeout
        return math.inf

    def owns(self, serial: int) -> bool:
        return serial in self.trials

    def held(self) -> Totals:
        return self.totals


def _later(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
