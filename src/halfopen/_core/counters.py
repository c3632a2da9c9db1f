"""What a breaker has counted since it was made."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Protocol

from halfopen._core.outcomes import FAILURE, SUCCESS, Outcome
from halfopen._core.states import Reason, Refusal, State

if TYPE_CHECKING:
    from halfopen._core.events import CircuitTransitioned

__all__ = ["Counters", "DurationSink", "read"]


def read(counter: count[int]) -> int:
    """Return what a counter has come to, without counting; its text alone tells that on every Python."""
    return int(repr(counter)[len("count(") : -1])


class DurationSink(Protocol):
    """Where durations go, for a histogram; called under the breaker's lock, so it only counts."""

    def add(self, outcome: Outcome, durations: Sequence[float]) -> None:
        """Count finished calls by their durations in seconds."""
        ...


class Counters:
    """Sums that only grow."""

    __slots__ = (
        "abandoned", "dry_openings", "dry_refused", "durations", "estimate", "expired", "failures", "free_settled",
        "gated_permits", "guests", "ignored", "last_error", "late_results", "moves", "refused_open", "rejected",
        "round_mark", "round_share", "seconds", "since", "slow_failures", "slow_successes", "successes",
        "trial_failures", "trial_successes",
    )  # fmt: skip

    def __init__(self, now: float) -> None:
        self.successes = self.failures = self.ignored = 0
        self.slow_successes = self.slow_failures = 0
        self.late_results = self.abandoned = self.expired = 0
        self.trial_successes = self.trial_failures = 0
        self.gated_permits = self.free_settled = 0
        self.guests = 0
        self.last_error: str | None = None
        self.refused_open = count()  # by far the commonest refusal; `next` counts it without a lock
        self.rejected: dict[Refusal, int] = {}
        self.moves: dict[tuple[State, State, Reason], int] = {}
        self.seconds: dict[State, float] = {}
        self.since = now
        self.durations: DurationSink | None = None
        # What an observed circuit would have done.
        self.dry_openings: dict[Reason, int] = {}
        self.dry_refused = 0
        # The estimate of false refusals: a trapezoid between the success shares of two rounds of trial calls.
        self.estimate = 0.0
        self.round_mark = 0
        self.round_share = 0.0

    def settled(self, outcome: Outcome, duration: float, slow: bool, error: str | None) -> None:
        """Count a call that was judged by itself."""
        if outcome is SUCCESS:
            self.successes += 1
            if slow:
                self.slow_successes += 1
        elif outcome is FAILURE:
            self.failures += 1
            self.last_error = error
            if slow:
                self.slow_failures += 1
        else:
            self.ignored += 1
        if self.durations is not None:
            self.durations.add(outcome, (duration,))

    def quiet_successes(self, durations: Sequence[float]) -> None:
        """Count fast successes in one go."""
        self.successes += len(durations)
        if self.durations is not None:
            self.durations.add(SUCCESS, durations)

    def quiet_failures(self, failures: Sequence[tuple[int, float, type[BaseException]]]) -> None:
        """Count fast failures in one go, told as in `StateObject.quiet_failures`."""
        self.failures += len(failures)
        self.last_error = failures[-1][2].__qualname__
        if self.durations is not None:
            self.durations.add(FAILURE, [spent for _, spent, _ in failures])

    def reject(self, refusal: Refusal) -> None:
        """Count a refusal."""
        if refusal is Refusal.OPEN:
            next(self.refused_open)
        else:
            self.rejected[refusal] = self.rejected.get(refusal, 0) + 1

    def refusals(self) -> dict[Refusal, int]:
        """Return the refusals by reason."""
        refused_open = read(self.refused_open)
        return {Refusal.OPEN: refused_open, **self.rejected} if refused_open else dict(self.rejected)

    def _refused_for_lack_of_trials(self) -> int:
        return read(self.refused_open) + self.rejected.get(Refusal.TRIAL_BUDGET, 0)

    def trial(self, failed: bool) -> None:
        """Count a finished trial call; an expired one has failed."""
        if failed:
            self.trial_failures += 1
        else:
            self.trial_successes += 1

    def moved(self, event: CircuitTransitioned, now: float) -> None:
        """Count a move and the time spent in the state that ended."""
        key = (event.old, event.new, event.reason)
        self.moves[key] = self.moves.get(key, 0) + 1
        self.seconds[event.old] = self.seconds.get(event.old, 0.0) + (now - self.since)
        self.since = now
        if event.old is State.HALF_OPEN and event.totals.calls:
            self._end_of_round(1 - event.totals.failures / event.totals.calls)
        if State.CLOSED in (event.old, event.new):
            self.round_share = 0.0
            self.round_mark = self._refused_for_lack_of_trials()

    def _end_of_round(self, share: float) -> None:
        refused = self._refused_for_lack_of_trials()
        self.estimate += (refused - self.round_mark) * (self.round_share + share) / 2
        self.round_share = share
        self.round_mark = refused
