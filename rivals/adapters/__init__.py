"""How each library is used, by its own documentation, behind one small face."""

from __future__ import annotations

from importlib import import_module

from rivals.adapters.base import Adapter, Guard, Wishes

__all__ = ["ADAPTERS", "Adapter", "Guard", "Wishes", "load_adapter"]

# The order of the columns: the name on the package index, and the module here that knows the library.
ADAPTERS = {
    "halfopen": "halfopen_",
    "pybreaker": "pybreaker_",
    "circuitbreaker": "circuitbreaker_",
    "aiobreaker": "aiobreaker_",
    "purgatory": "purgatory_",
    "hyx": "hyx_",
    "interlock-cb": "interlock_",
}


def load_adapter(name: str) -> Adapter:
    """
    Return the adapter of the library *name*, or the one at ``module:attribute``.

    Raises:
        KeyError: There is no such adapter.
        ImportError: The library is not installed.
    """
    module, _, attribute = name.rpartition(":")
    if not module:
        module, attribute = f"rivals.adapters.{ADAPTERS[name]}", "ADAPTER"
    adapter: Adapter = getattr(import_module(module), attribute)
    return adapter
