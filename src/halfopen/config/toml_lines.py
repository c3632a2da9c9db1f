"""Where things stand in a TOML text: a small scanner beside `tomllib`, which gives values but no lines."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from dataclasses import dataclass

from halfopen.config.items import Path

__all__ = ["Statement", "TomlLines", "scan"]

_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BASIC = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_LITERAL = re.compile(r"'([^'\n]*)'")
_LONG = re.compile(r'"""(?:[^\\]|\\.)*?"""+' + r"|'''.*?'''+", re.DOTALL)
_SCALAR = re.compile(r"[^,\]}#\n]+")
DEEPEST = 100


@dataclass(frozen=True, slots=True)
class Statement:
    """A table header or a setting: its path, its place in the text, and whether it is a header."""

    path: Path
    line: int
    start: int
    end: int
    header: bool


@dataclass(slots=True)
class TomlLines:
    """
    What the scanner saw.

    Attributes:
        lines: The line of each path.
        repeated: The statements whose path had been given before.
        too_deep: Whether it gave up at a key, or a value, of too many parts.
        lost: Whether it gave up.
    """

    lines: dict[Path, int]
    repeated: list[Statement]
    too_deep: bool = False
    lost: bool = False


class _LostError(Exception):
    """The text is no TOML from here on; `tomllib` will say why."""


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.deep = 0
        self.starts = [0, *(found.end() for found in re.finditer("\n", text))]
        self.seen = TomlLines({}, [])
        self.given: set[tuple[Path, bool]] = set()
        self.rows: dict[Path, int] = {}  # tables of an array so far

    def run(self) -> TomlLines:
        table: Path = ()
        try:
            while self.skip(_BLANK) < len(self.text):
                if self.text[self.at] == "[":
                    table = self.header()
                else:
                    self.setting(table, statement=True)
        except (_LostError, IndexError):
            self.seen.lost = True
        return self.seen

    def skip(self, what: re.Pattern[str]) -> int:
        found = what.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return self.at

    def want(self, text: str) -> None:
        self.skip(_SPACE)
        if not self.text.startswith(text, self.at):
            raise _LostError
        self.at += len(text)

    def header(self) -> Path:
        start = self.at
        array = self.text.startswith("[[", start)
        self.want("[[" if array else "[")
        path = self.placed(self.key())
        self.want("]]" if array else "]")
        if array:
            self.rows[path] = self.rows.get(path, -1) + 1
            path = (*path, str(self.rows[path]))
        self.note(Statement(path, self.line(start), start, self.at, header=True))
        return path

    def placed(self, key: Path) -> Path:
        """Return the path of a header; below an array of tables it belongs to the last one."""
        path: Path = ()
        for number, part in enumerate(key):
            path = (*path, part)
            if path in self.rows and number < len(key) - 1:
                path = (*path, str(self.rows[path]))
        return path

    def key(self) -> Path:
        parts = [self.part()]
        while self.skip(_SPACE) < len(self.text) and self.text[self.at] == ".":
            self.at += 1
            parts.append(self.part())
            if len(parts) > DEEPEST:
                self.seen.too_deep = True
                raise _LostError
        return tuple(parts)

    def part(self) -> str:
        self.skip(_SPACE)
        for form in (_BARE, _BASIC, _LITERAL):
            found = form.match(self.text, self.at)
            if found:
                self.at = found.end()
                key = found[form.groups]
                return _unescaped(found[0]) if form is _BASIC and "\\" in key else key
        raise _LostError

    def setting(self, table: Path, *, statement: bool) -> None:
        start = self.at
        path = (*table, *self.key())
        self.want("=")
        self.skip(_SPACE)
        self.value(path)
        if statement:
            self.note(Statement(path, self.line(start), start, self.at, header=False))
        self.seen.lines.setdefault(path, self.line(start))

    def value(self, path: Path) -> None:
        self.deep += 1
        first = self.text[self.at]
        if self.deep > DEEPEST:
            self.seen.too_deep = True
            raise _LostError
        if first == "[":
            self.array(path)
        elif first == "{":
            self.inline(path)
        elif self.text.startswith(('"""', "'''"), self.at):
            self.must(_LONG)
        else:
            self.must(_BASIC if first == '"' else _LITERAL if first == "'" else _SCALAR)
        self.deep -= 1

    def must(self, what: re.Pattern[str]) -> None:
        before = self.at
        if self.skip(what) == before:
            raise _LostError

    def array(self, path: Path) -> None:
        self.at += 1
        number = 0
        while self.text[self.skip(_BLANK)] != "]":
            self.seen.lines.setdefault((*path, str(number)), self.line(self.at))
            self.value((*path, str(number)))
            number += 1
            if self.text[self.skip(_BLANK)] == ",":
                self.at += 1
            elif self.text[self.at] != "]":
                raise _LostError
        self.at += 1

    def inline(self, path: Path) -> None:
        self.at += 1
        while self.text[self.skip(_BLANK)] != "}":
            self.setting(path, statement=False)
            if self.text[self.skip(_BLANK)] == ",":
                self.at += 1
            elif self.text[self.at] != "}":
                raise _LostError
        self.at += 1

    def note(self, statement: Statement) -> None:
        path, line = statement.path, statement.line
        if (path, statement.header) in self.given:
            self.seen.repeated.append(statement)
        self.given.add((path, statement.header))
        for length in range(1, len(path) + 1):
            self.seen.lines.setdefault(path[:length], line)

    def line(self, at: int) -> int:
        return bisect_right(self.starts, at)


def _unescaped(key: str) -> str:
    try:
        unescaped: str = tomllib.loads(f"key = {key}")["key"]
    except tomllib.TOMLDecodeError:
        raise _LostError from None
    return unescaped


def scan(text: str) -> TomlLines:
    """Return where the tables and settings of a TOML text stand; as far as it is TOML."""
    return _Scanner(text).run()
