"""Rates from sums, and the bounded past."""

from __future__ import annotations

from halfopen.console._rates import COARSE_POINTS, FINE, FINE_POINTS, Rate, Timeline


def test_a_rate_is_the_growth_over_the_last_ten_seconds() -> None:
    rate = Rate()
    found = [rate.add(float(second), (10.0 * second,)) for second in range(30)]

    assert (0.0,) == found[0]
    assert (10.0,) == found[-1]


def test_a_sum_that_began_anew_gives_no_negative_rate() -> None:
    rate = Rate()
    rate.add(0.0, (1000.0,))
    rate.add(5.0, (1000.0,))

    assert (0.0,) == rate.add(6.0, (3.0,))
    assert (2.0,) == rate.add(8.0, (7.0,))


def test_the_past_is_bounded_and_tells_unknown_as_none() -> None:
    past = Timeline()
    for second in range(24 * 3600):
        past.add(float(second), 100.0, 7.0, None if second % 2 else 0.25)
    end = 24 * 3600.0

    fine, coarse = past.points(FINE * FINE_POINTS, end), past.points(6 * 3600.0, end)

    assert FINE_POINTS == len(fine["time"]) == len(fine["failed"])
    assert COARSE_POINTS == len(coarse["time"])
    assert {100.0} == set(fine["asked"])
    assert {0.25} == set(coarse["failed"])
    assert sorted(fine["time"]) == fine["time"]


def test_nothing_known_is_none_not_zero() -> None:
    past = Timeline()
    past.add(100.0, 1.0, 0.0, None)

    assert {"time": [100.0], "asked": [1.0], "refused": [0.0], "failed": [None]} == past.points(900.0, 101.0)
    assert [] == Timeline().points(900.0, 101.0)["time"]
