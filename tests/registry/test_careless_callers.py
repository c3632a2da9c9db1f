"""What a careless or busy caller may do to a registry."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from halfopen import ConfigError, PolicyCreated, PolicyEvicted, Registry
from halfopen.testing import FakeClock, record_events


def test_the_breaker_that_keys_share_is_told_of_once() -> None:
    registry = Registry(clock=FakeClock())
    family = registry.keyed("host:*", max_keys=1)
    family["busy"].trip()

    with record_events(registry.bus, PolicyCreated) as events:
        for key in "abc":
            assert "host:__other__" == family[key].name

    assert ["host:__other__"] == [event.name for event in events.of(PolicyCreated)]


def test_a_key_that_many_threads_ask_for_at_once_is_told_of_once() -> None:
    registry, made = Registry(), list[str]()
    registry.watch(lambda policy: made.append(policy.name), lambda policy: None)
    family = registry.keyed("host:*")
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    try:
        for key in range(150):
            _ask_at_once(family, key)
    finally:
        sys.setswitchinterval(before)

    assert sorted(f"host:{key}" for key in range(150)) == sorted(made)


def _ask_at_once(family: Any, key: int) -> None:
    barrier = threading.Barrier(4)

    def ask() -> None:
        barrier.wait()
        family[key]

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_coming_and_going_are_told_in_order() -> None:
    registry = Registry(clock=FakeClock())
    family = registry.keyed("host:*", max_keys=1)

    with record_events(registry.bus, PolicyCreated, PolicyEvicted) as events:
        family["a"]
        family["b"]

    told = [(type(event), event.name) for event in events]
    assert [(PolicyCreated, "host:a"), (PolicyEvicted, "host:a"), (PolicyCreated, "host:b")] == told


@pytest.mark.parametrize("name", [None, 5, [], ""], ids=repr)
def test_a_name_that_is_no_text_is_a_configuration_error(name: Any) -> None:
    registry = Registry()
    registry.keyed("host:*")

    with pytest.raises(ConfigError, match="name"):
        registry.circuit_breaker(name)


@pytest.mark.parametrize("pattern", [None, 5, [], "", "host", "*:*"], ids=repr)
def test_every_mistake_of_a_family_is_named_at_once(pattern: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Registry().keyed(pattern, max_keys=0, minimum_calls=-1)

    assert {"pattern", "max_keys", "minimum_calls"} == {mistake.path for mistake in caught.value.mistakes}


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps], ids=["copy", "deepcopy", "pickle"])
def test_a_family_stays_with_its_registry(copied: Callable[[object], object]) -> None:
    family = Registry().keyed("host:*")

    with pytest.raises(TypeError, match="registry"):
        copied(family)
