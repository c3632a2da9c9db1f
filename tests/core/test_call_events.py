"""What each call tells to those who listen, and that nobody is told who does not."""

from __future__ import annotations

import pytest

from halfopen import CallFailed, CallIgnored, CallRejected, CallSucceeded, HalfOpen, Ramp, State
from tests.core.driving import SLOW, Bench, half_open


def test_a_success_tells_its_duration_and_whether_it_was_slow() -> None:
    bench = Bench()
    events = bench.listen(CallSucceeded)
    bench.clock.advance(3.0)

    bench.succeed(1, spent=0.5)
    bench.succeed(1, spent=SLOW + 1)

    assert [
        CallSucceeded(name="bank", at=3.0, state=State.CLOSED, duration=0.5, slow=False),
        CallSucceeded(name="bank", at=3.0, state=State.CLOSED, duration=SLOW + 1, slow=True),
    ] == events


def test_a_failure_tells_the_class_of_its_error() -> None:
    bench = Bench()
    events = bench.listen(CallFailed)
    bench.clock.advance(3.0)

    bench.breaker.acquire().failure(KeyError("x"))
    bench.fail(1, spent=SLOW + 1)

    assert [
        CallFailed(name="bank", at=3.0, state=State.CLOSED, duration=0.0, slow=False, error="KeyError"),
        CallFailed(name="bank", at=3.0, state=State.CLOSED, duration=SLOW + 1, slow=True, error=None),
    ] == events


def test_an_ignored_call_is_told_too() -> None:
    bench = half_open(permitted_calls=1)
    events = bench.listen(CallIgnored)

    bench.ignore()
    bench.breaker.acquire().exception(KeyboardInterrupt())

    assert [
        CallIgnored(name="bank", at=30.0, state=State.HALF_OPEN, duration=0.0, error=None),
        CallIgnored(name="bank", at=30.0, state=State.HALF_OPEN, duration=0.0, error="KeyboardInterrupt"),
    ] == events


@pytest.mark.parametrize(
    ("state", "reason", "retry_after"),
    [
        (State.OPEN, "open", 30.0),
        (State.FORCED_OPEN, "forced_open", None),
        (State.HALF_OPEN, "trial_budget", None),
        (State.RECOVERING, "recovering", None),
    ],
)
def test_a_refusal_is_told_with_its_reason(state: State, reason: str, retry_after: float | None) -> None:
    bench = Bench(ramp=Ramp(start=0.01), half_open=HalfOpen(permitted_calls=1)).go(state)
    events = bench.listen(CallRejected)
    held = [] if state in (State.OPEN, State.FORCED_OPEN) else bench.begin()

    bench.refusal()
    bench.refusal()

    told = CallRejected(name="bank", at=0.0, state=state, reason=reason, retry_after=retry_after)  # type: ignore[arg-type]
    assert [told, told] == events
    assert len(held) < 2


def test_calls_of_a_disabled_circuit_tell_nothing() -> None:
    bench = Bench().go(State.DISABLED)
    events = bench.listen()

    bench.succeed()
    bench.fail()
    bench.ignore()

    assert [] == events


def test_each_call_is_told_once_and_in_order_with_the_move_it_causes() -> None:
    bench = Bench()
    events = bench.listen()

    bench.succeed()
    bench.fail(3)
    bench.refusal()

    assert ["CallSucceeded", *["CallFailed"] * 3, "CircuitTransitioned", "CallRejected"] == events.kinds


def test_only_what_is_wanted_is_told() -> None:
    bench = Bench()
    events = bench.listen(CallFailed)

    bench.succeed(3)
    bench.ignore()
    bench.fail()

    assert ["CallFailed"] == events.kinds


@pytest.mark.parametrize("asked_at", [0.0, 20.0, 59.5])
def test_a_refusal_tells_how_long_it_will_last(asked_at: float) -> None:
    bench = Bench()
    events = bench.listen(CallRejected)
    bench.clock.advance(7.0)
    bench.breaker.force_open(60.0)
    bench.clock.advance(asked_at)
    forced = bench.refusal()
    bench.breaker.trip(wait=60.0)
    bench.clock.advance(asked_at)
    opened = bench.refusal()

    assert [60.0 - asked_at] * 4 == [
        forced.retry_after, opened.retry_after, *[event.retry_after for event in events.of(CallRejected)]
    ]  # fmt: skip
