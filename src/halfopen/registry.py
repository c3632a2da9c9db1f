"""Named and keyed policies: one place that knows them all, and one stream of their events."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from halfopen._registry.breakers import Breakers
from halfopen._registry.files import FromFile
from halfopen._registry.keyed_breakers import DEFAULT_MAX_KEYS, KeyedBreakers
from halfopen._registry.shelf import kind_of_policy
from halfopen._runtime.clock import Clock

__all__ = ["DEFAULT_MAX_KEYS", "KeyedBreakers", "Registry", "kind_of_policy"]


class Registry(Breakers, FromFile):
    """
    Keep policies by name, and publish the events of all of them on one bus.

    Args:
        clock: The source of time of every policy made here, for tests.
    """

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], *, names: Mapping[str, Any] | None = None, clock: Clock | None = None
    ) -> Registry:
        """
        Return a registry with the policies of a configuration file; see `load`.

        Args:
            path: The file.
            names: Objects that the file may name, such as classifiers.
            clock: The source of time of every policy made here, for tests.

        Raises:
            ConfigError: Something is wrong; every mistake is named, with path and line.
        """
        registry = cls(clock=clock)
        registry.load(path, names=names)
        return registry

    def __repr__(self) -> str:
        return f"<Registry of {len(self._policies)} policies and {len(self._families)} families>"
