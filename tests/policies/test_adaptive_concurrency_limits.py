from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halfopen._core.concurrency_limits import AdaptiveLimit, Aimd, Gradient2, Sample
from halfopen.errors import ConfigError


class Load:
    """Full load on a limit: as many calls as it allows, each as long as said, in windows of one second."""

    def __init__(self, algorithm: Gradient2 | Aimd, initial: int = 50, minimum: int = 1, maximum: int = 200) -> None:
        self.limit = AdaptiveLimit(
            algorithm, initial=initial, minimum=minimum, maximum=maximum, window=1.0, min_samples=10
        )
        self.now = 0.0

    def run(self, windows: int, latency: float, *, dropped: bool = False, share: float = 1.0) -> int:
        limit = self.limit
        before = limit.updates
        while limit.updates < before + windows:
            limit.peak = max(1, int(limit.limit * share))
            self.now += 0.1
            if dropped:
                limit.drop(self.now)
            limit.record(self.now, latency)
        return limit.limit


@pytest.mark.parametrize("algorithm", [Gradient2(), Aimd(slow_after=0.3)])
def test_the_limit_falls_when_latency_rises_and_recovers_when_it_is_normal_again(algorithm: Any) -> None:
    load = Load(algorithm)
    normal = load.run(60, 0.1)

    overloaded = load.run(15, 1.0)
    recovered = load.run(120, 0.1)

    assert normal > 60
    assert overloaded < normal / 2
    assert recovered >= normal


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([Gradient2(), Gradient2(smoothing=1.0, tolerance=1.0), Aimd(slow_after=0.5, increase=7.5)]),
    st.integers(1, 30),
    st.integers(0, 170),
    st.lists(
        st.tuples(st.floats(0, 100), st.booleans(), st.floats(0, 1)),
        min_size=1,
        max_size=60,
    ),
)
def test_the_limit_stays_within_its_range(
    algorithm: Any, minimum: int, more: int, windows: list[tuple[float, bool, float]]
) -> None:
    load = Load(algorithm, initial=minimum, minimum=minimum, maximum=minimum + more)

    for latency, dropped, share in windows:
        limit = load.run(1, latency, dropped=dropped, share=share)
        assert minimum <= limit <= minimum + more


@settings(max_examples=200, deadline=None)
@given(st.floats(2.0, 200.0), st.floats(0.0001, 10.0), st.floats(1.1, 50.0))
def test_slower_never_means_a_higher_limit(limit: float, latency: float, factor: float) -> None:
    algorithm = Gradient2()
    calm, rushed = algorithm.start(), algorithm.start()
    for memory in (calm, rushed):
        for _ in range(20):
            algorithm.next_limit(memory, limit, Sample(latency, 200, False))

    as_before = algorithm.next_limit(calm, limit, Sample(latency, 200, False))
    slower = algorithm.next_limit(rushed, limit, Sample(latency * factor, 200, False))

    assert slower <= as_before


def test_the_gradient_formula_is_the_documented_one() -> None:
    algorithm = Gradient2(tolerance=1.0)
    memory = algorithm.start()
    algorithm.next_limit(memory, 100.0, Sample(0.1, 99, False))

    # The second window brings the mean to 0.15, so the gradient is 0.15 / 0.2.
    assert pytest.approx(0.8 * 100 + 0.2 * (100 * 0.75 + 4)) == algorithm.next_limit(
        memory, 100.0, Sample(0.2, 99, False)
    )


def test_a_single_window_cannot_take_more_than_a_tenth() -> None:
    load = Load(Gradient2())
    load.run(20, 0.1)
    before = load.limit.exact

    load.run(1, 100.0)

    assert pytest.approx(0.9 * before + 0.8) == load.limit.exact


@pytest.mark.parametrize(("algorithm", "highest"), [(Gradient2(), 60), (Aimd(slow_after=0.15), 46)])
def test_a_service_of_capacity_30_that_is_always_saturated_is_not_driven_far_beyond_it(
    algorithm: Any, highest: int
) -> None:
    load = Load(algorithm, initial=20, maximum=1000)
    limits = []

    for _ in range(2000):
        limits.append(load.run(1, 0.1 * max(1.0, load.limit.limit / 30)))

    assert 30 <= min(limits[200:])
    assert max(limits) <= highest


def test_a_service_that_became_slower_for_good_is_normal_after_a_while() -> None:
    load = Load(Gradient2())
    load.run(60, 0.1)

    assert 10 >= load.run(60, 1.0)
    assert 60 <= load.run(4000, 1.0)


def test_too_little_load_teaches_nothing_good() -> None:
    for algorithm in (Gradient2(), Aimd(slow_after=1.0)):
        load = Load(algorithm)

        assert 50 == load.run(50, 0.1, share=0.4)


def test_a_drop_lowers_the_limit_even_under_little_load() -> None:
    for algorithm in (Gradient2(), Aimd(slow_after=1.0)):
        load = Load(algorithm)

        assert 45 == load.run(1, 0.1, dropped=True, share=0.1)


def test_a_window_of_drops_alone_counts_too() -> None:
    load = Load(Gradient2())

    for _ in range(20):
        load.now += 0.1
        load.limit.drop(load.now)

    assert 50 > load.limit.limit


def test_after_an_overload_the_baseline_comes_down_faster_than_by_averaging() -> None:
    algorithm = Gradient2(long_window=600)
    memory: Any = algorithm.start()
    for _ in range(300):
        algorithm.next_limit(memory, 50.0, Sample(1.0, 50, False))

    for _ in range(30):
        algorithm.next_limit(memory, 50.0, Sample(0.1, 50, False))

    assert memory.value < 0.25


def test_aimd_steps_up_and_shrinks_by_a_share_but_by_one_at_least() -> None:
    algorithm = Aimd(slow_after=0.5)

    assert 11.0 == algorithm.next_limit(None, 10.0, Sample(0.1, 5, False))
    assert 90.0 == algorithm.next_limit(None, 100.0, Sample(0.6, 100, False))
    assert 4.0 == algorithm.next_limit(None, 5.0, Sample(0.1, 5, True))


def test_a_window_needs_both_its_time_and_its_calls() -> None:
    limit = AdaptiveLimit(Gradient2(), initial=10, minimum=1, maximum=20, window=1.0, min_samples=3)

    for now in (0.0, 5.0):
        limit.record(now, 0.1)
    assert 0 == limit.updates
    limit.record(5.1, 0.1)
    assert 1 == limit.updates
    for now in (5.2, 5.3, 5.4, 5.5):
        limit.record(now, 0.1)
    assert 1 == limit.updates


@pytest.mark.parametrize("wrong", [0, -1, math.nan, math.inf, True, "5", None])
def test_settings_outside_of_their_range_are_refused_all_together(wrong: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Gradient2(tolerance=wrong, queue_size=wrong, smoothing=wrong, long_window=wrong, backoff=wrong)
    with pytest.raises(ConfigError) as caught_aimd:
        Aimd(slow_after=wrong, increase=wrong, backoff=wrong)

    assert ["tolerance", "queue_size", "smoothing", "long_window", "backoff"] == [
        mistake.path for mistake in caught.value.mistakes
    ]
    assert ["slow_after", "increase", "backoff"] == [mistake.path for mistake in caught_aimd.value.mistakes]
