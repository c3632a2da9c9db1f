"""A configuration: the policies of a file, checked, and what is worth knowing about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from halfopen.config.items import Item, is_list
from halfopen.config.notations import Reference
from halfopen.config.settings import KEYED_FIELDS, PolicyKind, Site

__all__ = ["Configuration", "Entry", "Note"]


@dataclass(frozen=True, slots=True)
class Note:
    """
    Something a reader of the file should know although it is no mistake.

    Attributes:
        path: Where.
        text: What.
        line: Its line, where known.
    """

    path: str
    text: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """
    One policy of a file.

    Attributes:
        kind: What it is.
        name: Its name; with a ``*`` it is a family.
        values: Its settings as the constructor takes them, those of its templates included.
        given: The same as they stand in the file.
        line: Where it begins, if known.
    """

    kind: PolicyKind
    name: str
    values: Mapping[str, Any]
    given: Mapping[str, Any]
    line: int | None = None
    place: Item = field(repr=False, compare=False)

    @property
    def keyed(self) -> bool:
        """Whether it is a family with one policy for each key."""
        return self.kind.keyed and "*" in self.name

    @property
    def title(self) -> str:
        """Kind and name, as a pipeline refers to it: ``breaker.payments``."""
        return f"{self.kind.section}.{self.name}"

    def make(self, site: Site) -> Any:
        """Make the policy; of a family, the one that serves as its template."""
        return self.kind.make(self.name, {k: v for k, v in self.values.items() if k not in self.family}, site)

    @property
    def family(self) -> dict[str, Any]:
        """What is set on the family rather than on its members."""
        return {key: self.values[key] for key in KEYED_FIELDS if self.kind.keyed and key in self.values}

    def references(self) -> Iterator[Reference]:
        """Yield the other policies it names."""
        for value in self.values.values():
            for part in value if is_list(value) else [value]:
                if isinstance(part, Reference):
                    yield part


@dataclass(frozen=True, slots=True)
class Configuration:
    """
    The policies of a file.

    Attributes:
        file: Its name.
        entries: The policies; what others refer to comes first.
        notes: What has no exact twin here, for a file of resilience4j.
    """

    file: str
    entries: tuple[Entry, ...]
    notes: tuple[Note, ...] = ()
    _by_title: dict[tuple[str, str], Entry] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_title", {(entry.kind.section, entry.name): entry for entry in self.entries})

    def find(self, section: str, name: str) -> Entry | None:
        """Return one entry; None if there is none."""
        return self._by_title.get((section, name))
