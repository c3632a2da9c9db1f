"""The migration guides keep their word: the same calls, played to the code before and after, come to the same."""

from __future__ import annotations

import builtins
import inspect
import re
import types
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import halfopen
from halfopen.retry import exponential

GUIDES = Path(__file__).parent.parent / "docs" / "migration"
BREAKERS = ("pybreaker", "circuitbreaker")
RETRIES = ("tenacity", "stamina")
FENCE = re.compile(r"^```(?P<language>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)

Guard = Callable[[Callable[[], Any]], Callable[[], Any]]


def blocks(guide: str) -> list[str]:
    text = (GUIDES / f"{guide}.md").read_text(encoding="utf-8")
    return [found["body"] for found in FENCE.finditer(text) if found["language"] == "python"]


def sides(guide: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return what makes the guard of the rival and ours, out of the first blocks of the guide."""
    page = types.ModuleType("page")
    for block in blocks(guide)[:2]:
        exec(block, page.__dict__)
    return page.before, page.after


def played(guard: Guard, outcomes: Sequence[Exception | None], calls: int) -> tuple[list[str], list[int]]:
    """Return how each call ended, refusals under one name, and how often it reached the function."""
    script, reached = list(outcomes), [0]

    def fn() -> str:
        reached[-1] += 1
        outcome = script.pop(0) if script else None
        if outcome is not None:
            raise outcome
        return "fine"

    guarded = guard(fn)
    ends = []
    for _ in range(calls):
        try:
            ends.append(guarded())
        except Exception as error:
            own = isinstance(error, (ConnectionError, KeyError))
            ends.append(type(error).__name__ if own else "refused")
        reached.append(0)
    return ends, reached[:-1]


DOWN, BUG = ConnectionError("down"), KeyError("bug")
BREAKER_SCRIPTS = {
    "healthy": [None] * 5,
    "five failures in a row": [DOWN] * 5,
    "a success begins the row anew": [DOWN] * 4 + [None] + [DOWN] * 4 + [None],
    "opens after a success": [DOWN, None, DOWN, DOWN, DOWN, DOWN, DOWN],
    "errors that are no failures begin it anew": [DOWN] * 4 + [BUG] + [DOWN] * 4,
}


@pytest.mark.parametrize("script", BREAKER_SCRIPTS)
@pytest.mark.parametrize("guide", BREAKERS)
def test_a_breaker_reaches_the_dependency_as_often_as_before(guide: str, script: str) -> None:
    before, after = sides(guide)

    old = played(before(), BREAKER_SCRIPTS[script], 12)
    new = played(after(), BREAKER_SCRIPTS[script], 12)

    assert old[1] == new[1]
    # pybreaker raises its own error in place of the one that opened the circuit.
    differ = [pair for pair in zip(old[0], new[0], strict=True) if pair[0] != pair[1]]
    assert differ in ([], [("refused", "ConnectionError")] if guide == "pybreaker" else [])


RETRY_SCRIPTS = {
    "healthy": [],
    "mended by the second attempt": [DOWN],
    "mended by the last attempt": [DOWN, DOWN],
    "not mended": [DOWN] * 3,
    "not to be retried": [BUG],
    "not to be retried at the second attempt": [DOWN, BUG],
}


@pytest.mark.parametrize("script", RETRY_SCRIPTS)
@pytest.mark.parametrize("guide", RETRIES)
def test_a_retry_makes_as_many_attempts_as_before(guide: str, script: str) -> None:
    before, after = sides(guide)

    assert played(before(), RETRY_SCRIPTS[script], 3) == played(after(), RETRY_SCRIPTS[script], 3)


@pytest.mark.parametrize("guide", [*BREAKERS, *RETRIES])
def test_a_guide_names_the_version_it_runs_against(guide: str) -> None:
    from importlib.metadata import version

    text = (GUIDES / f"{guide}.md").read_text(encoding="utf-8")
    named = re.search(rf"against {guide} ([\d.]*\d)", text)

    assert named is not None
    assert version(guide).startswith(named[1])


OURS = [import_module(name) for name in ("halfopen", "halfopen.retry", "halfopen.testing")]
SETTINGS = {
    setting
    for name in halfopen.__all__
    if isinstance(thing := getattr(halfopen, name), type) and not issubclass(thing, Exception)
    for setting in inspect.signature(thing).parameters
} | {*inspect.signature(exponential).parameters, "reason", "by"}


def our_columns(guide: str) -> str:
    text = (GUIDES / f"{guide}.md").read_text(encoding="utf-8")
    return "\n".join(re.findall(r"^\|[^|]*\|(.*)\|$", text, re.MULTILINE))


@pytest.mark.parametrize("guide", sorted(path.stem for path in GUIDES.glob("*.md")))
def test_the_names_and_settings_that_a_guide_leads_to_exist(guide: str) -> None:
    column = our_columns(guide).replace("no `RetryError`", "")
    names = {one or other for one, other in re.findall(r"`([A-Z]\w+)`|\b([A-Z]\w+)\(", column)}

    strangers = [name for name in names if not any(hasattr(home, name) for home in (*OURS, builtins))]

    assert [] == strangers
    assert set() == {*re.findall(r"\b([a-z_]+)=", column)} - SETTINGS


def test_every_guide_shows_both_sides() -> None:
    shown = {path.stem: path.read_text(encoding="utf-8") for path in GUIDES.glob("*.md")}

    assert {"pybreaker", "circuitbreaker", "tenacity", "stamina", "resilience4j", "polly"} == {*shown}
    for guide in (*BREAKERS, *RETRIES):
        assert f"import {guide}" in shown[guide]
    assert all("from halfopen" in text for text in shown.values())
