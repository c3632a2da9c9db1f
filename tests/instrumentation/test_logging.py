"""Log lines: one for each move, now and then one for refusals, none for calls."""

from __future__ import annotations

import logging
from contextlib import suppress

import pytest

from halfopen import CircuitOpenError, CircuitTransitioned, ConfigError, HalfOpen, Registry
from halfopen.instrumentation.logging import LogEvents
from halfopen.testing import FakeClock


def fail() -> None:
    raise ConnectionError


def make(caplog: pytest.LogCaptureFixture) -> tuple[Registry, FakeClock, LogEvents]:
    caplog.set_level(logging.DEBUG, logger="halfopen")
    clock = FakeClock()
    registry = Registry(clock=clock)
    log = LogEvents(registry, refusals_every=3600)
    log.start()
    return registry, clock, log


def test_one_line_for_each_move_with_the_sentence_of_explain(caplog: pytest.LogCaptureFixture) -> None:
    registry, clock, _ = make(caplog)
    breaker = registry.circuit_breaker("bank", consecutive_failures=2, wait_in_open=30.0)

    for _ in range(2):
        with pytest.raises(ConnectionError):
            breaker.call(fail)
    opened = breaker.explain()
    clock.advance(31)
    for _ in range(3):
        breaker.call(str)

    assert [
        (logging.WARNING, f"circuit breaker bank: {opened}"),
        (logging.INFO, "circuit breaker bank: half-open"),
        (logging.INFO, "circuit breaker bank: closed"),
    ] == [
        (record.levelno, message if record.levelno == logging.WARNING else message.split(" since")[0])
        for record, message in zip(caplog.records, caplog.messages, strict=True)
    ]
    assert "2 calls in a row failed; next trial in 30.0 s" in caplog.messages[0]


def test_a_record_carries_the_numbers(caplog: pytest.LogCaptureFixture) -> None:
    registry, _, _ = make(caplog)

    registry.circuit_breaker("bank").force_open(reason="migration", by="ada")

    [record] = caplog.records
    assert ("bank", "closed", "forced_open", "manual", "migration", "ada") == tuple(
        getattr(record, field) for field in ("circuit_breaker", "old", "new", "reason", "note", "by")
    )


def test_calls_and_refusals_write_no_line_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    registry, _, log = make(caplog)
    breaker = registry.circuit_breaker("bank")
    breaker.call(str)
    breaker.trip(wait=60)
    caplog.clear()

    for _ in range(1000):
        with suppress(CircuitOpenError):
            breaker.call(str)
    calls = list(caplog.messages)
    log.tell_refusals()
    log.tell_refusals()

    assert [] == calls
    assert ["circuit breaker bank refused 1000 calls (open 1000)"] == caplog.messages
    assert {"open": 1000} == caplog.records[0].refused  # type: ignore[attr-defined]


def test_the_line_about_refusals_tells_what_is_new(caplog: pytest.LogCaptureFixture) -> None:
    registry, _, log = make(caplog)
    breaker = registry.circuit_breaker("bank")
    breaker.trip(wait=60)
    caplog.clear()

    for number in (3, 2):
        for _ in range(number):
            with suppress(CircuitOpenError):
                breaker.call(str)
        log.tell_refusals()

    assert [
        "circuit breaker bank refused 3 calls (open 3)",
        "circuit breaker bank refused 2 calls (open 2)",
    ] == caplog.messages


def test_an_expired_trial_call_and_an_observed_trip_are_told(caplog: pytest.LogCaptureFixture) -> None:
    registry, clock, _ = make(caplog)
    stuck = registry.circuit_breaker("stuck", half_open=HalfOpen(trial_timeout=5))
    stuck.try_now()
    permit = stuck.acquire()
    clock.advance(6)
    stuck.tick()
    observed = registry.circuit_breaker("observed", consecutive_failures=1)
    observed.observe()
    for _ in range(3):
        with pytest.raises(ConnectionError):
            observed.call(fail)

    text = "\n".join(caplog.messages)
    assert "stuck: a trial call did not report within 6 s" in text or "within 5 s" in text
    assert 1 == text.count("observed is observed only and would have opened: consecutive, 1 of 1 calls failed")
    permit.ignore()


def test_a_name_with_a_line_break_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    registry, _, _ = make(caplog)

    registry.circuit_breaker("bank\nERROR forged").trip(reason="a\nb")

    assert 1 == len(caplog.messages)
    assert "\n" not in caplog.messages[0]


def test_a_move_that_was_overtaken_is_told_in_short(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    registry = Registry(clock=clock)
    breaker = registry.circuit_breaker("bank")
    # This listener moves the breaker on before the log hears of the first move.
    registry.subscribe(lambda event: breaker.force_open() if breaker.state == "open" else None, CircuitTransitioned)
    caplog.set_level(logging.INFO, logger="halfopen")
    LogEvents(registry, refusals_every=None).start()

    breaker.trip(wait=5.0, reason="test", by="ada")

    assert "circuit breaker bank: closed → open (manual) by ada: test; next trial after 5 s" == caplog.messages[0]
    assert caplog.messages[1].startswith("circuit breaker bank: forced open since")


def test_stop_ends_it_after_a_last_line(caplog: pytest.LogCaptureFixture) -> None:
    registry, _, log = make(caplog)
    breaker = registry.circuit_breaker("bank")
    breaker.trip(wait=60)
    with suppress(CircuitOpenError):
        breaker.call(str)

    log.stop()
    breaker.reset()

    assert "refused 1 calls" in caplog.messages[-1]


def test_a_wrong_interval_is_refused() -> None:
    with pytest.raises(ConfigError, match="refusals_every"):
        LogEvents(Registry(), refusals_every=0)
