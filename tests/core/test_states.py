"""Seven states, one table of moves, and orders that are legal from everywhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from halfopen import CircuitBreaker, CircuitTransitioned, CountWindow, Ramp, State, ThresholdExceeded, TimeWindow
from halfopen._core.states import AUTOMATIC, ORDERS, Reason, allowed_moves, diagram
from tests.core.driving import Bench

ORDER: dict[str, Callable[[CircuitBreaker], object]] = {
    "trip": CircuitBreaker.trip,
    "reset": CircuitBreaker.reset,
    "force_open": CircuitBreaker.force_open,
    "disable": CircuitBreaker.disable,
    "observe": CircuitBreaker.observe,
    "try_now": CircuitBreaker.try_now,
}


def test_a_breaker_starts_closed() -> None:
    bench = Bench()

    assert (State.CLOSED, 1, 0, ()) == (
        bench.state,
        bench.breaker.snapshot().epoch,
        bench.breaker.snapshot().step,
        bench.breaker.history,
    )


@pytest.mark.parametrize("order", sorted(ORDER))
def test_an_order_tells_its_reason_and_its_author(order: str) -> None:
    bench = Bench()

    getattr(bench.breaker, order)(reason="migration", by="ann")

    look = bench.breaker.snapshot()
    assert [("migration", "ann")] == [(move.note, move.by) for move in bench.breaker.history]
    assert ("migration", "ann") == (look.note, look.by)


@pytest.mark.parametrize("state", State)
def test_a_state_knows_why_it_was_entered(state: State) -> None:
    bench = Bench(ramp=Ramp()).go(state)

    assert bench.breaker.history[-1].reason is bench.breaker.snapshot().why


@pytest.mark.parametrize("order", sorted(ORDER))
@pytest.mark.parametrize("state", State)
def test_each_order_is_legal_from_each_state(state: State, order: str) -> None:
    bench = Bench(ramp=Ramp()).go(state)
    epoch = bench.breaker.snapshot().epoch

    ORDER[order](bench.breaker)

    last = bench.breaker.history[-1]
    assert ORDERS[order] is bench.state
    assert (state, ORDERS[order], Reason.MANUAL, epoch + 1) == (last.old, last.new, last.reason, last.epoch)


@pytest.mark.parametrize(
    ("state", "admitted", "recorded"),
    [
        (State.CLOSED, 3, 3),
        (State.OPEN, 0, 0),
        (State.FORCED_OPEN, 0, 0),
        (State.DISABLED, 3, 0),
        (State.METRICS_ONLY, 3, 3),
    ],
)
def test_a_state_admits_and_records_as_the_table_says(state: State, admitted: int, recorded: int) -> None:
    bench = Bench().go(state)

    assert admitted == bench.admitted(3)
    assert (recorded, 0, 0) == bench.window()
    assert (recorded, 3 - admitted) == (
        bench.breaker.snapshot().counters.successes,
        sum(bench.breaker.snapshot().counters.rejected.values()),
    )


@pytest.mark.parametrize(
    ("state", "reason", "retry_after"),
    [(State.OPEN, "open", 30.0), (State.FORCED_OPEN, "forced_open", None)],
)
def test_a_refusal_says_why_and_when_to_come_again(state: State, reason: str, retry_after: float | None) -> None:
    refusal = Bench().go(state).refusal()

    assert ("bank", state, reason, retry_after) == (
        refusal.name, refusal.state, refusal.reason, refusal.retry_after
    )  # fmt: skip


@pytest.mark.parametrize("order", ["force_open", "disable", "observe"])
def test_an_order_with_an_end_gives_way_to_closed(order: str) -> None:
    bench = Bench()
    getattr(bench.breaker, order)(60.0)
    ordered = bench.state

    bench.clock.advance(59.999)
    before = bench.state
    bench.clock.advance(0.001)

    assert (ordered, State.CLOSED) == (before, bench.state)
    assert f"{ordered}>closed override_ended" == bench.moves[-1]


def test_forced_open_tells_its_end() -> None:
    bench = Bench()
    bench.breaker.force_open(60.0)
    bench.clock.advance(20.0)

    assert 40.0 == bench.refusal().retry_after


def test_an_order_without_end_lasts() -> None:
    bench = Bench().go(State.FORCED_OPEN)
    bench.clock.advance(1e6)

    assert State.FORCED_OPEN is bench.state


def test_disabled_and_observed_calls_with_an_end_are_treated_as_without() -> None:
    disabled, observed = Bench(), Bench()
    disabled.breaker.disable(60.0)
    observed.breaker.observe(60.0)
    for bench in (disabled, observed):
        bench.fail(9)

    assert [(0, 0, 0), (9, 9, 0)] == [disabled.window(), observed.window()]
    assert [State.DISABLED, State.METRICS_ONLY] == [disabled.state, observed.state]


def test_metrics_only_says_once_that_it_would_have_opened_and_refuses_nothing() -> None:
    bench = Bench().go(State.METRICS_ONLY)
    events = bench.listen()
    bench.clock.advance(2.0)

    bench.fail(4)
    bench.succeed(9)
    bench.fail(9)

    exceeded = [event for event in events if type(event).__name__ == "ThresholdExceeded"]
    assert 1 == len(exceeded)
    assert (Reason.FAILURE_RATE, (4, 4, 0, 0), 2.0) == (
        exceeded[0].reason, tuple(exceeded[0].totals), exceeded[0].at
    )  # fmt: skip
    assert {} == dict(bench.breaker.snapshot().counters.rejected)


def test_metrics_only_says_it_of_a_success_that_would_have_opened_after_a_look() -> None:
    bench = Bench(window=TimeWindow(10, 10)).go(State.METRICS_ONLY)
    events = bench.listen(ThresholdExceeded)
    bench.succeed(10)
    bench.clock.advance(5.0)
    bench.fail(5)
    bench.clock.advance(5.0)

    bench.breaker.snapshot()
    bench.succeed()

    assert 1 == len(events)


def test_metrics_only_says_it_again_when_it_is_ordered_again() -> None:
    bench = Bench().go(State.METRICS_ONLY)
    events = bench.listen()

    bench.fail(4)
    bench.go(State.METRICS_ONLY)
    bench.fail(4)

    assert 2 == events.kinds.count("ThresholdExceeded")


def test_a_move_that_the_table_does_not_know_is_refused() -> None:
    bench = Bench()

    with pytest.raises((AssertionError, KeyError)):
        bench.breaker._circuit.close(Reason.RAMP_FINISHED, 0.0)

    assert State.CLOSED is bench.state


def test_the_table_holds_the_moves_of_the_design() -> None:
    c, o, h, r = State.CLOSED, State.OPEN, State.HALF_OPEN, State.RECOVERING
    trips = ("failure_rate", "slow_call_rate", "failure_count", "consecutive")

    assert {
        **{(old, trip): {o} for old in (c, r) for trip in trips},
        (o, "wait_elapsed"): {h},
        (h, "trial_succeeded"): {c, r},
        (h, "trial_failed"): {o},
        (h, "trial_expired"): {o},
        (h, "inconclusive"): {o},
        (h, "max_duration"): {o, c},
        (r, "ramp_finished"): {c},
        **{(override, "override_ended"): {c} for override in list(State)[4:]},
    } == {key: set(targets) for key, targets in AUTOMATIC.items()}


def test_every_allowed_move_is_an_automatic_one_an_order_or_a_restored_snapshot() -> None:
    moves = allowed_moves()

    assert 20 + 7 * 6 + 7 == len(moves)
    assert all((old, Reason.MANUAL, new) in moves for old in State for new in ORDERS.values())
    assert all((State.CLOSED, Reason.RESTORED, new) in moves for new in State)
    assert (State.OPEN, Reason.RESTORED, State.OPEN) not in moves


def test_the_diagram_has_a_line_for_every_pair_of_states_and_every_order() -> None:
    lines = diagram().splitlines()

    assert ["stateDiagram-v2", "    [*] --> closed"] == lines[:2]
    assert "    closed --> open: failure_rate, slow_call_rate, failure_count, consecutive" in lines
    assert "    half_open --> closed: trial_succeeded, max_duration" in lines
    assert "    [*] --> forced_open: force_open()" in lines
    assert 2 + 10 + 6 == len(lines)
    assert diagram().endswith("\n")


def test_epochs_count_the_moves_even_from_a_state_to_itself() -> None:
    bench = Bench()

    for _ in range(3):
        bench.breaker.reset()

    assert [2, 3, 4] == [move.epoch for move in bench.breaker.history]


def test_the_history_keeps_the_last_hundred_moves() -> None:
    bench = Bench(window=CountWindow(1), minimum_calls=1)

    for _ in range(130):
        bench.breaker.reset()

    assert list(range(32, 132)) == [move.epoch for move in bench.breaker.history]


def test_a_transition_tells_everything() -> None:
    bench = Bench()
    events = bench.listen(CircuitTransitioned)
    bench.clock.advance(3.0)
    bench.fail(4)
    bench.breaker.reset(reason="all well", by="ann")

    opened, reset = events.of(CircuitTransitioned)
    assert (
        ("bank", 3.0, State.CLOSED, State.OPEN, "failure_rate", 2, 1, (4, 4, 0, 0), 30.0, None, None)
        == (
            opened.name, opened.at, opened.old, opened.new, opened.reason, opened.epoch, opened.step,
            tuple(opened.totals), opened.wait, opened.note, opened.by,
        )
    )  # fmt: skip
    assert (State.CLOSED, "manual", 3, 0, (0, 0, 0, 0), None, "all well", "ann") == (
        reset.new, reset.reason, reset.epoch, reset.step, tuple(reset.totals), reset.wait, reset.note, reset.by
    )  # fmt: skip


def test_the_totals_of_an_order_are_those_of_the_window_at_that_time() -> None:
    bench = Bench(window=TimeWindow(10, 10), minimum_calls=9)
    bench.fail(2)
    bench.clock.advance(10.0)

    bench.breaker.reset()

    assert (0, 0, 0, 0) == tuple(bench.breaker.history[-1].totals)
