"""The scanner finds the line of everything that `tomllib` gives a value for."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from halfopen.config.toml_lines import scan

EVERYTHING = '''\
# a comment with [brackets] and "quotes"
top = 1
"quoted key" = "a # no comment" # a comment
[a]
b.c = 'literal "x"'   # 5
long = """
[not.a.table]
d = 1 \\"""
"""
"e.f" = [1, # 10
  2, "]",
  { g = 1, h = "}" },
]
[a.i]
j = { k = { l = 3 } } # 15

[[rows]]
m = 1
[[rows]]
m = 2 # 20
[rows.sub]
n = 1979-05-27T07:32:00Z
lines = \'\'\'
o = 1\'\'\'
last = -inf
'''


def paths(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    below: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(each for key, part in below for each in paths(part, (*path, str(key))))]


def test_every_path_of_a_file_has_its_line() -> None:
    lines = scan(EVERYTHING).lines

    assert [] == [path for path in paths(tomllib.loads(EVERYTHING))[1:] if path not in lines]
    expected = {
        ("top",): 2, ("quoted key",): 3, ("a",): 4, ("a", "b", "c"): 5, ("a", "long"): 6, ("a", "e.f", "0"): 10,
        ("a", "e.f", "3", "h"): 12, ("a", "i", "j", "k", "l"): 15, ("rows", "1", "m"): 20,
        ("rows", "1", "sub", "n"): 22, ("rows", "1", "sub", "last"): 25,
    }  # fmt: skip
    assert expected == {path: lines[path] for path in expected}


def test_what_is_given_twice_is_seen() -> None:
    seen = scan("[a]\nb = 1\nb = 2\n[c]\n[a]\nd = 1\n")

    assert [(("a", "b"), 3), (("a",), 5)] == [(each.path, each.line) for each in seen.repeated]


keys = st.text("abcXYZ019_-", min_size=1, max_size=6)
scalars = st.one_of(
    st.integers(-(10**9), 10**9).map(str), st.booleans().map(lambda value: str(value).lower()),
    st.text(" #[]{}=,'abc", max_size=12).map(lambda text: f'"{text}"'),
    st.text(' #[]{}=,"abc', max_size=12).map(lambda text: f"'{text}'"),
    st.just('"""\nlong [text]\n= # \n"""'),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: "[\n" + ",\n".join(parts) + "\n]"),
        st.dictionaries(keys, inner.filter(lambda part: "\n" not in part), max_size=3).map(
            lambda table: "{" + ", ".join(f"{key} = {part}" for key, part in table.items()) + "}"
        ),
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(st.dictionaries(keys, st.dictionaries(keys, values, max_size=4), max_size=4))
def test_the_line_of_each_setting_is_the_one_it_was_written_in(tables: dict[str, dict[str, str]]) -> None:
    text, expected = "", {}
    for table, entries in tables.items():
        expected[table,] = text.count("\n") + 1
        text += f"[{table}]\n"
        for key, value in entries.items():
            expected[table, key] = text.count("\n") + 1
            text += f"{key} = {value}\n"
    data = tomllib.loads(text)

    lines = scan(text).lines

    assert expected == {path: lines.get(path) for path in expected}
    assert set() == {path for path in paths(data)[1:] if path not in lines}


@given(st.text())
def test_no_text_breaks_the_scanner(text: str) -> None:
    scan(text)
