from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfopen._core.attempts import Again, Failure, GiveUp, Limits, RetryOutcome, may_retry, schedule

seconds = st.floats(0, 1000)
maybe = st.none() | seconds
limits = st.builds(
    Limits, attempts=st.none() | st.integers(1, 5), total=st.none() | st.floats(0.1, 1000), retry_after_cap=seconds
)
failures = st.builds(
    Failure,
    attempt=st.integers(1, 6),
    elapsed=seconds,
    time_left=st.none() | st.floats(-10, 1000),
    wanted=st.booleans(),
    allowed=st.booleans(),
    refused=st.booleans(),
    asked=maybe,
    forbidden=st.booleans(),
    suppressed=st.none() | st.just("circuit 'x' is open"),
)


@given(limits, failures, seconds)
def test_no_delay_ever_reaches_the_deadline_or_the_total(limits: Limits, failure: Failure, delay: float) -> None:
    verdict = schedule(limits, failure, delay)

    if isinstance(verdict, Again):
        assert failure.time_left is None or verdict.delay < failure.time_left
        assert limits.total is None or failure.elapsed + verdict.delay < limits.total + 1e-9


@given(limits, failures, seconds)
def test_the_wait_asked_for_is_a_lower_bound_up_to_the_cap(limits: Limits, failure: Failure, delay: float) -> None:
    verdict = schedule(limits, failure, delay)

    if isinstance(verdict, Again):
        assert max(delay, min(failure.asked or 0, limits.retry_after_cap)) == verdict.delay


@given(limits, failures)
def test_another_attempt_needs_everybodys_consent(limits: Limits, failure: Failure) -> None:
    if may_retry(limits, failure) is None:
        assert failure.wanted
        assert failure.allowed
        assert not failure.forbidden
        assert failure.suppressed is None
        assert limits.attempts is None or failure.attempt < limits.attempts
        assert failure.time_left is None or failure.time_left > 0
        assert not failure.refused or failure.asked is not None


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (Failure(attempt=3, elapsed=1), RetryOutcome.FAILED_EXHAUSTED),
        (Failure(attempt=1, elapsed=1, wanted=False), RetryOutcome.FAILED_NOT_RETRIED),
        (Failure(attempt=1, elapsed=1, allowed=False), RetryOutcome.FAILED_NOT_RETRIED),
        (Failure(attempt=1, elapsed=1, forbidden=True), RetryOutcome.FAILED_NOT_RETRIED),
        (Failure(attempt=1, elapsed=1, suppressed="because"), RetryOutcome.FAILED_NOT_RETRIED),
        (Failure(attempt=1, elapsed=1, refused=True), RetryOutcome.FAILED_NOT_RETRIED),
        (Failure(attempt=1, elapsed=1, refused=True, asked=0.1), RetryOutcome.FAILED_NOT_RETRIED),
        (Failure(attempt=1, elapsed=1, time_left=0), RetryOutcome.FAILED_DEADLINE),
    ],
)
def test_each_way_to_give_up_has_its_outcome(failure: Failure, outcome: RetryOutcome) -> None:
    verdict = may_retry(Limits(attempts=3), failure)

    assert isinstance(verdict, GiveUp)
    assert outcome == verdict.outcome


def test_a_refusal_is_waited_for_within_the_total() -> None:
    limits = Limits(total=10)
    refusal = Failure(attempt=1, elapsed=0, refused=True, asked=4)

    assert None is may_retry(limits, refusal)
    assert Again(4) == schedule(limits, refusal, 0.1)


def test_a_refusal_longer_than_the_cap_is_not_waited_for() -> None:
    verdict = schedule(Limits(total=100, retry_after_cap=5), Failure(attempt=1, elapsed=0, refused=True, asked=6), 0.1)

    assert GiveUp(RetryOutcome.FAILED_NOT_RETRIED, "the refusal lasts 6 s, the cap is 5 s") == verdict


def test_a_delay_of_exactly_the_time_left_leaves_none_for_the_attempt() -> None:
    verdict = schedule(Limits(total=3), Failure(attempt=1, elapsed=1), 2)

    assert GiveUp(RetryOutcome.FAILED_DEADLINE, "a delay of 2 s does not fit into the 2 s left") == verdict
