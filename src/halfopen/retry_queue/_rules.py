"""
What happens to a message: after a send, a receipt, a lease that ran out, a deadline, a command.

Pure: rows, a report and `now` go in, a `Change` comes out. Where delivery has once become unknown it stays so until a
receipt settles it: a failed resend returns the row to `unknown_delivery`, not to `waiting`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from ._errors import CommandRefusedError, ConfirmationRequiredError
from ._profile import LaneProfile
from ._reports import RULES, Report, Rule, Verdict
from ._rows import RESTING, AlertKind, Message, MessageState, Outcome

__all__ = [
    "Change",
    "after_command",
    "after_deadline",
    "after_lease",
    "after_missing_receipt",
    "after_receipt",
    "after_send",
    "check_resubmit",
    "outcome_of",
]

_S = MessageState

_PAUSE = 5.0
"""Seconds until a send that we stopped ourselves is begun again: whatever stopped it may still be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """
    What to write into a message's row. The numbers are added to what stands there.

    Attributes:
        what: The history entry's first word.
        alert: The alert to raise after the commit, if any.
        resets: Clear the tries, because a person ordered a new start.
    """

    state: MessageState
    what: str
    due: float
    outcome: Outcome | None = None
    detail: str = ""
    maybe_delivered: bool = False
    attempts: int = 0
    tries: int = 0
    trial_failures: int = 0
    back_end_errors: int = 0
    resends: int = 0
    resets: bool = False
    deadline: float | None = None
    receipt: bytes | None = None
    alert: AlertKind | None = None


def outcome_of(message: Message, report: Report) -> Outcome:
    """Return what the breaker is told: one poison document may fail it once, not for everybody."""
    if report.verdict is Verdict.BACK_END_ERROR and message.back_end_errors:
        return "ignored"
    return RULES[report.verdict].outcome


def after_send(
    message: Message, report: Report, *, trial: bool, profile: LaneProfile, now: float, rng: random.Random
) -> Change:
    """Return what a finished attempt does to its *message*."""
    rule = RULES[report.verdict]
    if rule.undone:
        return _undone(message, report, rule, now)
    if report.verdict is Verdict.BACK_END_ERROR:
        return _after_back_end_error(message, report, trial=trial, profile=profile, now=now, rng=rng)
    if rule.state in (_S.WAITING, _S.UNKNOWN_DELIVERY):
        return _again(message, report, rule, trial=trial, profile=profile, now=now, rng=rng)
    return Change(
        state=rule.state,
        what="attempt",
        due=now + profile.receipt_deadline if rule.state is _S.AWAITING_RECEIPT else now,
        outcome=rule.outcome,
        detail=report.detail or report.verdict,
        # The partner has a message it could not verify or place: never resend it without a look.
        maybe_delivered=rule.state is _S.AWAITING_RECEIPT
        or report.verdict in (Verdict.SECURITY, Verdict.SENDER_FAILED)
        or (rule.state is _S.ERROR and message.maybe_delivered),
        tries=1,
        receipt=report.receipt,
        alert=rule.alert,
    )


def _undone(message: Message, report: Report, rule: Rule, now: float) -> Change:
    again = _S.UNKNOWN_DELIVERY if message.maybe_delivered else _S.WAITING
    return Change(
        state=again if rule.state is _S.WAITING else rule.state,
        what="attempt undone",
        due=now + max(_PAUSE, report.retry_after or 0.0) if rule.state is _S.WAITING else now,
        outcome=rule.outcome,
        detail=report.detail or report.verdict,
        maybe_delivered=message.maybe_delivered,
        attempts=-1,
        alert=rule.alert,
    )


def _again(
    message: Message,
    report: Report,
    rule: Rule,
    *,
    trial: bool,
    profile: LaneProfile,
    now: float,
    rng: random.Random,
) -> Change:
    maybe = message.maybe_delivered or rule.state is _S.UNKNOWN_DELIVERY
    failed = rule.outcome == "failure"
    # A failed trial call served the lane; it costs the message no try.
    tries = 0 if trial or not failed else 1
    change = Change(
        state=_S.UNKNOWN_DELIVERY if maybe else _S.WAITING,
        what="attempt",
        due=now + (profile.schedule.delay(message.tries + tries, rng) if failed else _PAUSE),
        outcome=rule.outcome,
        detail=report.detail or report.verdict,
        maybe_delivered=maybe,
        tries=tries,
        trial_failures=int(trial and failed),
        receipt=report.receipt,
    )
    if message.tries + tries >= profile.schedule.attempt_limit:
        return _dead(change, f"out of tries after {message.tries + tries}: {change.detail}")
    return change


def _after_back_end_error(
    message: Message, report: Report, *, trial: bool, profile: LaneProfile, now: float, rng: random.Random
) -> Change:
    seen = message.back_end_errors + 1
    over = seen >= profile.back_end_tries
    return Change(
        state=_S.ERROR if over else (_S.UNKNOWN_DELIVERY if message.maybe_delivered else _S.WAITING),
        what="attempt",
        # Delayed for the message's own sake: the outcome "ignored" keeps this time when the breaker closes.
        due=now + profile.schedule.delay(seen, rng),
        outcome=outcome_of(message, report),
        detail=report.detail or report.verdict,
        maybe_delivered=message.maybe_delivered,
        tries=0 if trial else 1,
        trial_failures=int(trial),
        back_end_errors=1,
        receipt=report.receipt,
        alert="error" if over else None,
    )


def _dead(change: Change, detail: str) -> Change:
    return Change(
        state=_S.DEAD,
        what=change.what,
        due=change.due,
        outcome=change.outcome,
        detail=detail,
        maybe_delivered=change.maybe_delivered,
        tries=change.tries,
        trial_failures=change.trial_failures,
        receipt=change.receipt,
        alert="dead",
    )


def after_lease(message: Message, profile: LaneProfile, now: float) -> Change:
    """Return what becomes of a message whose sender died or stalled: nobody knows whether it arrived."""
    change = Change(
        state=_S.UNKNOWN_DELIVERY, what="lease ran out", due=now, detail="sender gone", maybe_delivered=True, tries=1
    )
    if message.tries + 1 >= profile.schedule.attempt_limit:
        return _dead(change, f"out of tries after {message.tries + 1}: sender gone each time")
    return change


def after_deadline(message: Message, now: float) -> Change:
    """Return the dead letter a message becomes when its time is over."""
    suffix = ""
    if message.state is _S.AWAITING_RECEIPT:
        suffix = "; its receipt is outstanding"
    elif message.maybe_delivered:
        suffix = "; the partner may have it"
    return Change(
        state=_S.DEAD,
        what="expired",
        due=now,
        detail=f"deadline passed{suffix}",
        maybe_delivered=message.maybe_delivered,
        alert="dead",
    )


def after_missing_receipt(message: Message, profile: LaneProfile, now: float) -> Change:
    """Return what an overdue receipt does: a few resends under the same ID, then a dead letter."""
    change = Change(
        state=_S.UNKNOWN_DELIVERY,
        what="receipt overdue",
        due=now,
        detail="no receipt in time",
        maybe_delivered=True,
        resends=1,
        alert="receipt_overdue",
    )
    if message.resends >= profile.receipt_resends:
        return _dead(change, f"no receipt after {message.resends} resends; the partner may have it")
    return change


def after_receipt(message: Message, report: Report, now: float) -> Change | None:
    """
    Return what a receipt that came by itself does; None: it changes nothing.

    A valid positive one is accepted whenever it comes, in whatever state the message is. Any other speaks only for a
    message that awaits it. The first one wins.
    """
    if message.state is _S.DONE:
        return None
    positive = report.verdict is Verdict.DELIVERED
    if not positive and message.state not in (_S.AWAITING_RECEIPT, _S.UNKNOWN_DELIVERY):
        return None
    rule = RULES[report.verdict]
    # A transport verdict makes no sense here; a back end that fails after it took the message is a person's case.
    state = _S.DONE if positive else _S.ERROR
    return Change(
        state=state,
        what="receipt",
        due=now,
        detail=report.detail or report.verdict,
        maybe_delivered=not positive and report.verdict is Verdict.SECURITY,
        receipt=report.receipt,
        alert=None if positive else (rule.alert or "error"),
    )


_LEGAL: dict[str, frozenset[MessageState]] = {
    "retry": frozenset({_S.WAITING, _S.UNKNOWN_DELIVERY, _S.ERROR, _S.DEAD}),
    "resend": frozenset({_S.UNKNOWN_DELIVERY, _S.AWAITING_RECEIPT, _S.ERROR, _S.DEAD}),
    "cancel": frozenset(RESTING - {_S.DONE, _S.CANCELLED}),
    "resubmit": RESTING - {_S.WAITING},
    "move_deadline": frozenset({_S.WAITING, _S.UNKNOWN_DELIVERY, _S.AWAITING_RECEIPT, _S.SENDING}),
}


def after_command(message: Message, command: str, now: float, *, deadline: float | None, reason: str) -> Change:
    """
    Return what *command* (``retry``, ``resend``, ``cancel``) does to *message*.

    Raises:
        CommandRefusedError: The state does not allow it, or its deadline is over and no new one was given.
    """
    _check(message, command)
    if command == "cancel":
        return Change(state=_S.CANCELLED, what=command, due=now, detail=reason, maybe_delivered=message.maybe_delivered)
    if deadline is None and message.deadline is not None and message.deadline <= now:
        raise CommandRefusedError(f"the deadline of {message.id} is over: give it a new one to {command} it")
    maybe = message.maybe_delivered or command == "resend"
    return Change(
        state=_S.UNKNOWN_DELIVERY if maybe else _S.WAITING,
        what=command,
        due=now,
        detail=reason,
        maybe_delivered=maybe,
        resets=True,
        deadline=deadline,
    )


def check_resubmit(message: Message, *, confirmed: bool) -> None:
    """
    Check that the content may go out again as a new message.

    Raises:
        CommandRefusedError: The message is still on its way by itself.
        ConfirmationRequiredError: The partner may have it, and nobody confirmed.
    """
    _check(message, "resubmit")
    if (message.maybe_delivered or message.state is _S.DONE) and not confirmed:
        raise ConfirmationRequiredError(
            f"the partner may already have {message.id}; confirm to send it as a new message"
        )


def _check(message: Message, command: str) -> None:
    if message.state not in _LEGAL[command]:
        raise CommandRefusedError(f"{message.id} is {message.state}: {command} makes no sense there")
