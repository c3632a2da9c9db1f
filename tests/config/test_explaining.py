"""The arithmetic of `check --explain`, held against breakers that run."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from halfopen import CircuitBreaker, CountWindow, HalfOpen, State, TimeWindow, constant, exponential
from halfopen._core.settings import Settings
from halfopen.config import Configuration
from halfopen.config.arithmetic import load_of, openings, slow_opening
from halfopen.config.explaining import Explanation, explain
from halfopen.testing import FakeClock

Read = Callable[..., Configuration]


def outage(settings: Settings, traffic: float, before: int, at_most: float = 1000, begin: float = 1000.0) -> float:
    """Return how many failed calls open a circuit that had *before* successes; infinity where *at_most* do not."""
    clock = FakeClock(begin)
    breaker = CircuitBreaker.from_settings("x", settings, clock=clock)
    for _ in range(before):
        breaker.acquire().success()
        clock.advance(1 / traffic)
    for number in range(1, int(min(at_most, 1000)) + 1):
        breaker.acquire().failure()
        if breaker.state is not State.CLOSED:
            return number
        clock.advance(1 / traffic)
    return math.inf


count_windows = st.builds(CountWindow, st.integers(1, 60))
time_windows = st.builds(TimeWindow, st.integers(1, 30), st.integers(1, 10))


@settings(deadline=None, max_examples=150)
@given(
    st.one_of(count_windows, time_windows),
    st.integers(1, 30),
    st.integers(1, 100),
    st.sampled_from([0.5, 1, 2, 10]),
    st.integers(0, 80),
    st.sampled_from([None, 3, 12]),
    st.sampled_from([None, 2, 9]),
    st.floats(1000, 1030),
)
def test_a_breaker_opens_at_the_latest_when_it_is_said_to(
    window: CountWindow | TimeWindow, minimum: int, percent: int, traffic: float, before: int,
    count: int | None, streak: int | None, begin: float,
) -> None:  # fmt: skip
    if isinstance(window, CountWindow):
        assume(minimum <= window.size and (count or 0) <= window.size)
    chosen = Settings(
        window=window, minimum_calls=minimum, failure_rate_threshold=percent / 100, failure_count_threshold=count,
        consecutive_failures=streak,
    )  # fmt: skip

    said = min(opening.calls for opening in openings(chosen, traffic))

    if said < math.inf:
        assert outage(chosen, traffic, before, said, begin) <= said


@pytest.mark.parametrize(
    ("window", "minimum", "share", "traffic", "calls"),
    [
        (CountWindow(100), 20, 0.5, 10, 50),
        (CountWindow(100), 20, 0.07, 10, 20),
        (CountWindow(100), 1, 0.07, 10, 7),
        (TimeWindow(60), 20, 0.5, 10, 300),
    ],
)
def test_the_longest_outage_is_reached_and_no_guess(
    window: CountWindow | TimeWindow, minimum: int, share: float, traffic: float, calls: int
) -> None:
    chosen = Settings(window=window, minimum_calls=minimum, failure_rate_threshold=share)

    (opening,) = openings(chosen, traffic)

    assert (calls, calls / traffic) == (opening.calls, opening.seconds)
    worst = max(outage(chosen, traffic, before, calls) for before in (0, 50, 700))
    assert 0.8 * calls <= worst <= calls


def test_a_window_that_needs_all_its_buckets_takes_longer_in_the_worst_phase() -> None:
    chosen = Settings(window=TimeWindow(10, 2), minimum_calls=10, failure_rate_threshold=0.01)

    (opening,) = openings(chosen, 1.0)

    worst = max(outage(chosen, 1.0, 0, begin=1000 + phase / 2) for phase in range(20))
    assert 10 < worst <= opening.calls
    assert 15 == opening.seconds


def test_the_shortest_waits_that_jitter_allows_are_counted() -> None:
    load = load_of(Settings(wait_in_open=exponential(30, 1, 30, 0.1)), 10)

    assert load is not None
    assert (133, 134) == (load.rounds_first, load.rounds_later)


def test_too_little_traffic_never_opens_a_time_window() -> None:
    chosen = Settings(window=TimeWindow(10), minimum_calls=20)

    (opening,) = openings(chosen, 1.0)

    assert math.inf == opening.seconds
    assert "fewer than the 20 it takes" in opening.why
    assert math.inf == outage(chosen, 1.0, 0)


def test_slow_calls_open_as_said() -> None:
    opening = slow_opening(Settings(slow_call_rate_threshold=0.8, slow_call_duration=2.0), 10)

    assert opening is not None
    assert (80, 8.0) == (opening.calls, opening.seconds)
    assert slow_opening(Settings(slow_call_rate_threshold=None), 10) is None


def trials_in_an_hour(settings: Settings) -> int:
    """Return how many trial calls reach a dependency that stays sick, when somebody calls ten times a second."""
    clock = FakeClock()
    breaker = CircuitBreaker.from_settings("x", settings, clock=clock)
    breaker.trip()
    made, limit = 0, settings.half_open.permitted_calls
    while True:
        clock.advance(max(breaker.snapshot().remaining_wait or 0.0, 0.0))
        if clock.monotonic() > 3600:
            return made
        permits = [breaker.acquire() for _ in range(settings.half_open.concurrent)]
        made += len(permits)
        for permit in permits:
            permit.failure()
        assert made < 100_000, limit


@pytest.mark.parametrize(
    "wait", [constant(30), exponential(30, 2, 600, 0), exponential(30, 2, 600, 0.1), exponential(5, 1, 5, 0), 45.0]
)
@pytest.mark.parametrize("half_open", [HalfOpen(), HalfOpen(permitted_calls=10, max_concurrent_calls=2)])
def test_a_sick_dependency_gets_no_more_trial_calls_than_said(wait: object, half_open: HalfOpen) -> None:
    chosen = Settings(wait_in_open=wait, half_open=half_open)  # type: ignore[arg-type]

    load = load_of(chosen, 10)

    assert load is not None
    made = trials_in_an_hour(chosen)
    assert made <= load.trials * load.rounds_first
    assert made >= 0.7 * load.trials * load.rounds_first


def test_a_wait_nobody_can_foresee_is_said_to_be_that() -> None:
    assert load_of(Settings(wait_in_open=lambda step, rng: 1.0), 10) is None


PIPELINE = """
[breaker.a]
wait_in_open = 30
half_open = { permitted_calls = 2 }
[retry.a]
on = ["OSError"]
attempts = 3
backoff = { first = "100ms", factor = 2, cap = "1s", jitter = "none" }
[timeout.a]
seconds = 2
[bulkhead.a]
limit = 20
max_waiting = 5
max_wait = "500ms"
[pipeline.a]
policies = ["breaker.a", "retry.a", "bulkhead.a", "timeout.a"]
"""


def explained(configuration: Configuration, title: str, traffic: float = 10.0) -> Explanation:
    return next(each for each in explain(configuration, traffic) if each.title == title)


def test_the_worst_case_of_a_pipeline_is_added_up(read: Read) -> None:
    found = explained(read(PIPELINE), "pipeline.a")

    text = " ".join(found.sentences)
    assert 3 * (2 + 0.5) + 0.3 == found.figures["worst_case_seconds"]
    assert 3 == found.figures["attempts"]
    assert "at most 7.8s: 3 × (2s + 500ms to get in) + 300ms of waiting" in text
    # 50 calls until it opens, and those that begin while the last of them fails.
    assert 5 + 7.8 == found.figures["opens_after_seconds"]
    assert 3 * (50 + 78) + 120 * 2 == found.figures["calls_first_hour"]
    assert 240 == found.figures["calls_later_hour"]


def test_a_breaker_is_explained_at_the_traffic_it_gets(read: Read) -> None:
    slow, fast = (explained(read(PIPELINE), "breaker.a", traffic) for traffic in (1.0, 100.0))

    assert (50.0, 0.5) == (slow.figures["opens_after_seconds"], fast.figures["opens_after_seconds"])
    assert "50 calls / 1 per second = 50 s" in " ".join(slow.sentences)
    assert 50 + 120 * 2 == slow.figures["calls_first_hour"]
    assert 360_000 == fast.figures["calls_unguarded_hour"]


def test_every_kind_of_policy_has_a_sentence(read: Read) -> None:
    text = (
        PIPELINE
        + """
    [breaker."host:*"]
    [retry_budget.a]
    [rate_limiter.a]
    rate = 5
    [fallback.a]
    on = ["OSError"]
    value = 1
    [hedge.a]
    delay = 1
    [adaptive_concurrency.a]
    [cache_fallback.a]
    on = ["OSError"]
    max_age = 60
    [retry.b]
    on = ["OSError"]
    attempts = "none"
    total = 30
    """
    )

    found = explain(read(text), 10)

    assert all(each.sentences and all(sentence.endswith(".") for sentence in each.sentences) for each in found)
    assert 13 == len(found)
    assert "One for each key" in next(each for each in found if each.title == "breaker.host:*").sentences[0]
    assert 5 + 5 * 3600 == explained(read(text), "rate_limiter.a").figures["calls_hour"]
