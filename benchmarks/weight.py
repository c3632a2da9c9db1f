"""What a library weighs: milliseconds to import it, bytes per breaker."""

from __future__ import annotations

import gc
import os
import random
import statistics
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.suites._breakers import BREAKERS, Breakers

__all__ = ["IMPORT_TARGET", "Weights", "bytes_per_breaker", "import_rounds"]

IMPORT_TARGET = 40.0
_PYTHON = "bare Python"


@dataclass
class Weights:
    """
    One row of weights.

    Attributes:
        name: What was weighed, with its unit.
        values: The weight of each library.
        target: What halfopen shall not exceed, if there is such a promise.
    """

    name: str
    values: dict[str, float] = field(default_factory=dict)
    target: float | None = None


def import_rounds(rounds: int) -> Iterator[Weights]:
    """Yield, after each of *rounds*, the median CPU milliseconds of importing each library in a fresh interpreter."""
    modules = {_PYTHON: "", **{library: breakers.module for library, breakers in BREAKERS.items()}}
    taken: dict[str, list[float]] = {name: [] for name in modules}
    for module in modules.values():
        _cpu_of_import(module)  # Writes the byte code and warms the file cache.
    order = list(modules)
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            taken[name].append(_cpu_of_import(modules[name]))
        yield Weights("import, CPU ms above bare Python", _above(taken), IMPORT_TARGET)


def bytes_per_breaker(calls: int, number: int = 2000) -> Weights:
    """Return the bytes of one breaker of each library, after *calls* successful calls through it."""
    name = f"bytes per breaker, {'new' if calls == 0 else f'after {calls} calls'}"
    weights = Weights(name)
    for library, breakers in BREAKERS.items():
        if "call" in breakers.styles:
            weights.values[library] = _bytes(breakers, calls, number if calls == 0 else number // 4)
    return weights


def _cpu_of_import(module: str) -> float:
    # Byte code that may not be written would be compiled anew by each of them.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen([sys.executable, "-c", f"import {module}" if module else "pass"], env=environment)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return (used.ru_utime + used.ru_stime) * 1e3


def _above(taken: dict[str, list[float]]) -> dict[str, float]:
    bare = taken[_PYTHON]
    return {
        name: statistics.median(mine - python for mine, python in zip(times, bare, strict=False))
        for name, times in taken.items()
        if name != _PYTHON
    }


def _bytes(breakers: Breakers, calls: int, number: int) -> float:
    kept = [_used(breakers.make(), calls) for _ in range(8)]
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = [_used(breakers.make(), calls) for _ in range(number)]
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return (taken - sys.getsizeof(kept)) / number


def _used(breaker: Any, calls: int) -> Any:
    if calls:
        guarded = breaker(_nothing)
        for _ in range(calls):
            guarded()
    return breaker


def _nothing() -> None:
    pass
