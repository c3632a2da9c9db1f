"""
The state machine of a circuit breaker.

Theory of operation
===================

A `Circuit` holds one state object at a time and swaps it for a new one at every move. The object *is* the epoch:
a permit remembers the state object that gave it, and an outcome counts only while that very object is still the
circuit's state. Everything a call of an earlier epoch reports afterwards is *late*: counted as late, and void.
So no list of outstanding calls has to be kept, nothing has to be cancelled, and two states can never share a counter.

The machine is passive. It has no clock, no lock, no chance of its own and never calls user code. Whoever drives it

- hands in `now`, seconds that never go backwards, and guards each method by one lock;
- asks `admit` before a call and reports to `settle` after it;
- calls `tick` whenever he likes: it makes due what time alone decides. Leases, ends of rounds, of ramps and of
  orders are checked whenever anybody asks, so a circuit nobody ticks is only late in *noticing*, never wrong;
- fetches the events from the outbox and publishes them after the lock is released;
- computes the wait of a backoff that is user code, when `wait_wanted` says so, and hands it to `set_wait`.

Every state answers four questions: `admit` (may this call be made?), `settle` (what does this outcome change?),
`tick` (is anything due?) and `due` (when will it be?). The moves between the states stand in one table,
`states.AUTOMATIC`; `_move` refuses any other.

The short cut for calm times
----------------------------

Judging takes a lock. Most successes cannot change any verdict: the minimum of calls is reached, or nothing bad is in
the window at all, and no bucket ends meanwhile. A state therefore publishes `calm_until`. A caller whose fast success
ends before that instant appends its duration to `quiet`, one atomic step without a lock, and is done. The next one
that has to be judged first *folds* the quiet successes into the window. They belong to the bucket in which the calm
began, because the calm never outlasts a bucket; and they come before the outcome that folds them. So the window holds
what it would have held had each call been judged; a differential property test shows it. Minus infinity switches
the short cut off, for every special case at once.

Failures may be quiet as well, as many as cannot trip whatever order they come in. A judged failure computes that number
and publishes it as `room`, an iterator that ends after so many: taking one is an atomic step, too. Each quiet failure
notes how many quiet successes came before it, so that the fold counts them in their order. Whoever finds, after
appending, that the room is another one by now may have come too late to be reckoned with, and has the window judged.

A state with something that time decides, or that refuses some calls, is `gated`: its callers ask `admit` first.

Interrupts
----------

A signal handler may raise between any two steps. Each step therefore leaves the facts usable: sums are published as
one new tuple, a trial call is in the table or it is not, and a verdict is computed from the facts whenever anybody
asks, so an interrupted move is made by the next one who does.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Protocol

from halfopen._core.backoff import Constant, Exponential
from halfopen._core.counters import Counters, read
from halfopen._core.counting import Closed, Counting, MetricsOnly, Recovering
from halfopen._core.events import (
    CallFailed,
    CallIgnored,
    CallRejected,
    CallSucceeded,
    CircuitTransitioned,
    Event,
    LateResult,
)
from halfopen._core.outcomes import FAILURE, IGNORED, SUCCESS, Outcome
from halfopen._core.rounds import HalfOpenRound
from halfopen._core.settings import Settings
from halfopen._core.states import AUTOMATIC, Reason, Refusal, State
from halfopen._core.stays import Disabled, ForcedOpen, Open, StateObject

if TYPE_CHECKING:
    from random import Random

    from halfopen._core.snapshots import Saved

__all__ = ["Circuit", "Outbox", "Report"]

_OVERRIDES: dict[State, type[StateObject]] = {
    State.FORCED_OPEN: ForcedOpen,
    State.DISABLED: Disabled,
    State.METRICS_ONLY: MetricsOnly,
}

LONGEST_AGE = 1e9
"""Seconds; a saved time that lies further back is taken for this old."""

CATCH_UP = 1000
"""Due things that are made up for at their own time when nobody has looked for long; then the present counts."""

HISTORY = 100
"""Transitions that are remembered."""


Report = tuple[Outcome, float, float | None, str | None]
"""What is told of a finished call: outcome, duration in seconds, Retry-After in seconds, class of the exception."""


class Outbox(Protocol):
    """Where a circuit puts its events."""

    def wants(self, kind: type[Event]) -> bool:
        """Say whether anybody listens to events of this kind."""
        ...

    def put(self, event: Event) -> None:
        """Keep an event until it is published."""
        ...


class Circuit:
    """
    The machine: one state object, what outlives it, and the moves.

    Args:
        name: For the events.
        settings: What was set.
        now: The present, in seconds.
        rng: The source of chance for the backoff's jitter.
        outbox: Where events go.
    """

    __slots__ = (
        "counters", "epoch", "given", "history", "judges_every_success", "last_wait", "lost", "name",
        "outbox", "outstanding", "retired", "rng", "rules", "serials", "set_at", "settings", "slow_after", "state",
        "step", "tells_outcomes", "tells_refusals", "trial_rules", "wait_wanted", "window_changed",
    )  # fmt: skip

    def __init__(self, name: str, settings: Settings, now: float, rng: Random, outbox: Outbox) -> None:
        self.name = name
        self.rng = rng
        self.outbox = outbox
        self.judges_every_success = False
        self.tells_refusals = self.tells_outcomes = False
        self.serials = count(1)  # for good: no permit of a forked parent is taken for one of ours
        self._take(settings)
        self.begin(now)

    def begin(self, now: float) -> None:
        """Begin CLOSED, with nothing seen and nothing counted."""
        self.counters = Counters(now)
        self.epoch: int = 0
        self.step = 0
        # The permits of gated states that are not settled, by serial number: whatever tells of their end.
        self.outstanding: dict[int, object] = {}
        # The permits of the other states that were given, and those that ended unsettled. Counted by `next`, because
        # an interrupt cannot split it.
        self.given = count()
        self.lost = count()
        self.last_wait = 0.0
        self.history: deque[CircuitTransitioned] | None = None
        self.wait_wanted: tuple[Open, CircuitTransitioned, float] | None = None
        self.window_changed = False
        self.set_at = -math.inf  # when the settings were changed
        self.retired: StateObject | None = None
        self.state: StateObject = Closed(self, None, now)
        self.epoch = self.state.epoch

    def _take(self, settings: Settings) -> None:
        self.settings = settings
        self.rules, self.trial_rules = settings.rules
        slow = settings.slow_call_duration
        self.slow_after = math.inf if slow is None else slow

    # Asking and reporting

    def admit(self, now: float, serial: int, eligible: bool = True, holder: object = None) -> Refusal | None:
        """Ask to make one call; return why not, or None and hold a permit of `state`."""
        if self.state.gated:
            self.tick(now)
        # Outstanding before admitted: if an interrupt comes between, the permit's end still finds it.
        self.outstanding[serial] = holder
        self.counters.gated_permits += 1
        refusal = self.state.admit(now, serial, eligible)
        if refusal is not None:
            del self.outstanding[serial]
            self.counters.gated_permits -= 1
            self.refused(self.state, refusal, now)
        return refusal

    def refused(self, state: StateObject, refusal: Refusal, now: float) -> None:
        """Count a refusal."""
        self.counters.reject(refusal)
        if self.tells_refusals:
            after = state.retry_after(now)
            self.tell(CallRejected, state=state.kind, reason=refusal, retry_after=after, at=now)

    def abandon(self, serial: int, now: float) -> None:
        """Take back a permit of a gated state that nobody can settle any more; doing it again changes nothing."""
        self.tick(now)  # first, or a lease that is over would count as both
        if serial in self.outstanding:
            del self.outstanding[serial]
            self.counters.abandoned += 1
        if isinstance(self.state, HalfOpenRound) and self.state.owns(serial):
            self.counters.ignored += 1
            self.state.settle(serial, IGNORED, False, None, now)

    def in_flight(self) -> int:
        """Return how many permits are neither settled, expired nor abandoned, as of the last `fold`."""
        free = read(self.given) - read(self.lost) - self.counters.free_settled
        return len(self.outstanding) + free

    def settle(self, state: StateObject, serial: int, report: Report, now: float) -> bool:
        """Report a finished call; return False if it was late and therefore void."""
        if self.state.gated:
            self.tick(now)
        if state is not self.state or (state.gated and not state.owns(serial)):
            self._late(state, report, now)
            return False
        outcome, duration, retry_after, error = report
        slow = duration > state.slow_after
        if state.records:
            self.counters.settled(outcome, duration, slow, error)
            if self.tells_outcomes:
                self._tell_outcome(state.kind, report, slow, now)
            state.settle(serial, outcome, slow, retry_after, now)
        return True

    def crowded(self, state: StateObject, now: float) -> None:
        """Judge a state to which a quiet failure came after others were judged."""
        if state is self.state and isinstance(state, Counting):
            state.crowded(now)

    def _late(self, state: StateObject, report: Report, now: float) -> None:
        self.counters.late_results += 1
        self.tell(LateResult, outcome=report[0], epoch=state.epoch, at=now)

    def _tell_outcome(self, kind: State, report: Report, slow: bool, now: float) -> None:
        outcome, duration, _, error = report
        if outcome is SUCCESS:
            self.tell(CallSucceeded, state=kind, duration=duration, slow=slow, at=now)
        elif outcome is FAILURE:
            self.tell(CallFailed, state=kind, duration=duration, slow=slow, error=error, at=now)
        else:
            self.tell(CallIgnored, state=kind, duration=duration, error=error, at=now)

    def tick(self, now: float) -> None:
        """
        Make due what time alone decides, each thing as of the instant at which it was due.

        So it makes no difference when somebody looks: a lease that ended long ago re-opened the circuit long ago, and
        the wait that followed may be over as well. Only what new settings made due is due from then on, not before.
        """
        for _ in range(CATCH_UP):
            due = self.state.due()
            if due > now:
                break
            self.state.tick(max(due, self.set_at))
        self.state.tick(now)

    def fold(self, now: float) -> None:
        """Count the quiet successes and let the window age, for a look at the sums."""
        if self.retired is not None:
            self.retired.fold()
        self.state.fold()
        if isinstance(self.state, Counting):
            self.state.window.advance(now)
            self.state.calm(now)

    def tell(self, kind: Callable[..., Event], **facts: object) -> None:
        """Put an event into the outbox, if anybody wants it."""
        if self.outbox.wants(kind):  # type: ignore[arg-type]  # a class of events is handed in
            self.outbox.put(kind(name=self.name, **facts))

    # Orders

    def order(
        self,
        target: State,
        now: float,
        *,
        wait: float | None = None,
        ends_at: float | None = None,
        note: str | None = None,
        by: str | None = None,
    ) -> StateObject:
        """Obey an order; legal from every state."""
        self.tick(now)
        if target is State.OPEN:
            self.open(Reason.MANUAL, now, None, wait=wait, note=note, by=by)
        elif target is State.CLOSED:
            self.step = 0
            self.close(Reason.MANUAL, now, note=note, by=by)
        elif target is State.HALF_OPEN:
            self.half_open(Reason.MANUAL, now, note=note, by=by)
        else:
            self._override(target, now, ends_at, note, by)
        return self.state

    def _override(self, target: State, now: float, ends_at: float | None, note: str | None, by: str | None) -> None:
        self._forget(now)
        new = _OVERRIDES[target](self, Reason.MANUAL, now)
        if ends_at is not None:
            new.end_at(ends_at)
        # Without an end, time decides nothing here, and whoever is always admitted need not ask.
        new.gated = target is State.FORCED_OPEN or ends_at is not None
        self._move(new, Reason.MANUAL, now, note=note, by=by)

    def configure(self, settings: Settings, now: float) -> None:
        """Go on under other settings: window, epoch, step, trial calls and the remaining wait are kept."""
        self.tick(now)  # what was due under the old settings
        self.set_at = now
        self.window_changed = settings.window != self.settings.window
        self._take(settings)
        self.state.adopt(now)
        self.window_changed = False
        # What has reported may be enough, or too much, under the new rules of a round.
        self.tick(now)

    def restore(self, saved: Saved, now: float, wall: float) -> None:
        """Go on where a saved breaker was; *wall* is the Unix time of *now*, and times out of reach are clamped."""
        self.epoch = max(self.epoch, saved.epoch)
        new = self._restored(saved, now, wall)
        self.last_wait = saved.wait
        self._move(new, Reason.RESTORED, now, note=saved.note, by=saved.by, step=saved.step)

    def _restored(self, saved: Saved, now: float, wall: float) -> StateObject:
        why = Reason.RESTORED
        age = min(max(wall - saved.since, 0.0), LONGEST_AGE)
        if saved.state is State.HALF_OPEN:
            return HalfOpenRound(self, why, now)
        if saved.state is State.OPEN:
            ends = wall + saved.wait if saved.next_trial_at is None else saved.next_trial_at
            opened = Open(self, why, now, min(max(ends - wall, 0.0), saved.wait))
            opened.entered = now - age
            return opened
        new: StateObject
        if saved.state is State.RECOVERING and self.settings.ramp is not None:
            new = Recovering(self, why, now)
            age = min(age, self.settings.ramp.duration)
        elif saved.state in _OVERRIDES:
            new = _OVERRIDES[saved.state](self, why, now)
            if saved.ends_at is not None:
                new.end_at(now + min(max(saved.ends_at - wall, 0.0), max(saved.ends_at - saved.since, 0.0)))
            new.gated = saved.state is State.FORCED_OPEN or saved.ends_at is not None
        else:
            new = Closed(self, why, now)
        new.entered = now - age
        return new

    # Moves

    def passed(self, now: float) -> None:
        """End a round of trial calls well."""
        if self.settings.ramp is None:
            self.close(Reason.TRIAL_SUCCEEDED, now)
        else:
            self._move(Recovering(self, Reason.TRIAL_SUCCEEDED, now), Reason.TRIAL_SUCCEEDED, now)

    def close(self, why: Reason, now: float, *, note: str | None = None, by: str | None = None) -> None:
        """Move to CLOSED."""
        self._move(Closed(self, why, now), why, now, note=note, by=by)

    def half_open(self, why: Reason, now: float, *, note: str | None = None, by: str | None = None) -> HalfOpenRound:
        """Move to HALF_OPEN, a fresh round."""
        self._forget(now)
        new = HalfOpenRound(self, why, now)
        self._move(new, why, now, note=note, by=by)
        return new

    def open(
        self,
        why: Reason,
        now: float,
        retry_after: float | None,
        *,
        wait: float | None = None,
        note: str | None = None,
        by: str | None = None,
    ) -> None:
        """Move to OPEN, for *wait* seconds or as long as the backoff says, at least *retry_after* up to the cap."""
        self._forget(now)
        step = self.step if wait is not None else self._next_step(why)
        at_least = min(retry_after or 0.0, self.settings.retry_after_cap)
        if wait is None and _is_ours(self.settings.backoff):
            wait = max(self.settings.backoff(step, self.rng), at_least)
        self._move(Open(self, why, now, wait), why, now, note=note, by=by, wait=wait, at_least=at_least, step=step)

    def set_wait(self, state: Open, seconds: float) -> None:
        """Set the wait that a backoff in user code has computed."""
        wanted = self.wait_wanted
        if wanted is None or wanted[0] is not state:
            return
        _, event, at_least = wanted
        wait = max(seconds, at_least)
        state.shut_until = state.entered + wait
        self.last_wait = wait
        self.wait_wanted = None
        if self.state is state:
            self._announce(event, wait)

    def _next_step(self, why: Reason) -> int:
        kind = self.state.kind
        if why is Reason.INCONCLUSIVE or (kind is State.OPEN and why is Reason.MANUAL):
            return max(self.step, 1)
        return self.step + 1

    def _forget(self, now: float) -> None:
        """Forget flapping when CLOSED ends after it lasted long enough."""
        if self.state.kind is not State.CLOSED:
            return
        keep = self.settings.forget_after
        if now - self.state.entered >= (self.last_wait if keep is None else keep):
            self.step = 0

    def _move(
        self,
        new: StateObject,
        why: Reason,
        now: float,
        *,
        note: str | None = None,
        by: str | None = None,
        wait: float | None = None,
        at_least: float = 0.0,
        step: int | None = None,
    ) -> None:
        old = self.state
        assert why in (Reason.MANUAL, Reason.RESTORED) or new.kind in AUTOMATIC[old.kind, why], (old.kind, why)
        self._flush_wanted()
        old.calm_until = -math.inf
        old.fold()
        if isinstance(old, Counting):
            old.window.advance(now)
        if self.retired is not None:
            self.retired.fold()
        event = CircuitTransitioned(
            name=self.name, at=now, old=old.kind, new=new.kind, reason=why, epoch=new.epoch,
            step=self.step if step is None else step, totals=old.held(), wait=wait, note=note, by=by,
            limit=self.settings.limit(why), slow_call_duration=self.settings.slow_call_duration,
        )  # fmt: skip
        if isinstance(new, Open) and new.until == math.inf:
            self.wait_wanted = (new, event, at_least)  # before the move, or an interrupt would leave it OPEN for ever
        self.retired = old
        self.step = event.step
        self.last_wait = self.last_wait if wait is None else wait
        self.epoch = new.epoch
        self.state = new
        self.counters.moved(event, now)
        if self.wait_wanted is None:
            self._announce(event, wait)

    def _flush_wanted(self) -> None:
        if self.wait_wanted is not None:
            state, event, _ = self.wait_wanted
            self.wait_wanted = None
            if self.state is state:
                self._announce(event, None)

    def _announce(self, event: CircuitTransitioned, wait: float | None) -> None:
        event = replace(event, wait=wait) if wait != event.wait else event
        if self.history is None:
            self.history = deque(maxlen=HISTORY)
        self.history.append(event)
        if self.outbox.wants(CircuitTransitioned):
            self.outbox.put(event)


def _is_ours(backoff: object) -> bool:
    return type(backoff) in (Constant, Exponential)  # a subclass is user code
