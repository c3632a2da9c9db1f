from __future__ import annotations

import asyncio
import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfopen.errors import CallTimeoutError, ConfigError, RejectedError
from halfopen.testing import FakeClock
from halfopen.timeout import DeadlinePassedError, check_deadline, deadline, time_left


def test_without_a_deadline_there_is_no_time_left_to_speak_of() -> None:
    assert None is time_left()
    check_deadline()


def test_time_left_shrinks_to_zero_and_not_below() -> None:
    clock = FakeClock()

    with deadline(5, clock=clock):
        seen = [time_left()]
        clock.advance(3)
        seen.append(time_left())
        clock.advance(3)
        seen.append(time_left())

    assert [5.0, 2.0, 0.0] == seen
    assert None is time_left()


@given(st.lists(st.floats(0, 100), min_size=1, max_size=6))
def test_of_nested_deadlines_the_nearest_counts(seconds: list[float]) -> None:
    clock = FakeClock()
    seen = []

    def nest(rest: list[float]) -> None:
        if not rest:
            return
        with deadline(rest[0], clock=clock):
            seen.append(time_left())
            nest(rest[1:])
        return

    nest(seconds)

    assert [min(seconds[: depth + 1]) for depth in range(len(seconds))] == seen


def test_deadlines_on_different_clocks_are_compared_by_what_is_left() -> None:
    slow, fast = FakeClock(start=1000), FakeClock()

    with deadline(5, clock=slow), deadline(9, clock=fast):
        assert 5 == time_left()
        fast.advance(7)
        with deadline(4, clock=fast):
            assert 4 == time_left()


def test_none_lifts_the_deadline_for_work_that_outlives_the_call() -> None:
    with deadline(5):
        with deadline(None):
            assert None is time_left()
            with deadline(60, clock=FakeClock()):
                assert 60 == time_left()
        assert time_left() is not None


def test_a_deadline_in_the_past_has_passed() -> None:
    with deadline(-3, name="request"), pytest.raises(CallTimeoutError, match="timeout 'request'") as caught:
        assert 0.0 == time_left()
        check_deadline()

    assert -3 == caught.value.seconds


def test_a_deadline_is_restored_whatever_its_block_raises() -> None:
    with pytest.raises(KeyboardInterrupt), deadline(1):
        raise KeyboardInterrupt

    assert None is time_left()


def test_a_deadline_is_entered_once_at_a_time() -> None:
    line = deadline(5)

    with line:
        with pytest.raises(RuntimeError, match="entered once"):
            line.__enter__()
        assert time_left() is not None

    assert None is time_left()


def test_a_task_inherits_the_deadline_and_sets_its_own() -> None:
    clock = FakeClock()

    async def child() -> float | None:
        with deadline(1, clock=clock):
            await asyncio.sleep(0)
            return time_left()

    async def main() -> list[float | None]:
        with deadline(5, clock=clock):
            task = asyncio.create_task(child())
            await asyncio.sleep(0)
            return [time_left(), await task, await asyncio.to_thread(time_left)]

    assert [5.0, 1.0, 5.0] == asyncio.run(main())


@pytest.mark.parametrize("value", [math.nan, math.inf, True, "5"])
def test_seconds_are_a_finite_number(value: Any) -> None:
    with pytest.raises(ConfigError, match="seconds"):
        deadline(value)


def test_a_deadline_that_had_passed_is_a_refusal_and_a_timeout() -> None:
    error = DeadlinePassedError("request", 2.0)

    assert isinstance(error, RejectedError)
    assert isinstance(error, TimeoutError)
    assert None is error.retry_after
    assert "deadline 'request' (2 s) had passed before the call was made" == str(error)
    assert str(error) == str(pickle.loads(pickle.dumps(error)))


def test_time_left_until_a_deadline_object_is_its_own() -> None:
    clock = FakeClock()
    line = deadline(5, clock=clock)
    clock.advance(6)

    assert -1 == line.time_left()
    assert math.inf == deadline(None).time_left()
