"""One sentence for people: what the circuit does, since when, and why, with the numbers."""

from __future__ import annotations

from collections.abc import Callable

from halfopen._core.backoff import Backoff, Constant
from halfopen._core.events import CircuitTransitioned
from halfopen._core.settings import Settings
from halfopen._core.snapshots import Snapshot
from halfopen._core.states import Reason, State

__all__ = ["decision", "explain"]


def explain(
    look: Snapshot, settings: Settings, last: CircuitTransitioned | None, clock_time: Callable[[float], str]
) -> str:
    """Put the last decision and its arithmetic into one sentence; *clock_time* shows a Unix time."""
    following = _following(look, settings, clock_time)
    decided = decision(look, last, clock_time)
    return f"{decided}; {following}" if following else decided


def decision(look: Snapshot, last: CircuitTransitioned | None, clock_time: Callable[[float], str]) -> str:
    """Return the part of the sentence that stays true until the next move: the state, since when, and why."""
    because = "" if last is None else _because(last)
    return f"{_WORDS[look.state]} since {clock_time(look.since)}{because}"


_WORDS = {
    State.CLOSED: "closed",
    State.OPEN: "open",
    State.HALF_OPEN: "half-open",
    State.RECOVERING: "recovering",
    State.FORCED_OPEN: "forced open",
    State.DISABLED: "disabled",
    State.METRICS_ONLY: "observed only",
}


def _because(last: CircuitTransitioned) -> str:
    held = last.totals
    if last.reason is Reason.MANUAL:
        who = f" of {last.by}" if last.by else ""
        return f" by order{who}" + (f": {last.note}" if last.note else "")
    # The limits are those of the move; what is set now may be something else.
    limit, slow = last.limit or 0, last.slow_call_duration or 0
    words = {
        Reason.FAILURE_RATE: f"{held.failures} of the last {held.calls} calls failed (limit {_percent(limit)})",
        Reason.SLOW_CALL_RATE: (
            f"{held.slow} of the last {held.calls} calls took longer than {slow:g} s (limit {_percent(limit)})"
        ),
        Reason.FAILURE_COUNT: f"{held.failures} calls failed (limit {limit})",
        Reason.CONSECUTIVE: f"{limit} calls in a row failed",
        Reason.WAIT_ELAPSED: "the wait was over",
        Reason.TRIAL_SUCCEEDED: f"{held.calls - held.failures} of {held.calls} trial calls succeeded",
        Reason.TRIAL_FAILED: f"{_bad_trials(last)} of {held.calls} trial calls failed or were slow",
        Reason.TRIAL_EXPIRED: f"a trial call did not report within {limit:g} s",
        Reason.INCONCLUSIVE: f"{limit} trial calls gave no evidence",
        Reason.MAX_DURATION: f"the trial round had no verdict after {limit:g} s",
        Reason.RAMP_FINISHED: "the ramp was finished",
        Reason.OVERRIDE_ENDED: "the end of an order had come",
        Reason.RESTORED: "it was restored",
    }
    return f" because {words[last.reason]}"


def _bad_trials(last: CircuitTransitioned) -> int:
    held = last.totals
    return held.failures + held.slow - held.slow_failures


def _following(look: Snapshot, settings: Settings, clock_time: Callable[[float], str]) -> str:
    if look.state is State.OPEN and look.remaining_wait is not None:
        # An order that says how long does not count as a step; on a fresh circuit there is none to tell of.
        step = f" (step {look.step} of backoff {_backoff(settings.backoff)})" if look.step else ""
        return f"next trial in {look.remaining_wait:.1f} s{step}"
    if look.state is State.HALF_OPEN:
        done = sum(slot.status in ("succeeded", "failed") for slot in look.trials)
        running = sum(slot.status == "running" for slot in look.trials)
        return f"{done} of {look.trial_limit} trial calls have reported, {running} running"
    if look.state is State.RECOVERING and look.admitted_share is not None:
        return f"{_percent(look.admitted_share)} of the calls are admitted"
    if look.ends_at is not None:
        return f"until {clock_time(look.ends_at)}"
    if look.state in (State.CLOSED, State.METRICS_ONLY):
        return f"{look.failures} of the last {look.calls} calls failed"
    return ""


def _backoff(backoff: Backoff) -> str:
    if isinstance(backoff, Constant):
        return f"of {backoff}"
    return str(backoff) if type(backoff).__module__.startswith("halfopen.") else "of its own"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
