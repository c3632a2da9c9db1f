"""Reload and pipelines: what is decorated already follows the file, in whole, and no retry watches what is gone."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from halfopen import CircuitOpenError, ConfigError, Pipeline, Registry, RejectedError, Timeout
from halfopen.testing import FakeClock

Write = Callable[..., Path]

POLICIES = """
[breaker.a]
consecutive_failures = 1
[breaker.b]
[bulkhead.a]
limit = 1
[bulkhead.b]
limit = 1
[fallback.a]
on = ["OSError", "halfopen:RejectedError"]
value = "saved"
[retry.a]
on = ["OSError"]
attempts = 3
backoff = 0
[timeout.a]
seconds = 5
"""
PIPELINE = POLICIES + "[pipeline.shop]\npolicies = [{}]\n"


def shop(*titles: str) -> str:
    return PIPELINE.format(", ".join(f'"{title}"' for title in titles))


def down(*_: Any, **__: Any) -> str:
    raise OSError("no route")


def fine() -> str:
    return "fine"


async def adown() -> str:
    raise OSError("no route")


def test_decorated_functions_follow_the_new_list(write: Write) -> None:
    registry = Registry.from_file(write(shop("breaker.b")))
    pipeline = registry["pipeline.shop"]
    decorated, adecorated = pipeline(down), pipeline(adown)
    with pytest.raises(OSError, match="no route"):
        decorated()

    write(shop("fallback.a", "breaker.b"))
    changes = registry.reload()

    assert ("pipeline.shop",) == changes.changed
    assert registry["pipeline.shop"] is pipeline
    assert ["saved"] * 3 == [decorated(1, x=2), asyncio.run(adecorated()), pipeline.call(down)]
    write(shop("breaker.b"))
    registry.reload()
    with pytest.raises(OSError, match="no route"):
        decorated()
    with pytest.raises(OSError, match="no route"):
        asyncio.run(adecorated())


def test_a_decorated_method_follows_and_keeps_its_signature(write: Write) -> None:
    registry = Registry.from_file(write(shop("breaker.b")))

    class Shop:
        @registry["pipeline.shop"]  # type: ignore[untyped-decorator]
        def sell(self, what: str, *, number: int = 1) -> str:
            return what * number

    write(shop("bulkhead.a", "timeout.a", "breaker.b"))
    registry.reload()

    assert "ss" == Shop().sell("s", number=2)
    assert (1, 1) == (registry["bulkhead.a"].snapshot().admitted, registry["breaker.b"].snapshot().counters.successes)


def test_decorated_generators_follow_at_their_next_call(write: Write) -> None:
    registry = Registry.from_file(write(shop("breaker.b")))
    pipeline = registry["pipeline.shop"]

    @pipeline  # type: ignore[untyped-decorator]
    def numbers(most: int) -> Iterator[int]:
        yield from range(most)

    @pipeline  # type: ignore[untyped-decorator]
    async def anumbers(most: int) -> AsyncIterator[int]:
        for number in range(most):
            yield number

    async def collected() -> list[int]:
        return [number async for number in anumbers(3)]

    running = numbers(3)
    next(running)
    write(shop("bulkhead.a", "breaker.b"))
    registry.reload()

    assert [1, 2] == list(running)
    assert 0 == registry["bulkhead.a"].snapshot().admitted
    assert [0, 1, 2] == list(numbers(3)) == asyncio.run(collected())
    assert 2 == registry["bulkhead.a"].snapshot().admitted


def test_a_file_whose_pipeline_cannot_guard_what_it_guards_already_is_refused(write: Write) -> None:
    path = write(shop("breaker.b"))
    registry = Registry.from_file(path)
    before = registry["pipeline.shop"].policies

    @registry["pipeline.shop"]  # type: ignore[untyped-decorator]
    def numbers() -> Iterator[int]:
        yield 1

    write(shop("breaker.b", "retry.a").replace("attempts = 3", "attempts = 7"))
    with pytest.raises(ConfigError) as caught:
        registry.reload()

    assert f"{path}:" in str(caught.value)
    assert "pipeline.shop.policies" in str(caught.value)
    assert "cannot guard the generator" in str(caught.value)
    assert (before, 3) == (registry["pipeline.shop"].policies, registry["retry.a"].settings.attempts)
    assert [1] == list(numbers())
    del numbers, caught  # its traceback holds the function
    gc.collect()
    registry.reload()  # nobody is left who could not be guarded
    assert 7 == registry["retry.a"].settings.attempts


def test_a_pipeline_around_one_from_the_file_follows_it(write: Write) -> None:
    registry = Registry.from_file(write(shop("breaker.b")))
    outer = Pipeline(Timeout("outer", 9), registry["pipeline.shop"], name="outer")
    outermost = Pipeline(outer, name="outermost")
    decorated = outermost(down)

    write(shop("fallback.a", "breaker.b"))
    registry.reload()

    assert "saved" == decorated()
    assert [outer.policies[0], registry["fallback.a"], registry["breaker.b"]] == list(outermost.flat)


def test_a_file_that_would_put_a_policy_twice_into_a_pipeline_around_is_refused(write: Write) -> None:
    registry = Registry.from_file(write(shop("breaker.b")))
    outer = Pipeline(registry["bulkhead.a"], registry["pipeline.shop"], name="outer")

    write(shop("breaker.b", "bulkhead.a"))
    with pytest.raises(ConfigError, match="Bulkhead 'a' is there twice"):
        registry.reload()

    assert [registry["bulkhead.a"], registry["breaker.b"]] == list(outer.flat)
    assert (registry["breaker.b"],) == registry["pipeline.shop"].policies


# Retries


def test_a_retry_no_longer_watches_a_breaker_that_left_its_pipeline(write: Write) -> None:
    registry = Registry.from_file(write(shop("breaker.a", "retry.a")))
    retry, left = registry["retry.a"], registry["breaker.a"]
    assert left is retry.breaker

    write(shop("retry.a"))
    registry.reload()
    assert None is retry.breaker
    write(shop("breaker.b", "retry.a"))
    registry.reload()

    assert registry["breaker.b"] is retry.breaker


def test_a_retry_no_longer_watches_the_breaker_of_a_pipeline_that_is_gone(write: Write) -> None:
    registry = Registry.from_file(write(shop("breaker.a", "retry.a")))
    retry = registry["retry.a"]

    write(POLICIES.replace("[breaker.a]\nconsecutive_failures = 1\n", ""))
    changes = registry.reload()

    assert ("breaker.a", "pipeline.shop") == changes.removed
    assert None is retry.breaker


def test_a_retry_goes_on_watching_while_somebody_holds_the_pipeline_that_is_gone(write: Write) -> None:
    registry = Registry.from_file(write(shop("breaker.a", "retry.a")))
    retry, breaker = registry["retry.a"], registry["breaker.a"]
    decorated = registry["pipeline.shop"](down)

    write(POLICIES)
    registry.reload()

    assert breaker is retry.breaker
    with pytest.raises(OSError, match="no route"):
        decorated()


def test_a_retry_in_two_pipelines_watches_the_breaker_of_the_one_that_is_left(write: Write) -> None:
    both = shop("breaker.a", "retry.a") + '[pipeline.store]\npolicies = ["breaker.b", "retry.a"]\n'
    registry = Registry.from_file(write(both))
    retry = registry["retry.a"]

    write(POLICIES + '[pipeline.store]\npolicies = ["breaker.b", "retry.a"]\n')
    registry.reload()
    assert registry["breaker.b"] is retry.breaker
    write(shop("breaker.a", "retry.a"))
    registry.reload()

    assert registry["breaker.a"] is retry.breaker


def test_a_breaker_named_by_hand_stays(write: Write) -> None:
    registry = Registry.from_file(write(shop("breaker.a", "retry.a")))
    named = registry["breaker.b"]
    registry["retry.a"].breaker = named

    write(shop("retry.a"))
    registry.reload()

    assert named is registry["retry.a"].breaker


def test_a_reload_that_is_refused_leaves_retries_as_they_were(write: Write) -> None:
    text = shop("breaker.a", "retry.a") + '[pipeline.z]\npolicies = ["breaker.b"]\n'
    registry = Registry.from_file(write(text))
    retry = registry["retry.a"]

    @registry["pipeline.z"]  # type: ignore[untyped-decorator]
    def numbers() -> Iterator[int]:
        yield 1

    write(
        shop("breaker.b", "retry.a")
        + '[pipeline.new]\npolicies = ["breaker.b", "retry.a"]\n[pipeline.z]\npolicies = ["timeout.a"]\n'
    )
    with pytest.raises(ConfigError):
        registry.reload()

    assert registry["breaker.a"] is retry.breaker
    assert [registry["breaker.a"], retry] == list(registry["pipeline.shop"].policies)
    assert "pipeline.new" not in {f"pipeline.{each.name}" for each in registry if isinstance(each, Pipeline)}
    assert [1] == list(numbers())


# What is removed


def test_what_is_removed_and_comes_back_while_it_is_in_use_is_the_same(write: Write) -> None:
    registry = Registry.from_file(write(shop("breaker.a", "bulkhead.a")), clock=FakeClock())
    decorated = registry["pipeline.shop"](down)
    with pytest.raises(OSError, match="no route"):
        decorated()
    held = [registry["breaker.a"], registry["bulkhead.a"], registry["pipeline.shop"]]

    write("[breaker.b]")
    assert {"breaker.a", "bulkhead.a", "pipeline.shop"} < {*registry.reload().removed}
    with pytest.raises(KeyError):
        registry["breaker.a"]
    with pytest.raises(CircuitOpenError):
        decorated()  # on its own, as before
    write(shop("breaker.a", "bulkhead.b"))
    changes = registry.reload()

    assert {"breaker.a", "bulkhead.a", "pipeline.shop"} < {*changes.added}
    assert held == [registry["breaker.a"], registry["bulkhead.a"], registry["pipeline.shop"]]
    with pytest.raises(CircuitOpenError):
        decorated()
    registry["breaker.a"].reset()
    with pytest.raises(OSError, match="no route"):
        decorated()
    assert 1 == registry["bulkhead.b"].snapshot().admitted


def test_what_is_removed_and_comes_back_after_nobody_held_it_is_new(write: Write) -> None:
    registry = Registry.from_file(write("[breaker.a]\nconsecutive_failures = 1"))
    with pytest.raises(OSError, match="no route"):
        registry["breaker.a"].call(down)

    write("[breaker.b]")
    registry.reload()
    gc.collect()
    write("[breaker.a]")
    registry.reload()

    assert 0 == registry["breaker.a"].snapshot().counters.failures


def test_a_family_that_comes_back_keeps_its_breakers(write: Write) -> None:
    registry = Registry.from_file(write('[breaker."host:*"]\nconsecutive_failures = 1'))
    family = registry["breaker.host:*"]
    with pytest.raises(OSError, match="no route"):
        family["a"].call(down)

    write("")
    registry.reload()
    write('[breaker."host:*"]\nconsecutive_failures = 5')
    registry.reload()

    assert registry["breaker.host:*"] is family
    assert 5 == family["b"].settings.consecutive_failures
    with pytest.raises(CircuitOpenError):
        registry.circuit_breaker("host:a").call(str)


@pytest.mark.parametrize("gone", ["breaker.a", "bulkhead.a"])
def test_a_file_that_removes_a_policy_which_a_pipeline_names_is_refused(write: Write, gone: str) -> None:
    registry = Registry.from_file(write(shop("breaker.a", "bulkhead.a")))
    section = gone.partition(".")[0]

    write(shop("breaker.a", "bulkhead.a").replace(f"[{gone}]", f"[{section}.other]"))
    with pytest.raises(ConfigError, match=f"there is no {gone} in this file"):
        registry.reload()

    assert registry[gone] in registry["pipeline.shop"].policies


# Sharing, and calls under way


def test_pipelines_that_share_policies_go_on_sharing_them(write: Write) -> None:
    both = shop("breaker.a", "bulkhead.a") + '[pipeline.store]\npolicies = ["breaker.b", "bulkhead.a"]\n'
    registry = Registry.from_file(write(both))
    one, other = registry["pipeline.shop"](fine), registry["pipeline.store"](fine)

    write(both.replace("limit = 1", "limit = 2"))
    registry.reload()
    one(), other()

    assert (2, 2) == (registry["bulkhead.a"].snapshot().limit, registry["bulkhead.a"].snapshot().admitted)


def test_a_call_under_way_ends_under_the_policies_it_began_with(write: Write) -> None:
    registry = Registry.from_file(write(shop("bulkhead.a", "breaker.b")))
    entered, leave = threading.Event(), threading.Event()

    @registry["pipeline.shop"]  # type: ignore[untyped-decorator]
    def slow() -> str:
        entered.set()
        leave.wait(60)
        return "done"

    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(slow()))
    thread.start()
    assert entered.wait(60)
    write(shop("fallback.a", "bulkhead.b", "breaker.a"))
    registry.reload()
    under_way = registry["bulkhead.a"].snapshot().in_use
    leave.set()
    thread.join(60)

    assert (1, 0, ["done"]) == (under_way, registry["bulkhead.a"].snapshot().in_use, answers)
    assert (1, 0) == tuple(registry[f"breaker.{name}"].snapshot().counters.successes for name in "ba")


def test_each_call_goes_through_one_list_in_whole(write: Write) -> None:
    lists = [("breaker.a", "bulkhead.a"), ("breaker.b", "bulkhead.b")]
    registry = Registry.from_file(write(shop(*lists[0])))
    pipeline = registry["pipeline.shop"]
    decorated = pipeline(fine)
    policies = [tuple(registry[title] for title in titles) for titles in lists]
    ended = threading.Event()
    calls = 0

    def change() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            pipeline.configure(*policies[number % 2])

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(1500):
            decorated()
            pipeline.call(fine)
            calls += 2
    finally:
        ended.set()
        thread.join(60)

    admitted = [registry[f"bulkhead.{name}"].snapshot().admitted for name in "ab"]
    succeeded = [registry[f"breaker.{name}"].snapshot().counters.successes for name in "ab"]
    assert (admitted, calls) == (succeeded, sum(succeeded))


# Families


@pytest.mark.parametrize(
    ("section", "old", "new", "look"),
    [
        ("breaker", "minimum_calls = 5", "minimum_calls = 4", lambda member: member.settings.minimum_calls == 4),
        ("bulkhead", "limit = 5", "limit = 4", lambda member: member.snapshot().limit == 4),
        ("rate_limiter", "rate = 5", "rate = 4", lambda member: member.snapshot().rate == 4),
    ],
)
def test_members_of_a_family_follow_a_template_and_keep_their_names(
    write: Write, section: str, old: str, new: str, look: Callable[[Any], bool]
) -> None:
    text = f'[template.{section}.base]\n{old}\n[{section}."k:*"]\ntemplate = "base"\n'
    registry = Registry.from_file(write(text))
    family = registry[f"{section}.k:*"]
    member = family["a"]
    member.call(str)

    write(text.replace(old, new))
    changes = registry.reload()

    assert (f"{section}.k:*",) == changes.changed
    assert member is family["a"]
    assert (True, True) == (look(member), look(family["b"]))
    assert ("k:a", "k:b") == (member.snapshot().name, family["b"].snapshot().name)


def test_a_refusal_of_a_family_member_after_a_reload_names_the_member(write: Write) -> None:
    text = '[rate_limiter."k:*"]\nrate = 1\nper = 1000\nburst = {}\n'
    registry = Registry.from_file(write(text.format(2)), clock=FakeClock())
    member = registry["rate_limiter.k:*"]["a"]

    write(text.format(1))
    registry.reload()
    member.call(str)
    with pytest.raises(RejectedError) as caught:
        member.call(str)

    assert "k:a" in str(caught.value)


def test_a_family_may_get_another_bound_and_another_key(write: Write) -> None:
    text = '[bulkhead."k:*"]\nlimit = 1\nmax_keys = {}\nkey = "{}"\n[pipeline.p]\npolicies = ["bulkhead.k:*"]\n'
    names = {"first": lambda first, second: first, "second": lambda first, second: second}
    registry = Registry()
    registry.load(write(text.format(10, "first")), names=names)
    decorated = registry["pipeline.p"](lambda first, second: None)
    decorated("a", "b")

    write(text.format(1, "second"))
    registry.reload()
    decorated("a", "b")

    family = registry["bulkhead.k:*"]
    assert ["b"] == list(family)
    assert 1 == family["b"].snapshot().admitted
