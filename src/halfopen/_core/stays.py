"""The stays in the seven states: what each admits, how it takes an outcome, and what time does to it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby, repeat
from operator import itemgetter
from typing import TYPE_CHECKING

from halfopen._core.dry_run import DryRun
from halfopen._core.events import ThresholdExceeded, TrialExpired
from halfopen._core.outcomes import FAILURE, IGNORED, SUCCESS, Outcome
from halfopen._core.states import Reason, Refusal, State
from halfopen._core.windows import Sums, Totals, converted, make_window

if TYPE_CHECKING:
    from halfopen._core.circuit import Circuit

__all__ = [
    "OVERRIDES",
    "Closed",
    "Counting",
    "HalfOpenRound",
    "Open",
    "Recovering",
    "StateObject",
]

CALM_AT_MOST = 0.1
"""Seconds a calm lasts at most, so that the list of quiet successes stays short."""

_BEFORE = itemgetter(0)

NO_ROOM: Iterator[bool] = repeat(True, 0)
"""Every failure is judged."""


class StateObject:
    """One stay in one state; its identity is the epoch."""

    kind: State
    full_until = -math.inf
    """Until then every trial call is taken, unless one reports: set by a refusal, so that the next ones cost little."""

    __slots__ = (
        "calm_until",
        "circuit",
        "ends_at",
        "entered",
        "epoch",
        "gated",
        "lost",
        "quiet",
        "quiet_failures",
        "quiet_permits",
        "records",
        "refusal",
        "room",
        "shut_until",
        "slow_after",
        "why",
    )  # fmt: skip

    def __init__(self, circuit: Circuit, why: Reason | None, now: float) -> None:
        self.circuit = circuit
        self.why = why
        self.entered = now
        self.epoch: int = circuit.epoch + 1
        self.gated = True
        self.records = True
        self.ends_at = math.inf  # of an order
        self.shut_until = -math.inf  # before it nobody is admitted, whatever else happens,
        self.refusal = Refusal.OPEN  # for this reason
        self.calm_until = -math.inf
        self.slow_after = circuit.slow_after
        # Durations of fast successes not yet folded in: of wrapped calls, and of calls that hold a permit.
        self.quiet: list[float] = []
        self.quiet_permits: list[float] = []
        # The same of failures that cannot trip: (successes not yet folded in that came before, duration, class).
        self.quiet_failures: list[tuple[int, float, type[BaseException]]] = []
        self.room = NO_ROOM  # gives True to as many failures as may stay quiet
        self.lost = circuit.lost

    def end_at(self, when: float) -> None:
        """Let the order end at *when*."""
        self.ends_at = when
        if self.shut_until == math.inf:
            self.shut_until = when

    def admit(self, now: float, serial: int, eligible: bool) -> Refusal | None:
        """Return why the call is refused, or None."""
        return None

    def settle(self, serial: int, outcome: Outcome, slow: bool, retry_after: float | None, now: float) -> None:
        """Take an outcome of this very epoch."""

    def tick(self, now: float) -> None:
        """Make due what is due: here, the end of an order."""
        if now >= self.ends_at:
            self.circuit.close(Reason.OVERRIDE_ENDED, now)

    def due(self) -> float:
        """Return when `tick` will have something to do; infinity for never."""
        return self.ends_at

    def retry_after(self, now: float) -> float | None:
        """Return the seconds after which asking again makes sense, if anybody can know."""
        return None

    def owns(self, serial: int) -> bool:
        """Say whether a permit of this state still counts."""
        return True

    def held(self) -> Totals:
        """Return what the window, or the round of trial calls, holds."""
        return Totals(0, 0, 0, 0)

    def fold(self) -> None:
        """Count the quiet successes; there are none where nothing is calm."""

    def calm(self, now: float) -> None:
        """Say until when fast successes may stay quiet."""

    def adopt(self, now: float) -> None:
        """Go on under changed settings."""
        self.slow_after = self.circuit.slow_after
        self.calm(now)


class Counting(StateObject):
    """A state that gathers evidence in a window."""

    __slots__ = ("streak", "window")

    def __init__(self, circuit: Circuit, why: Reason | None, now: float) -> None:
        super().__init__(circuit, why, now)
        self.window = make_window(circuit.settings.window, now)
        self.streak = 0
        self.calm(now)

    def settle(self, serial: int, outcome: Outcome, slow: bool, retry_after: float | None, now: float) -> None:
        failed = outcome is FAILURE
        if failed:
            self.room = NO_ROOM  # before the fold: whoever appends after it finds out, and is judged, too
        if self.quiet or self.quiet_permits or self.quiet_failures:
            self.fold()
        if outcome is not IGNORED:
            self.streak = self.streak + 1 if failed else 0
            held = self.window.add(failed, slow, now)
            rules = self.circuit.rules
            broken = rules.broken(held, self.streak)
            if broken is not None:
                self.broke(broken, retry_after, now)
                return
            if held[0] < rules.minimum and (held[1] or held[2]):
                self.calm_until = -math.inf
                return
        if now >= self.calm_until:
            self.window.advance(now)
            self.calm(now)
        if failed and now < self.calm_until:
            self.make_room()

    def make_room(self) -> None:
        """Let as many failures be quiet as cannot trip."""
        if not self.circuit.tells_outcomes:
            self.room = repeat(True, self.circuit.rules.room(self.window.window(), self.streak))

    def crowded(self, now: float) -> None:
        """Judge what is held: a failure was quiet in a room that others had left meanwhile."""
        self.room = NO_ROOM
        self.fold()
        broken = self.circuit.rules.broken(self.window.window(), self.streak)
        if broken is not None:
            self.broke(broken, None, now)

    def broke(self, rule: Reason, retry_after: float | None, now: float) -> None:
        self.circuit.open(rule, now, retry_after)

    def held(self) -> Totals:
        return Totals(*self.window.window())

    def fold(self) -> None:
        # Others may append meanwhile; theirs stay behind the ones taken here.
        wrapped, held, failed = len(self.quiet), len(self.quiet_permits), len(self.quiet_failures)
        if not wrapped and not held and not failed:
            return
        durations = self.quiet[:wrapped] + self.quiet_permits[:held]
        failures = self.quiet_failures[:failed]
        del self.quiet[:wrapped], self.quiet_permits[:held], self.quiet_failures[:failed]
        self.circuit.counters.free_settled += held  # at once: no interrupt comes between
        if failures:
            self._fold_in_order(failures, len(durations))
        else:
            self.window.successes(len(durations))
            self.streak = 0
        if durations:
            self.circuit.counters.quiet_successes(durations)

    def _fold_in_order(self, failures: list[tuple[int, float, type[BaseException]]], successes: int) -> None:
        folded = 0
        for before, group in groupby(failures, _BEFORE):
            # Another's fold between counting and appending leaves a number that is too large.
            due = min(before, successes) - folded
            if due > 0:
                self._succeeded(due)
                folded += due
            row = len(list(group))
            self.window.failures(row)
            self.streak += row
        if successes > folded:
            self._succeeded(successes - folded)
        self.circuit.counters.quiet_failures(failures)

    def _succeeded(self, count: int) -> None:
        self.window.successes(count)
        self.streak = 0

    def calm(self, now: float) -> None:
        self.room = NO_ROOM
        circuit, held = self.circuit, self.window.window()
        if circuit.judges_every_success or not circuit.rules.calm(held) or self.overdue(held):
            self.calm_until = -math.inf
            return
        until = now + CALM_AT_MOST
        fresh_until = self.window.fresh_until(now)
        self.calm_until = until if until < fresh_until else fresh_until

    def overdue(self, held: Sums) -> bool:
        """Say whether the next success trips: the window has aged, or the rules have changed, since one was judged."""
        return self.circuit.rules.broken(held, self.streak) is not None

    def adopt(self, now: float) -> None:
        self.fold()
        self.window.advance(now)
        if self.circuit.window_changed:
            self.window = converted(self.window, self.circuit.settings.window, now)
        super().adopt(now)


class Closed(Counting):
    """Everything is admitted and judged."""

    kind = State.CLOSED
    __slots__ = ()

    def __init__(self, circuit: Circuit, why: Reason | None, now: float) -> None:
        super().__init__(circuit, why, now)
        self.gated = False


class Recovering(Counting):
    """A growing share is admitted, dealt out evenly by carrying the remainder."""

    kind = State.RECOVERING
    __slots__ = ("credit",)

    def __init__(self, circuit: Circuit, why: Reason | None, now: float) -> None:
        super().__init__(circuit, why, now)
        self.credit: float | None = None

    def share(self, now: float) -> float:
        ramp = self.circuit.settings.ramp
        return 1.0 if ramp is None else ramp.share(now - self.entered)

    def admit(self, now: float, serial: int, eligible: bool) -> Refusal | None:
        share = self.share(now)
        credit = 1.0 if self.credit is None else self.credit + share
        admitted = credit >= 1.0
        self.credit = credit - admitted
        return None if admitted else Refusal.RECOVERING

    def tick(self, now: float) -> None:
        if now >= self.due():
            self.circuit.close(Reason.RAMP_FINISHED, now)

    def due(self) -> float:
        ramp = self.circuit.settings.ramp
        return self.entered if ramp is None else self.entered + ramp.duration


class Open(StateObject):
    """Everything is refused until the wait is over."""

    kind = State.OPEN
    __slots__ = ()

    def __init__(self, circuit: Circuit, why: Reason, now: float, wait: float | None) -> None:
        super().__init__(circuit, why, now)
        self.shut_until = math.inf if wait is None else now + wait

    @property
    def until(self) -> float:
        """When the wait ends; infinity while it is not known."""
        return self.shut_until

    def admit(self, now: float, serial: int, eligible: bool) -> Refusal | None:
        if now < self.until:
            return Refusal.OPEN
        if not eligible:
            return Refusal.NOT_ELIGIBLE
        return self.circuit.half_open(Reason.WAIT_ELAPSED, now).admit(now, serial, eligible)

    def tick(self, now: float) -> None:
        if self.circuit.settings.automatic_half_open and now >= self.until:
            self.circuit.half_open(Reason.WAIT_ELAPSED, now)

    def due(self) -> float:
        return self.until if self.circuit.settings.automatic_half_open else math.inf

    def retry_after(self, now: float) -> float | None:
        return None if self.until == math.inf else max(self.until - now, 0.0)


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


class ForcedOpen(StateObject):
    """Everything is refused, by order."""

    kind = State.FORCED_OPEN
    __slots__ = ()

    def __init__(self, circuit: Circuit, why: Reason | None, now: float) -> None:
        super().__init__(circuit, why, now)
        self.shut_until = math.inf
        self.refusal = Refusal.FORCED_OPEN

    def admit(self, now: float, serial: int, eligible: bool) -> Refusal | None:
        return Refusal.FORCED_OPEN

    def retry_after(self, now: float) -> float | None:
        return None if self.ends_at == math.inf else max(self.ends_at - now, 0.0)


class Disabled(StateObject):
    """Everything is admitted and nothing recorded, by order."""

    kind = State.DISABLED
    __slots__ = ()

    def __init__(self, circuit: Circuit, why: Reason | None, now: float) -> None:
        super().__init__(circuit, why, now)
        self.records = False


class MetricsOnly(Counting):
    """Everything is admitted and judged, and the verdict only said, once; what would have followed is counted."""

    kind = State.METRICS_ONLY
    __slots__ = ("dry", "said")

    def __init__(self, circuit: Circuit, why: Reason | None, now: float) -> None:
        self.said = False
        self.dry = DryRun(circuit, now)
        super().__init__(circuit, why, now)

    def settle(self, serial: int, outcome: Outcome, slow: bool, retry_after: float | None, now: float) -> None:
        self.dry.settle(outcome, slow, retry_after, now)
        super().settle(serial, outcome, slow, retry_after, now)

    def calm(self, now: float) -> None:
        """Let no call be quiet: each is a question whether it would have been refused."""

    def adopt(self, now: float) -> None:
        super().adopt(now)
        self.dry.adopt(now)

    def broke(self, rule: Reason, retry_after: float | None, now: float) -> None:
        if not self.said:
            self.said = True
            self.circuit.tell(ThresholdExceeded, reason=rule, totals=self.held(), at=now)


OVERRIDES: dict[State, type[StateObject]] = {
    State.FORCED_OPEN: ForcedOpen,
    State.DISABLED: Disabled,
    State.METRICS_ONLY: MetricsOnly,
}


def _later(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
