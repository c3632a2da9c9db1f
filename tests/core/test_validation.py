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
