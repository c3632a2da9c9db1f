"""Durations, shares, and values from the environment: what is read, what is refused, and that nothing is lost."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfopen.config import format_duration, format_share, parse_duration, parse_share
from halfopen.config.values import FromEnvironment, MissingVariableError, parse_java_duration, substitute

finite = st.floats(min_value=0, max_value=1e9, allow_nan=False)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30.0),
        ("1m30s", 90.0),
        ("500ms", 0.5),
        ("1.5s", 1.5),
        ("2h", 7200.0),
        ("1d 2h 3m 4s 5ms", 93784.005),
        ("0s", 0.0),
        (" 1m ", 60.0),
        ("-3s", -3.0),
    ],
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert seconds == parse_duration(text)


@pytest.mark.parametrize(
    "text", ["", "30", "s", "sixty", "30s1m", "1s1s", "1e3s", "1 s 2", "30S", "１s", "1m30", "--1s", "PT1S"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    assert parse_duration(text) is None


@given(finite)
def test_a_duration_written_is_read_back_exactly(seconds: float) -> None:
    assert seconds == parse_duration(format_duration(seconds))


@given(st.integers(0, 99), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_the_parts_of_a_duration_add_up(days: int, hours: int, minutes: int, seconds: int, millis: int) -> None:
    text = f"{days}d{hours}h{minutes}m{seconds}s{millis}ms"

    assert math.isclose(
        ((days * 24 + hours) * 60 + minutes) * 60 + seconds + millis / 1000, parse_duration(text) or 0.0
    )


@given(st.text())
def test_no_text_breaks_the_readers(text: str) -> None:
    for reader in (parse_duration, parse_share, parse_java_duration):
        found = reader(text)

        assert found is None or isinstance(found, float)


@pytest.mark.parametrize(
    ("text", "share"), [("50%", 0.5), ("7 %", 0.07), ("0.1%", 0.001), ("100%", 1.0), ("150%", 1.5)]
)
def test_a_share_is_read(text: str, share: float) -> None:
    assert share == parse_share(text)


@pytest.mark.parametrize("text", ["50", "%", "half", "5 0%", "50%%", "0.5"])
def test_what_is_no_share_is_refused(text: str) -> None:
    assert parse_share(text) is None


@given(st.floats(min_value=0, max_value=1))
def test_a_share_written_is_read_back_exactly(share: float) -> None:
    assert share == parse_share(format_share(share))


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (500, 0.5),
        ("500", 0.5),
        ("30s", 30.0),
        ("500ms", 0.5),
        ("1m", 60.0),
        ("10 s", 10.0),
        ("500ns", 5e-7),
        ("PT30S", 30.0),
        ("PT1M30S", 90.0),
        ("PT0.5S", 0.5),
        ("P1DT2H", 93600.0),
        ("pt10s", 10.0),
        ("-PT1S", -1.0),
    ],
)
def test_spring_durations_are_read(value: object, seconds: float) -> None:
    assert seconds == parse_java_duration(value)


@pytest.mark.parametrize("value", ["", "P", "PT", "1m30s", "ten", 1.5, True, None, "10 weeks", "1x"])
def test_what_spring_refuses_is_refused(value: object) -> None:
    assert parse_java_duration(value) is None


def test_variables_are_filled_in() -> None:
    environment = {"HOST": "example.com", "EMPTY": ""}

    assert "https://example.com/x" == substitute("https://${HOST}/x", environment)
    assert "8080" == substitute("${PORT:-8080}", environment)
    assert "fallback" == substitute("${EMPTY:-fallback}", environment)
    assert "" == substitute("${EMPTY}", environment)
    assert "${HOST}" == substitute("$${HOST}", environment)
    assert "5 $ {HOST}" == substitute("5 $ {HOST}", environment)
    assert isinstance(substitute("${HOST}", environment), FromEnvironment)
    assert not isinstance(substitute("plain", environment), FromEnvironment)


def test_spring_writes_its_default_behind_one_colon() -> None:
    environment = {"MY_TIMEOUT": "3s"}

    assert "3s" == substitute("${my.timeout:1s}", environment, spring=True)
    assert "1s" == substitute("${other:1s}", environment, spring=True)


@pytest.mark.parametrize("text", ["${MISSING}", "${}", "${1A}", "${A-b}", "${A", "${A:-${B}}"])
def test_a_variable_that_cannot_be_filled_in_is_refused(text: str) -> None:
    with pytest.raises(MissingVariableError):
        substitute(text, {"A": "a"} if text != "${A" else {})
