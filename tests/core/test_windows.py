"""Windows hold exactly the calls they should, whatever the order and the pace."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from halfopen import CountWindow, TimeWindow
from halfopen._core.windows import Totals, converted, make_window
from tests.fresh_process import in_fresh_process

kinds = st.sampled_from("SFsf.")  # success, failure, slow success, slow failure, quiet success


def plain(outcomes: list[str]) -> Totals:
    failed = [kind in "Ff" for kind in outcomes]
    slow = [kind in "sf" for kind in outcomes]
    return Totals(len(outcomes), sum(failed), sum(slow), outcomes.count("f"))


@given(st.integers(1, 8), st.lists(kinds, max_size=60))
def test_a_count_window_holds_the_last_calls(size: int, outcomes: list[str]) -> None:
    window = make_window(CountWindow(size), 0.0)

    for number, kind in enumerate(outcomes):
        if kind == ".":
            window.successes(1)
        else:
            said = window.add(kind in "Ff", kind in "sf", 0.0)
            assert window.window() == said
        assert plain(outcomes[: number + 1][-size:]) == window.window()


@given(st.integers(1, 4), st.lists(st.tuples(st.sampled_from((0.0, 0.5, 1.0, 2.5, 9.0)), kinds), max_size=40))
@example(1, [(0.0, "F"), (1.0, "F")])
def test_a_time_window_holds_whole_buckets(buckets: int, steps: list[tuple[float, str]]) -> None:
    window = make_window(TimeWindow(buckets * 1.0, buckets), 3.5)
    now, calls = 3.5, []

    for passed, kind in steps:
        now += passed
        window.advance(now)
        calls.append((int(now), kind))
        if kind == ".":
            window.successes(1)
        else:
            window.add(kind in "Ff", kind in "sf", now)
        assert plain([kind for bucket, kind in calls if bucket > int(now) - buckets]) == window.window()


@given(st.integers(1, 8), st.lists(st.tuples(st.sampled_from("F.Sf"), st.integers(0, 12)), max_size=20))
@example(3, [("F", 1), ("F", 2), (".", 2), ("F", 9)])
@example(8, [("f", 1), ("F", 3), (".", 1), ("F", 2)])
def test_calls_counted_many_at_a_time_are_those_counted_one_by_one(size: int, rows: list[tuple[str, int]]) -> None:
    counted, timed = make_window(CountWindow(size), 0.0), make_window(TimeWindow(10.0, 2), 0.0)
    calls: list[str] = []

    for kind, count in rows:
        for window in (counted, timed):
            if kind == "F":
                window.failures(count)
            elif kind == ".":
                window.successes(count)
            else:
                for _ in range(count):
                    window.add(kind == "f", kind == "f", 0.0)
        calls += [kind] * count
        assert plain(calls[-size:]) == counted.window()
        assert plain(calls) == timed.window()


def test_a_bucket_leaves_at_the_very_instant_it_is_too_old() -> None:
    window = make_window(TimeWindow(3.0, 3), 0.0)
    window.add(True, False, 0.5)

    window.advance(2.999)
    before = window.window()
    window.advance(3.0)

    assert [(1, 1, 0, 0), (0, 0, 0, 0)] == [before, window.window()]


def test_buckets_begin_at_whole_multiples_of_their_length() -> None:
    window = make_window(TimeWindow(20.0, 2), 27.0)
    window.add(True, False, 29.0)

    window.advance(39.0)
    before = window.window()
    window.advance(40.0)

    assert [(1, 1, 0, 0), (0, 0, 0, 0)] == [before, window.window()]


def test_a_time_that_goes_backwards_is_counted_in_the_present_bucket() -> None:
    window = make_window(TimeWindow(3.0, 3), 0.0)
    window.add(False, False, 2.0)
    window.add(True, False, 1.0)

    window.advance(4.0)

    assert (2, 1, 0, 0) == window.window()


def test_a_window_is_fresh_until_its_bucket_ends() -> None:
    assert [float("inf"), 12.0, 12.0] == [
        make_window(CountWindow(3), 10.5).fresh_until(10.5),
        make_window(TimeWindow(8.0, 2), 10.5).fresh_until(10.5),
        make_window(TimeWindow(8.0, 2), 10.5).fresh_until(7.0),
    ]


@given(st.integers(1, 8), st.integers(1, 8), st.lists(kinds, max_size=30), st.lists(kinds, max_size=10))
def test_a_resized_count_window_goes_on_with_its_last_calls(
    size: int, other: int, before: list[str], after: list[str]
) -> None:
    window = make_window(CountWindow(size), 0.0)
    for kind in before:
        window.add(kind in "Ff", kind in "sf", 0.0)
    kept = before[-size:][-other:]

    window = converted(window, CountWindow(other), 0.0)
    assert plain(kept) == window.window()
    for kind in after:
        window.add(kind in "Ff", kind in "sf", 0.0)

    assert plain((kept + after)[-other:]) == window.window()


@given(st.lists(kinds, max_size=30), st.booleans())
def test_a_window_of_another_kind_begins_with_the_same_totals(before: list[str], to_time: bool) -> None:
    specs = CountWindow(30), TimeWindow(10.0, 2)
    window = make_window(specs[not to_time], 0.0)
    for kind in before:
        window.add(kind in "Ff", kind in "sf", 0.0)

    new = converted(window, specs[to_time], 7.0)

    assert plain(before) == window.window() == new.window()


def test_calls_of_another_window_are_of_the_present_bucket() -> None:
    window = make_window(CountWindow(5), 0.0)
    window.add(True, False, 0.0)

    new = converted(window, TimeWindow(10.0, 2), 7.0)
    new.advance(14.0)
    before = new.window()
    new.advance(15.0)

    assert [(1, 1, 0, 0), (0, 0, 0, 0)] == [before, new.window()]


SPECS = [CountWindow(50), TimeWindow(10.0, 10)]


def growth_by_calls(spec: int) -> tuple[int, int]:
    """Return by how many bytes the program grows while 2,000 calls are recorded, and then 20,000."""
    window = make_window(SPECS[spec], 0.0)
    tracemalloc.start()
    marks, number = [], 0
    for calls in (1_000, 2_000, 20_000):
        for _ in range(calls):
            window.add(number % 3 == 0, number % 5 == 0, number * 0.01)
            number += 1
        marks.append(tracemalloc.get_traced_memory()[0])
    return marks[1] - marks[0], marks[2] - marks[1]


@pytest.mark.parametrize("spec", range(len(SPECS)), ids=["count", "time"])
def test_memory_is_bounded_by_the_window_not_by_the_traffic(spec: int) -> None:
    short, long = in_fresh_process(growth_by_calls, spec)

    assert long < max(short, 0) + 10_000
