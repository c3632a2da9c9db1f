"""
One lane at work: the gates, the claim, the settling, and what a move of the breaker changes.

The gates come in this order: a message to send, a hold, a seat in the send window, the rate, the breaker's permit. The
permit comes last because trial calls are precious, and nothing is written before it is there.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from halfopen._core.events import CircuitTransitioned
from halfopen._core.states import Reason, State
from halfopen._runtime.clock import Clock
from halfopen.circuit_breaker import CircuitBreaker, Permit
from halfopen.errors import ConfigError, RejectedError

from ._delivery import AsyncSender, Attempt, Sender
from ._errors import StoreUnavailableError
from ._group_commit import Ticket
from ._inspection import Look
from ._operations import ClaimRequest, Finished, Pace
from ._pacing import Rate, spread_delay
from ._profile import LaneProfile
from ._reports import Report, Verdict
from ._rows import Message, MessageState
from ._rules import Change, after_send, outcome_of
from ._stats import Tally
from ._store import Store
from ._verdicts import SharedVerdict, pack, unpack

if TYPE_CHECKING:
    from ._alerts import AlertKind, Alerts

__all__ = ["Hub", "Lane", "Step"]

_SENDS_FREELY = frozenset({State.CLOSED, State.DISABLED, State.METRICS_ONLY})
_TRIALS = frozenset({State.OPEN, State.HALF_OPEN})
_LOCKED_TRIES = 20


@dataclass(slots=True)
class Hub:
    """
    What all lanes of one process share.

    Attributes:
        process: Names this process in leases and verdicts.
        attention: Asks for a step of a lane.
        closes: Monotonic times at which lanes of this process have closed lately, by lane.
    """

    store: Store
    clock: Clock
    rng: random.Random
    alerts: Alerts
    tally: Tally
    process: str
    attention: Callable[[str], None]
    closes: dict[str, float]
    failed_writes: list[tuple[Attempt, Change, Pace | None]]


@dataclass(frozen=True, slots=True)
class Step:
    """
    What came of looking at a lane.

    Attributes:
        attempts: Claimed, to be sent now.
        wait: Seconds until the next look makes sense; None: until somebody calls.
        reason: What the lane waits for.
    """

    attempts: tuple[Attempt, ...] = ()
    wait: float | None = None
    reason: str = ""


class Lane:
    """The messages of one partner, driven by its breaker."""

    def __init__(
        self, name: str, hub: Hub, breaker: CircuitBreaker, sender: Sender | AsyncSender, profile: LaneProfile
    ) -> None:
        self.name = name
        self.breaker = breaker
        self.sender = sender
        self.profile = profile
        self.store = hub.store
        self.clock = hub.clock
        self.in_flight: dict[int, Attempt] = {}
        self.waits_for = ""
        self._hub = hub
        self._rate = Rate(profile.rate)
        self._not_before = 0.0
        self._refusals: tuple[str, int] = ("", 0)
        self._outage_since: float | None = None
        self._draining = False
        self._seen: str | None = None
        self._tokens = count()
        self._done_at: deque[float] = deque(maxlen=64)
        self._restore()
        self._epoch = breaker.snapshot().epoch
        self._unsubscribe = breaker.subscribe(self._moved, CircuitTransitioned)

    def _restore(self) -> None:
        look = self.store.look(self.name)
        saved = unpack(look.breaker if look is not None else None)
        if saved is not None:
            self._adopt(saved)
        self._seen = None if look is None else look.breaker

    def _adopt(self, verdict: SharedVerdict) -> None:
        try:
            self.breaker.restore(verdict.snapshot)
        except ConfigError:
            return  # another version's snapshot: begin anew rather than not at all

    def drain_seconds(self, backlog: int) -> float | None:
        """Estimate seconds until *backlog* messages are gone, at the pace of the last ones; None where unknown."""
        done = list(self._done_at)
        if backlog == 0 or len(done) < 2:
            return None
        return backlog * max(0.0, self.clock.monotonic() - done[0]) / len(done)

    def close(self) -> None:
        """Stop listening to the breaker."""
        self._unsubscribe()

    # ── the gates ──

    def step(self, free: int) -> Step:
        """
        Look once: take what may be sent now, at most *free* messages, or say how long to wait.

        Raises:
            StoreUnavailableError: Nothing can be sent, because nothing can be marked.
        """
        step = self._step(free)
        self.waits_for = step.reason
        return step

    def _step(self, free: int) -> Step:
        look = self.store.look(self.name)
        if look is None or look.next_due is None:
            return self._nothing_waits()
        if look.held:
            return Step(wait=None if look.hold_until is None else look.hold_until - self.clock.wall(), reason="hold")
        if (foreign := self._heed(look)) is not None:
            return foreign
        now = self.clock.monotonic()
        if now < self._not_before:
            return Step(wait=self._not_before - now, reason="spread")
        state = self.breaker.state
        if (shut := self._shut(state)) is not None:
            return shut
        any_due = state not in _SENDS_FREELY
        if not any_due and look.next_due > self.clock.wall():
            return Step(wait=look.next_due - self.clock.wall(), reason="due")
        seats = min(free, self._seats(state, look))
        if seats <= 0:
            return Step(wait=1.0, reason="seats")
        if (allowed := self._rate.allowed(now)) <= 0:
            return Step(wait=self._rate.wait(now), reason="rate")
        return self._take(state, min(seats, allowed), any_due=any_due)

    def _nothing_waits(self) -> Step:
        if self._draining and not self.in_flight:
            self._draining = False
            self._alert("drained", "")
        if self.breaker.state is State.HALF_OPEN:
            # Nobody asks this breaker anything while the lane is empty, yet its leases and its round must end.
            self.breaker.tick()
            return Step(wait=1.0, reason="empty")
        return Step(reason="empty")

    def _heed(self, look: Look) -> Step | None:
        """Follow the verdict of another process that shares the store."""
        if look.breaker == self._seen:
            return None
        verdict = unpack(look.breaker)
        if verdict is None or verdict.by == self._hub.process:
            self._seen = look.breaker
            return None
        if verdict.state is State.HALF_OPEN:
            # The trial budget is that process's, unless it died with it.
            fresh = self.clock.wall() - verdict.time < 2 * self.profile.lease
            return Step(wait=0.5, reason="half_open elsewhere") if fresh else None
        self._seen = look.breaker
        if verdict.state is not self.breaker.state:
            self._adopt(verdict)
        return None

    def _shut(self, state: State) -> Step | None:
        if state is State.FORCED_OPEN:
            ends = self.breaker.snapshot().ends_at
            return Step(wait=None if ends is None else max(0.0, ends - self.clock.wall()), reason=state.value)
        if state is State.OPEN:
            remaining = self.breaker.snapshot().remaining_wait
            if remaining is None or remaining > 0:
                return Step(wait=remaining, reason=state.value)
        return None

    def _seats(self, state: State, look: Look) -> int:
        return self._cap(state, look.send_window) - max(look.in_flight, len(self.in_flight))

    def _cap(self, state: State, send_window: int) -> int:
        if state in _TRIALS:
            return self.breaker.settings.half_open.permitted_calls
        return 1 if state is State.RECOVERING else min(send_window, self.profile.limit)

    def _take(self, state: State, seats: int, *, any_due: bool) -> Step:
        # Look first whether there is a message: a permit without one would use up the trial budget.
        ready = self.store.ready(self.name, seats, any_due=any_due)
        if ready == 0:
            return Step(wait=1.0, reason="order")
        permits, retry_after = self._permits(ready)
        if not permits:
            return Step(wait=min(retry_after or 1.0, 1.0), reason=self.breaker.state.value)
        attempts = self._claim(permits, state)
        self._rate.take(len(attempts), self.clock.monotonic())
        return Step(tuple(attempts), wait=None if attempts else 0.05)

    def _permits(self, wanted: int) -> tuple[list[Permit], float | None]:
        permits: list[Permit] = []
        for _ in range(wanted):
            try:
                permits.append(self.breaker.acquire())
            except RejectedError as refused:
                return permits, refused.retry_after
            if permits[0].trial is not permits[-1].trial:
                break  # the state moved under us: these belong to two rounds
        return permits, None

    def _claim(self, permits: list[Permit], state: State) -> list[Attempt]:
        trial = permits[0].trial
        recovering = state is State.RECOVERING
        token = f"{self.store.lease_prefix()}:{self._hub.process}:{next(self._tokens)}"
        request = ClaimRequest(
            lane=self.name,
            limit=len(permits),
            token=token,
            lease=self.profile.lease,
            epoch=self._epoch,
            cap=self._cap(State.HALF_OPEN if trial else state, 1) if trial or recovering else None,
            trial=trial,
            any_due=recovering,
            trial_size=self.profile.trial_size,
        )
        until = self.clock.monotonic() + request.lease
        messages: list[Message] = []
        try:
            messages = self._claimed(request)
        finally:
            for permit in permits[len(messages) :]:
                permit.ignore()
        attempts = [
            Attempt(self, message, token, permit, until) for message, permit in zip(messages, permits, strict=False)
        ]
        self.in_flight.update((attempt.message.seq, attempt) for attempt in attempts)
        return attempts

    def _claimed(self, request: ClaimRequest) -> list[Message]:
        for _ in range(_LOCKED_TRIES):
            if (messages := self.store.claim(request)) is not None:
                return messages
            self.clock.sleep(0.005)  # another process is claiming in this lane at this very moment
        return []

    # ── the result ──

    def settle(self, attempt: Attempt, report: Report) -> None:
        """Tell the breaker, then the store; the breaker even if the store is gone: it is a fact about the partner."""
        outcome = outcome_of(attempt.message, report)
        trial = attempt.permit.trial
        slow = self._slow(attempt)
        if outcome == "success":
            attempt.permit.success()
        elif outcome == "failure":
            attempt.permit.failure(retry_after=report.retry_after)
        else:
            attempt.permit.ignore()
        self._hub.tally.attempt(outcome)
        self._note_refusal(report)
        change = after_send(
            attempt.message, report, trial=trial, profile=self.profile, now=self.clock.wall(), rng=self._hub.rng
        )
        paced = not trial and self.breaker.state in _SENDS_FREELY
        self.write(attempt, change, Pace(outcome, self.profile.limit, slow) if paced else None)

    def _slow(self, attempt: Attempt) -> bool:
        limit = self.profile.slow_call_duration
        return limit is not None and self.clock.monotonic() - attempt.permit.began > limit

    def write(self, attempt: Attempt, change: Change, pace: Pace | None) -> None:
        """Hand the result to the store; whoever waits for the lane is called when it is durable."""

        def written(ticket: Ticket[Finished]) -> None:
            if isinstance(ticket.error, StoreUnavailableError):
                self._hub.tally.store_up = False
                self._hub.failed_writes.append((attempt, change, pace))
            else:
                self.in_flight.pop(attempt.message.seq, None)
                if ticket.error is None:
                    self._told(attempt.message, ticket.result())
            self._hub.attention(self.name)

        try:
            self.store.finish(attempt.message, attempt.token, change, pace).then(written)
        except StoreUnavailableError:
            self._hub.failed_writes.append((attempt, change, pace))

    def _told(self, message: Message, finished: Finished) -> None:
        if finished.change is not None:
            self.announce(message, finished.change)

    def announce(self, message: Message, change: Change) -> None:
        """Count what became of a message, and raise its alert."""
        if change.state is MessageState.DONE:
            self._done_at.append(self.clock.monotonic())
            self._hub.tally.done(max(0.0, self.clock.wall() - message.created))
        elif change.state is MessageState.DEAD:
            self._hub.tally.dead()
        if change.alert is not None and change.alert != "lane_held":
            self._alert(change.alert, change.detail, message.id)

    def _note_refusal(self, report: Report) -> None:
        if report.verdict is Verdict.LANE_MISCONFIGURED:
            self._hold(report.detail)
        elif report.verdict is Verdict.REFUSED:
            kind = report.kind or report.detail
            run = self._refusals[1] + 1 if self._refusals[0] == kind else 1
            self._refusals = (kind, run)
            if run >= self.profile.refusals_to_hold:
                self._refusals = ("", 0)
                self._hold(f"{run} refusals in a row: {kind}")
        elif report.verdict in (Verdict.DELIVERED, Verdict.ACCEPTED):
            self._refusals = ("", 0)

    def _hold(self, note: str) -> None:
        self.store.hold(self.name, "configuration", None, note, None)
        self._alert("lane_held", note)

    # ── the breaker moved ──

    def _moved(self, event: CircuitTransitioned) -> None:
        self._epoch = event.epoch
        if event.reason is not Reason.RESTORED:
            saved = pack(self._hub.process, self.breaker.snapshot().plain())
            self.store.save_breaker(self.name, saved, restart_pace=event.old in _SENDS_FREELY)
        if event.new is State.CLOSED:
            self._closed(event)
        elif event.new is State.OPEN:
            self._opened(event)
        self._hub.attention(self.name)

    def _closed(self, event: CircuitTransitioned) -> None:
        now = self.clock.monotonic()
        self.store.make_due(self.name)
        lately = [at for lane, at in self._hub.closes.items() if lane != self.name and now - at <= self.profile.spread]
        self._hub.closes[self.name] = now
        self._not_before = now + spread_delay(len(lately), self.profile.spread, self._hub.rng)
        if self._outage_since is not None:
            self._draining = True
            self._alert("closed", f"after {now - self._outage_since:.0f} s; the drain begins")
        self._outage_since = None

    def _opened(self, event: CircuitTransitioned) -> None:
        if event.old is not State.HALF_OPEN:
            self._outage_since = self.clock.monotonic()
            self._alert("opened", self.breaker.explain())
            return
        if event.reason is Reason.MAX_DURATION and self._empty_but_well(event):
            self.breaker.reset(reason="the lane is empty and every trial call succeeded")
        elif event.reason in (Reason.INCONCLUSIVE, Reason.MAX_DURATION):
            self._alert("inconclusive", self.breaker.explain())
        else:
            self._alert("reopened", self.breaker.explain())

    def _empty_but_well(self, event: CircuitTransitioned) -> bool:
        if self.profile.after_inconclusive != "close" or event.totals.failures or not event.totals.calls:
            return False
        look = self.store.look(self.name)
        return look is None or look.next_due is None

    def _alert(self, kind: AlertKind, detail: str, message_id: str | None = None) -> None:
        self._hub.alerts.tell(kind, lane=self.name, message_id=message_id, detail=detail)
