"""Read a file into items: TOML or YAML, bounded, with the line of everything."""

from __future__ import annotations

import errno
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from halfopen.config.items import DEEPEST, Findings, Item, Path, is_endless
from halfopen.config.toml_lines import Statement, TomlLines, scan
from halfopen.config.values import MissingVariableError, substitute

__all__ = ["LARGEST", "is_yaml", "read_text", "read_toml", "substituted"]

LARGEST = 1024 * 1024
"""Bytes; a larger file is no configuration, and is not read."""

MOST_DOTS = 1000
_LONG_NUMBER = re.compile(r"[0-9a-fA-F_]{1000}")
_AT_LINE = re.compile(r" \(at line (\d+), column (\d+)\)| \(at end of document\)")
_REPEATED = "repeated-header-"
_REASONS = {
    errno.ENOENT: "there is no such file",
    errno.EISDIR: "this is a directory, not a file",
    errno.EACCES: "it may not be read by this user",
    errno.ENOTDIR: "a part of the path is a file, not a directory",
}


def is_yaml(path: str) -> bool:
    """Say by its name whether a file is YAML; anything else is TOML."""
    return path.lower().endswith((".yml", ".yaml"))


def read_text(path: str | os.PathLike[str], findings: Findings) -> str | None:
    """Return the text of a file, or None with a mistake noted."""
    try:
        # A pipe or a device could be read for ever.
        if not stat.S_ISREG(os.stat(path).st_mode):
            what = "a directory" if FilePath(path).is_dir() else "something else"
            findings.unreadable(f"this is {what}, not a file")
            return None
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = _REASONS.get(getattr(error, "errno", None) or 0)
        findings.unreadable(reason or f"it cannot be read: {getattr(error, 'strerror', None) or error}")
        return None
    if len(data) > LARGEST:
        findings.unreadable("it is larger than 1 MiB, which no configuration is; nothing of it was read")
        return None
    return _decoded(data, findings)


def _decoded(data: bytes, findings: Findings) -> str | None:
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        findings.unreadable(f"byte {error.start} (0x{data[error.start]:02x}) is not UTF-8", line)
        return None


def read_toml(text: str, findings: Findings) -> Item | None:
    """Return the items of a TOML text; what is given twice is noted, and its first value counts."""
    seen = scan(text)
    # For a key of 40,000 parts tomllib needs 6 GB.
    if seen.too_deep or (seen.lost and any(line.count(".") > MOST_DOTS for line in text.split("\n"))):
        findings.unreadable("not a configuration: nested too deeply")
        return None
    try:
        data = tomllib.loads(_without(text, seen.repeated))
    except tomllib.TOMLDecodeError as error:
        _note_repeated(seen, findings)
        found = _AT_LINE.search(str(error))
        line = int(found[1]) if found and found[1] else text.count("\n") + 1
        column = f" (column {found[2]})" if found and found[2] else ""
        findings.unreadable(f"not TOML: {_AT_LINE.sub('', str(error))}{column}", line)
        return None
    except RecursionError:
        findings.unreadable("not a configuration: nested too deeply")
        return None
    except ValueError:  # of int()
        _note_long_number(text, findings)
        return None
    _note_repeated(seen, findings)
    for number in range(len(seen.repeated)):
        data.pop(f"{_REPEATED}{number}", None)
    try:
        return _items(data, (), seen.lines)
    except RecursionError:
        findings.unreadable("not a configuration: nested too deeply")
        return None
    except OverflowError:
        _note_long_number(text, findings)
        return None


def _note_long_number(text: str, findings: Findings) -> None:
    found = _LONG_NUMBER.search(text)
    findings.unreadable("a number has too many digits", text.count("\n", 0, found.start()) + 1 if found else None)


def _without(text: str, repeated: list[Statement]) -> str:
    """Blank out repeated settings, and give repeated headers a name of their own; lines stay where they are."""
    parts: list[str] = []
    done = 0
    for number, again in enumerate(repeated):
        old = text[again.start : again.end]
        new = f"[{_REPEATED}{number}]" if again.header else re.sub(r"[^\n]", " ", old)
        parts += [text[done : again.start], new]
        done = again.end
    return "".join([*parts, text[done:]])


def _note_repeated(seen: TomlLines, findings: Findings) -> None:
    for again in seen.repeated:
        first = seen.lines[again.path]
        what = "the table" if again.header else "the setting"
        where = Item(None, again.path, again.line)
        findings.wrong(where, f"{what} is given twice; the first time in line {first}", "conflict")


def _items(value: Any, path: Path, lines: Mapping[Path, int]) -> Item:
    if len(path) > DEEPEST:
        raise RecursionError
    line = lines.get(path)
    bare = Item(value, path)  # its values are no items yet
    if bare.is_table:
        table: dict[str, Any] = value
        return Item({key: _items(below, (*path, key), lines) for key, below in table.items()}, path, line)
    if bare.is_list:
        parts: list[Any] = value
        return Item([_items(below, (*path, str(n)), lines) for n, below in enumerate(parts)], path, line)
    if is_endless(value):
        raise OverflowError
    return Item(value, path, line)


def substituted(item: Item, environment: Mapping[str, str], findings: Findings, *, spring: bool = False) -> Item:
    """Return *item* with the variables in its texts filled in; those that cannot be are noted, and left out."""
    value = item.value
    if isinstance(value, str):
        try:
            value = substitute(value, environment, spring=spring)
        except MissingVariableError as error:
            findings.wrong(item, str(error), "missing")
            return Item(None, item.path, item.line, UNSET)
    elif item.is_table:
        below = {key: substituted(part, environment, findings, spring=spring) for key, part in item.table.items()}
        value = {key: part for key, part in below.items() if part.shown is not UNSET}
    elif item.is_list:
        parts = [substituted(part, environment, findings, spring=spring) for part in item.parts]
        value = [part for part in parts if part.shown is not UNSET]
    return Item(value, item.path, item.line, item.shown)


UNSET = object()
"""Shown by an item whose variable is missing; it has been noted already."""
