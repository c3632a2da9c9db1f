from __future__ import annotations

import copy
import gc
import math
import pickle
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from halfopen._core.concurrency_limits import Aimd, Gradient2
from halfopen.adaptive_concurrency import AdaptiveConcurrency
from halfopen.bulkhead import Bulkhead
from halfopen.errors import BulkheadFullError, CallTimeoutError, ConfigError
from halfopen.testing import FakeClock


def fail(error: BaseException) -> Any:
    raise error


def loaded(policy: AdaptiveConcurrency, clock: FakeClock, rounds: int, latency: float) -> None:
    """Fill every place, let the calls take *latency*, and start anew."""
    for _ in range(rounds):
        stays = [policy.acquire() for _ in range(policy.limit)]
        for stay in stays:
            stay.__enter__()
        clock.advance(latency)
        for stay in stays:
            stay.__exit__(None, None, None)


def test_the_call_beyond_the_limit_is_shed_at_once() -> None:
    policy = AdaptiveConcurrency("search", initial_limit=2)

    with policy.acquire(), policy.acquire(), pytest.raises(BulkheadFullError) as caught:
        policy.call(int)

    assert ("search", 2, "full") == (caught.value.name, caught.value.limit, caught.value.reason)
    assert {"full": 1} == policy.snapshot().rejections
    assert 0 == policy.snapshot().in_use


@pytest.mark.parametrize("algorithm", [Gradient2(), Aimd(slow_after=0.3)])
def test_the_limit_follows_latency_down_and_up_again(algorithm: Any) -> None:
    clock = FakeClock()
    policy = AdaptiveConcurrency("search", algorithm=algorithm, initial_limit=20, window=0.1, clock=clock)

    loaded(policy, clock, 200, 0.1)
    normal = policy.limit
    loaded(policy, clock, 30, 1.0)
    slow = policy.limit
    loaded(policy, clock, 400, 0.1)

    assert normal > 20
    assert slow < normal / 2
    assert policy.limit >= normal


def test_calls_that_time_out_lower_the_limit() -> None:
    clock = FakeClock()
    policy = AdaptiveConcurrency("search", initial_limit=100, window=0.1, min_samples=1, clock=clock)

    for _ in range(5):
        clock.advance(0.2)
        with pytest.raises(CallTimeoutError):
            policy.call(fail, CallTimeoutError("t", 1.0))

    assert policy.limit < 70
    assert (0, 5) == (policy.snapshot().measured, policy.snapshot().dropped)


@pytest.mark.parametrize("error", [ValueError(), KeyboardInterrupt(), GeneratorExit(), BulkheadFullError("inner", 1)])
def test_other_errors_say_nothing_about_load(error: BaseException) -> None:
    policy = AdaptiveConcurrency("search", dropped_on=(TimeoutError, BulkheadFullError), initial_limit=100)

    for _ in range(50):
        with pytest.raises(type(error)):
            policy.call(fail, error)

    seen = policy.snapshot()
    assert (0, 0, 0, 0, 50) == (seen.in_use, seen.measured, seen.dropped, seen.updates, seen.admitted)


def test_one_call_at_a_time_is_half_of_a_limit_of_two() -> None:
    clock = FakeClock()
    policy = AdaptiveConcurrency(
        "search", algorithm=Aimd(slow_after=1), initial_limit=2, window=0.1, min_samples=1, clock=clock
    )

    for _ in range(2):
        policy.call(clock.advance, 0.2)
    assert 3 == policy.limit
    for _ in range(10):
        policy.call(clock.advance, 0.2)
    assert 3 == policy.limit


def test_the_limit_never_leaves_its_range() -> None:
    clock = FakeClock()
    policy = AdaptiveConcurrency("search", initial_limit=5, min_limit=3, max_limit=6, window=0.1, clock=clock)

    loaded(policy, clock, 50, 0.1)
    assert 6 == policy.limit
    for _ in range(100):
        with pytest.raises(TimeoutError):
            policy.call(fail, TimeoutError())
        clock.advance(0.1)
    assert 3 == policy.limit


@pytest.mark.anyio
async def test_threads_and_tasks_share_the_limit() -> None:
    policy = AdaptiveConcurrency("search", initial_limit=1)

    @policy
    async def work() -> int:
        with pytest.raises(BulkheadFullError):
            policy.call(int)
        with pytest.raises(BulkheadFullError):
            await policy.acall(anyio.lowlevel.checkpoint)
        return policy.snapshot().in_use

    assert 1 == await work()
    assert 0 == policy.snapshot().in_use


@pytest.mark.anyio
async def test_a_cancelled_call_gives_its_place_back() -> None:
    policy = AdaptiveConcurrency("search", initial_limit=1)

    async with anyio.create_task_group() as group:
        group.start_soon(policy.acall, anyio.sleep_forever)
        while not policy.snapshot().in_use:
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()

    assert (0, 0) == (policy.snapshot().in_use, policy.snapshot().measured)


@pytest.mark.anyio
async def test_a_block_is_measured_and_its_errors_are_judged() -> None:
    policy = AdaptiveConcurrency("search", initial_limit=5)

    async with policy.acquire():
        pass
    with pytest.raises(TimeoutError), policy.acquire():
        raise TimeoutError
    with pytest.raises(ValueError), policy.acquire() as stay:
        with pytest.raises(RuntimeError, match="begun already"):
            stay.__enter__()
        raise ValueError

    assert (1, 1, 0) == (policy.snapshot().measured, policy.snapshot().dropped, policy.snapshot().in_use)


def test_a_generator_is_counted_but_not_measured() -> None:
    policy = AdaptiveConcurrency("search", initial_limit=5)

    @policy
    def items() -> Iterator[int]:
        yield policy.snapshot().in_use

    assert [1] == list(items())
    assert (0, 0) == (policy.snapshot().in_use, policy.snapshot().measured)


def test_a_stay_that_is_thrown_away_ends_its_call() -> None:
    policy = AdaptiveConcurrency("search", initial_limit=1)
    stay = policy.acquire()
    stay.__enter__()

    del stay
    gc.collect()

    assert 0 == policy.call(int)


def test_many_threads_never_exceed_the_limit() -> None:
    policy = AdaptiveConcurrency("search", initial_limit=4, max_limit=4)
    lock = threading.Lock()
    counts = {"inside": 0, "most": 0}

    def work() -> None:
        with lock:
            counts["inside"] += 1
            counts["most"] = max(counts["most"], counts["inside"])
        with lock:
            counts["inside"] -= 1

    def many() -> None:
        for _ in range(300):
            with suppress(BulkheadFullError):
                policy.call(work)

    threads = [threading.Thread(target=many) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert counts["most"] <= 4
    seen = policy.snapshot()
    assert (0, 2400) == (seen.in_use, seen.admitted + seen.rejections["full"])


def test_a_coroutine_function_is_refused_by_call() -> None:
    async def pay() -> None: ...

    policy = AdaptiveConcurrency("search")

    with pytest.raises(TypeError, match="await acall"):
        policy.call(pay)
    assert (0, 0) == (policy.snapshot().in_use, policy.snapshot().measured)


def test_around_a_bulkhead_its_refusals_are_no_evidence() -> None:
    inner = Bulkhead("inner", 1)
    policy = AdaptiveConcurrency("search", dropped_on=Exception)

    with inner.acquire(), pytest.raises(BulkheadFullError):
        policy.call(inner.call, int)

    assert 0 == policy.snapshot().dropped


@pytest.mark.parametrize("wrong", [0, -1, math.nan, math.inf, True, "5"])
def test_settings_outside_of_their_range_are_refused_all_together(wrong: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        AdaptiveConcurrency(
            "", algorithm=wrong, initial_limit=wrong, min_limit=wrong, max_limit=wrong, window=wrong,
            min_samples=wrong, dropped_on=wrong,
        )  # fmt: skip

    assert ["name", "algorithm", "min_limit", "initial_limit", "max_limit", "window", "min_samples", "dropped_on"] == [
        mistake.path for mistake in caught.value.mistakes
    ]


def test_the_initial_limit_lies_within_the_range() -> None:
    with pytest.raises(ConfigError, match=r"initial_limit is from min_limit \(5\) to max_limit \(10\), not 20"):
        AdaptiveConcurrency("search", min_limit=5, max_limit=10)


def test_copies_and_pickles_are_fresh_and_work() -> None:
    policy = AdaptiveConcurrency("search", algorithm=Aimd(slow_after=0.5), initial_limit=7)

    with policy.acquire():
        for other in (pickle.loads(pickle.dumps(policy)), copy.copy(policy), copy.deepcopy(policy)):
            assert (7, 0) == (other.limit, other.snapshot().in_use)
            assert 5 == other.call(int, "5")
