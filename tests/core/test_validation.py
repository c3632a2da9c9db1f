"""Wrong settings are refused at construction, all mistakes at once, with the numbers that are allowed."""

from __future__ import annotations

from typing import Any

import pytest

from halfopen import (
    CircuitBreaker,
    ConfigError,
    CountWindow,
    HalfOpen,
    Ramp,
    State,
    TimeWindow,
    constant,
    exponential,
)
from halfopen._core.settings import Settings
from halfopen.errors import Mistake

NOT_NUMBERS = ["5", True, None, [1]]
NOT_POSITIVE = [0, -1, float("nan"), float("inf"), -float("inf")]


def mistakes(make: Any, **values: Any) -> list[tuple[str, str]]:
    """Return path and sentence of each mistake."""
    with pytest.raises(ConfigError) as wrong:
        make(**values)
    return [(mistake.path, str(mistake)) for mistake in wrong.value.mistakes]


def make(**values: Any) -> CircuitBreaker:
    return CircuitBreaker("bank", **values)


SHARES = [(make, "failure_rate_threshold"), (make, "slow_call_rate_threshold"), (Ramp, "start")]
SHARES += [(HalfOpen, "failure_rate_threshold"), (HalfOpen, "slow_call_rate_threshold")]
SECONDS = [
    (make, "slow_call_duration"), (make, "wait_in_open"), (HalfOpen, "trial_timeout"), (HalfOpen, "max_duration"),
    (Ramp, "duration"), (TimeWindow, "seconds"), (constant, "seconds"), (exponential, "first"), (exponential, "cap"),
]  # fmt: skip
WHOLE = [
    (make, "minimum_calls"), (make, "failure_count_threshold"), (make, "consecutive_failures"), (CountWindow, "size"),
    (TimeWindow, "buckets"), (HalfOpen, "permitted_calls"), (HalfOpen, "max_concurrent_calls"),
    (HalfOpen, "max_ignored"),
]  # fmt: skip
OPTIONAL = {
    (make, "failure_rate_threshold"), (make, "slow_call_rate_threshold"), (make, "slow_call_duration"),
    (make, "minimum_calls"), (make, "failure_count_threshold"), (make, "consecutive_failures"),
    (make, "forget_after"), (HalfOpen, "failure_rate_threshold"), (HalfOpen, "slow_call_rate_threshold"),
    (HalfOpen, "max_duration"), (HalfOpen, "max_concurrent_calls"), (HalfOpen, "max_ignored"),
}  # fmt: skip


@pytest.mark.parametrize("value", [*NOT_NUMBERS, *NOT_POSITIVE, 1.0001, 50])
@pytest.mark.parametrize(("what", "name"), SHARES)
def test_a_share_lies_above_0_and_up_to_1(what: Any, name: str, value: Any) -> None:
    if value is None and (what, name) in OPTIONAL:
        return

    assert [(name, f"{name} is a share in (0, 1], not {value!r}")] == mistakes(what, **{name: value})


@pytest.mark.parametrize("value", [*NOT_NUMBERS, *NOT_POSITIVE])
@pytest.mark.parametrize(("what", "name"), SECONDS)
def test_seconds_are_finite_and_above_0(what: Any, name: str, value: Any) -> None:
    if value is None and (what, name) in OPTIONAL:
        return

    assert [(name, f"{name} is a number of seconds greater than 0, not {value!r}")] == mistakes(what, **{name: value})


@pytest.mark.parametrize("value", [*NOT_NUMBERS, 0, -1, 1.5, 2.0, float("nan"), float("inf")])
@pytest.mark.parametrize(("what", "name"), WHOLE)
def test_counts_are_whole_and_at_least_1(what: Any, name: str, value: Any) -> None:
    if value is None and (what, name) in OPTIONAL:
        return
    ((path, sentence),) = mistakes(what, **{name: value})

    assert (name, True, True) == (
        path, sentence.startswith(f"{name} is a whole number "), sentence.endswith(f"not {value!r}")
    )  # fmt: skip


@pytest.mark.parametrize(
    ("what", "name", "value", "allowed"),
    [
        (CountWindow, "size", 10_000_001, "a whole number from 1 to 10000000"),
        (TimeWindow, "buckets", 100_001, "a whole number from 1 to 100000"),
        (HalfOpen, "permitted_calls", 1_000_001, "a whole number from 1 to 1000000"),
        (make, "minimum_calls", 0, "a whole number of at least 1"),
        (make, "forget_after", -0.1, "a number of seconds of at least 0"),
        (exponential, "factor", 0.99, "a number of at least 1"),
        (exponential, "factor", 0, "a number greater than 0"),
        (exponential, "jitter", 1.01, "a share in [0, 1]"),
        (exponential, "jitter", -0.01, "a share in [0, 1]"),
        (Ramp, "aggression", 0, "a number greater than 0"),
        (HalfOpen, "after_max_duration", State.HALF_OPEN, "State.OPEN or State.CLOSED"),
        (HalfOpen, "eligible", 5, "something that can be called"),
        (HalfOpen, "max_concurrent_calls", 4, "at most permitted_calls (3)"),
        (make, "window", 100, "a CountWindow or a TimeWindow"),
        (make, "half_open", 3, "a HalfOpen"),
        (make, "ramp", 60, "a Ramp or None"),
        (make, "automatic_half_open", 1, "True or False"),
        (make, "wait_in_open", "30", "a number of seconds greater than 0"),
    ],
)
def test_a_mistake_tells_what_is_allowed(what: Any, name: str, value: Any, allowed: str) -> None:
    assert [(name, f"{name} is {allowed}, not {value!r}")] == mistakes(what, **{name: value})


@pytest.mark.parametrize(
    ("what", "values"),
    [
        (CountWindow, {"size": 1}), (CountWindow, {"size": 10_000_000}), (TimeWindow, {"buckets": 100_000}),
        (HalfOpen, {"permitted_calls": 1_000_000}), (HalfOpen, {"permitted_calls": 2, "max_concurrent_calls": 2}),
        (make, {"forget_after": 0}), (exponential, {"jitter": 0}), (exponential, {"jitter": 1, "factor": 1}),
        (exponential, {"first": 600}), (make, {"failure_rate_threshold": 1}), (make, {"wait_in_open": 5}),
        (make, {"minimum_calls": 100}), (make, {"failure_count_threshold": 100}),
        (make, {"slow_call_duration": None}), (make, {"slow_call_duration": None, "slow_call_rate_threshold": None}),
        (make, {"failure_rate_threshold": None}), (HalfOpen, {"max_ignored": 1, "max_duration": 0.001}),
        (make, {"window": TimeWindow(), "minimum_calls": 10**9, "failure_count_threshold": 10**9}),
    ],
)  # fmt: skip
def test_the_edges_of_the_ranges_are_allowed(what: Any, values: dict[str, Any]) -> None:
    what(**values)


def test_a_minimum_above_the_window_names_both_numbers() -> None:
    ((path, sentence),) = mistakes(make, window=CountWindow(10), minimum_calls=11)

    assert "minimum_calls" == path
    assert "minimum_calls: minimum_calls is 11, more than the 10 calls of the window" == sentence


def test_more_failures_than_the_window_holds_name_both_numbers() -> None:
    ((path, sentence),) = mistakes(make, window=CountWindow(10), failure_count_threshold=11)

    assert "failure_count_threshold" == path
    assert "failure_count_threshold is 11, more than the 10 calls of the window" in sentence


def test_a_cap_below_the_first_wait_is_a_conflict() -> None:
    assert [("cap", "cap: at least first (30 s)")] == mistakes(exponential, first=30.0, cap=29.0)


def test_a_breaker_that_could_never_open_is_refused() -> None:
    ((path, sentence),) = mistakes(make, failure_rate_threshold=None, slow_call_rate_threshold=None)

    assert "failure_rate_threshold" == path
    assert "no trip rule is set" in sentence


def test_a_slow_rate_needs_to_know_what_is_slow() -> None:
    ((path, sentence),) = mistakes(make, slow_call_duration=None, slow_call_rate_threshold=0.5)

    assert "slow_call_duration" == path
    assert "must say what is slow" in sentence


def test_all_mistakes_are_named_at_once() -> None:
    found = mistakes(
        make,
        window="100", minimum_calls=-1, failure_rate_threshold=50, slow_call_rate_threshold=True,
        slow_call_duration=float("nan"), failure_count_threshold=0, consecutive_failures="3", wait_in_open=-30,
        forget_after=float("inf"), half_open=None, ramp=False, automatic_half_open="yes", classify=5,
    )  # fmt: skip

    assert {
        "window", "minimum_calls", "failure_rate_threshold", "slow_call_rate_threshold", "slow_call_duration",
        "failure_count_threshold", "consecutive_failures", "wait_in_open", "forget_after", "half_open", "ramp",
        "automatic_half_open", "classify",
    } == {path for path, _ in found}  # fmt: skip
    assert 13 == len(found)


def test_all_mistakes_of_a_round_are_named_at_once() -> None:
    found = mistakes(
        HalfOpen,
        permitted_calls=0, max_concurrent_calls=0, failure_rate_threshold=2, slow_call_rate_threshold=0,
        trial_timeout=0, max_ignored=0, max_duration=0, after_max_duration="ajar", eligible=0,
    )  # fmt: skip

    assert 9 == len(found)


def test_all_mistakes_of_a_ramp_a_window_and_a_backoff_are_named_at_once() -> None:
    assert [3, 2, 4] == [
        len(mistakes(Ramp, duration=0, start=0, aggression=0)),
        len(mistakes(TimeWindow, seconds=0, buckets=0)),
        len(mistakes(exponential, first=0, factor=0, cap=0, jitter=5)),
    ]


@pytest.mark.parametrize(
    ("what", "values", "mistake"),
    [
        (TimeWindow, {"seconds": 1e-6, "buckets": 10_000},
         ("buckets", 10_000, "buckets of 1e-10 s are shorter than a nanosecond", "conflict")),
        (TimeWindow, {"buckets": 0}, ("buckets", 0, "a whole number from 1 to 100000", "out_of_range")),
        (CountWindow, {"size": 0}, ("size", 0, "a whole number from 1 to 10000000", "out_of_range")),
        (HalfOpen, {"after_max_duration": State.HALF_OPEN},
         ("after_max_duration", State.HALF_OPEN, "State.OPEN or State.CLOSED", "out_of_range")),
        (HalfOpen, {"max_concurrent_calls": 4},
         ("max_concurrent_calls", 4, "at most permitted_calls (3)", "out_of_range")),
        (HalfOpen, {"max_concurrent_calls": 0},
         ("max_concurrent_calls", 0, "a whole number of at least 1", "out_of_range")),
        (HalfOpen, {"max_ignored": 0}, ("max_ignored", 0, "a whole number of at least 1", "out_of_range")),
        (Settings, {"minimum_calls": 0}, ("minimum_calls", 0, "a whole number of at least 1", "out_of_range")),
        (Settings, {"failure_count_threshold": 0},
         ("failure_count_threshold", 0, "a whole number of at least 1", "out_of_range")),
        (Settings, {"consecutive_failures": 0},
         ("consecutive_failures", 0, "a whole number of at least 1", "out_of_range")),
        (Settings, {"window": 5}, ("window", 5, "a CountWindow or a TimeWindow", "wrong_type")),
        (Settings, {"half_open": 5}, ("half_open", 5, "a HalfOpen", "wrong_type")),
        (Settings, {"ramp": 5}, ("ramp", 5, "a Ramp or None", "wrong_type")),
        (Settings, {"window": CountWindow(10), "minimum_calls": 11},
         ("minimum_calls", 11, "minimum_calls is 11, more than the 10 calls of the window", "conflict")),
        (Settings, {"window": CountWindow(10), "failure_count_threshold": 11},
         ("failure_count_threshold", 11, "failure_count_threshold is 11, more than the 10 calls of the window",
          "conflict")),
        (Settings, {"failure_rate_threshold": None, "slow_call_rate_threshold": None},
         ("failure_rate_threshold", None, "no trip rule is set: the circuit could never open", "missing")),
        (Settings, {"slow_call_duration": None, "slow_call_rate_threshold": 0.5},
         ("slow_call_duration", None,
          "slow_call_rate_threshold is set, so slow_call_duration must say what is slow", "conflict")),
        (constant, {"seconds": 0}, ("seconds", 0, "a number of seconds greater than 0", "out_of_range")),
        (exponential, {"factor": 0.5}, ("factor", 0.5, "a number of at least 1", "out_of_range")),
        (exponential, {"first": 30.0, "cap": 29.0}, ("cap", 29.0, "at least first (30 s)", "conflict")),
        (Ramp, {"aggression": 0}, ("aggression", 0, "a number greater than 0", "out_of_range")),
    ],
)  # fmt: skip
def test_a_mistake_is_named_whole(what: Any, values: dict[str, Any], mistake: tuple[str, Any, str, str]) -> None:
    with pytest.raises(ConfigError) as wrong:
        what(**values)

    assert (Mistake(*mistake),) == tuple(wrong.value.mistakes)


def test_a_conflict_is_looked_for_only_where_each_value_is_right() -> None:
    assert [["first"], ["factor"], ["seconds"], ["permitted_calls"], ["failure_count_threshold"]] == [
        [path for path, _ in mistakes(what, **values)]
        for what, values in (
            (exponential, {"first": -1, "factor": 0.5}),
            (exponential, {"factor": 0.5, "first": 700}),
            (TimeWindow, {"seconds": 0}),
            (HalfOpen, {"permitted_calls": 0}),
            (
                Settings,
                {"failure_count_threshold": 0, "failure_rate_threshold": None, "slow_call_rate_threshold": None},
            ),
        )
    ]


def test_where_a_round_leads_may_be_said_by_a_text() -> None:
    assert [State.OPEN, State.CLOSED] == [
        HalfOpen(after_max_duration=text).after_max_duration for text in ("open", "closed")
    ]  # type: ignore[arg-type]
    assert State is type(HalfOpen(after_max_duration="closed").after_max_duration)  # type: ignore[arg-type]


def test_a_bucket_of_a_nanosecond_is_long_enough() -> None:
    assert 1e-9 == TimeWindow(seconds=1e-9, buckets=1).seconds


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_breaker_has_a_name(name: Any) -> None:
    assert ["name"] == [path for path, _ in mistakes(lambda: CircuitBreaker(name))]


@pytest.mark.parametrize("wait", [*NOT_POSITIVE, "5", True])
def test_a_trip_wants_a_wait_above_0(wait: Any) -> None:
    assert ["wait"] == [path for path, _ in mistakes(make().trip, wait=wait)]


def test_settings_cannot_be_changed_in_place() -> None:
    settings = Settings()

    with pytest.raises(AttributeError):
        settings.minimum_calls = 5  # type: ignore[misc]


def test_what_a_round_makes_of_its_settings() -> None:
    plain, full = HalfOpen(), HalfOpen(permitted_calls=5, max_concurrent_calls=2, max_ignored=7)

    assert [(3, 30, False), (2, 7, False)] == [
        (rules.concurrent, rules.ignored_limit, rules.judged_by_rate) for rules in (plain, full)
    ]
    assert HalfOpen(failure_rate_threshold=0.5).judged_by_rate
    assert HalfOpen(slow_call_rate_threshold=0.5).judged_by_rate
    assert (60.0, None, State.OPEN, None) == (
        plain.trial_timeout, plain.max_duration, plain.after_max_duration, plain.eligible
    )  # fmt: skip
