"""The stays that judge a window of calls: CLOSED, RECOVERING and METRICS_ONLY."""

from __future__ import annotations

import math
from itertools import groupby, repeat
from operator import itemgetter
from typing import TYPE_CHECKING

from halfopen._core.dry_run import DryRun
from halfopen._core.events import ThresholdExceeded
from halfopen._core.outcomes import FAILURE, IGNORED, Outcome
from halfopen._core.states import Reason, Refusal, State
from halfopen._core.stays import NO_ROOM, StateObject
from halfopen._core.windows import Sums, Totals, converted, make_window

if TYPE_CHECKING:
    from halfopen._core.circuit import Circuit

__all__ = ["Closed", "Counting", "MetricsOnly", "Recovering"]

CALM_AT_MOST = 0.1
"""Seconds a calm lasts at most, so that the list of quiet successes stays short."""

_BEFORE = itemgetter(0)


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
