"""
One module per known half-open fault.

Each has `FAULT` (what goes wrong), `RIGHT` (what passes), `NEEDS` (what the library must offer, see
`Adapter.lacks`), `COLOURS`, and `play(stage)`, which returns a `Verdict`.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

__all__ = ["SCENARIOS", "load_scenario"]

# The order of the rows.
SCENARIOS = (
    "herd",
    "hung_trial",
    "cancelled_trial",
    "late_success",
    "late_failure",
    "ignored_trial",
    "recursion",
    "raising_classifier",
    "raising_listener",
    "interrupt",
    "clock_step",
    "slow_call_blocking_others",
)


def load_scenario(name: str) -> ModuleType:
    """Return the module of the scenario *name*."""
    return import_module(f"rivals.scenarios.{name}")
