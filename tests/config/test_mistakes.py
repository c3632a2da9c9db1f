"""Every mistake of a file is found at once, with path, line, value, what is allowed, and the near key."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from halfopen import CircuitBreaker, ConfigError, Mistake, Registry
from halfopen.config import load

CASES = Path(__file__).parent / "cases"
Mistakes = Callable[..., list[Mistake]]

FOUR = [
    ("breaker.payments.failure_rate_treshold", "unknown_key", 0.5, "failure_rate_threshold"),
    ("breaker.payments.window", "wrong_type", "sixty", None),
    ("breaker.payments.wait_in_open", "out_of_range", -3, None),
    ("breaker.search.minimum_calls", "wrong_type", 10.5, None),
]


@pytest.mark.parametrize(("file", "lines"), [("toml", [4, 5, 6, 9]), ("yaml", [4, 5, 6, 8])])
def test_four_mistakes_are_found_at_once_in_the_order_of_the_file(file: str, lines: list[int]) -> None:
    path = CASES / f"config_four_mistakes.{file}"

    with pytest.raises(ConfigError) as caught:
        load(path)

    found = caught.value.mistakes
    assert FOUR == [(m.path, m.kind, m.value, m.suggestion) for m in found]
    assert lines == [m.line for m in found]
    assert {str(path)} == {m.file for m in found}
    for words in ("did you mean failure_rate_threshold?", "'sixty'", '"60s"', "greater than 0", "whole number", "10.5"):
        assert words in str(caught.value)


def test_the_same_values_given_to_the_constructor_are_the_same_mistakes() -> None:
    with pytest.raises(ConfigError) as payments:
        CircuitBreaker("payments").configure(failure_rate_treshold=0.5, window="sixty", wait_in_open=-3)
    with pytest.raises(ConfigError) as search:
        CircuitBreaker("search", minimum_calls=10.5)  # type: ignore[arg-type]

    expected = [(path.rpartition(".")[2], kind, value, near) for path, kind, value, near in FOUR]
    found = [*payments.value.mistakes, *search.value.mistakes]
    assert expected == [(m.path, m.kind, m.value, m.suggestion) for m in found]


def test_with_the_four_mistakes_repaired_the_file_loads(read: Callable[..., object]) -> None:
    text = (CASES / "config_four_mistakes.toml").read_text()
    for wrong, right in (("treshold", "threshold"), ('"sixty"', '"60s"'), ("-3", "3"), ("10.5", "10")):
        text = text.replace(wrong, right)

    read(text)


WRONG = [
    ("breaker", "minimum_calls", "true", "wrong_type"),
    ("breaker", "minimum_calls", "0", "out_of_range"),
    ("breaker", "failure_rate_threshold", "50", "out_of_range"),
    ("breaker", "failure_rate_threshold", "nan", "out_of_range"),
    ("breaker", "slow_call_rate_threshold", '"half"', "wrong_type"),
    ("breaker", "slow_call_duration", '"soon"', "wrong_type"),
    ("breaker", "wait_in_open", "inf", "out_of_range"),
    ("breaker", "forget_after", "-1", "out_of_range"),
    ("breaker", "half_open", "3", "wrong_type"),
    ("breaker", "automatic_half_open", '"yes"', "wrong_type"),
    ("breaker", "tags", "[]", "wrong_type"),
    ("breaker", "on", '"NoSuchError"', "wrong_type"),
    ("breaker", "result", '"no_such_module_of_ours:function"', "unreadable"),
    ("breaker", "nonsense", "1", "unknown_key"),
    ("retry", "attempts", "0", "out_of_range"),
    ("retry", "backoff", '"often"', "wrong_type"),
    ("retry", "budget", '"nobody"', "missing"),
    ("timeout", "trial", "0", "out_of_range"),
    ("timeout", "worker_thread", "1", "wrong_type"),
    ("bulkhead", "max_waiting", "-1", "out_of_range"),
    ("rate_limiter", "per", "[]", "wrong_type"),
    ("hedge", "max_hedges", "99", "out_of_range"),
    ("cache_fallback", "max_entries", "1.5", "wrong_type"),
    ("adaptive_concurrency", "algorithm", '"fast"', "wrong_type"),
    ("retry_budget", "burst", "0.5", "out_of_range"),
    ("pipeline", "polices", "[]", "unknown_key"),
]
GIVEN = {
    "retry": 'on = ["OSError"]', "timeout": "seconds = 2", "bulkhead": "limit = 1", "rate_limiter": "rate = 1",
    "cache_fallback": 'on = ["OSError"]\nmax_age = 1', "pipeline": 'policies = ["timeout.sound"]',
}  # fmt: skip


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(WRONG), min_size=1, max_size=12, unique=True), st.randoms(use_true_random=False))
def test_so_many_mistakes_as_were_planted_are_found(
    tmp_path: Path, planted: list[tuple[str, str, str, str]], chance: object
) -> None:
    text, expected = "[timeout.sound]\nseconds = 1\n", []
    for number, (section, setting, value, kind) in enumerate(planted):
        text += f"[{section}.p{number}]\n{GIVEN.get(section, '')}\n"
        expected.append((f"{section}.p{number}.{setting}", kind, text.count("\n") + 1))
        text += f"{setting} = {value}\n"
    path = tmp_path / "halfopen.toml"
    path.write_text(text)

    with pytest.raises(ConfigError) as caught:
        load(path)

    assert expected == [(m.path, m.kind, m.line) for m in caught.value.mistakes]


def test_a_mistake_in_a_nested_table_has_its_own_path_and_line(mistakes: Mistakes) -> None:
    found = mistakes(
        "[breaker.a]\n[breaker.a.half_open]\npermitted_calls = 0\nmax_duration = true\n[breaker.a.ramp]\nend = 1"
    )

    assert [
        ("breaker.a.half_open.permitted_calls", 3),
        ("breaker.a.half_open.max_duration", 4),
        ("breaker.a.ramp.end", 6),
    ] == [(m.path, m.line) for m in found]


def test_a_conflict_is_found_where_nothing_else_is_wrong(mistakes: Mistakes) -> None:
    (found,) = mistakes("[breaker.a]\nwindow = 10\nminimum_calls = 11")

    assert ("breaker.a.minimum_calls", "conflict", 3) == (found.path, found.kind, found.line)


def test_a_wrong_setting_makes_no_conflict_with_the_default_of_another(mistakes: Mistakes) -> None:
    (found,) = mistakes('[breaker.a]\nwindow = "sixty"\nminimum_calls = 500')

    assert "breaker.a.window" == found.path


def test_what_must_be_given_is_missed(mistakes: Mistakes) -> None:
    found = mistakes("[timeout.a]\ntrial = 0\n[retry.b]\n[fallback.c]\n[pipeline.d]\n[cache_fallback.e]")

    expected = {
        "timeout.a.seconds", "timeout.a.trial", "retry.b.on", "fallback.c.on", "pipeline.d.policies",
        "cache_fallback.e.on", "cache_fallback.e.max_age",
    }  # fmt: skip
    assert expected <= {m.path for m in found}


@pytest.mark.parametrize(
    ("text", "path", "suggestion"),
    [
        ("[breakers.a]", "breakers", "breaker"),
        ("[circuit_breaker.a]", "circuit_breaker", "breaker"),
        ("[template.braker.a]", "template.braker", "breaker"),
        ("[qqqqqq.a]", "qqqqqq", None),
        ("[breaker.a]\nhalf_open = { permited_calls = 1 }", "breaker.a.half_open.permited_calls", "permitted_calls"),
        ('[breaker."api.example.com"]\nwindo = 1', 'breaker."api.example.com".windo', "window"),
    ],
)
def test_an_unknown_key_has_the_nearest_one(mistakes: Mistakes, text: str, path: str, suggestion: str | None) -> None:
    (found,) = mistakes(text)

    assert (path, "unknown_key", suggestion) == (found.path, found.kind, found.suggestion)


@pytest.mark.parametrize(
    "text", ["breaker = 1", "[breaker]\na = 1", "template = []", "[template]\nbreaker = 2", "[[breaker]]"]
)
def test_a_table_of_the_wrong_shape_is_a_mistake(mistakes: Mistakes, text: str) -> None:
    (found,) = mistakes(text)

    assert "wrong_type" == found.kind


# Twice


def test_what_is_given_twice_is_found_along_with_the_other_mistakes(mistakes: Mistakes) -> None:
    found = mistakes("[breaker.a]\nwindow = 10\nwindow = 20\nminimum_calls = 0\n[breaker.a]\n[retry.a]\n")

    assert [
        ("breaker.a.window", 3, "conflict"),
        ("breaker.a.minimum_calls", 4, "out_of_range"),
        ("breaker.a", 5, "conflict"),
        ("retry.a.on", 6, "missing"),
    ] == [(m.path, m.line, m.kind) for m in found]
    assert "the first time in line 2" in str(found[0])


def test_what_is_given_twice_in_yaml_is_found_too(mistakes: Mistakes) -> None:
    found = mistakes("breaker:\n  a:\n    window: 10\n    window: 20\n  a: {}\n", "halfopen.yaml")

    assert [("breaker.a.window", 4), ("breaker.a", 5)] == [(m.path, m.line) for m in found]


def test_a_table_of_yaml_that_is_used_twice_is_not_given_twice(read: Callable[..., object]) -> None:
    text = "x-all: &x {window: 10, minimum_calls: 1}\nbreaker:\n  a: &a\n    <<: *x\n    window: 20\n  b: *a\n"

    entries = read(text, "halfopen.yaml").entries  # type: ignore[attr-defined]

    assert [(20, 1)] * 2 == [(each.values["window"].size, each.values["minimum_calls"]) for each in entries]


# Files that cannot be read


def test_a_missing_file_and_a_directory_are_said_to_be_that(tmp_path: Path) -> None:
    for path, words in (
        (tmp_path / "none.toml", "there is no such file"),
        (tmp_path, "this is a directory, not a file"),
    ):
        with pytest.raises(ConfigError) as caught:
            load(path)

        assert f"{path}: {words}" == str(caught.value)


@pytest.mark.skipif(sys.platform == "win32", reason="no such files there")
def test_a_device_is_not_read() -> None:
    with pytest.raises(ConfigError, match="not a file"):
        load("/dev/zero")


def test_bytes_that_are_no_text_are_found_with_their_line(mistakes: Mistakes) -> None:
    (found,) = mistakes(b"[breaker.a]\n# \xff\n")

    assert (2, "unreadable") == (found.line, found.kind)
    assert "not UTF-8" in str(found)


@pytest.mark.parametrize("name", ["halfopen.toml", "halfopen.yaml"])
@pytest.mark.parametrize(
    "nonsense", [b"x" * 10_000_000, b"\x00" * 10_000_000, b"[[" * 5_000_000, b"a = 1\n" * 1_700_000]
)
def test_ten_megabytes_of_nonsense_fail_fast_and_clearly(mistakes: Mistakes, name: str, nonsense: bytes) -> None:
    began = time.thread_time()

    (found,) = mistakes(nonsense, name)

    assert time.thread_time() - began < 2
    assert "larger than 1 MiB" in str(found)
    assert len(str(found)) < 500


def test_a_huge_file_is_not_read_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "huge.toml"
    with path.open("wb") as file:
        file.truncate(1 << 36)

    with pytest.raises(ConfigError, match="larger than 1 MiB"):
        load(path)


@pytest.mark.parametrize("name", ["halfopen.toml", "halfopen.yaml"])
@pytest.mark.parametrize(
    "nonsense",
    ["[" * 500_000, "a = " + "[" * 500_000, "{a: " * 200_000, "- " * 200_000, "x" * 1_000_000, "\x00" * 100_000],
)
def test_a_megabyte_of_nonsense_fails_fast_too(mistakes: Mistakes, name: str, nonsense: str) -> None:
    began = time.thread_time()

    found = mistakes(nonsense, name)

    assert time.thread_time() - began < 10
    assert len("".join(map(str, found))) < 5_000


def test_a_syntax_error_has_its_line(mistakes: Mistakes) -> None:
    (toml,) = mistakes("[breaker.a]\nwindow = = 1\n")
    (yaml,) = mistakes("breaker:\n  a: [1\n", "halfopen.yaml")

    assert (2, "unreadable") == (toml.line, toml.kind)
    assert "not TOML" in str(toml)
    assert "not YAML" in str(yaml)
    assert yaml.line in (2, 3)


def test_aliases_of_aliases_do_not_fill_the_memory(mistakes: Mistakes) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]

    (found,) = mistakes("\n".join(lines), "halfopen.yaml")

    assert "more than 100,000 values" in str(found)


def test_an_alias_of_itself_ends(mistakes: Mistakes) -> None:
    assert "nested too deeply" in str(mistakes("a: &a\n  b: *a\n", "halfopen.yaml")[0])


def test_without_pyyaml_one_line_says_what_to_install(mistakes: Mistakes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)

    (found,) = mistakes("breaker: {}", "halfopen.yaml")

    assert "YAML needs PyYAML; run: pip install 'halfopen[yaml]'" in str(found)


@pytest.mark.parametrize(
    ("text", "name"), [("", "halfopen.toml"), ("", "halfopen.yaml"), ("# nothing\n", "halfopen.yml")]
)
def test_an_empty_file_is_an_empty_configuration(read: Callable[..., object], text: str, name: str) -> None:
    assert () == read(text, name).entries  # type: ignore[attr-defined]


def test_a_byte_order_mark_and_windows_line_ends_are_no_mistake(read: Callable[..., object]) -> None:
    text = "\ufeff[breaker.a]\r\nwindow = 10\r\n"

    assert 1 == len(read(text).entries)  # type: ignore[attr-defined]


# The environment


def test_a_number_may_come_from_the_environment(read: Callable[..., object]) -> None:
    text = (
        '[breaker.a]\nminimum_calls = "${MIN:-10}"\nwait_in_open = "${WAIT}"\nfailure_rate_threshold = "${RATE}"\n'
        'automatic_half_open = "${AUTO}"\nwindow = "${WINDOW}"\nslow_call_duration = "${SLOW:-none}"'
    )

    (entry,) = read(text, environment={"WAIT": "45", "RATE": "25%", "AUTO": "true", "WINDOW": "50"}).entries  # type: ignore[attr-defined]

    settings = entry.values
    assert (10, 45.0, 0.25, True, 50, None) == (
        settings["minimum_calls"],
        settings["wait_in_open"],
        settings["failure_rate_threshold"],
        settings["automatic_half_open"],
        settings["window"].size,
        settings["slow_call_duration"],
    )


def test_a_missing_variable_is_a_mistake_and_hides_no_other(mistakes: Mistakes) -> None:
    found = mistakes('[breaker.a]\nwindow = "${NOBODY}"\nminimum_calls = "${MIN}"', environment={"MIN": "ten"})

    assert [("breaker.a.window", "missing", 2), ("breaker.a.minimum_calls", "wrong_type", 3)] == [
        (m.path, m.kind, m.line) for m in found
    ]
    assert "NOBODY" in str(found[0])


def test_a_text_outside_the_environment_is_no_number(mistakes: Mistakes) -> None:
    assert ["wrong_type"] * 2 == [m.kind for m in mistakes('[breaker.a]\nminimum_calls = "10"\nwait_in_open = "30"')]


def test_a_registry_from_a_bad_file_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        Registry.from_file(CASES / "config_four_mistakes.toml")
