from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from halfopen._core.gcra import Gcra, seconds_until

rates = st.floats(0.01, 10_000)
periods = st.floats(0.001, 3600)


def test_a_burst_passes_at_once_and_the_next_permit_comes_an_interval_later() -> None:
    meter = Gcra(10, 1.0, 3)

    assert [True, True, True, False] == [meter.take(100.0) for _ in range(4)]
    assert 100.1 == round(meter.due(100.0), 9)
    assert not meter.take(100.099)
    assert meter.take(100.1001)


def test_the_permits_of_those_ahead_are_counted_in() -> None:
    meter = Gcra(10, 1.0, 1)
    meter.take(5.0)

    assert [5.1, 5.2, 5.3] == [round(meter.due(5.0, ahead), 9) for ahead in range(3)]


def test_a_fresh_meter_is_full_and_says_how_full_it_is() -> None:
    meter = Gcra(2, 1.0, 4)

    assert 4 == meter.available(0.0)
    for left in (3, 2, 1, 0):
        meter.take(0.0)
        assert left == meter.available(0.0)
    assert [0, 1, 1, 2, 4, 4] == [meter.available(now) for now in (0.4, 0.5, 0.9, 1.0, 2.0, 1e9)]


@settings(max_examples=300, deadline=None)
@given(rates, periods, st.integers(1, 50), st.lists(st.floats(0, 10), min_size=1, max_size=60), st.floats(0, 1e6))
def test_no_stretch_of_time_holds_more_than_burst_and_rate_allow(
    rate: float, per: float, burst: int, gaps: list[float], start: float
) -> None:
    meter = Gcra(rate, per, burst)
    now = start
    taken: list[float] = []

    for gap in gaps:
        now += gap * meter.interval
        while meter.take(now):
            taken.append(now)

    slack = 1e-6 + 1e-9 * start / meter.interval
    for first, then in enumerate(taken):
        for last in range(first, len(taken)):
            assert last - first + 1 <= burst + (taken[last] - then) / meter.interval + slack


@settings(max_examples=300, deadline=None)
@given(rates, periods, st.integers(1, 50), st.lists(st.floats(0, 3), max_size=60), st.floats(0, 1e6))
def test_who_comes_back_after_the_wait_gets_a_permit_and_not_a_moment_before(
    rate: float, per: float, burst: int, gaps: list[float], start: float
) -> None:
    meter = Gcra(rate, per, burst)
    now = start
    for gap in gaps:
        now += gap * meter.interval
        meter.take(now)
    while meter.take(now):
        pass

    wait = seconds_until(meter.due(now), now)

    assert wait >= 0
    assert now + wait >= meter.due(now)
    if wait > 0 and now + math.nextafter(wait, 0) < now + wait:
        assert now + math.nextafter(wait, 0) < meter.due(now)
    assert meter.take(now + wait)


@given(st.floats(0, 10), st.floats(0, 1e6))
def test_a_wait_never_ends_a_hair_too_early(now: float, due: float) -> None:
    wait = seconds_until(due, now)

    assert now + wait >= due
    assert wait >= 0


def test_a_difference_of_floats_would_end_too_early() -> None:
    now, due = 0.1, 0.35135135135135137

    assert now + (due - now) < due
    assert now + seconds_until(due, now) >= due


def test_what_was_used_comes_back_at_another_rate() -> None:
    meter = Gcra(1, 1.0, 2)
    meter.take(0.0)
    meter.take(0.0)

    meter.change(0.0, 10, 1.0, 2)

    assert 0 == meter.available(0.0)
    assert not meter.take(0.09)
    assert meter.take(0.11)


def test_a_slower_rate_does_not_forget_what_was_used() -> None:
    meter = Gcra(10, 1.0, 2)
    meter.take(0.0)
    meter.take(0.0)

    meter.change(0.0, 1, 1.0, 2)

    assert not meter.take(0.9)
    assert meter.take(1.1)
    assert not meter.take(1.9)
