"""Large files: the work grows with the file and not with its square, for right ones and for wrong ones."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halfopen import Bulkhead, ConfigError, Pipeline, Registry
from halfopen.config import items, load
from halfopen.config.describing import describe_plain, findings
from halfopen.config.differences import differences
from halfopen.config.explaining import explain

Write = Callable[..., Path]

GROUP = """
[breaker.b{0}]
template = "base"
[retry.r{0}]
on = "OSError"
[timeout.t{0}]
seconds = 1
[pipeline.p{0}]
policies = ["breaker.b{0}", "retry.r{0}", "timeout.t{0}"]
"""


def right(groups: int) -> str:
    return "[template.breaker.base]\nminimum_calls = 5\n" + "".join(GROUP.format(n) for n in range(groups))


def steps(run: Callable[[], object]) -> int:
    """Return how many calls of functions *run* comes to; they do not depend on the machine or its load."""
    count = 0

    def step(*_: Any) -> None:
        nonlocal count
        count += 1

    before = sys.getprofile()
    gc.collect()
    gc.disable()  # its callbacks would be counted
    sys.setprofile(step)
    try:
        run()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count


WORK: dict[str, Callable[[Path], object]] = {
    "load": load,
    "lint": lambda path: findings(load(path)),
    "explain": lambda path: explain(load(path)),
    "describe": lambda path: describe_plain(load(path)),
    "diff": lambda path: differences(load(path), load(path)),
    "reload": lambda path: Registry.from_file(path).reload(),
}


@pytest.mark.parametrize("what", WORK)
def test_the_work_grows_with_the_number_of_policies(write: Write, what: str) -> None:
    small, large = write(right(20), "small.toml"), write(right(120), "large.toml")
    WORK[what](small)  # imports, caches

    few, many = (steps(lambda path=path: WORK[what](path)) for path in (small, large))  # type: ignore[misc]

    assert many < 6.5 * few


WRONG: dict[str, Callable[[int], str]] = {
    "unknown policies": lambda n: "".join(
        f'[breaker.name-{i:05}]\n[pipeline.p{i}]\npolicies = ["breaker.nam-{i:05}"]\n' for i in range(n)
    ),
    "unknown templates": lambda n: "".join(
        f'[template.breaker.name-{i:05}]\n[breaker.b{i}]\ntemplate = "nam-{i:05}"\n' for i in range(n)
    ),
    "unknown settings": lambda n: "[breaker.a]\n" + "".join(f"key{i} = 5\n" for i in range(n)),
    "unknown errors": lambda n: "[breaker.a]\non = [" + ", ".join(f"'OSEror{i}'" for i in range(n)) + "]",
    "missing settings": lambda n: "".join(f"[retry.r{i}]\n" for i in range(n)),
}


@pytest.mark.parametrize("what", WRONG)
def test_the_work_does_not_grow_with_the_square_of_the_mistakes(
    write: Write, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items, "MOST_COMPARED", 1000)  # for a shorter test

    def wrong(path: Path) -> None:
        with pytest.raises(ConfigError):
            load(path)

    small, large = write(WRONG[what](200), "small.toml"), write(WRONG[what](1200), "large.toml")
    wrong(small)

    few, many = (steps(lambda path=path: wrong(path)) for path in (small, large))  # type: ignore[misc]

    assert many < 9 * few


def test_a_policy_is_found_without_a_look_at_the_others() -> None:
    registry = Registry()
    for number in range(50):
        registry.add(Bulkhead(f"b{number}", 1))

    few = steps(lambda: registry["bulkhead.b49"])
    for number in range(50, 1000):
        registry.add(Bulkhead(f"b{number}", 1))

    assert few == steps(lambda: registry["bulkhead.b999"])


def test_a_pipeline_of_more_policies_than_the_stack_has_room_for_is_refused(write: Write) -> None:
    text = "".join(f"[bulkhead.b{n}]\nlimit = 1\n" for n in range(201))
    listed = ", ".join(f'"bulkhead.b{n}"' for n in range(201))

    with pytest.raises(ConfigError, match="a pipeline has at most 200 policies"):
        load(write(f"{text}[pipeline.p]\npolicies = [{listed}]"))
    with pytest.raises(ConfigError, match="at most 200"):
        Pipeline(*(Bulkhead(f"b{n}", 1) for n in range(201)))


def test_a_pipeline_of_as_many_policies_as_may_be_runs() -> None:
    pipeline = Pipeline(*(Bulkhead(f"b{n}", 1) for n in range(200)))

    assert 7 == pipeline.call(lambda: 7) == pipeline(lambda: 7)()


@pytest.mark.parametrize(
    "text",
    [
        "a." * 40_000 + "b = 1",
        "[" + "a." * 40_000 + "b]",
        "x = {" + "a." * 40_000 + "b = 1}",
        '"x".' * 40_000 + "b = 1",
        "x = \x01\n" + "a." * 40_000 + "b = 1",
    ],
)
def test_a_key_of_too_many_parts_is_refused_before_it_costs_gigabytes(write: Write, text: str) -> None:
    with pytest.raises(ConfigError, match="nested too deeply"):
        load(write(text))


def test_a_text_with_many_dots_is_no_key(write: Write) -> None:
    path = write(f'[fallback.f]\non = "OSError"\nvalue = "{"a." * 2000}"')

    assert "a." * 2000 == load(path).entries[0].values["value"]
