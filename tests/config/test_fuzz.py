"""Whatever stands in a file: it is loaded, or a ConfigError says why, and nothing else is raised."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from halfopen import ConfigError
from halfopen.config import convert, load

CASES = Path(__file__).parent / "cases"
SOUND = """\
[template.breaker.t]
window = { seconds = "60s", buckets = 6 }
[breaker."a:*"]
template = ["t"]
half_open = { permitted_calls = 2, after_max_duration = "closed" }
key = "builtins:str"
[breaker.b]
wait_in_open = { first = "1s", cap = "${CAP:-1m}" }
on = ["OSError"]
tags = { x = "y" }
ramp = { start = "5%" }
[retry.b]
on = "OSError"
backoff = { first = 0.1, jitter = "50%" }
budget = "z"
[retry_budget.z]
[hedge.b]
delay = { share = "95%" }
[adaptive_concurrency.b]
algorithm = { kind = "aimd", slow_after = 1 }
[fallback.b]
on = ["OSError"]
links = [{ value = 1 }, { call = "builtins:repr" }]
[pipeline.b]
policies = ["fallback.b", "breaker.b", "retry.b", "breaker.a:*"]
"""
YAML = "\n".join((CASES / "application.yml").read_text().splitlines()[1:])
VALUES = [
    "true", "-1", "0", "1.5", "nan", "inf", '""', '"none"', "[]", "{}", "[[1]]", '["x"]', '{ x = 1 }', "1979-05-27",
    '"${"', '"a:b"', '"%"', '"1e5s"', "99999999999999999999", '"\\u0000"', '"breaker.b"',
]  # fmt: skip


def loads_or_says_why(path: Path, text: str) -> bool:
    path.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
    try:
        load(path, imports=False)
    except ConfigError as error:
        assert error.mistakes
        assert all(mistake.file == str(path) for mistake in error.mistakes)
        assert "\n" not in str(error.mistakes[0]) or "\n" in repr(text)
        return False
    return True


def mangled(text: str, chance: random.Random) -> str:
    lines = text.splitlines()
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(lines))
        how = chance.randrange(5)
        if how == 0 and "=" in lines[place]:
            lines[place] = lines[place].partition("=")[0] + "= " + chance.choice(VALUES)
        elif how == 1:
            lines[place] = lines[chance.randrange(len(lines))]
        elif how == 2:
            del lines[place]
        elif how == 3 and ":" in lines[place]:
            lines[place] = lines[place].partition(":")[0] + ": " + chance.choice(VALUES)
        elif lines[place]:
            column = chance.randrange(len(lines[place]))
            lines[place] = lines[place][:column] + chance.choice("=[]{}\"'.,:x5- *#&\\") + lines[place][column + 1 :]
    return "\n".join(lines)


@pytest.mark.parametrize(("text", "name"), [(SOUND, "halfopen.toml"), (YAML, "application.yml")])
def test_a_mangled_file_is_loaded_or_says_why(tmp_path: Path, text: str, name: str) -> None:
    path = tmp_path / name
    assert loads_or_says_why(path, text)

    outcomes = [loads_or_says_why(path, mangled(text, random.Random(seed))) for seed in range(150)]

    assert {True, False} == {*outcomes}


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(), name=st.sampled_from(["halfopen.toml", "halfopen.yaml"]))
def test_any_text_is_loaded_or_says_why(tmp_path: Path, text: str, name: str) -> None:
    (tmp_path / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        load(tmp_path / name)
    except ConfigError as error:
        assert error.mistakes


def test_what_is_converted_can_be_read(tmp_path: Path) -> None:
    path, new = tmp_path / "application.yml", tmp_path / "halfopen.toml"
    read = 0
    for seed in range(60):
        path.write_text(mangled(YAML, random.Random(seed)), encoding="utf-8")
        try:
            text, _ = convert(path, environment={})
        except ConfigError:
            continue
        read += 1
        new.write_text(text, encoding="utf-8")

        before, after = load(path, environment={}), load(new)

        assert {e.title: dict(e.values) for e in before.entries} == {e.title: dict(e.values) for e in after.entries}
    assert read > 5
