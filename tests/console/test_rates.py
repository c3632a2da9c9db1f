"""Rates from sums, and the bounded past."""

from __future__ import annotations

from halfopen.console._rates import COARSE_POINTS, FINE, FINE_POINTS, Rate, Timeline


def test_a_rate_is_the_growth_over_the_last_ten_seconds() -> None:
    rate = Rate()
    found = [rate.add(float(second), (10.0 * second,)) for second in range(30)]

    assert (0.0,) == found[0]
    assert (10.0,) == found[-1]


def test_after_a_move_the_rate_is_that_of_the_new_state() -> None:
    rate = Rate()
    for second in range(20):
        rate.add(float(second), (0.0,))

    at_once = rate.add(20.0, (0.0,), anew=True)
    too_soon = rate.add(20.3, (12.0,))
    then = rate.add(21.0, (40.0,))

    assert [(0.0,), (0.0,), (40.0,)] == [at_once, too_soon, then]


def test_just_after_a_move_the_rate_before_it_is_told() -> None:
    rate = Rate()
    for second in range(20):
        rate.add(float(second), (7.0 * second,))

    assert (7.0,) == rate.add(20.0, (140.0,), anew=True)


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


def test_the_last_minutes_are_known_by_seconds() -> None:
    past = Timeline()
    for second in range(600):
        past.add(float(second), 1.0, float(second % 2), None)

    near, further = past.points(120.0, 600.0), past.points(300.0, 600.0)

    assert 120 == len(near["time"])
    assert {0.0, 1.0} == set(near["refused"])
    assert 60 == len(further["time"])


def test_nothing_known_is_none_not_zero() -> None:
    past = Timeline()
    past.add(100.0, 1.0, 0.0, None)

    assert {"time": [100.0], "asked": [1.0], "refused": [0.0], "failed": [None]} == past.points(900.0, 101.0)
    assert [] == Timeline().points(900.0, 101.0)["time"]
