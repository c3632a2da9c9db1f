"""The pure rules: what an attempt, a lease, a deadline, a receipt and an order do to a message."""

from __future__ import annotations

import random

import pytest

from halfopen.retry_queue import (
    CommandRefusedError,
    ConfirmationRequiredError,
    LaneProfile,
    MessageSchedule,
    MessageState,
    Report,
    Verdict,
)
from halfopen.retry_queue._pacing import Rate, fair_share, next_window, spread_delay
from halfopen.retry_queue._reports import RULES
from halfopen.retry_queue._rules import (
    Change,
    after_command,
    after_deadline,
    after_lease,
    after_missing_receipt,
    after_receipt,
    after_send,
    check_resubmit,
    outcome_of,
)
from halfopen.retry_queue._trials import next_messages, select_trials
from tests.retry_queue.support import row

S = MessageState
PROFILE = LaneProfile(schedule=MessageSchedule(jitter=0.0))


def sent(verdict: Verdict, *, trial: bool = False, now: float = 1000.0, **message: object) -> Change:
    return after_send(
        row(state=S.SENDING, **message),
        Report(verdict, "why"),
        trial=trial,
        profile=PROFILE,
        now=now,
        rng=random.Random(1),
    )


@pytest.mark.parametrize(
    ("verdict", "outcome", "state"),
    [
        (Verdict.DELIVERED, "success", S.DONE),
        (Verdict.ACCEPTED, "success", S.AWAITING_RECEIPT),
        (Verdict.NOT_DELIVERED, "failure", S.WAITING),
        (Verdict.UNKNOWN, "failure", S.UNKNOWN_DELIVERY),
        (Verdict.REFUSED, "ignored", S.ERROR),
        (Verdict.LANE_MISCONFIGURED, "ignored", S.WAITING),
        (Verdict.SECURITY, "ignored", S.ERROR),
        (Verdict.BACK_END_ERROR, "failure", S.WAITING),
        (Verdict.NOT_SENT, "ignored", S.WAITING),
        (Verdict.INTERRUPTED, "ignored", S.UNKNOWN_DELIVERY),
        (Verdict.BROKEN, "ignored", S.ERROR),
        (Verdict.SENDER_FAILED, "ignored", S.ERROR),
    ],
)
def test_each_verdict_has_its_outcome_and_its_state(verdict: Verdict, outcome: str, state: MessageState) -> None:
    result = sent(verdict)

    assert (outcome, state) == (result.outcome, result.state)


def test_the_table_knows_every_verdict() -> None:
    assert set(Verdict) == set(RULES)


def test_a_failed_resend_stays_unknown_until_a_receipt_settles_it() -> None:
    result = sent(Verdict.NOT_DELIVERED, maybe_delivered=True)

    assert (S.UNKNOWN_DELIVERY, True) == (result.state, result.maybe_delivered)


@pytest.mark.parametrize(("tries", "minutes"), [(0, 5), (1, 10), (2, 20), (3, 40), (4, 60), (8, 60)])
def test_the_schedule_grows_with_the_messages_own_tries(tries: int, minutes: int) -> None:
    result = sent(Verdict.NOT_DELIVERED, tries=tries)

    assert 1000.0 + minutes * 60 == result.due


def test_the_tenth_try_makes_a_dead_letter_that_says_why() -> None:
    result = sent(Verdict.NOT_DELIVERED, tries=9)

    assert (S.DEAD, "out of tries after 10: why", "dead") == (result.state, result.detail, result.alert)


def test_a_failed_trial_call_costs_the_message_no_try() -> None:
    result = sent(Verdict.NOT_DELIVERED, trial=True, tries=9)

    assert (S.WAITING, 0, 1) == (result.state, result.tries, result.trial_failures)


@pytest.mark.parametrize("verdict", [Verdict.NOT_SENT, Verdict.LANE_MISCONFIGURED, Verdict.BROKEN])
def test_an_attempt_of_which_no_byte_left_is_given_back(verdict: Verdict) -> None:
    result = sent(verdict)

    assert (-1, 0) == (result.attempts, result.tries)


def test_one_poison_document_fails_the_breaker_once() -> None:
    report = Report(Verdict.BACK_END_ERROR)

    outcomes = [outcome_of(row(back_end_errors=seen), report) for seen in (0, 1, 2)]

    assert ["failure", "ignored", "ignored"] == outcomes


def test_a_poison_document_goes_to_a_person_after_a_few_tries() -> None:
    results = [sent(Verdict.BACK_END_ERROR, back_end_errors=seen).state for seen in (0, 1, 2)]

    assert [S.WAITING, S.WAITING, S.ERROR] == results


def test_a_security_finding_is_remembered_as_perhaps_delivered() -> None:
    assert sent(Verdict.SECURITY).maybe_delivered


def test_a_receipt_that_is_expected_becomes_overdue_at_its_deadline() -> None:
    assert 1000.0 + PROFILE.receipt_deadline == sent(Verdict.ACCEPTED).due


def test_a_lease_that_ran_out_means_unknown_delivery() -> None:
    result = after_lease(row(state=S.SENDING), PROFILE, 1000.0)

    assert (S.UNKNOWN_DELIVERY, 1000.0, True) == (result.state, result.due, result.maybe_delivered)


def test_a_message_that_kills_its_sender_each_time_dies_in_the_end() -> None:
    assert S.DEAD is after_lease(row(state=S.SENDING, tries=9), PROFILE, 1000.0).state


@pytest.mark.parametrize(
    ("message", "detail"),
    [
        (row(), "deadline passed"),
        (row(state=S.UNKNOWN_DELIVERY, maybe_delivered=True), "deadline passed; the partner may have it"),
        (row(state=S.AWAITING_RECEIPT), "deadline passed; its receipt is outstanding"),
    ],
)
def test_a_passed_deadline_says_what_may_have_happened(message: object, detail: str) -> None:
    result = after_deadline(message, 1.0)  # type: ignore[arg-type]  # a row

    assert (S.DEAD, detail, "dead") == (result.state, result.detail, result.alert)


def test_a_missing_receipt_causes_two_resends_then_a_dead_letter() -> None:
    results = [
        after_missing_receipt(row(state=S.AWAITING_RECEIPT, resends=resends), PROFILE, 1.0).state
        for resends in (0, 1, 2)
    ]

    assert [S.UNKNOWN_DELIVERY, S.UNKNOWN_DELIVERY, S.DEAD] == results


@pytest.mark.parametrize("state", [state for state in MessageState if state is not S.DONE])
def test_a_positive_receipt_settles_a_message_in_any_state(state: MessageState) -> None:
    result = after_receipt(row(state=state), Report(Verdict.DELIVERED), 1.0)

    assert result is not None
    assert S.DONE is result.state


@pytest.mark.parametrize("state", [S.WAITING, S.SENDING, S.DONE, S.DEAD, S.CANCELLED, S.ERROR])
def test_a_negative_receipt_speaks_only_for_a_message_that_awaits_one(state: MessageState) -> None:
    assert after_receipt(row(state=state), Report(Verdict.REFUSED), 1.0) is None


@pytest.mark.parametrize("state", [S.AWAITING_RECEIPT, S.UNKNOWN_DELIVERY])
def test_a_negative_receipt_sends_a_waiting_message_to_a_person(state: MessageState) -> None:
    result = after_receipt(row(state=state), Report(Verdict.REFUSED, "decryption-failed"), 1.0)

    assert result is not None
    assert (S.ERROR, "error") == (result.state, result.alert)


def test_a_retry_needs_a_new_deadline_when_the_old_one_is_over() -> None:
    message = row(state=S.DEAD, deadline=50.0)

    with pytest.raises(CommandRefusedError, match="deadline"):
        after_command(message, "retry", 100.0, deadline=None, reason="")

    assert S.WAITING is after_command(message, "retry", 100.0, deadline=200.0, reason="").state


def test_a_message_being_sent_cannot_be_cancelled() -> None:
    with pytest.raises(CommandRefusedError, match="sending"):
        after_command(row(state=S.SENDING), "cancel", 1.0, deadline=None, reason="")


def test_resubmitting_what_may_be_delivered_asks_for_confirmation() -> None:
    with pytest.raises(ConfirmationRequiredError):
        check_resubmit(row(state=S.DEAD, maybe_delivered=True), confirmed=False)

    check_resubmit(row(state=S.DEAD, maybe_delivered=True), confirmed=True)


# Which message next


def test_trial_calls_are_old_small_of_different_types_and_not_doubtful() -> None:
    waiting = [
        row(1, state=S.UNKNOWN_DELIVERY, maybe_delivered=True),
        row(2, kind="850", trial_failures=1),
        row(3, kind="850", size=5_000_000),
        row(4, kind="850"),
        row(5, kind="850"),
        row(6, kind="810"),
    ]

    chosen = [message.seq for message in select_trials(waiting, 6, 1_000_000)]

    assert [4, 6, 5, 3, 2, 1] == chosen


def test_a_lane_with_only_unsuitable_messages_uses_what_it_has() -> None:
    only = [row(1, state=S.UNKNOWN_DELIVERY, size=5_000_000, trial_failures=3)]

    assert only == select_trials(only, 3, 1_000_000)


def test_the_head_of_a_stream_blocks_those_behind_it_and_only_those() -> None:
    rows = [row(1, stream="a", due=9e9), row(2, stream="a"), row(3, stream="b"), row(4)]

    assert [3, 4] == [message.seq for message in next_messages(rows, 1.0, 10)]


# Pace


def test_the_window_doubles_per_round_and_halves_on_failure() -> None:
    window, widths = 1, []
    for _ in range(3):
        widths.append(window)
        for _ in range(window):
            window = next_window(window, 16, "success")

    assert [1, 2, 4] == widths
    assert 4 == next_window(8, 16, "failure")
    assert 4 == next_window(8, 16, "success", slow=True)
    assert 8 == next_window(8, 16, "ignored")


def test_the_window_stays_between_one_and_the_limit() -> None:
    assert 1 == next_window(1, 8, "failure")
    assert 8 == next_window(8, 8, "success")
    assert 2 == next_window(8, 2, "success")


def test_a_lane_that_recovers_alone_starts_at_once_and_together_they_spread() -> None:
    rng = random.Random(1)

    delays = {spread_delay(1, 5.0, rng) for _ in range(100)}

    assert 0.0 == spread_delay(0, 5.0, rng)
    assert 100 == len(delays)
    assert max(delays) <= 5.0


def test_a_rate_lets_through_so_many_per_second() -> None:
    rate = Rate(10.0)
    begun, now = 0, 100.0
    while now < 110.0:
        allowed = rate.allowed(now)
        rate.take(allowed, now)
        begun += allowed
        now += 0.01

    assert 100 <= begun <= 111


def test_free_seats_are_shared_among_lanes() -> None:
    assert (8, 1, 0) == (fair_share(32, 4), fair_share(2, 4), fair_share(0, 4))
