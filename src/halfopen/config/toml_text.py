"""Write a document as TOML."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from halfopen.config.items import Item
from halfopen.config.settings import KINDS

__all__ = ["to_toml"]

_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def to_toml(root: Item, head: Iterable[str] = (), notes: Mapping[str, list[str]] | None = None) -> str:
    """
    Return a document as the text of a `halfopen.toml`.

    Args:
        root: Kinds, names and settings.
        head: Lines of comment for the top.
        notes: Further comments by the title of an entry, such as ``breaker.payments``.
    """
    lines = [f"# {line}".rstrip() for line in head]
    tables = root.table
    for section, of_kind in tables.get("template", Item({}, ())).table.items():
        lines += _entries(("template", section), of_kind, notes or {})
    for section in KINDS:
        if section in tables:
            lines += _entries((section,), tables[section], notes or {})
    return "\n".join(lines).strip("\n") + "\n"


def _entries(path: tuple[str, ...], table: Item, notes: Mapping[str, list[str]]) -> list[str]:
    lines: list[str] = []
    for name, entry in table.table.items():
        lines += ["", *(f"# {note}" for note in notes.get(".".join((*path, name)), ()))]
        lines.append("[" + ".".join(_key(part) for part in (*path, name)) + "]")
        lines += [f"{_key(key)} = {_value(item)}" for key, item in entry.table.items()]
    return lines


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _value(item: Item) -> str:
    if item.is_table:
        inner = ", ".join(f"{_key(below)} = {_value(each)}" for below, each in item.table.items())
        return f"{{ {inner} }}" if inner else "{}"
    if item.is_list:
        return "[" + ", ".join(_value(each) for each in item.parts) + "]"
    return _scalar(item.value)


def _scalar(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if math.isfinite(value):
            return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return repr(value) if isinstance(value, int) else _text(str(value))


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\u{ord(found[0]):04x}", escaped) + '"'
