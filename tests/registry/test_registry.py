"""The registry: names, families, bounds, and the events of coming and going."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from threading import Barrier, Thread

import pytest

from halfopen import (
    CircuitBreaker,
    CircuitTransitioned,
    ConfigError,
    CountWindow,
    Failures,
    PolicyCreated,
    PolicyEvicted,
    Registry,
    State,
)
from halfopen.testing import FakeClock, record_events
from tests.fresh_process import in_fresh_process


def test_a_name_always_means_the_same_breaker() -> None:
    registry = Registry()

    first = registry.circuit_breaker("bank", failure_rate_threshold=0.3)

    assert first is registry.circuit_breaker("bank")
    assert first is registry.circuit_breaker("bank", failure_rate_threshold=0.3)
    assert 1 == len(registry)
    assert "bank" in registry


def test_threads_that_ask_at_once_get_one_breaker() -> None:
    registry, barrier = Registry(), Barrier(8)
    got: list[CircuitBreaker] = []

    def ask() -> None:
        barrier.wait()
        got.append(registry.circuit_breaker("bank"))

    threads = [Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 1 == len(set(map(id, got)))


def test_asking_with_other_settings_names_each_difference() -> None:
    registry = Registry()
    registry.circuit_breaker("bank", minimum_calls=5)

    with pytest.raises(ConfigError) as caught:
        registry.circuit_breaker("bank", minimum_calls=6, failure_rate_threshold=0.4)

    assert ["circuit_breaker.bank.minimum_calls", "circuit_breaker.bank.failure_rate_threshold"] == [
        mistake.path for mistake in caught.value.mistakes
    ]


def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(TypeError, match="treshold"):
        Registry().circuit_breaker("bank", failure_rate_treshold=0.4)


def test_the_breakers_of_a_registry_share_its_clock_and_its_bus() -> None:
    clock = FakeClock()
    registry = Registry(clock=clock)

    with record_events(registry.bus, CircuitTransitioned) as events:
        registry.circuit_breaker("a").trip(wait=10)
        registry.keyed("host:*")["b"].trip(wait=10)

    assert ["a", "host:b"] == [event.name for event in events]
    clock.advance(10)
    with registry.circuit_breaker("a").acquire():
        assert State.HALF_OPEN is registry.circuit_breaker("a").state


def test_a_family_makes_each_key_from_one_template() -> None:
    registry = Registry()
    hosts = registry.keyed("host:*", window=CountWindow(7), tags={"team": "edi"})

    one = hosts["example.com"]

    assert "host:example.com" == one.name
    assert 7 == one.snapshot().window_size
    assert one.settings is hosts["other.example"].settings
    assert {"team": "edi"} == dict(one.tags)
    assert hosts is registry.keyed("host:*")


def test_a_name_that_fits_a_family_is_made_from_its_template() -> None:
    registry = Registry()
    hosts = registry.keyed("host:*", window=CountWindow(7))

    assert hosts["example.com"] is registry.circuit_breaker("host:example.com")
    assert 100 == registry.circuit_breaker("host").snapshot().window_size


@pytest.mark.parametrize("pattern", ["host", "host:*:*", "", 5])
def test_a_pattern_needs_one_place_for_the_key(pattern: object) -> None:
    with pytest.raises(ConfigError, match="pattern"):
        Registry().keyed(pattern)  # type: ignore[arg-type]


def test_a_wrong_template_is_refused_at_once_and_not_at_the_first_key() -> None:
    with pytest.raises(ConfigError, match="failure_rate_threshold"):
        Registry().keyed("host:*", failure_rate_threshold=50)


def test_the_key_that_was_not_asked_for_longest_makes_room() -> None:
    registry = Registry()
    hosts = registry.keyed("host:*", max_keys=3)

    with record_events(registry.bus, PolicyCreated, PolicyEvicted) as events:
        for key in "abc":
            hosts[key]
        hosts["a"]
        hosts["d"]

    assert ["a", "c", "d"] == sorted(str(key) for key in hosts)
    assert ["host:b"] == [event.name for event in events.of(PolicyEvicted)]
    assert [f"host:{key}" for key in "abcd"] == [event.name for event in events.of(PolicyCreated)]


@pytest.mark.parametrize(
    "order", [CircuitBreaker.trip, CircuitBreaker.try_now, CircuitBreaker.force_open, CircuitBreaker.disable]
)
def test_a_breaker_that_is_not_closed_is_never_thrown_out(order: object) -> None:
    hosts = Registry().keyed("host:*", max_keys=2)
    sick = hosts["sick"]
    order(sick)  # type: ignore[operator]

    for number in range(50):
        hosts[number]

    assert sick is hosts["sick"]
    assert 2 == len(hosts)


def test_a_breaker_with_a_permit_in_flight_is_never_thrown_out() -> None:
    hosts = Registry().keyed("host:*", max_keys=2)
    permit = hosts["busy"].acquire()

    for number in range(50):
        hosts[number]

    assert "busy" in set(hosts)
    permit.success()
    for number in range(50):
        hosts[number]
    assert "busy" not in set(hosts)


def test_a_breaker_that_a_caller_holds_comes_back_as_itself() -> None:
    hosts = Registry().keyed("host:*", max_keys=1)
    held = hosts["held"]

    hosts["another"]

    assert ["another"] == list(hosts)
    assert held is hosts["held"]


def test_when_none_can_go_further_keys_share_one_breaker_and_are_counted() -> None:
    registry = Registry()
    hosts = registry.keyed("host:*", max_keys=2)
    for key in ("a", "b"):
        hosts[key].trip()

    third, fourth = hosts["c"], hosts["d"]

    assert third is fourth
    assert "host:__other__" == third.name
    assert 2 == hosts.overflows
    assert ["host:a", "host:b", "host:__other__"] == [breaker.name for breaker in registry.breakers()]


def names_kept(names: int) -> tuple[int, int, int]:
    """Return how many names are kept of so many, and by how many bytes and blocks they grow the program."""
    hosts = Registry().keyed("host:*", max_keys=100)
    for number in range(1000):
        hosts[f"warm-{number}"]
    gc.collect()
    if names < 100_000:  # it makes everything ten times slower
        tracemalloc.start()
    before = sys.getallocatedblocks()
    for number in range(names):
        hosts[f"name-{number}"]
    gc.collect()
    return len(hosts), tracemalloc.get_traced_memory()[0], sys.getallocatedblocks() - before


@pytest.mark.parametrize("names", [50_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_million_names_stay_within_the_bound(names: int) -> None:
    kept, grown, blocks = in_fresh_process(names_kept, names)

    assert 100 == kept
    # A hundred breakers were exchanged for a hundred new ones, about 2 kB each.
    assert grown < 400_000
    assert blocks < 10_000


def test_breakers_are_found_by_name_and_by_tag() -> None:
    registry = Registry()
    registry.circuit_breaker("pay-in", tags={"team": "money"})
    registry.circuit_breaker("pay-out", tags={"team": "money", "tier": "1"})
    registry.circuit_breaker("search", tags={"team": "shop"})

    assert ["pay-in", "pay-out"] == [breaker.name for breaker in registry.breakers("pay-*")]
    assert ["pay-in", "pay-out"] == [breaker.name for breaker in registry.breakers(team="money")]
    assert ["pay-out"] == [breaker.name for breaker in registry.breakers(team="money", tier="1")]
    assert ["pay-in", "pay-out", "search"] == [look.name for look in registry.snapshots()]


def test_removing_forgets_the_name_and_says_so() -> None:
    registry = Registry()
    first = registry.circuit_breaker("bank")

    with record_events(registry.bus, PolicyEvicted) as events:
        removed = registry.remove("circuit_breaker", "bank")

    assert removed
    assert ["bank"] == [event.name for event in events]
    assert first is not registry.circuit_breaker("bank")
    assert not registry.remove("circuit_breaker", "nobody")


def test_tick_makes_due_what_time_decides_in_every_breaker() -> None:
    clock = FakeClock()
    registry = Registry(clock=clock)
    registry.circuit_breaker("a").force_open(until=5)
    registry.keyed("host:*")["b"].force_open(until=5)
    clock.advance(5)

    with record_events(registry.bus, CircuitTransitioned) as events:
        registry.tick()

    assert ["a", "host:b"] == [event.name for event in events]


def test_a_name_made_again_and_again_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(50):
        CircuitBreaker("one-per-request")

    warnings = [record for record in caplog.records if "one-per-request" in record.getMessage()]

    assert 1 == len(warnings)
    assert "never trips" in warnings[0].getMessage()


def test_a_family_with_a_key_is_a_policy_itself() -> None:
    hosts = Registry().keyed("host:*", key=lambda url: url.split("/")[2])

    @hosts
    def get(url: str) -> str:
        return url

    get("https://a.example/x")
    get("https://b.example/y")

    assert ["a.example", "b.example"] == sorted(str(key) for key in hosts)
    assert 1 == hosts["a.example"].snapshot().counters.successes


def test_a_family_has_one_breaker_for_a_name_however_it_is_asked_for() -> None:
    registry = Registry()
    hosts = registry.keyed("host:*", minimum_calls=7)

    asked = registry.circuit_breaker("host:a", minimum_calls=7)

    assert hosts["a"] is asked
    assert hosts[5] is registry.circuit_breaker("host:5")
    with pytest.raises(ConfigError, match="minimum_calls"):
        registry.circuit_breaker("host:a", minimum_calls=3)


def test_nothing_that_differs_is_ignored_without_a_word() -> None:
    registry = Registry()
    mine = Failures(on=OSError)
    registry.circuit_breaker("bank", classify=mine, tags={"team": "money"})
    registry.keyed("host:*", minimum_calls=7)

    assert mine is registry.circuit_breaker("bank", classify=Failures(on=OSError), tags={"team": "money"}).classifier
    with pytest.raises(ConfigError, match="classify"):
        registry.circuit_breaker("bank", classify=Failures(on=ValueError))
    with pytest.raises(ConfigError, match="tags"):
        registry.circuit_breaker("bank", tags={"team": "shop"})
    with pytest.raises(ConfigError, match="minimum_calls"):
        registry.keyed("host:*", minimum_calls=8)
