"""
Small errors, planted everywhere in the pure core while it is imported: one copy of a function for each of them.

mutmut says which errors there are. Its way of choosing between the copies, at every call, makes the tests several times
slower; here a mutant is chosen once, by giving the function the code of the copy.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import FunctionType
from typing import Any

import libcst
from mutmut.mutation.file_mutation import mutate_file_contents

from tests.planted.planting import PACKAGE, Planter

__all__ = ["Mutant", "MutantDict", "modules", "mutated", "plant_all", "register", "watch"]

CORE = PACKAGE / "_core"
KEPT = PACKAGE.parents[1] / "mutants"

MutantDict = dict[str, FunctionType]

_CHOOSER = "from mutmut.mutation.trampoline import wrap_in_trampoline as _mutmut_mutated, MutantDict"
_OURS = "from tests.planted.mutants import register as _mutmut_mutated, MutantDict"

_registered: list[tuple[FunctionType, MutantDict]] = []


def register(mutants: MutantDict) -> Callable[[FunctionType], FunctionType]:
    """Remember a function and its mutants, which come into *mutants* later; the decorator of mutmut's sources."""

    def remember(function: FunctionType) -> FunctionType:
        _registered.append((function, mutants))
        return function

    return remember


@dataclass(frozen=True)
class Mutant:
    """One small error: the function, its copy with the error, and how the two differ."""

    module: str
    place: str
    number: int
    function: FunctionType
    copy: FunctionType
    difference: str

    @property
    def where(self) -> str:
        """The function, such as ``windows.CountedCalls.add``."""
        return f"{self.module}.{self.place}"

    @property
    def name(self) -> str:
        """The name in reports, such as ``windows.CountedCalls.add 3``."""
        return f"{self.where} {self.number}"

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Let the function do what its mutant does, in this process."""
        if len(self.function.__closure__ or ()) == len(self.copy.__closure__ or ()):
            before = _content(self.function)
            _fill(self.function, _content(self.copy))
            yield
            _fill(self.function, before)
        else:  # the error takes away `super()`, and with it the cell that holds the class
            owner, _, name = self.place.rpartition(".")
            holder = getattr(sys.modules[self.function.__module__], owner)
            setattr(holder, name, self.copy)
            yield
            setattr(holder, name, self.function)


def _content(function: FunctionType) -> tuple[Any, Any, Any]:
    return function.__code__, function.__defaults__, function.__kwdefaults__


def _fill(function: FunctionType, content: tuple[Any, Any, Any]) -> None:
    function.__code__, function.__defaults__, function.__kwdefaults__ = content


def watch(function: FunctionType, where: str, seen: set[str]) -> None:
    """Let a function add *where* to *seen* at each call, in this process and for good."""
    original = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    original.__kwdefaults__ = function.__kwdefaults__
    function.__globals__.update({"_mutmut_seen": seen, f"_mutmut {where}": original})
    watching: dict[str, FunctionType] = {}
    exec(_WATCHING.format(where=where), {}, watching)
    function.__code__ = watching["with_cell" if function.__closure__ else "plain"].__code__
    function.__defaults__ = function.__kwdefaults__ = None


_WATCHING = """
def plain(*args, **kwargs):
    _mutmut_seen.add({where!r})
    return globals()["_mutmut {where}"](*args, **kwargs)

def maker():
    __class__ = None
    def with_cell(*args, **kwargs):
        __class__
        _mutmut_seen.add({where!r})
        return globals()["_mutmut {where}"](*args, **kwargs)
    return with_cell

with_cell = maker()
"""


def modules() -> list[str]:
    """Return the names of the core's modules."""
    return sorted(path.stem for path in CORE.glob("*.py") if path.stem != "__init__")


class _OpenProperties(libcst.CSTTransformer):
    """Turn ``@property def x`` into ``def x`` and ``x = property(x)``: mutmut leaves decorated functions alone."""

    def leave_FunctionDef(
        self, original_node: libcst.FunctionDef, updated_node: libcst.FunctionDef
    ) -> libcst.FunctionDef | libcst.FlattenSentinel[libcst.BaseStatement]:
        decorators = [libcst.Module([]).code_for_node(one.decorator) for one in updated_node.decorators]
        if decorators != ["property"]:
            return updated_node
        name = updated_node.name.value
        closing = libcst.parse_statement(f"{name} = property({name})")
        return libcst.FlattenSentinel([updated_node.with_changes(decorators=()), closing])


@dataclass(frozen=True)
class Mutated:
    """A module with the mutants of all its functions, and the lines of each function there, from 1."""

    code: str
    lines: dict[str, tuple[int, int]]


def mutated(path: Path) -> Mutated:
    """Return a module's mutants; they are kept in mutants/ until it changes, because making them takes long."""
    source = path.read_text(encoding="utf-8")
    key = hashlib.sha256((source + version("mutmut")).encode()).hexdigest()[:16]
    kept = KEPT / f"{path.stem}-{key}.json"
    if not kept.exists():
        made = mutate_file_contents(str(path), libcst.parse_module(source).visit(_OpenProperties()).code)
        lines = {name: (span.start, span.end) for name, span in made.line_span_by_function_name.items()}
        KEPT.mkdir(exist_ok=True)
        kept.write_text(json.dumps({"code": made.code, "lines": lines}), encoding="utf-8")
    data = json.loads(kept.read_text(encoding="utf-8"))
    return Mutated(data["code"], {name: tuple(lines) for name, lines in data["lines"].items()})


def plant_all(names: list[str]) -> list[Mutant]:
    """Import halfopen with every mutant of these modules; none has begun yet."""
    files = {name: mutated(CORE / f"{name}.py") for name in names}
    changed = {(CORE / f"{name}.py").resolve(): file.code.replace(_CHOOSER, _OURS) for name, file in files.items()}
    planter = Planter(changed)
    sys.meta_path.insert(0, planter)
    for name in names:
        importlib.import_module(f"halfopen._core.{name}")
    planter.check()
    found = [mutant for function, mutants in _registered for mutant in _mutants(function, mutants, files)]
    return sorted(found, key=lambda mutant: names.index(mutant.module))


def _mutants(function: FunctionType, mutants: MutantDict, files: dict[str, Mutated]) -> Iterator[Mutant]:
    module = function.__module__.rpartition(".")[2]
    for name, copy in mutants.items():
        number = re.search(r"__mutmut_(\d+)$", name)
        if number is not None:
            original = name.removesuffix(number[0]) + "__mutmut_orig"
            difference = _difference(files[module], original, name)
            yield Mutant(module, function.__qualname__, int(number[1]), function, copy, difference)


def _difference(file: Mutated, original: str, name: str) -> str:
    lines = file.code.splitlines()
    before, after = (
        textwrap.dedent("\n".join(lines[start:end])).splitlines()
        for start, end in (file.lines[one] for one in (original, name))
    )
    changes = difflib.unified_diff(before, after, lineterm="", n=0)
    return "\n".join(line for line in changes if not line.startswith(("---", "+++", "@@")))
