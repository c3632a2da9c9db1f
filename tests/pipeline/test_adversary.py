"""Pipelines that are built in good faith and used in ways that hurt."""

from __future__ import annotations

from typing import Any

import pytest

from halfopen import CacheFallback, CircuitBreaker, Fallback, Pipeline, Registry, RejectedError, Retry
from halfopen.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def by_host(host: str, *_: object, **__: object) -> str:
    return host


class Hosts:
    """A pipeline with a breaker for each host around a retry, and a service whose circuit opens in mid-call."""

    def __init__(self, clock: FakeClock, **keyed: Any) -> None:
        self.made: list[str] = []
        self.family = Registry(clock=clock).keyed("host:*", **{"key": by_host, **keyed})
        self.retry = Retry("hosts", on=ConnectionError, attempts=5, backoff=1.0, clock=clock)
        self.pipeline = Pipeline(self.family, self.retry, name="hosts")

    def ask(self, host: str, opens: str) -> None:
        self.made.append(host)
        if len(self.made) == 2:
            self.family[opens].trip()
        raise ConnectionError(host)


def test_a_retry_in_a_family_of_breakers_stops_when_the_one_of_its_key_opens(clock: FakeClock) -> None:
    hosts = Hosts(clock)

    with pytest.raises(ConnectionError) as caught:
        hosts.pipeline.call(hosts.ask, "a", "a")

    assert 2 == len(hosts.made)
    assert ["gave up after 2 attempts in 1.0 s (retry 'hosts'): circuit 'host:a' is open"] == caught.value.__notes__


@pytest.mark.anyio
async def test_it_does_so_in_async_code(clock: FakeClock) -> None:
    hosts = Hosts(clock)

    async def ask(host: str, opens: str) -> None:
        hosts.ask(host, opens)

    with pytest.raises(ConnectionError):
        await hosts.pipeline(ask)("a", opens="a")

    assert 2 == len(hosts.made)


def test_the_circuit_of_another_key_does_not_stop_it(clock: FakeClock) -> None:
    hosts = Hosts(clock)

    with pytest.raises(ConnectionError):
        hosts.pipeline.call(hosts.ask, "a", "b")

    assert 5 == len(hosts.made)


def test_a_key_function_that_fails_later_loses_no_error(clock: FakeClock) -> None:
    asked: list[str] = []

    def once(host: str, opens: str) -> str:
        asked.append(host)
        if len(asked) > 1:
            raise KeyError(host)
        return host

    hosts = Hosts(clock, key=once)

    with pytest.raises(ConnectionError):
        hosts.pipeline.call(hosts.ask, "a", "a")


def test_a_cached_answer_with_a_constant_one_around_it_is_no_mistake() -> None:
    errors = (ConnectionError, RejectedError)
    constant, cached = Fallback("empty", [], on=errors), CacheFallback("last", on=errors, max_age=60)

    good = Pipeline(constant, cached, CircuitBreaker("prices"))
    bad = Pipeline(CacheFallback("last", on=errors, max_age=60), constant, CircuitBreaker("prices"))

    assert [] == [finding.code for finding in good.lint()]
    assert [("fallback_hides_refusals", ("last", "empty", "prices"))] == [
        (finding.code, finding.policies) for finding in bad.lint()
    ]
