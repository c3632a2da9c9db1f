"""A round of trial calls: who is admitted, and what ends it."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from halfopen import Call, CircuitBreaker, CircuitOpenError, HalfOpen, Outcome, Ramp, State, TrialExpired, constant
from halfopen.testing import FakeClock
from halfopen.typing import Classified
from tests.core.driving import SLOW, Bench, half_open


def test_the_call_that_ends_open_is_the_first_trial() -> None:
    bench = half_open(permitted_calls=1)

    (trial,) = bench.begin()

    assert trial.trial
    assert ("trial_budget", "open>half_open wait_elapsed") == (bench.refusal().reason, bench.moves[-1])


def test_a_look_does_not_end_open() -> None:
    bench = half_open()

    bench.breaker.snapshot()
    bench.breaker.tick()

    assert State.OPEN is bench.state


def test_all_must_succeed_to_close() -> None:
    bench = half_open(permitted_calls=3)

    bench.succeed(2)
    before = bench.state
    bench.succeed()

    assert [State.HALF_OPEN, State.CLOSED] == [before, bench.state]
    assert "half_open>closed trial_succeeded" == bench.moves[-1]
    assert (3, 0, 0, 0) == tuple(bench.breaker.history[-1].totals)


def test_the_first_failed_trial_reopens_at_once_and_the_others_are_late() -> None:
    bench = half_open(permitted_calls=3)
    first, second, third = bench.begin(3)

    second.failure()
    first.success()
    third.success()

    assert ("half_open>open trial_failed", State.OPEN) == (bench.moves[-1], bench.state)
    assert 2 == bench.breaker.snapshot().counters.late_results


def test_the_first_slow_trial_reopens_at_once() -> None:
    bench = half_open(permitted_calls=3)

    bench.succeed(1, spent=SLOW)
    before = bench.state
    bench.succeed(1, spent=SLOW + 0.001)

    assert [State.HALF_OPEN, State.OPEN] == [before, bench.state]


@pytest.mark.parametrize(("permitted", "concurrent", "first", "then"), [(3, None, 3, 0), (3, 1, 1, 1), (5, 2, 2, 2)])
def test_no_more_trials_are_in_flight_than_allowed(permitted: int, concurrent: Any, first: int, then: int) -> None:
    bench = half_open(permitted_calls=permitted, max_concurrent_calls=concurrent)

    trials = bench.begin(first)
    refused = bench.refusal()
    trials[0].success()
    again = bench.begin(min(then, 1))

    assert ("trial_budget", State.HALF_OPEN) == (refused.reason, refused.state)
    assert "trial_budget" == bench.refusal().reason
    assert min(then, 1) == len(again)


def test_never_more_trials_are_in_flight_than_are_still_needed() -> None:
    bench = half_open(permitted_calls=3, max_concurrent_calls=2)
    bench.succeed(2)

    (last,) = bench.begin()

    assert "trial_budget" == bench.refusal().reason
    last.success()
    assert State.CLOSED is bench.state


def test_five_hundred_callers_at_the_instant_the_wait_ends_make_n_trials() -> None:
    bench = half_open(permitted_calls=5, max_concurrent_calls=2)

    held = []
    for _ in range(500):
        try:
            held.append(bench.breaker.acquire())
        except CircuitOpenError:
            continue

    assert 2 == len(held)
    assert {"trial_budget": 498} == dict(bench.breaker.snapshot().counters.rejected)


def test_the_refusals_of_a_full_round_stop_when_a_trial_reports() -> None:
    bench = half_open(permitted_calls=2, max_concurrent_calls=1)
    (trial,) = bench.begin()
    refusals = [bench.refusal() for _ in range(3)]

    trial.success()
    bench.begin()

    assert [None] * 3 == [refusal.retry_after for refusal in refusals]


def test_a_full_round_opens_up_when_the_settings_allow_more() -> None:
    bench = half_open(permitted_calls=1)
    held = bench.begin()
    bench.refusal()
    bench.refusal()

    bench.breaker.configure(half_open=HalfOpen(permitted_calls=2))

    assert 2 == len(held + bench.begin())


def test_an_ignored_trial_gives_its_permit_back() -> None:
    bench = half_open(permitted_calls=1)

    bench.ignore(5)
    bench.succeed()

    assert (State.CLOSED, 5) == (bench.state, bench.breaker.snapshot().counters.ignored)


def test_too_many_ignored_trials_reopen_inconclusively_with_the_same_step() -> None:
    bench = half_open(permitted_calls=2, max_ignored=3)

    bench.ignore(2)
    bench.succeed()
    before = bench.state
    bench.ignore()

    assert [State.HALF_OPEN, State.OPEN] == [before, bench.state]
    assert ("half_open>open inconclusive", 1) == (bench.moves[-1], bench.breaker.history[-1].step)


def test_ten_times_the_permitted_calls_may_be_ignored_by_default() -> None:
    bench = half_open(permitted_calls=2)

    bench.ignore(19)
    before = bench.state
    bench.ignore()

    assert [State.HALF_OPEN, State.OPEN] == [before, bench.state]


def test_a_trial_that_does_not_report_counts_as_failed_after_its_lease() -> None:
    bench = half_open(permitted_calls=2, trial_timeout=10.0)
    events = bench.listen(TrialExpired)
    (trial,) = bench.begin()

    bench.clock.advance(9.999)
    before = bench.state
    bench.clock.advance(0.001)

    assert [State.HALF_OPEN, State.OPEN] == [before, bench.state]
    assert ("half_open>open trial_expired", True) == (bench.moves[-1], trial.settled)
    assert [("bank", 10.0, 3, 40.0)] == [(event.name, event.running, event.epoch, event.at) for event in events]
    counters = bench.breaker.snapshot().counters
    assert (1, 1, 0) == (counters.expired, counters.trial_failures, counters.trial_successes)


def test_an_expired_trial_that_reports_at_last_is_late() -> None:
    bench = half_open(permitted_calls=4, trial_timeout=10.0, failure_rate_threshold=1.0)
    (trial,) = bench.begin()
    bench.clock.advance(10.0)
    bench.breaker.tick()

    trial.success()

    assert (State.HALF_OPEN, (1, 1, 0), 1) == (
        bench.state, bench.window(), bench.breaker.snapshot().counters.late_results
    )  # fmt: skip


@pytest.mark.parametrize("asks", ["acquire", "settle", "tick", "look", "order"])
def test_a_lease_is_checked_whenever_anybody_asks(asks: str) -> None:
    bench = half_open(permitted_calls=3, trial_timeout=10.0)
    hangs = bench.begin()
    bench.clock.advance(5.0)
    (other,) = bench.begin()
    bench.clock.advance(5.0)

    if asks == "acquire":
        bench.refusal()
    else:
        {"settle": other.success, "tick": bench.breaker.tick, "look": bench.breaker.snapshot, "order": int}[asks]()
    if asks == "order":
        bench.breaker.reset()

    assert "half_open>open trial_expired" in bench.moves
    assert 1 == len(hangs)


def test_each_trial_has_a_lease_of_its_own() -> None:
    bench = half_open(permitted_calls=4, trial_timeout=10.0, failure_rate_threshold=0.75)
    held = bench.begin()
    bench.clock.advance(6.0)
    held += bench.begin()

    bench.clock.advance(4.0)
    first = bench.breaker.snapshot().trials
    bench.clock.advance(6.0)
    second = bench.breaker.snapshot().trials

    assert ["failed", "running", "free", "free"] == [slot.status for slot in first]
    assert ["failed", "failed", "free", "free"] == [slot.status for slot in second]
    assert 2 == bench.breaker.snapshot().counters.expired


def test_a_lease_that_ended_long_ago_reopened_long_ago() -> None:
    bench = half_open(permitted_calls=1, trial_timeout=10.0)
    held = bench.begin()

    bench.clock.advance(25.0)

    assert (State.OPEN, 40.0, 15.0) == (
        bench.state, bench.breaker.history[-1].at, bench.breaker.snapshot().remaining_wait
    )  # fmt: skip
    assert held


@pytest.mark.parametrize(("lease", "longest", "reason"), [(10.0, 20.0, "trial_expired"), (20.0, 10.0, "max_duration")])
def test_what_was_due_first_happened_first_however_late_somebody_looks(
    lease: float, longest: float, reason: str
) -> None:
    bench = half_open(trial_timeout=lease, max_duration=longest, after_max_duration=State.CLOSED)
    held = bench.begin()

    bench.clock.advance(1000.0)
    bench.breaker.tick()

    assert (reason, 40.0) == (bench.breaker.history[2].reason, bench.breaker.history[2].at)
    assert held


@pytest.mark.parametrize(("after", "reason_step"), [(State.OPEN, 2), (State.CLOSED, 1)])
def test_max_duration_ends_a_round_whatever_happened(after: State, reason_step: int) -> None:
    bench = half_open(permitted_calls=3, max_duration=20.0, after_max_duration=after)
    bench.succeed()
    held = bench.begin()

    bench.clock.advance(19.75)
    before = bench.state
    bench.clock.advance(0.25)

    assert [State.HALF_OPEN, after] == [before, bench.state]
    assert (f"half_open>{after} max_duration", reason_step) == (bench.moves[-1], bench.breaker.history[-1].step)
    assert held


def test_only_eligible_calls_may_be_trials() -> None:
    bench = half_open(permitted_calls=1, eligible=lambda call: call.label == "write")

    with pytest.raises(CircuitOpenError) as open_refusal:
        bench.breaker.acquire(Call(label="read"))
    before = bench.state
    trial = bench.breaker.acquire(Call(label="write"))
    with pytest.raises(CircuitOpenError) as half_open_refusal:
        bench.breaker.acquire(Call(label="read"))

    assert [State.OPEN, State.HALF_OPEN] == [before, bench.state]
    assert ["not_eligible"] * 2 == [open_refusal.value.reason, half_open_refusal.value.reason]
    trial.success()
    bench.breaker.acquire(Call(label="read")).success()


def test_eligibility_is_not_asked_while_the_wait_lasts_or_the_circuit_is_closed() -> None:
    asked: list[Call] = []
    bench = Bench(half_open=HalfOpen(eligible=lambda call: bool(asked.append(call)) or True))

    bench.fail(4)
    refusal = bench.refusal()

    assert ("open", []) == (refusal.reason, asked)


def test_every_round_starts_with_fresh_counters() -> None:
    bench = half_open(permitted_calls=2, max_ignored=2)
    bench.succeed()
    bench.ignore()
    bench.fail()
    bench.clock.advance(30.0)

    bench.ignore()
    bench.succeed()

    assert (State.HALF_OPEN, (1, 0, 0), 1) == (
        bench.state, bench.window(), bench.breaker.snapshot().ignored_trials
    )  # fmt: skip


def test_a_call_from_inside_a_trial_belongs_to_it() -> None:
    bench = half_open(permitted_calls=1)

    def inner() -> str:
        raise LookupError

    def outer() -> str:
        with pytest.raises(LookupError):
            bench.breaker.call(inner)
        return "well"

    assert "well" == bench.breaker.call(outer)
    counters = bench.breaker.snapshot().counters
    assert (State.CLOSED, 1, 0) == (bench.state, counters.guests, counters.trial_failures)


def test_a_bare_permit_opens_no_inside() -> None:
    bench = half_open(permitted_calls=1)

    held = bench.begin()

    assert ("trial_budget", 1) == (bench.refusal().reason, len(held))


# The verdict by rates


def test_rates_are_judged_once_enough_trials_have_reported() -> None:
    bench = half_open(permitted_calls=4, failure_rate_threshold=0.5)

    bench.fail()
    bench.succeed(2)
    before = bench.state
    bench.succeed()

    assert [State.HALF_OPEN, State.CLOSED] == [before, bench.state]


def test_a_rate_that_reaches_its_threshold_reopens() -> None:
    bench = half_open(permitted_calls=4, failure_rate_threshold=0.5)

    bench.succeed(2)
    bench.fail(2)

    assert ("half_open>open trial_failed", (4, 2, 0, 0)) == (bench.moves[-1], tuple(bench.breaker.history[-1].totals))


def test_the_minimum_of_calls_is_enough_for_a_verdict() -> None:
    bench = half_open(permitted_calls=9, failure_rate_threshold=0.5)

    bench.succeed(3)
    before = bench.state
    bench.succeed()

    assert [State.HALF_OPEN, State.CLOSED] == [before, bench.state]


def test_at_most_the_permitted_calls_are_started_in_a_round_judged_by_rate() -> None:
    bench = half_open(permitted_calls=3, failure_rate_threshold=1.0)
    held = bench.begin()
    bench.succeed(1)

    held += bench.begin()

    assert ("trial_budget", 2) == (bench.refusal().reason, len(held))


def test_slow_trials_are_judged_by_their_rate() -> None:
    passes, fails = (half_open(permitted_calls=4, slow_call_rate_threshold=0.5) for _ in range(2))

    passes.succeed(1, spent=SLOW + 1)
    passes.succeed(3)
    fails.succeed(2, spent=SLOW + 1)
    fails.succeed(2)

    assert [State.CLOSED, State.OPEN] == [passes.state, fails.state]


def test_the_rate_that_is_not_given_is_the_breakers_own() -> None:
    by_failures = half_open(permitted_calls=4, slow_call_rate_threshold=1.0)
    by_slowness = half_open(permitted_calls=4, failure_rate_threshold=1.0, settings={"slow_call_rate_threshold": 0.25})

    by_failures.fail(2)
    by_failures.succeed(2)
    by_slowness.succeed(1, spent=SLOW + 1)
    by_slowness.succeed(3)

    assert [State.OPEN, State.OPEN] == [by_failures.state, by_slowness.state]


def test_a_passed_round_leads_to_the_ramp_where_there_is_one() -> None:
    bench = half_open(permitted_calls=1, settings={"ramp": Ramp()})

    bench.succeed()

    assert "half_open>recovering trial_succeeded" == bench.moves[-1]


def test_the_slots_of_a_round_are_shown() -> None:
    bench = half_open(permitted_calls=5, failure_rate_threshold=1.0)
    bench.clock.advance(2.0)
    bench.succeed()
    bench.fail(1, spent=SLOW + 1)
    held = bench.begin()

    slots = bench.breaker.snapshot().trials

    began = bench.clock.wall()
    assert [
        ("succeeded", began, False), ("failed", began, True), ("running", began, False), ("free", None, False),
        ("free", None, False),
    ] == [(slot.status, slot.since, slot.slow) for slot in slots]  # fmt: skip
    assert held


def test_no_slots_are_shown_in_other_states() -> None:
    assert () == Bench().breaker.snapshot().trials


def test_a_round_nobody_calls_in_waits() -> None:
    bench = Bench().go(State.HALF_OPEN)

    bench.clock.advance(1e6)

    assert State.HALF_OPEN is bench.state


def test_refused_calls_that_would_have_succeeded_are_estimated() -> None:
    bench = half_open(permitted_calls=2, failure_rate_threshold=1.0)
    bench.breaker.trip(wait=10.0)
    for _ in range(8):
        bench.refusal()
    bench.clock.advance(10.0)

    bench.succeed()
    bench.fail()

    # A trapezoid: none of the eight at the beginning, half of them at the end.
    assert 8 * (0 + 0.5) / 2 == bench.breaker.snapshot().counters.estimated_false_rejections


def test_the_estimate_goes_on_from_round_to_round_and_ends_with_closed() -> None:
    bench = half_open(permitted_calls=2, failure_rate_threshold=0.5)
    bench.succeed()
    bench.fail()
    for _ in range(4):
        bench.refusal()
    bench.clock.advance(30.0)
    bench.succeed(2)
    between = bench.breaker.snapshot().counters.estimated_false_rejections
    bench.go(State.FORCED_OPEN)
    bench.refusal()
    bench.breaker.try_now()
    bench.succeed(2)

    assert (4 * (0.5 + 1.0) / 2, 3.0) == (between, bench.breaker.snapshot().counters.estimated_false_rejections)


def test_a_collected_trial_is_noticed_by_the_next_caller() -> None:
    bench = half_open(permitted_calls=1)
    held = bench.begin()
    bench.refusal()

    held.clear()
    gc.collect()

    assert bench.begin()[0].trial


def test_a_retry_after_on_a_successful_trial_call_does_not_lengthen_the_wait() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker(
        "bank",
        clock=clock,
        wait_in_open=constant(10),
        half_open=HalfOpen(permitted_calls=2),
        classify=Told((Outcome.SUCCESS, 300.0)),
    )
    breaker.try_now()
    breaker.call(int)

    with pytest.raises(ValueError):
        breaker.call(int, "no number")

    assert State.OPEN is breaker.state
    assert 10.0 == breaker.snapshot().remaining_wait


class Told:
    """A classifier that says the same of every result."""

    def __init__(self, answer: Classified) -> None:
        self.answer = answer

    def of_exception(self, error: Exception, /) -> Classified:
        return Outcome.FAILURE

    def of_result(self, value: object, /) -> Classified:
        return self.answer


def test_a_trial_that_expired_makes_room_for_the_next_one() -> None:
    bench = half_open(permitted_calls=4, max_concurrent_calls=1, failure_rate_threshold=1.0, trial_timeout=10.0)
    held = bench.begin()
    refused = bench.refusal()
    bench.clock.advance(10.0)

    bench.breaker.tick()
    following = bench.begin()

    assert ("trial_budget", 1, True) == (refused.reason, len(held), following[0].trial)
    assert (State.HALF_OPEN, (1, 1, 0)) == (bench.state, bench.window())
