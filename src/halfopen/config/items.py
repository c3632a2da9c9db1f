"""Values that know where they stand in their file, and the mistakes found in them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, time
from typing import Any, TypeGuard, cast

from halfopen._core.checking import nearest
from halfopen.errors import ConfigError, Mistake

__all__ = ["DEEPEST", "Findings", "Item", "Path", "dotted", "is_endless", "is_list", "is_mapping", "plain"]

Path = tuple[str, ...]

_PLAIN_KEY = re.compile(r"""[^\s."'\[\]\\\x00-\x1f\x7f-\x9f]+""")
MOST_MISTAKES = 1000
MOST_COMPARED = 20_000
MOST_BITS = 10_000
DEEPEST = 100
"""Tables in tables, or templates of templates; what is deeper is no configuration."""


@dataclass(frozen=True, slots=True)
class Item:
    """
    A value of a file.

    Attributes:
        value: A scalar, a list of items, or a mapping from text to items.
        path: Its place: ``("breaker", "payments", "window")``.
        line: The line where it is given, from 1; None where nobody can know.
        shown: What messages show in its place, where the file has another notation.
    """

    value: Any
    path: Path
    line: int | None = None
    shown: Any = None

    @property
    def is_table(self) -> bool:
        """Whether it holds further settings by name."""
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        """Whether it is a list."""
        return isinstance(self.value, list)

    @property
    def table(self) -> dict[str, Item]:
        """The settings in it by name; none where it is no table."""
        return cast("dict[str, Item]", self.value) if self.is_table else {}

    @property
    def parts(self) -> list[Item]:
        """The elements of a list; none where it is no list."""
        return cast("list[Item]", self.value) if self.is_list else []


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Say whether *value* is a list or a tuple."""
    return isinstance(value, (list, tuple))


def is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Say whether *value* is a mapping."""
    return isinstance(value, Mapping)


def is_endless(value: object) -> bool:
    """Say whether *value* is a whole number of more digits than Python prints."""
    return isinstance(value, int) and value.bit_length() > MOST_BITS


def plain(item: Any) -> Any:
    """Return the bare value of an item, of a list of items, or of a mapping to items."""
    given = item if isinstance(item, Item) else Item(item, ())
    if given.is_table:
        return {key: plain(below) for key, below in given.table.items()}
    if given.is_list:
        return [plain(below) for below in given.parts]
    value = given.value
    # A text from the environment is a text like any other to the program.
    return str(value) if isinstance(value, str) else value


def dotted(path: Path) -> str:
    """Return a path as text of one line; a key that could be misread stands in quotation marks."""
    return ".".join(key if _PLAIN_KEY.fullmatch(key) and key.isprintable() else _quoted(key) for key in path)


def _quoted(key: str) -> str:
    # What cannot be seen is escaped: it could turn the line around, or clear the screen.
    return json.dumps(key, ensure_ascii=not key.isprintable())


@dataclass(slots=True)
class Findings:
    """
    The mistakes of one file, collected.

    Attributes:
        file: Its name.
        mistakes: What was found.
        told: The paths of that.
        compared: With how many names others were compared, to find the nearest.
    """

    file: str
    mistakes: list[Mistake] = field(default_factory=list[Mistake])
    told: set[str] = field(default_factory=set[str])
    compared: int = 0

    def wrong(
        self,
        where: Item,
        allowed: str,
        kind: str = "wrong_type",
        *,
        suggestion: str | None = None,
        value: Any = None,
        below: str = "",
    ) -> None:
        """Note a mistake at *where*, or at the setting *below* it that is not given."""
        if len(self.mistakes) >= MOST_MISTAKES:
            return
        path = dotted(where.path) + (f".{below}" if below else "")
        shown = where.shown if where.shown is not None else plain(where) if value is None else value
        shown = shown.isoformat() if isinstance(shown, (date, time)) else shown
        mistake = Mistake(path, shown, allowed, kind, suggestion, self.file, where.line)
        if mistake not in self.mistakes[-20:]:
            self.mistakes.append(mistake)
            self.told.add(path)

    def unknown(self, where: Item, known: Iterable[str]) -> None:
        """Note a key that does not exist, with the nearest one that does."""
        if len(self.mistakes) >= MOST_MISTAKES:
            return
        names = sorted(known)
        near = self.nearest(where.path[-1], names)
        self.wrong(where, "one of " + ", ".join(names), "unknown_key", suggestion=near)

    def nearest(self, name: str, known: Collection[str]) -> str | None:
        """Return the one of *known* that was probably meant; None if none is near, or too many were compared before."""
        self.compared += len(known)
        return nearest(name, known) if self.compared <= MOST_COMPARED else None

    def unreadable(self, allowed: str, line: int | None = None) -> None:
        """Note that the file, or the rest of it, cannot be read."""
        self.mistakes.append(Mistake("", None, allowed, "unreadable", None, self.file, line))

    def done(self) -> None:
        """
        End the search.

        Raises:
            ConfigError: Something was found; in the order of the file, each mistake once.
        """
        if self.mistakes:
            # A template's mistake is found again wherever it is inherited.
            once: dict[Any, Mistake] = {}
            for mistake in self.mistakes:
                once.setdefault((mistake.path, mistake.kind, mistake.kind == "unknown_key" or mistake.allowed), mistake)
            raise ConfigError(sorted(once.values(), key=lambda mistake: mistake.line or 0))
