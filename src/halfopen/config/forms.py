"""The forms of values: how each setting is written in a file, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from halfopen.config.items import Findings, Item, plain
from halfopen.config.values import FromEnvironment, parse_duration, parse_share
from halfopen.errors import ConfigError, Mistake

__all__ = [
    "WRONG", "Form", "Reader", "anything", "duration", "flag", "named", "number", "one_of", "optional",
    "place_mistakes", "share", "table", "text", "texts", "whole",
]  # fmt: skip

WRONG: Final = object()
"""What a form returns for a value it has noted as wrong."""

DURATION = 'a duration such as 30 (seconds), "30s" or "1m30s"'
SHARE = 'a share such as 0.5 or "50%"'


@dataclass(slots=True)
class Reader:
    """
    What forms need beside the value.

    Attributes:
        findings: Where mistakes go.
        names: Objects of the program that a file may name.
        imports: Whether modules that a file names are imported.
    """

    findings: Findings
    names: Mapping[str, Any] = field(default_factory=dict[str, Any])
    imports: bool = True


Form = Callable[[Reader, Item], Any]


def anything(reader: Reader, item: Item) -> Any:
    """Take the value as it is."""
    return plain(item)


def _read_number(item: Item, read: Callable[[str], Any]) -> Any:
    # The constructor judges what is no number; only what came from the environment must be a text.
    if isinstance(item.value, FromEnvironment):
        try:
            return read(item.value.strip())
        except ValueError:
            return str(item.value)
    return plain(item)


def whole(reader: Reader, item: Item) -> Any:
    """Read a whole number."""
    return _read_number(item, int)


def number(reader: Reader, item: Item) -> Any:
    """Read a number."""
    return _read_number(item, float)


def flag(reader: Reader, item: Item) -> Any:
    """Read true or false."""
    if isinstance(item.value, FromEnvironment):
        return {"true": True, "false": False}.get(item.value.strip().lower(), str(item.value))
    return plain(item)


def text(reader: Reader, item: Item) -> Any:
    """Read a text."""
    if isinstance(item.value, str):
        return str(item.value)
    reader.findings.wrong(item, "a text")
    return WRONG


def duration(reader: Reader, item: Item) -> Any:
    """Read a number of seconds, or a text with units."""
    return _measure(reader, item, parse_duration, DURATION)


def share(reader: Reader, item: Item) -> Any:
    """Read a number, or a percentage."""
    return _measure(reader, item, parse_share, SHARE)


def _measure(reader: Reader, item: Item, parse: Callable[[str], float | None], allowed: str) -> Any:
    value = item.value
    if not isinstance(value, str):
        return plain(item)
    read = parse(value)
    if read is None and isinstance(value, FromEnvironment):
        given = _read_number(item, float)
        read = None if isinstance(given, str) else given
    if read is None:
        reader.findings.wrong(item, allowed)
        return WRONG
    return read


def optional(form: Form) -> Form:
    """Read "none", for a setting that can be switched off, or what *form* reads."""

    def read(reader: Reader, item: Item) -> Any:
        if item.value is None or (isinstance(item.value, str) and item.value.strip().lower() == "none"):
            return None
        return form(reader, item)

    return read


def one_of(**choices: Any) -> Form:
    """Read one of some words."""

    def read(reader: Reader, item: Item) -> Any:
        word = item.value.strip().lower() if isinstance(item.value, str) else None
        if word in choices:
            return choices[word]
        near = None if word is None else reader.findings.nearest(word, choices)
        words = ", ".join(f'"{choice}"' for choice in choices)
        reader.findings.wrong(item, f"one of {words}", suggestion=near)
        return WRONG

    return read


def texts(reader: Reader, item: Item) -> Any:
    """Read a table of texts, such as tags."""
    if not item.is_table:
        reader.findings.wrong(item, "a table of texts")
        return WRONG
    read = {key: text(reader, below) for key, below in item.table.items()}
    return WRONG if WRONG in read.values() else read


def table(make: Callable[..., Any], fields: Mapping[str, Form], example: str) -> Form:
    """Read a table of settings and make an object of it."""

    def read(reader: Reader, item: Item) -> Any:
        if not item.is_table:
            reader.findings.wrong(item, f"a table such as {example}")
            return WRONG
        before = len(reader.findings.mistakes)
        values = named(reader, item.value, fields)
        try:
            made = make(**values)
        except ConfigError as error:
            place_mistakes(reader, item, item.value, error.mistakes, partial=len(reader.findings.mistakes) > before)
            return WRONG
        except TypeError:
            missing = [key for key in fields if key not in item.value]
            reader.findings.wrong(item, f"a table such as {example}; {', '.join(missing)} is missing", "missing")
            return WRONG
        return made if len(reader.findings.mistakes) == before else WRONG

    return read


def named(reader: Reader, items: Mapping[str, Item], fields: Mapping[str, Form]) -> dict[str, Any]:
    """Read the settings of a table; note those that do not exist, and leave out those that are wrong."""
    values: dict[str, Any] = {}
    for key, item in items.items():
        if key not in fields:
            reader.findings.unknown(item, fields)
            continue
        value = fields[key](reader, item)
        if value is not WRONG:
            values[key] = value
    return values


def place_mistakes(
    reader: Reader, where: Item, items: Mapping[str, Item], mistakes: Iterable[Mistake], *, partial: bool
) -> None:
    """
    Note what a constructor found, at the place in the file.

    Args:
        reader: Where mistakes go.
        where: The table.
        items: Its settings.
        mistakes: What the constructor found; paths begin with a setting.
        partial: Whether settings were left out because they are wrong; conflicts with their defaults are then none.
    """
    for mistake in mistakes:
        if partial and mistake.kind in ("conflict", "missing"):
            continue
        head = mistake.path.partition(".")[0].partition("[")[0]
        item = items.get(head)
        if item is None:
            reader.findings.wrong(where, mistake.allowed, mistake.kind, value=mistake.value, below=mistake.path)
        else:
            reader.findings.wrong(item, mistake.allowed, mistake.kind, suggestion=mistake.suggestion)
