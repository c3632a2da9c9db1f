from __future__ import annotations

import pytest

from halfopen.retry import Retry, attempt
from halfopen.testing import FakeClock


def retrying(clock: FakeClock) -> Retry:
    return Retry("bank", on=ConnectionError, backoff=1, clock=clock)


def test_a_block_that_falls_through_ends_the_loop() -> None:
    retry = retrying(FakeClock())
    turns = []

    for turn in retry:
        with turn:
            turns.append((turn.number, attempt()))
            if turn.number < 2:
                raise ConnectionError

    assert [(1, 1), (2, 2)] == turns
    assert 1 == retry.snapshot().calls["success_after_retry"]


def test_a_break_inside_the_attempt_is_a_success() -> None:
    retry = retrying(FakeClock())

    for turn in retry:
        with turn:
            break

    assert 1 == retry.snapshot().calls["success_first"]


def test_a_body_that_forgets_with_is_told_so() -> None:
    with pytest.raises(RuntimeError, match="must run inside `with attempt:`"):
        for _ in retrying(FakeClock()):
            pass


def test_an_attempt_is_entered_once() -> None:
    for turn in retrying(FakeClock()):
        with turn:
            pass
        with pytest.raises(RuntimeError, match="take the next one"), turn:
            pass


def test_a_block_without_a_result_is_not_judged_by_result() -> None:
    retry = Retry("bank", on=(), result=lambda value: value is None, backoff=0)

    for turn in retry:
        with turn:
            pass

    assert 1 == retry.snapshot().calls["success_first"]


def test_an_interrupt_in_a_block_goes_through() -> None:
    retry = retrying(FakeClock())

    with pytest.raises(KeyboardInterrupt):
        for turn in retry:
            with turn:
                raise KeyboardInterrupt

    assert 1 == retry.snapshot().interrupted


def test_an_interrupt_in_the_sleep_goes_through_and_is_counted() -> None:
    class Interrupted(FakeClock):
        def sleep(self, seconds: float) -> None:
            raise KeyboardInterrupt

    retry = retrying(Interrupted())

    with pytest.raises(KeyboardInterrupt):
        for turn in retry:
            with turn:
                raise ConnectionError

    assert 1 == retry.snapshot().interrupted
    assert 1 == attempt()


@pytest.mark.anyio
async def test_async_blocks_may_enter_either_way() -> None:
    retry = retrying(FakeClock())
    turns = []

    async for turn in retry:
        async with turn:
            turns.append(turn.number)
            if turn.number < 3:
                raise ConnectionError

    assert [1, 2, 3] == turns


def test_two_loops_over_one_retry_do_not_meet() -> None:
    retry = retrying(FakeClock())
    first, second = iter(retry), iter(retry)

    with next(first):
        raise ConnectionError
    with next(second) as turn:
        pass

    assert (1, 2) == (turn.number, next(first).number)
