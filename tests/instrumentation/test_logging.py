"""Log lines: one for each move, now and then one for refusals, none for calls."""

from __future__ import annotations

import logging
from contextlib import suppress

import pytest

from halfopen import CircuitOpenError, CircuitTransitioned, ConfigError, HalfOpen, Registry
from halfopen.instrumentation.logging import LogEvents
from halfopen.testing import FakeClock


class Lines(logging.Handler):
    """A logger of its own with what it was given: threads of other tests log to the usual one."""

    def __init__(self) -> None:
        super().__init__()
        self.logger = logging.Logger("lines", logging.DEBUG)
        self.logger.addHandler(self)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def messages(self) -> list[str]:
        return [record.getMessage() for record in self.records]

    def clear(self) -> None:
        self.records.clear()


@pytest.fixture
def lines() -> Lines:
    return Lines()


def fail() -> None:
    raise ConnectionError


def make(lines: Lines) -> tuple[Registry, FakeClock, LogEvents]:
    clock = FakeClock()
    registry = Registry(clock=clock)
    log = LogEvents(registry, logger=lines.logger, refusals_every=3600)
    log.start()
    return registry, clock, log


def test_one_line_for_each_move_with_the_sentence_of_explain(lines: Lines) -> None:
    registry, clock, _ = make(lines)
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
        for record, message in zip(lines.records, lines.messages, strict=True)
    ]
    assert "2 calls in a row failed; next trial in 30.0 s" in lines.messages[0]


def test_a_record_carries_the_numbers(lines: Lines) -> None:
    registry, _, _ = make(lines)

    registry.circuit_breaker("bank").force_open(reason="migration", by="ada")

    [record] = lines.records
    assert ("bank", "closed", "forced_open", "manual", "migration", "ada") == tuple(
        getattr(record, field) for field in ("circuit_breaker", "old", "new", "reason", "note", "by")
    )


def test_calls_and_refusals_write_no_line_of_their_own(lines: Lines) -> None:
    registry, _, log = make(lines)
    breaker = registry.circuit_breaker("bank")
    breaker.call(str)
    breaker.trip(wait=60)
    lines.clear()

    for _ in range(1000):
        with suppress(CircuitOpenError):
            breaker.call(str)
    calls = list(lines.messages)
    log.tell_refusals()
    log.tell_refusals()

    assert [] == calls
    assert ["circuit breaker bank refused 1000 calls (open 1000)"] == lines.messages
    assert {"open": 1000} == lines.records[0].refused  # type: ignore[attr-defined]


def test_the_line_about_refusals_tells_what_is_new(lines: Lines) -> None:
    registry, _, log = make(lines)
    breaker = registry.circuit_breaker("bank")
    breaker.trip(wait=60)
    lines.clear()

    for number in (3, 2):
        for _ in range(number):
            with suppress(CircuitOpenError):
                breaker.call(str)
        log.tell_refusals()

    assert [
        "circuit breaker bank refused 3 calls (open 3)",
        "circuit breaker bank refused 2 calls (open 2)",
    ] == lines.messages


def test_an_expired_trial_call_and_an_observed_trip_are_told(lines: Lines) -> None:
    registry, clock, _ = make(lines)
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

    text = "\n".join(lines.messages)
    assert "stuck: a trial call did not report within 6 s" in text or "within 5 s" in text
    assert 1 == text.count("observed is observed only and would have opened: consecutive, 1 of 1 calls failed")
    permit.ignore()


def test_a_name_with_a_line_break_is_one_line(lines: Lines) -> None:
    registry, _, _ = make(lines)

    registry.circuit_breaker("bank\nERROR forged").trip(reason="a\nb")

    assert 1 == len(lines.messages)
    assert "\n" not in lines.messages[0]


def test_a_move_that_was_overtaken_is_told_in_short(lines: Lines) -> None:
    clock = FakeClock()
    registry = Registry(clock=clock)
    breaker = registry.circuit_breaker("bank")
    # This listener moves the breaker on before the log hears of the first move.
    registry.subscribe(lambda event: breaker.force_open() if breaker.state == "open" else None, CircuitTransitioned)
    LogEvents(registry, logger=lines.logger, refusals_every=None).start()

    breaker.trip(wait=5.0, reason="test", by="ada")

    assert "circuit breaker bank: closed → open (manual) by ada: test; next trial after 5 s" == lines.messages[0]
    assert lines.messages[1].startswith("circuit breaker bank: forced open since")


def test_stop_ends_it_after_a_last_line(lines: Lines) -> None:
    registry, _, log = make(lines)
    breaker = registry.circuit_breaker("bank")
    breaker.trip(wait=60)
    with suppress(CircuitOpenError):
        breaker.call(str)

    log.stop()
    breaker.reset()

    assert "refused 1 calls" in lines.messages[-1]


def test_a_wrong_interval_is_refused() -> None:
    with pytest.raises(ConfigError, match="refusals_every"):
        LogEvents(Registry(), refusals_every=0)


def test_the_usual_logger_is_that_of_the_package(caplog: pytest.LogCaptureFixture) -> None:
    registry = Registry()
    log = LogEvents(registry)
    log.start()

    registry.circuit_breaker("bank").trip()
    log.stop()

    assert ("halfopen", logging.WARNING) in [(name, level) for name, level, _ in caplog.record_tuples]
