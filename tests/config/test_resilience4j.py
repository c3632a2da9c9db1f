"""The YAML of resilience4j is read as is, with its semantics; `convert` writes the same as halfopen.toml."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halfopen import CircuitOpenError, CountWindow, HalfOpen, Mistake, Registry, State, TimeWindow, exponential
from halfopen.config import Configuration, convert, load
from halfopen.testing import FakeClock

CASE = Path(__file__).parent / "cases" / "application.yml"
Read = Callable[..., Configuration]
Mistakes = Callable[..., list[Mistake]]


@pytest.fixture(scope="module")
def known() -> Configuration:
    return load(CASE, environment={})


def values(configuration: Configuration, section: str, name: str) -> dict[str, Any]:
    entry = configuration.find(section, name)
    assert entry is not None
    return dict(entry.values)


def test_what_is_not_set_comes_from_the_default_config_and_from_resilience4j(known: Configuration) -> None:
    plain = values(known, "breaker", "plain")

    assert (CountWindow(50), 10, 0.6, 1.0, 60.0, 10.0, 0, False) == (
        plain["window"],
        plain["minimum_calls"],
        plain["failure_rate_threshold"],
        plain["slow_call_rate_threshold"],
        plain["slow_call_duration"],
        plain["wait_in_open"],
        plain["forget_after"],
        plain["automatic_half_open"],
    )
    assert HalfOpen(permitted_calls=5, failure_rate_threshold=0.6, slow_call_rate_threshold=1.0) == plain["half_open"]


def test_an_instance_overrides_its_base_config_also_for_half_open(known: Configuration) -> None:
    derived = values(known, "breaker", "derived")

    assert (0.125, 0.125, 10.0) == (
        derived["failure_rate_threshold"],
        derived["half_open"].failure_rate_threshold,
        derived["wait_in_open"],
    )


def test_a_base_config_of_ones_own_does_not_fall_back_to_the_default(known: Configuration) -> None:
    timed = values(known, "breaker", "timed-one")

    assert (TimeWindow(30, 30), 100, 0.5, 2.0, 90.0, (OSError,), (ValueError,)) == (
        timed["window"],
        timed["minimum_calls"],
        timed["failure_rate_threshold"],
        timed["slow_call_duration"],
        timed["wait_in_open"],
        timed["on"],
        timed["ignore"],
    )
    half_open = timed["half_open"]
    assert (10, 60.0, State.CLOSED, 0.8) == (
        half_open.permitted_calls,
        half_open.max_duration,
        half_open.after_max_duration,
        half_open.slow_call_rate_threshold,
    )


def test_waits_grow_or_spread_only_where_that_is_switched_on(known: Configuration) -> None:
    growing, random = values(known, "breaker", "growing"), values(known, "breaker", "random")

    assert exponential(5, 2, 500, 0) == growing["wait_in_open"]
    assert growing["automatic_half_open"]
    assert exponential(20, 1, 25, 0.25) == random["wait_in_open"]


def test_a_maximum_wait_counts_only_beside_a_multiplier_as_there(read: Read) -> None:
    text = cb(
        "{waitDurationInOpenState: 5s, enableExponentialBackoff: true, exponentialMaxWaitDurationInOpenState: 20s}"
    )

    known = read(text, "application.yml")

    assert exponential(5, 1.5, 365 * 86400, 0) == values(known, "breaker", "a")["wait_in_open"]
    assert any("ignores it without exponentialBackoffMultiplier" in note.text for note in known.notes)


def test_a_variable_has_the_default_behind_its_colon() -> None:
    known = load(CASE, environment={"WAIT": "PT7S"})

    assert 7.0 == values(known, "breaker", "growing")["wait_in_open"].first


def test_the_other_modules_have_their_twins(known: Configuration) -> None:
    plain, growing = values(known, "retry", "plain"), values(known, "retry", "growing")

    assert ((Exception,), 3, 0.5, 0) == (plain["on"], plain["attempts"], plain["backoff"], plain["retry_after_cap"])
    assert ((TimeoutError,), 4, exponential(0.1, 3, 365 * 86400, 0.5)) == (
        growing["on"],
        growing["attempts"],
        growing["backoff"],
    )
    assert {"limit": 7} == values(known, "bulkhead", "plain")
    assert {"limit": 3, "max_waiting": 9} == values(known, "bulkhead", "plain-threads")
    assert {"rate": 10, "per": 1.0, "burst": 10, "max_wait": 0.0} == values(known, "rate_limiter", "plain")
    assert {"seconds": 3.0} == values(known, "timeout", "plain")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("circuitbreaker.circuit-breaker-aspect-order", "no twin"),
        ("circuitbreaker.configs.default.registerHealthIndicator", "health indicator"),
        ("circuitbreaker.configs.default", "trial call"),
        ("circuitbreaker.instances.timed-one.recordExceptions", "HttpServerErrorException"),
        ("retry.instances.plain", "every exception"),
        ("retry.instances.growing.resultPredicate", 'result = "module:function"'),
        ("thread-pool-bulkhead.instances.plain.keepAliveDuration", "no thread pool"),
        ("ratelimiter.instances.plain", "one by one"),
        ("timelimiter.instances.plain", "worker_thread"),
    ],
)
def test_each_setting_without_an_exact_twin_has_a_note_with_its_line(
    known: Configuration, path: str, words: str
) -> None:
    notes = [note for note in known.notes if note.path == f"resilience4j.{path}"]

    assert any(words in note.text for note in notes)
    assert all(note.line is not None for note in notes)


def test_a_document_for_a_profile_is_left_out_with_a_note(known: Configuration) -> None:
    assert any('profile "test"' in note.text for note in known.notes)


def test_the_verdict_of_a_round_is_by_rate_as_in_resilience4j() -> None:
    clock = FakeClock()
    breaker = Registry.from_file(CASE, clock=clock).circuit_breaker("plain")
    breaker.trip()
    clock.advance(10)

    trials = [breaker.acquire() for _ in range(5)]
    with pytest.raises(CircuitOpenError):
        breaker.acquire()
    for trial in trials[:2]:
        trial.failure()
    for trial in trials[2:]:
        trial.success()

    # Two of five failed, below 60 %; halfopen's own verdict would have re-opened at the first.
    assert State.CLOSED is breaker.state


def test_the_backoff_is_forgotten_when_the_circuit_closes() -> None:
    clock = FakeClock()
    breaker = Registry.from_file(CASE, clock=clock).circuit_breaker("growing")
    breaker.trip()
    clock.advance(5)
    for _ in range(5):
        breaker.call(int)
    assert State.CLOSED is breaker.state

    breaker.trip()

    assert (1, 5.0) == (breaker.snapshot().step, breaker.snapshot().remaining_wait)


# Mistakes


def cb(properties: str) -> str:
    return f"resilience4j.circuitbreaker:\n  instances:\n    a:\n      {properties}\n"


@pytest.mark.parametrize(
    ("properties", "kind", "suggestion"),
    [
        ("failureRateTreshold: 50", "unknown_key", "failureRateThreshold"),
        ("failure-rate-treshold: 50", "unknown_key", "failureRateThreshold"),
        ("failureRateThreshold: 150", "out_of_range", None),
        ("failureRateThreshold: half", "wrong_type", None),
        ("failureRateThreshold: true", "wrong_type", None),
        ("slidingWindowSize: 0", "out_of_range", None),
        ("slidingWindowSize: 1.5", "wrong_type", None),
        ("slidingWindowType: BOTH", "wrong_type", None),
        ("waitDurationInOpenState: soon", "wrong_type", None),
        ("waitDurationInOpenState: 0", "out_of_range", None),
        ("baseConfig: nobody", "missing", None),
        ("enableExponentialBackoff: 1", "wrong_type", None),
    ],
)
def test_a_mistake_has_the_path_line_and_near_key_of_the_yaml(
    mistakes: Mistakes, properties: str, kind: str, suggestion: str | None
) -> None:
    (found,) = mistakes(cb(properties), "application.yml")

    path = f"resilience4j.circuitbreaker.instances.a.{properties.partition(':')[0]}"
    assert (path, kind, suggestion, 4) == (found.path, found.kind, found.suggestion, found.line)


def test_a_setting_we_have_never_heard_of_is_a_note(read: Read) -> None:
    known = read(cb("zzzQqqXxx: 1"), "application.yml")

    assert any("no setting we know" in note.text for note in known.notes)


def test_backoff_and_spread_exclude_each_other_for_a_circuit_breaker(mistakes: Mistakes) -> None:
    text = cb("{waitDurationInOpenState: 5s, enableExponentialBackoff: true, enableRandomizedWait: true}")

    (found,) = mistakes(text, "application.yml")

    assert "cannot both be on" in str(found)


def test_a_circle_of_configs_is_found(mistakes: Mistakes) -> None:
    text = "resilience4j.retry:\n  configs:\n    a: {baseConfig: b}\n    b: {baseConfig: a}\n"

    assert "conflict" in {m.kind for m in mistakes(text, "application.yml")}


def test_every_mistake_is_found_at_once(mistakes: Mistakes) -> None:
    text = cb("{failureRateThreshold: 150, slidingWindowSize: -1, minimumNumberOfCals: 3}")
    text += (
        "resilience4j.retry.instances.b.maxAttempts: many\nresilience4j.timelimiter.instances.c.timeoutDuration: -1\n"
    )

    assert 5 == len(mistakes(text, "application.yml"))


def test_a_minimum_above_the_window_is_cut_to_it_as_there(read: Read) -> None:
    known = read(cb("slidingWindowSize: 5"), "application.yml")

    assert 5 == values(known, "breaker", "a")["minimum_calls"]


def test_a_name_with_dots_stands_in_brackets(read: Read) -> None:
    known = read('resilience4j.retry.instances:\n  "[api.example.com]":\n    maxAttempts: 5\n', "application.yml")

    assert 5 == values(known, "retry", "api.example.com")["attempts"]


# Conversion


def test_the_converted_file_says_the_same(tmp_path: Path) -> None:
    text, notes = convert(CASE, environment={})
    path = tmp_path / "halfopen.toml"
    path.write_text(text)

    before, after = load(CASE, environment={}), load(path)

    assert {e.title: dict(e.values) for e in before.entries} == {e.title: dict(e.values) for e in after.entries}
    assert before.notes == notes
    assert all(note.text in text for note in notes)
    assert 'template = "default"' in text


def test_our_own_yaml_is_converted_too(write: Callable[..., Path], tmp_path: Path) -> None:
    source = write(
        'breaker: {"a b": {window: 60s, tags: {"x y": "q\\"\\\\"}, slow_call_duration: null}}', "halfopen.yml"
    )
    path = tmp_path / "halfopen.toml"

    path.write_text(convert(source)[0])

    assert dict(load(source).entries[0].values) == dict(load(path).entries[0].values)
