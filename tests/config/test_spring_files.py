"""Whole files of Spring Boot services: each value, inherited ones too, as resilience4j 2 takes it, and each loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from halfopen import CountWindow, TimeWindow, exponential
from halfopen.config import Configuration, convert, load
from halfopen.retry import exponential as delays

CASES = Path(__file__).parent / "cases"
ORDERS, GATEWAY = CASES / "spring_orders.yml", CASES / "spring_gateway.yml"


@pytest.fixture(scope="module")
def orders() -> Configuration:
    return load(ORDERS, environment={})


@pytest.fixture(scope="module")
def gateway() -> Configuration:
    return load(GATEWAY, environment={})


def values(configuration: Configuration, title: str) -> dict[str, Any]:
    section, _, name = title.partition(".")
    entry = configuration.find(section, name)
    assert entry is not None
    flat = {key: value for key, value in entry.values.items() if key != "half_open"}
    for key in ("permitted_calls", "failure_rate_threshold", "slow_call_rate_threshold", "max_duration"):
        if "half_open" in entry.values:
            flat[f"half_open.{key}"] = getattr(entry.values["half_open"], key)
    return flat


DEFAULT = {
    "window": CountWindow(20),
    "minimum_calls": 10,
    "half_open.permitted_calls": 3,
    "half_open.failure_rate_threshold": 0.5,
    "half_open.slow_call_rate_threshold": 0.75,
    "half_open.max_duration": None,
    "automatic_half_open": True,
    "wait_in_open": 5.0,
    "failure_rate_threshold": 0.5,
    "slow_call_duration": 2.0,
    "slow_call_rate_threshold": 0.75,
    "forget_after": 0,
}
SLOW = {  # on resilience4j's own defaults: a config other than the default does not inherit from that
    "window": TimeWindow(60, 60),
    "minimum_calls": 5,
    "half_open.permitted_calls": 10,
    "half_open.failure_rate_threshold": 0.333,
    "half_open.slow_call_rate_threshold": 1.0,
    "half_open.max_duration": 90.0,
    "automatic_half_open": False,
    "wait_in_open": 60.0,
    "failure_rate_threshold": 0.333,
    "slow_call_duration": 60.0,
    "slow_call_rate_threshold": 1.0,
    "forget_after": 0,
}

EXPECTED: dict[str, dict[str, Any]] = {
    "breaker.stock": DEFAULT,
    "breaker.payment": {
        **DEFAULT,
        "failure_rate_threshold": 0.25,
        "half_open.failure_rate_threshold": 0.25,
        "on": (TimeoutError, OSError),
        "ignore": (ValueError,),
    },
    "breaker.shipping": {
        **SLOW,
        "wait_in_open": 150.0,
        "slow_call_duration": 20.0,
        "half_open.permitted_calls": 4,
    },
    "breaker.growing": {**DEFAULT, "wait_in_open": exponential(10, 2, 600, 0)},
    "breaker.growth-without-wait": DEFAULT,
    "breaker.spread": {**DEFAULT, "wait_in_open": exponential(20, 1, 24, 0.2)},
    "retry.payment": {"on": (OSError, ConnectionError), "attempts": 2, "backoff": 0.2, "retry_after_cap": 0},
    # Unlike a breaker's, a retry's config inherits from the default.
    "retry.shipping": {
        "on": (OSError, ConnectionError),
        "attempts": 4,
        "backoff": exponential(0.1, 2, 5, 0.3),
        "retry_after_cap": 0,
    },
    # Its own wait takes the growth of its base config, but not the factor of the spread; without that no cap counts.
    "retry.stock": {
        "on": (OSError, ConnectionError),
        "attempts": 4,
        "backoff": exponential(1, 2, 365 * 86400, 0.5),
        "retry_after_cap": 0,
    },
    "bulkhead.payment": {"limit": 10, "max_waiting": 1_000_000, "max_wait": 0.25},
    "bulkhead.stock": {"limit": 50},
    "bulkhead.shipping": {"limit": 4, "max_waiting": 8},
    "bulkhead.payment-threads": {"limit": 4, "max_waiting": 5},
    "rate_limiter.payment": {"rate": 5, "per": 1.0, "burst": 5, "max_wait": 3.0},
    "rate_limiter.stock": {"rate": 100, "per": 1.0, "burst": 100, "max_wait": 0.0},
    "timeout.payment": {"seconds": 0.75},
    "timeout.stock": {"seconds": 2.0},
}


@pytest.mark.parametrize("title", EXPECTED)
def test_each_setting_is_what_resilience4j_makes_of_it(orders: Configuration, title: str) -> None:
    assert EXPECTED[title] == values(orders, title)


def test_nothing_else_is_in_it(orders: Configuration) -> None:
    assert {*EXPECTED} == {entry.title for entry in orders.entries}


LOST = {
    "circuitbreaker.configs.default.register-health-indicator": "health indicator",
    "circuitbreaker.configs.default.event-consumer-buffer-size": "last 100 moves",
    "circuitbreaker.configs.default": "trial_timeout",
    "circuitbreaker.instances.payment.record-exceptions": "HttpServerErrorException",
    "circuitbreaker.instances.payment.ignore-exceptions": "BusinessException",
    "circuitbreaker.instances.growth-without-wait.enable-exponential-backoff": "no effect",
    "circuitbreaker.instances.growth-without-wait.exponential-backoff-multiplier": "no effect",
    "circuitbreaker.instances.spread.initial-state": "begins CLOSED",
    "circuitbreaker.instances.spread.writable-stack-trace-enabled": "cheap",
    "circuitbreaker.instances.spread.record-result-predicate": 'result = "module:function"',
    "retry.configs.default.ignore-exceptions": "BusinessException",
    "retry.instances.stock.fail-after-max-attempts": "no twin",
    "retry.instances.stock.result-predicate": 'result = "module:function"',
    "thread-pool-bulkhead.instances.shipping.core-thread-pool-size": "no thread pool",
    "thread-pool-bulkhead.instances.shipping.keep-alive-duration": "no thread pool",
    "thread-pool-bulkhead.instances.shipping.writable-stack-trace-enabled": "cheap",
    "thread-pool-bulkhead.instances.payment": "processor",
    "ratelimiter.configs.default": "one by one",
    "ratelimiter.instances.payment.subscribe-for-events": "no twin",
    "ratelimiter.instances.payment.allow-health-indicator-to-fail": "health indicator",
    "timelimiter.configs.default.cancel-running-future": "cancelled",
    "": 'profile "production"',
}


@pytest.mark.parametrize("path", LOST)
def test_each_setting_without_an_exact_twin_is_told(orders: Configuration, path: str) -> None:
    whole = f"resilience4j.{path}".rstrip(".")

    assert any(note.path == whole and LOST[path] in note.text for note in orders.notes)


def test_every_note_stands_in_the_converted_file_and_that_says_the_same(tmp_path: Path, orders: Configuration) -> None:
    text, notes = convert(ORDERS, environment={})
    path = tmp_path / "halfopen.toml"
    path.write_text(text, encoding="utf-8")

    again = load(path)

    assert notes == orders.notes
    assert all(note.text in text for note in notes)
    assert {entry.title: entry.values for entry in orders.entries} == {
        entry.title: entry.values for entry in again.entries
    }


GATEWAY_EXPECTED: dict[str, dict[str, Any]] = {
    "breaker.legacy": {
        "window": CountWindow(10),
        "minimum_calls": 4,
        "failure_rate_threshold": 0.6,
        "half_open.failure_rate_threshold": 0.6,
        "wait_in_open": 30.0,
    },
    "breaker.api.example.com": {"window": CountWindow(5), "minimum_calls": 5, "failure_rate_threshold": 0.5},
    "retry.legacy": {"attempts": 5, "backoff": delays(1, 1.5, 365 * 86400, jitter="none")},
    "rate_limiter.legacy": {"rate": 7, "per": 5e-7, "max_wait": 5.0},
    "timeout.legacy": {"seconds": 1.5},
    "bulkhead.legacy": {"limit": 3},
}


@pytest.mark.parametrize("title", GATEWAY_EXPECTED)
def test_camel_case_and_keys_with_dots_are_read_alike(gateway: Configuration, title: str) -> None:
    found = values(gateway, title)

    assert GATEWAY_EXPECTED[title] == {key: found[key] for key in GATEWAY_EXPECTED[title]}


def test_the_environment_fills_in_numbers_and_durations() -> None:
    known = load(GATEWAY, environment={"OPEN_FOR": "PT1M", "MINIMUM_CALLS": "6", "FAILURE_RATE": "12.5"})

    found = values(known, "breaker.legacy")
    assert (60.0, 6, 0.125) == (found["wait_in_open"], found["minimum_calls"], found["failure_rate_threshold"])


@pytest.mark.parametrize("file", [ORDERS, GATEWAY])
@pytest.mark.parametrize("change", [(b"\n", b"\r\n"), (b"", b"")])
def test_windows_line_ends_and_a_byte_order_mark_change_nothing(
    tmp_path: Path, file: Path, change: tuple[bytes, bytes]
) -> None:
    path = tmp_path / file.name
    path.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(*change))

    known, again = load(file, environment={}), load(path, environment={})

    assert [(entry.title, entry.values, entry.line) for entry in known.entries] == [
        (entry.title, entry.values, entry.line) for entry in again.entries
    ]
    assert known.notes == again.notes


# What an instance inherits

INHERIT = """
resilience4j.circuitbreaker:
  configs:
    default: {failureRateThreshold: 10, waitDurationInOpenState: 7s, enableExponentialBackoff: true}
    same: {failureRateThreshold: 20, baseConfig: other}
    other: {failureRateThreshold: 30, minimumNumberOfCalls: 3, waitDurationInOpenState: 9s}
  instances:
    same: {}
    by-name: {baseConfig: same}
    own-wait: {waitDurationInOpenState: 8s}
    none: {}
"""


def test_a_config_of_the_same_name_counts_alone_and_before_the_default(tmp_path: Path) -> None:
    path = tmp_path / "application.yml"
    path.write_text(INHERIT)
    known = load(path)

    found = {name: values(known, f"breaker.{name}") for name in ("same", "by-name", "own-wait", "none")}

    assert {"same": 0.2, "by-name": 0.2, "own-wait": 0.1, "none": 0.1} == {
        name: each["failure_rate_threshold"] for name, each in found.items()
    }
    # Its own base counts only where the config is named as a base.
    assert (100, 3) == (found["same"]["minimum_calls"], found["by-name"]["minimum_calls"])
    assert (60.0, 9.0) == (found["same"]["wait_in_open"], found["by-name"]["wait_in_open"])
    # A level with a wait of its own does not inherit the growth of the one below.
    assert (8.0, exponential(7, 1.5, 365 * 86400, 0)) == (
        found["own-wait"]["wait_in_open"],
        found["none"]["wait_in_open"],
    )
