"""Snapshot and explain say what is; restore and configure go on from there."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from halfopen import ConfigError, CountWindow, HalfOpen, Ramp, State, TimeWindow, exponential
from halfopen.testing import FakeClock
from tests.core.driving import SLOW, Bench, half_open

WALL = 1_700_000_000.0


def test_a_snapshot_holds_everything_a_console_needs() -> None:
    bench = Bench(tags={"team": "edi"})
    bench.clock.advance(5.0)
    bench.succeed(2)
    bench.fail(1, spent=SLOW + 1)
    bench.ignore()

    look = bench.breaker.snapshot()

    facts = {field.name: getattr(look, field.name) for field in dataclasses.fields(look) if field.name != "counters"}
    assert {
        "name": "bank", "tags": {"team": "edi"}, "time": WALL + 5, "state": State.CLOSED, "epoch": 1, "since": WALL,
        "why": None, "note": None, "by": None, "step": 0, "remaining_wait": None, "next_trial_at": None, "wait": 0.0,
        "closed_for": 5.0, "ends_at": None, "admitted_share": None, "calls": 3, "failures": 1, "slow": 1,
        "slow_failures": 1, "failure_rate": None, "slow_call_rate": None, "window_size": 10, "window_seconds": None,
        "minimum_calls": 4, "failure_rate_threshold": 0.5, "slow_call_rate_threshold": 1.0,
        "slow_call_duration": SLOW, "failure_count_threshold": None, "consecutive_failures": None, "streak": 1,
        "trial_limit": 3, "trials": (), "ignored_trials": 0, "last_error": None,
    } == facts  # fmt: skip


def test_the_counters_hold_the_sums() -> None:
    bench = Bench()
    bench.succeed(2)
    bench.succeed(1, spent=SLOW + 1)
    bench.fail(1, spent=SLOW + 1)
    bench.fail(1)
    bench.ignore()
    bench.breaker.call(int)
    bench.clock.advance(3.0)
    bench.breaker.trip()
    bench.refusal()
    bench.clock.advance(30.0)
    bench.succeed()
    bench.fail()

    counters = bench.breaker.snapshot().counters

    assert {
        "successes": 5, "failures": 3, "ignored": 1, "slow_successes": 1, "slow_failures": 1, "rejected": {"open": 1},
        "trial_successes": 1, "trial_failures": 1, "late_results": 0, "guests": 0,
        "transitions": {
            ("closed", "open", "manual"): 1, ("open", "half_open", "wait_elapsed"): 1,
            ("half_open", "open", "trial_failed"): 1,
        },
        "time_in_state": {"closed": 3.0, "open": 30.0, "half_open": 0.0},
        "estimated_false_rejections": 0.25,
    } == {
        name: getattr(counters, name)
        for name in (
            "successes", "failures", "ignored", "slow_successes", "slow_failures", "rejected", "trial_successes",
            "trial_failures", "late_results", "guests", "transitions", "time_in_state", "estimated_false_rejections",
        )
    }  # fmt: skip
    assert (8, 8, 0) == (counters.permits.issued, counters.permits.settled, counters.permits.in_flight)


def test_a_snapshot_of_an_open_circuit_tells_when_the_next_trial_is_due() -> None:
    bench = Bench(window=TimeWindow(60, 6))
    bench.fail(4)
    bench.clock.advance(10.0)

    look = bench.breaker.snapshot()

    assert (20.0, WALL + 30, 30.0, "failure_rate", WALL, 60.0, None) == (
        look.remaining_wait, look.next_trial_at, look.wait, look.why, look.since, look.window_seconds,
        look.window_size,
    )  # fmt: skip
    assert (None, None, 1) == (look.closed_for, look.ends_at, look.step)


def test_a_wait_that_is_over_is_shown_as_zero() -> None:
    bench = Bench().go(State.OPEN)
    bench.clock.advance(99.0)

    assert (0.0, WALL + 30) == (bench.breaker.snapshot().remaining_wait, bench.breaker.snapshot().next_trial_at)


def test_a_snapshot_of_an_order_tells_its_end_and_its_author() -> None:
    bench = Bench()
    bench.breaker.force_open(60.0, reason="migration", by="ann")

    look = bench.breaker.snapshot()

    assert (WALL + 60, "migration", "ann", "manual") == (look.ends_at, look.note, look.by, look.why)


def test_the_class_of_the_last_error_is_shown() -> None:
    bench = Bench()

    bench.breaker.acquire().failure(KeyError("x"))

    assert "KeyError" == bench.breaker.snapshot().last_error


def test_a_snapshot_is_frozen_and_plain_data_survive_json() -> None:
    bench = half_open(permitted_calls=2)
    bench.succeed()
    look = bench.breaker.snapshot()

    plain = json.loads(json.dumps(look.plain()))

    with pytest.raises(dataclasses.FrozenInstanceError):
        look.calls = 5  # type: ignore[misc]
    assert look.plain() == plain
    assert ("half_open", "wait_elapsed") == (plain["state"], plain["why"])
    assert ["closed", "open", "failure_rate", 1] in plain["counters"]["transitions"]
    assert {"status": "free", "since": None, "slow": False} == plain["trials"][1]


# Explain


def explained(bench: Bench) -> str:
    """Return the sentence with the local times taken out."""
    return re.sub(r"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d", "T", bench.breaker.explain())


def rated(**settings: Any) -> Bench:
    return Bench(wait_in_open=exponential(30, 2, 600, jitter=0), **settings)


def test_explain_tells_the_arithmetic_of_a_trip() -> None:
    bench = rated(window=CountWindow(20), minimum_calls=20)
    bench.succeed(8)
    bench.fail(12)
    bench.clock.advance(8.6)

    assert (
        "open since T because 12 of the last 20 calls failed (limit 50 %); "
        "next trial in 21.4 s (step 1 of backoff 30 s × 2 up to 600 s)"
    ) == explained(bench)


@pytest.mark.parametrize(
    ("settings", "spent", "sentence"),
    [
        (
            {"failure_rate_threshold": None, "slow_call_rate_threshold": 0.07},
            SLOW + 1,
            "4 of the last 4 calls took longer than 5 s (limit 7 %)",
        ),
        ({"failure_rate_threshold": None, "failure_count_threshold": 3}, 0.0, "3 calls failed (limit 3)"),
        ({"failure_rate_threshold": None, "consecutive_failures": 2}, 0.0, "2 calls in a row failed"),
    ],
)
def test_explain_tells_the_rule_that_tripped(settings: dict[str, Any], spent: float, sentence: str) -> None:
    bench = Bench(**settings)
    while bench.state is State.CLOSED:
        bench.fail(1, spent=spent)

    assert f"open since T because {sentence}; next trial in 30.0 s (step 1 of backoff of 30 s)" == explained(bench)


def test_explain_tells_how_a_closed_circuit_does() -> None:
    bench = Bench()
    bench.fail(1)
    bench.succeed(2)

    assert "closed since T; 1 of the last 3 calls failed" == explained(bench)


def test_explain_tells_of_orders() -> None:
    bench = Bench()
    bench.breaker.force_open(60.0, reason="migration", by="ann")
    forced = explained(bench)
    bench.breaker.disable(by="bob")
    disabled = explained(bench)
    bench.breaker.observe()

    assert [
        "forced open since T by order of ann: migration; until T",
        "disabled since T by order of bob",
        "observed only since T by order; 0 of the last 0 calls failed",
    ] == [forced, disabled, explained(bench)]


def test_explain_tells_of_no_step_where_an_order_said_how_long() -> None:
    bench = Bench()

    bench.breaker.trip(wait=5.0)

    assert "open since T by order; next trial in 5.0 s" == explained(bench)


def test_explain_tells_of_rounds() -> None:
    bench = half_open(permitted_calls=3, trial_timeout=10.0, max_ignored=2, max_duration=50.0)
    bench.succeed()
    held = bench.begin()
    round_ = explained(bench)
    bench.clock.advance(10.0)
    expired = explained(bench)
    bench.clock.advance(30.0)
    bench.ignore(2)
    inconclusive = explained(bench)
    bench.clock.advance(30.0)
    bench.fail(1, spent=SLOW + 1)
    failed = explained(bench)
    bench.breaker.try_now()
    bench.clock.advance(50.0)
    overlong = explained(bench)

    assert held
    tail = "; next trial in 30.0 s (step {} of backoff of 30 s)"
    assert [
        "half-open since T because the wait was over; 1 of 3 trial calls have reported, 1 running",
        "open since T because a trial call did not report within 10 s" + tail.format(2),
        "open since T because 2 trial calls gave no evidence" + tail.format(2),
        "open since T because 1 of 1 trial calls failed or were slow" + tail.format(3),
        "open since T because the trial round had no verdict after 50 s" + tail.format(4),
    ] == [round_, expired, inconclusive, failed, overlong]


def test_explain_tells_of_recoveries() -> None:
    bench = Bench(ramp=Ramp(duration=60.0), half_open=HalfOpen(permitted_calls=2)).go(State.RECOVERING)
    bench.clock.advance(30.0)
    recovering = explained(bench)
    bench.clock.advance(30.0)
    closed = explained(bench)
    bench.breaker.disable(5.0)
    bench.clock.advance(5.0)
    ended = explained(bench)
    bench.breaker.restore(bench.breaker.snapshot())

    assert [
        "recovering since T because 2 of 2 trial calls succeeded; 50 % of the calls are admitted",
        "closed since T because the ramp was finished; 0 of the last 0 calls failed",
        "closed since T because the end of an order had come; 0 of the last 0 calls failed",
        "closed since T because it was restored; 0 of the last 0 calls failed",
    ] == [recovering, closed, ended, explained(bench)]


def test_explain_counts_good_and_bad_trials() -> None:
    bench = half_open(permitted_calls=3, failure_rate_threshold=0.75)
    bench.fail()
    bench.succeed()
    round_ = explained(bench)
    bench.succeed()

    assert [
        "half-open since T because the wait was over; 2 of 3 trial calls have reported, 0 running",
        "closed since T because 2 of 3 trial calls succeeded; 0 of the last 0 calls failed",
    ] == [round_, explained(bench)]


def tripped_by(failing: bool = True, spent: float = 0.0, **rules: Any) -> Bench:
    bench = Bench(**rules)
    while bench.state is State.CLOSED:
        (bench.fail if failing else bench.succeed)(1, spent=spent)
    return bench


def ended_round(**rules: Any) -> Bench:
    """Return a bench whose trial round has ended without a verdict of the dependency."""
    bench = half_open(**rules)
    held = bench.begin()
    bench.ignore(rules.get("max_ignored", 0))
    bench.clock.advance(10.0)
    bench.breaker.tick()
    for permit in held:
        permit.ignore()
    return bench


def other_limits() -> dict[str, Any]:
    """Return settings of which every limit differs from those in these tests."""
    return {
        "failure_rate_threshold": 0.9, "slow_call_rate_threshold": 0.8, "slow_call_duration": 7.0,
        "failure_count_threshold": 10, "consecutive_failures": 9,
        "half_open": HalfOpen(trial_timeout=99.0, max_ignored=99, max_duration=999.0),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("make", "limit", "because"),
    [
        (tripped_by, 0.5, "4 of the last 4 calls failed (limit 50 %)"),
        (
            lambda: tripped_by(False, SLOW + 1, failure_rate_threshold=None),
            1.0,
            "4 of the last 4 calls took longer than 5 s (limit 100 %)",
        ),
        (lambda: tripped_by(failure_count_threshold=2), 2, "2 calls failed (limit 2)"),
        (lambda: tripped_by(consecutive_failures=3), 3, "3 calls in a row failed"),
        (lambda: ended_round(trial_timeout=10.0), 10.0, "a trial call did not report within 10 s"),
        (lambda: ended_round(max_ignored=2), 2, "2 trial calls gave no evidence"),
        (lambda: ended_round(max_duration=8.0), 8.0, "the trial round had no verdict after 8 s"),
    ],
    ids=["failure rate", "slow call rate", "failure count", "consecutive", "lease", "inconclusive", "max duration"],
)
def test_a_move_keeps_the_limit_that_was_reached_whatever_is_set_later(
    make: Callable[[], Bench], limit: float, because: str
) -> None:
    bench = make()

    bench.breaker.configure(**other_limits())
    changed = explained(bench)
    bench.breaker.configure(
        failure_rate_threshold=1.0, slow_call_rate_threshold=None, slow_call_duration=None,
        failure_count_threshold=None, consecutive_failures=None, half_open=HalfOpen(),
    )  # fmt: skip

    assert (limit, 5.0) == (bench.breaker.history[-1].limit, bench.breaker.history[-1].slow_call_duration)
    assert [True, True] == [text.startswith(f"open since T because {because};") for text in (changed, explained(bench))]


def test_a_move_for_which_nothing_was_reached_has_no_limit() -> None:
    bench = Bench(slow_call_duration=None).go(State.OPEN)
    bench.clock.advance(30.0)
    bench.succeed(3)

    assert [None] * 3 == [move.limit for move in bench.breaker.history]
    assert [None] * 3 == [move.slow_call_duration for move in bench.breaker.history]


def test_explain_does_not_pretend_to_know_a_backoff_of_the_users() -> None:
    bench = Bench(wait_in_open=lambda step, rng: 9.0).go(State.OPEN)

    assert "open since T by order; next trial in 9.0 s (step 1 of backoff of its own)" == explained(bench)


# Restore


def restored(bench: Bench, slept: float = 0.0, **settings: Any) -> Bench:
    """Return a bench whose breaker was restored, *slept* seconds later, on a clock that began anew."""
    saved = json.loads(json.dumps(bench.breaker.snapshot().plain()))
    new = Bench(clock=FakeClock(start=1000.0, wall=bench.clock.wall() + slept), **settings)
    new.breaker.restore(saved)
    return new


def test_an_open_circuit_goes_on_waiting_after_a_restart() -> None:
    bench = Bench()
    bench.fail(4)
    bench.clock.advance(10.0)

    look = restored(bench, slept=5.0).breaker.snapshot()

    assert (State.OPEN, 15.0, 1, WALL, 30.0, "restored", 3) == (
        look.state, look.remaining_wait, look.step, look.since, look.wait, look.why, look.epoch
    )  # fmt: skip


def test_a_restored_wait_is_the_one_that_was_begun_whatever_is_set_now() -> None:
    bench = Bench()
    bench.fail(4)
    bench.clock.advance(10.0)

    look = restored(bench, slept=5.0, wait_in_open=100.0).breaker.snapshot()

    assert (15.0, 30.0) == (look.remaining_wait, look.wait)


def test_a_wait_that_ended_meanwhile_is_over() -> None:
    bench = restored(Bench().go(State.OPEN), slept=1e5)

    assert bench.begin()[0].trial


@pytest.mark.parametrize(("shift", "remaining"), [(-1e9, 30.0), (1e9, 0.0), (-5.0, 30.0)])
def test_times_in_the_far_future_or_past_are_clamped(shift: float, remaining: float) -> None:
    bench = restored(Bench().go(State.OPEN), slept=shift)

    assert remaining == bench.breaker.snapshot().remaining_wait
    assert bench.breaker.snapshot().since <= bench.clock.wall()


def test_a_time_before_time_began_is_clamped() -> None:
    saved = {**Bench().breaker.snapshot().plain(), "since": 0.0}
    bench = Bench(clock=FakeClock(wall=5e9))

    bench.breaker.restore(saved)

    assert 1e9 == bench.breaker.snapshot().closed_for


def test_an_open_circuit_whose_next_trial_is_unknown_waits_its_whole_wait() -> None:
    saved = {**Bench().go(State.OPEN).breaker.snapshot().plain(), "next_trial_at": None}
    bench = Bench()

    bench.breaker.restore(saved)

    assert 30.0 == bench.breaker.snapshot().remaining_wait


@pytest.mark.parametrize("order", ["force_open", "disable", "observe"])
def test_orders_go_on_and_end_when_they_would_have(order: str) -> None:
    bench = Bench()
    getattr(bench.breaker, order)(60.0, reason="night", by="ann")

    new = restored(bench, slept=20.0)
    look = new.breaker.snapshot()
    new.clock.advance(39.0)
    before = new.state
    new.clock.advance(1.0)

    assert (bench.state, WALL + 60, "night", "ann") == (look.state, look.ends_at, look.note, look.by)
    assert [bench.state, State.CLOSED] == [before, new.state]


@pytest.mark.parametrize("state", [State.FORCED_OPEN, State.DISABLED, State.METRICS_ONLY])
def test_orders_without_end_go_on_without_end(state: State) -> None:
    new = restored(Bench().go(state), slept=1e6)
    admitted = new.admitted(1)
    new.clock.advance(1e6)

    assert (state, None) == (new.state, new.breaker.snapshot().ends_at)
    assert (state is not State.FORCED_OPEN) == admitted


def test_an_order_does_not_last_longer_than_it_was_given_for() -> None:
    bench = Bench()
    bench.breaker.force_open(60.0)

    assert WALL - 1e6 + 60 == restored(bench, slept=-1e6).breaker.snapshot().ends_at


def test_a_round_starts_anew_and_the_window_empty() -> None:
    bench = half_open(permitted_calls=3)
    bench.succeed(2)
    new = restored(bench)
    closed = Bench()
    closed.fail(3)

    assert (State.HALF_OPEN, (0, 0, 0), 3) == (new.state, new.window(), len(new.begin(3)))
    assert (0, 0, 0) == restored(closed).window()


def test_the_flap_memory_goes_on() -> None:
    bench = half_open(permitted_calls=1)
    bench.succeed()
    bench.clock.advance(10.0)

    soon, late = restored(bench, slept=19.0), restored(bench, slept=20.0)
    for new in (soon, late):
        new.fail(4)

    assert [2, 1] == [new.breaker.snapshot().step for new in (soon, late)]


def test_a_ramp_goes_on_where_it_was() -> None:
    ramp = Ramp(duration=60.0)
    bench = Bench(ramp=ramp).go(State.RECOVERING)
    bench.clock.advance(20.0)

    new = restored(bench, slept=10.0, ramp=ramp)

    assert (State.RECOVERING, 0.5) == (new.state, new.breaker.snapshot().admitted_share)
    assert State.CLOSED is restored(bench, slept=40.0, ramp=ramp).state
    assert State.CLOSED is restored(bench).state


def test_epochs_go_on_growing() -> None:
    bench = Bench()
    for _ in range(9):
        bench.breaker.reset()
    new = restored(bench)
    old = restored(Bench(), slept=0.0)
    for _ in range(3):
        old.breaker.reset()
    high = old.breaker.snapshot().epoch
    old.breaker.restore(Bench().breaker.snapshot())

    assert (11, high + 1) == (new.breaker.snapshot().epoch, old.breaker.snapshot().epoch)


def test_a_saved_snapshot_is_checked_and_every_mistake_named() -> None:
    saved = {
        **Bench().breaker.snapshot().plain(), "state": "ajar", "time": -1, "since": True, "wait": float("nan"),
        "next_trial_at": "soon", "ends_at": float("inf"), "step": -1, "epoch": 1.5, "note": 5, "by": [],
    }  # fmt: skip

    with pytest.raises(ConfigError) as wrong:
        Bench().breaker.restore(saved)

    assert [
        "state is one of closed, open, half_open, recovering, forced_open, disabled, metrics_only, not 'ajar'",
        "time is a number of at least 0, not -1",
        "since is a number of at least 0, not True",
        "wait is a number of seconds of at least 0, not nan",
        "next_trial_at is a number of at least 0, not 'soon'",
        "ends_at is a number of at least 0, not inf",
        "step is a whole number of at least 0, not -1",
        "epoch is a whole number of at least 0, not 1.5",
        "note is a text or None, not 5",
        "by is a text or None, not []",
    ] == [str(mistake).removeprefix("saved.") for mistake in wrong.value.mistakes]
    assert all(mistake.path.startswith("saved.") for mistake in wrong.value.mistakes)
    assert ["wrong_type", "out_of_range"] == [wrong.value.mistakes[index].kind for index in (0, 1)]
    assert ["wrong_type"] * 2 == [mistake.kind for mistake in wrong.value.mistakes[-2:]]


@pytest.mark.parametrize("state", State)
def test_a_restored_circuit_says_that_it_was_restored(state: State) -> None:
    ramp = Ramp()

    new = restored(Bench(ramp=ramp).go(state), ramp=ramp)

    look = new.breaker.snapshot()
    assert (state, "restored") == (look.state, look.why)
    assert [f"closed>{state} restored"] == new.moves


def test_an_order_that_ended_meanwhile_ends_at_once() -> None:
    bench = Bench()
    bench.breaker.force_open(60.0)

    assert State.CLOSED is restored(bench, slept=60.0).state
    assert State.CLOSED is restored(bench, slept=1e6).state


def test_an_order_that_ends_before_it_began_ends_at_once() -> None:
    bench = Bench()
    bench.breaker.force_open(60.0)
    saved = bench.breaker.snapshot().plain()

    bench.breaker.restore({**saved, "ends_at": WALL + 0.5, "since": WALL + 10})

    assert State.CLOSED is bench.state


def test_a_restart_that_takes_no_time_adds_none() -> None:
    assert 0.0 == restored(Bench()).breaker.snapshot().closed_for


def test_times_of_zero_are_times() -> None:
    saved = {**Bench().breaker.snapshot().plain(), "next_trial_at": 0.0, "ends_at": 0, "time": 0, "since": 0}

    Bench().breaker.restore(saved)


def test_the_least_that_can_be_restored() -> None:
    bench = Bench()

    bench.breaker.restore({"state": "open", "time": 0.0, "since": 0.0, "wait": 0.0, "step": 0, "epoch": 0})

    assert (State.OPEN, 0.0) == (bench.breaker.snapshot().state, bench.breaker.snapshot().remaining_wait)


# Configure


def test_changing_the_settings_keeps_window_epoch_and_streak() -> None:
    bench = Bench(window=CountWindow(10), minimum_calls=10, consecutive_failures=9)
    bench.succeed(3)
    bench.fail(2)

    bench.breaker.configure(window=CountWindow(20), consecutive_failures=8)

    look = bench.breaker.snapshot()
    assert ((5, 2, 0), 1, 2, 20) == (bench.window(), look.epoch, look.streak, look.window_size)


def test_a_smaller_window_keeps_its_last_calls() -> None:
    bench = Bench(failure_rate_threshold=0.9)
    bench.fail(1)
    bench.succeed(5)
    bench.fail(2)

    bench.breaker.configure(window=CountWindow(4))

    assert (4, 2, 0) == bench.window()


def test_quiet_successes_are_kept_when_the_window_changes() -> None:
    bench = Bench()
    for _ in range(5):
        bench.breaker.call(int)

    bench.breaker.configure(window=TimeWindow(10, 10))

    assert (5, 0, 0) == bench.window()


def test_calls_that_are_too_old_do_not_come_into_a_changed_window() -> None:
    bench = Bench(window=TimeWindow(10, 10))
    bench.fail(1)
    bench.clock.advance(5.0)
    bench.succeed(2)
    bench.clock.advance(5.0)

    bench.breaker.configure(window=CountWindow(20))

    assert (2, 0, 0) == bench.window()


def test_changing_the_settings_keeps_step_and_remaining_wait() -> None:
    bench = Bench()
    bench.fail(4)
    bench.clock.advance(10.0)

    bench.breaker.configure(wait_in_open=5.0, minimum_calls=2)

    look = bench.breaker.snapshot()
    assert (State.OPEN, 20.0, 1, 2) == (look.state, look.remaining_wait, look.step, look.epoch)


def test_changing_the_settings_keeps_the_trials() -> None:
    bench = half_open(permitted_calls=3)
    bench.succeed()
    (running,) = bench.begin()

    bench.breaker.configure(half_open=HalfOpen(permitted_calls=2))
    refused = bench.refusal()
    running.success()

    assert ("trial_budget", State.CLOSED) == (refused.reason, bench.state)


def test_a_round_that_has_passed_by_the_new_settings_is_over() -> None:
    bench = half_open(permitted_calls=3)
    bench.succeed(2)

    bench.breaker.configure(half_open=HalfOpen(permitted_calls=2))

    assert State.CLOSED is bench.state


def test_a_round_that_has_failed_by_the_new_settings_is_over() -> None:
    bench = half_open(permitted_calls=4, failure_rate_threshold=1.0)
    bench.succeed()
    bench.fail()

    bench.breaker.configure(half_open=HalfOpen(permitted_calls=2, failure_rate_threshold=0.5))
    bench.breaker.tick()

    assert "half_open>open trial_failed" == bench.moves[-1]


def test_what_is_slow_changes_at_once() -> None:
    bench = Bench(failure_rate_threshold=1.0)

    bench.breaker.configure(slow_call_duration=1.0)
    bench.succeed(1, spent=2.0)

    assert (1, 0, 1) == bench.window()


def test_wrong_changes_change_nothing_and_are_named_together() -> None:
    bench = Bench()
    before = bench.breaker.settings

    with pytest.raises(ConfigError) as wrong:
        bench.breaker.configure(minimum_calls=0, failure_rate_threshold=50, colour="red", rules=None)

    assert before is bench.breaker.settings
    assert {"minimum_calls", "failure_rate_threshold", "colour", "rules"} == {
        mistake.path for mistake in wrong.value.mistakes
    }
