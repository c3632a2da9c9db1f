"""The circuit breakers: closed, each with its defaults, and called in every style it has."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.measure import BARE, Case, Loop
from benchmarks.suites import _loops as loops
from benchmarks.suites._breakers import BREAKERS

__all__ = ["CASES"]


def _case(name: str, style: str, target: float | None, threads: tuple[int, ...] = (1,), note: str = "") -> Case:
    contestants: dict[str, Callable[[], Loop]] = {BARE: partial(loops.bare, style)}
    for library, breakers in BREAKERS.items():
        if style in breakers.styles:
            contestants[library] = partial(loops.guarded, breakers, style)
    return Case(name, contestants, target, threads, note)


CASES = [
    _case("sync call", "call", 220, (1, 2, 8)),
    _case("sync call, 2 arguments + 1 keyword", "keywords", 260),
    _case("async call", "acall", 340, note="awaited one after the other in one event loop"),
    _case(
        "block",
        "block",
        450,
        (1, 2, 8),
        note="bare is the call without a block; circuitbreaker's block never refuses, it only records",
    ),
    _case("refused call, raised and caught", "refused", 800, (1, 2, 8), note="bare is the call made"),
    _case(
        "failing call, caught",
        "failing",
        1500,
        (1, 2, 8),
        note="bare is the exception raised and caught without a breaker",
    ),
    _case("generator of 3", "generator", None, note="libraries that guard a generator to its end"),
]
