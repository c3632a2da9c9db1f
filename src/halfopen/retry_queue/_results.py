"""What comes of an attempt: the breaker is told, then the store, then whoever listens."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from halfopen._core.states import State
from halfopen.circuit_breaker import CircuitBreaker
from halfopen.errors import RejectedError

from ._errors import StoreUnavailableError
from ._group_commit import Ticket
from ._hub import Hub
from ._profile import LaneProfile
from ._reports import Report, Verdict
from ._requests import Finished, Pace
from ._rows import Message, MessageState, Outcome
from ._rules import Change, after_send, outcome_of

if TYPE_CHECKING:
    from ._delivery import Attempt

__all__ = ["Results"]

_SENDS_FREELY = frozenset({State.CLOSED, State.DISABLED, State.METRICS_ONLY})


class Results:
    """
    Takes the results of one lane's attempts.

    Attributes:
        send_window: The lane's window as last seen.
        in_flight: The lane's attempts in this process whose result is not durable yet, by seq.
        profile: The lane's, as it is now.
    """

    def __init__(self, name: str, hub: Hub, breaker: CircuitBreaker, profile: LaneProfile) -> None:
        self.in_flight: dict[int, Attempt] = {}
        self.send_window = 1
        self._name = name
        self._hub = hub
        self._breaker = breaker
        self.profile = profile
        self._refusals: tuple[str, int] = ("", 0)
        self._done: deque[tuple[int | None, float]] = deque(maxlen=64)  # epoch of the send, monotonic time of its end

    def settle(self, attempt: Attempt, report: Report) -> None:
        """Tell the breaker, then the store; the breaker even if the store is gone: it is a fact about the partner."""
        attempt.settled = True
        try:
            self._settle(attempt, report)
        except BaseException:
            # Nobody renews its lease any more: when that runs out, another attempt takes over.
            self.in_flight.pop(attempt.message.seq, None)
            raise

    def _settle(self, attempt: Attempt, report: Report) -> None:
        outcome = outcome_of(attempt.message, report)
        trial, slow = attempt.permit.trial, self._slow(attempt)
        self._tell_breaker(attempt, outcome, report)
        self._hub.tally.attempt(outcome)
        self._note_refusal(report)
        now = self._hub.clock.wall()
        change = after_send(attempt.message, report, trial=trial, profile=self.profile, now=now, rng=self._hub.rng)
        self._write(attempt, change, None if trial else self._pace(outcome, slow=slow))

    def _pace(self, outcome: Outcome, *, slow: bool) -> Pace | None:
        if self._breaker.state not in _SENDS_FREELY:
            return None  # the drain is paused
        if outcome == "success" and not slow and self.send_window >= self.profile.limit:
            return None  # as fast as it goes: no write
        return Pace(outcome, self.profile.limit, slow)

    def _tell_breaker(self, attempt: Attempt, outcome: Outcome, report: Report) -> None:
        if outcome == "success":
            attempt.permit.success()
        elif outcome == "failure":
            attempt.permit.failure(retry_after=report.retry_after)
        else:
            attempt.permit.ignore()

    def _slow(self, attempt: Attempt) -> bool:
        limit = self.profile.slow_call_duration
        if limit is None:
            limit = self._breaker.settings.slow_call_duration
        return limit is not None and self._hub.clock.monotonic() - attempt.permit.began > limit

    def _write(self, attempt: Attempt, change: Change, pace: Pace | None) -> None:
        """Hand the result to the store; what it does not take is tried again while the lease lasts."""

        def written(ticket: Ticket[Finished]) -> None:
            if isinstance(ticket.error, StoreUnavailableError):
                self._again(attempt, change, pace)
                return
            self.in_flight.pop(attempt.message.seq, None)
            if ticket.error is None and (said := ticket.result().change) is not None:
                self.announce(attempt.message, said)
            self._hub.attention(self._name)

        try:
            self._hub.store.finish(attempt.message, attempt.token, change, pace).then(written)
        except StoreUnavailableError:
            self._again(attempt, change, pace)

    def _again(self, attempt: Attempt, change: Change, pace: Pace | None) -> None:
        self._hub.again.append(lambda: self._write(attempt, change, pace))
        self._hub.attention(self._name)

    def announce(self, message: Message, change: Change) -> None:
        """Count what became of a message, and raise its alert."""
        if change.state is MessageState.DONE:
            self._done.append((message.epoch, self._hub.clock.monotonic()))
            self._hub.tally.done(max(0.0, self._hub.clock.wall() - message.created))
        elif change.state is MessageState.DEAD:
            self._hub.tally.dead()
        if change.alert is not None and change.alert != "lane_held":
            self._hub.alerts.tell(change.alert, lane=self._name, message_id=message.id, detail=change.detail)

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
        self._hub.store.hold(self._name, "configuration", None, note, None)
        self._hub.alerts.tell("lane_held", lane=self._name, detail=note)

    def blame_missing_receipt(self, message: Message, epoch: int) -> None:
        """Tell the breaker of an overdue receipt, if the profile says so and its epoch is still that of the send."""
        if not self.profile.receipt_failures or message.epoch != epoch:
            return
        with suppress(RejectedError):
            self._breaker.acquire().failure()

    def drain_seconds(self, backlog: int) -> float | None:
        """
        Estimate seconds until *backlog* messages are gone, once they may be sent; None where it is unknown.

        The pace is that of the last ones that went out under one state of the circuit: no pause counts.
        """
        done = list(self._done)
        ends = [end for epoch, end in done if epoch == done[-1][0]]
        if backlog == 0 or len(ends) < 2:
            return None
        return backlog * (ends[-1] - ends[0]) / (len(ends) - 1)
