"""One module per policy, each with `CASES`; a new suite is a module here and its name in `SUITES`."""

from __future__ import annotations

from importlib import import_module

from benchmarks.measure import Case

__all__ = ["SUITES", "cases_of"]

SUITES = ("breaker", "policies", "instrumentation")


def cases_of(suite: str) -> list[Case]:
    """Return the cases of *suite*, with the libraries that are installed."""
    cases: list[Case] = import_module(f"benchmarks.suites.{suite}").CASES
    return cases
