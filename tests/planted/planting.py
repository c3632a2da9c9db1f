"""Import halfopen with a wrong rule planted."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.planted.wrong_rules import Change, WrongRule

__all__ = ["NotPlanted", "Planter", "changed_sources", "plant"]

PACKAGE = Path(__file__).parents[2] / "src" / "halfopen"
SEARCHED = ("_core", "_breaker", "classification.py")


class NotPlanted(Exception):
    """A wrong rule does not fit the source."""


def changed_sources(changes: Sequence[Change]) -> dict[Path, str]:
    """Return the changed modules by path; raise NotPlanted where a text is not found exactly once."""
    sources = {path: path.read_text(encoding="utf-8") for path in _modules()}
    changed: dict[Path, str] = {}
    for change in changes:
        holders = [path for path, source in sources.items() for _ in range(source.count(change.right))]
        if len(holders) != 1:
            raise NotPlanted(f"found {len(holders)} times: {change.right!r}")
        path = holders[0]
        changed[path] = changed.get(path, sources[path]).replace(change.right, change.wrong)
    return changed


def _modules() -> list[Path]:
    chosen = [PACKAGE / part for part in SEARCHED]
    return [path for part in chosen for path in ([part] if part.is_file() else sorted(part.glob("*.py")))]


class Planter(importlib.abc.MetaPathFinder):
    """A finder that changes the modules of one wrong rule while they are imported."""

    def __init__(self, changed: dict[Path, str]) -> None:
        self._changed = changed
        self._planted: set[Path] = set()

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if not fullname.startswith("halfopen"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None or Path(spec.origin).resolve() not in self._changed:
            return None
        return importlib.util.spec_from_file_location(
            fullname, spec.origin, loader=_Loader(fullname, spec.origin, self)
        )

    def code(self, path: str) -> Any:
        """Compile the changed source of a module."""
        file = Path(path).resolve()
        self._planted.add(file)
        return compile(self._changed[file], path, "exec", dont_inherit=True)

    def check(self) -> None:
        """Raise NotPlanted unless every changed module was imported."""
        missing = self._changed.keys() - self._planted
        if missing:
            raise NotPlanted(f"never imported: {sorted(str(path) for path in missing)}")


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, planter: Planter) -> None:
        super().__init__(name, path)
        self._planter = planter

    def get_code(self, fullname: str) -> Any:
        return self._planter.code(self.path)


def plant(rule: WrongRule) -> Planter:
    """Plant a wrong rule into the halfopen that is imported from now on; the one imported before is forgotten."""
    changed = changed_sources(rule.changes)
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Planter)]
    for name in [name for name in sys.modules if name.partition(".")[0] == "halfopen"]:
        del sys.modules[name]
    planter = Planter(changed)
    sys.meta_path.insert(0, planter)
    return planter
