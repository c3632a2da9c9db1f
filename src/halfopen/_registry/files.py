"""The file that a registry's policies come from, and the occasions to read it again."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from halfopen._registry.shelf import Shelf

if TYPE_CHECKING:
    from halfopen.config import Changes

__all__ = ["FromFile"]


class FromFile(Shelf):
    """The part of a registry that loads a file and follows it."""

    def load(self, path: str | os.PathLike[str], *, names: Mapping[str, Any] | None = None) -> Changes:
        """
        Put the policies of a file in force, in place of those of the file before.

        A policy that is there already goes on under the settings of the file; so a breaker that was asked for before
        keeps its state.

        Args:
            path: `halfopen.toml`, the same as YAML, or the YAML of resilience4j.
            names: Objects that the file may name, such as classifiers.

        Raises:
            ConfigError: Something is wrong; every mistake is named, and nothing has changed.
        """
        from halfopen.config.reloading import Source

        registry: Any = self  # as a part of a whole one
        source = Source(registry, path, names or {}, self._source)
        changes: Changes = source.read_again()
        self._source = source
        return changes

    def reload(self) -> Changes:
        """
        Read the file again: all of it counts, or nothing.

        Breakers keep window, epoch, step, remaining wait and trial calls, the other policies what they hold and count.

        Raises:
            ConfigError: Something is wrong; every mistake is named, and nothing has changed.
            LookupError: There is no file: `load` one first.
        """
        changes: Changes = self._loaded().read_again()
        return changes

    def reload_on_change(self, every: float = 5.0) -> Callable[[], None]:
        """
        Look at the file every so many seconds and reload it when it has changed; return what ends that.

        What happened is logged by the logger ``halfopen``: a bad file changes nothing, and the log says why.

        Raises:
            LookupError: There is no file: `load` one first.
        """
        stop: Callable[[], None] = self._loaded().watch(every)
        return stop

    def reload_on_sighup(self) -> Callable[[], None]:
        """
        Reload the file on each SIGHUP, on a thread of its own; return what ends that. For the main thread only.

        Raises:
            LookupError: There is no file: `load` one first.
        """
        stop: Callable[[], None] = self._loaded().on_sighup()
        return stop

    def _loaded(self) -> Any:
        if self._source is None:
            raise LookupError("this registry was not made from a file: load() one first")
        return self._source
