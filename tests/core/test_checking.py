"""Every check names its mistake whole: where, the value, what is allowed, and of which kind it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from halfopen import ConfigError
from halfopen._core.checking import Checks, is_coroutine_function, nearest, usable_seconds
from halfopen.errors import Mistake

HUGE = 10**400
"""A whole number beyond every float."""

Ask = Callable[[Checks, Any], None]


def found(ask: Ask, value: Any) -> list[Mistake]:
    checks = Checks("bank.")
    ask(checks, value)
    return checks.mistakes


def whole(checks: Checks, value: Any) -> None:
    checks.whole("calls", value, 2, 5)


def whole_from(checks: Checks, value: Any) -> None:
    checks.whole("calls", value, 2)


def maybe_whole(checks: Checks, value: Any) -> None:
    checks.whole("calls", value, 2, 5, optional=True)


def seconds(checks: Checks, value: Any) -> None:
    checks.seconds("wait", value)


def maybe_seconds(checks: Checks, value: Any) -> None:
    checks.seconds("wait", value, optional=True, zero=True)


def number(checks: Checks, value: Any) -> None:
    checks.number("factor", value)


def maybe_number(checks: Checks, value: Any) -> None:
    checks.number("factor", value, optional=True, zero=True)


def share(checks: Checks, value: Any) -> None:
    checks.share("rate", value)


def maybe_share(checks: Checks, value: Any) -> None:
    checks.share("rate", value, optional=True, zero=True)


def function(checks: Checks, value: Any) -> None:
    checks.callable("eligible", value)


def maybe_function(checks: Checks, value: Any) -> None:
    checks.callable("eligible", value, optional=True)


def flag(checks: Checks, value: Any) -> None:
    checks.flag("automatic", value)


def text(checks: Checks, value: Any) -> None:
    checks.text("name", value)


@pytest.mark.parametrize(
    ("ask", "value", "path", "allowed", "kind"),
    [
        (whole, 1, "bank.calls", "a whole number from 2 to 5", "out_of_range"),
        (whole, 6, "bank.calls", "a whole number from 2 to 5", "out_of_range"),
        (whole, 2.0, "bank.calls", "a whole number from 2 to 5", "wrong_type"),
        (whole, True, "bank.calls", "a whole number from 2 to 5", "wrong_type"),
        (whole, None, "bank.calls", "a whole number from 2 to 5", "wrong_type"),
        (whole_from, 1, "bank.calls", "a whole number of at least 2", "out_of_range"),
        (maybe_whole, 1, "bank.calls", "a whole number from 2 to 5", "out_of_range"),
        (seconds, 0, "bank.wait", "a number of seconds greater than 0", "out_of_range"),
        (seconds, -1, "bank.wait", "a number of seconds greater than 0", "out_of_range"),
        (seconds, math.inf, "bank.wait", "a number of seconds greater than 0", "out_of_range"),
        (seconds, HUGE, "bank.wait", "a number of seconds greater than 0", "out_of_range"),
        (seconds, "1", "bank.wait", "a number of seconds greater than 0", "wrong_type"),
        (seconds, None, "bank.wait", "a number of seconds greater than 0", "wrong_type"),
        (seconds, False, "bank.wait", "a number of seconds greater than 0", "wrong_type"),
        (maybe_seconds, -0.1, "bank.wait", "a number of seconds of at least 0", "out_of_range"),
        (number, 0, "bank.factor", "a number greater than 0", "out_of_range"),
        (number, None, "bank.factor", "a number greater than 0", "wrong_type"),
        (maybe_number, -0.1, "bank.factor", "a number of at least 0", "out_of_range"),
        (share, 0, "bank.rate", "a share in (0, 1]", "out_of_range"),
        (share, 1.01, "bank.rate", "a share in (0, 1]", "out_of_range"),
        (share, -0.01, "bank.rate", "a share in (0, 1]", "out_of_range"),
        (share, None, "bank.rate", "a share in (0, 1]", "wrong_type"),
        (share, True, "bank.rate", "a share in (0, 1]", "wrong_type"),
        (maybe_share, -0.01, "bank.rate", "a share in [0, 1]", "out_of_range"),
        (function, 5, "bank.eligible", "something that can be called", "wrong_type"),
        (function, None, "bank.eligible", "something that can be called", "wrong_type"),
        (maybe_function, 5, "bank.eligible", "something that can be called", "wrong_type"),
        (flag, 1, "bank.automatic", "True or False", "wrong_type"),
        (flag, None, "bank.automatic", "True or False", "wrong_type"),
        (text, 5, "bank.name", "a text", "wrong_type"),
        (text, "", "bank.name", "a text that is not empty", "out_of_range"),
    ],
)
def test_a_mistake_is_named_whole(ask: Ask, value: Any, path: str, allowed: str, kind: str) -> None:
    assert [Mistake(path, value, allowed, kind)] == found(ask, value)


@pytest.mark.parametrize(
    ("ask", "values"),
    [
        (whole, (2, 5)), (whole_from, (2, HUGE)), (maybe_whole, (None, 2)), (seconds, (0.001, 1, 1e300)),
        (maybe_seconds, (None, 0, 0.0)), (number, (0.001, 2)), (maybe_number, (None, 0)), (share, (0.001, 1, 1.0)),
        (maybe_share, (None, 0, 1)), (function, (len, lambda: None)), (maybe_function, (None, len)),
        (flag, (True, False)), (text, ("x",)),
    ],
)  # fmt: skip
def test_what_is_allowed_is_no_mistake(ask: Ask, values: tuple[Any, ...]) -> None:
    assert [] == [mistake for value in values for mistake in found(ask, value)]


class Asks:
    async def __call__(self) -> bool:
        return True


async def asks() -> bool:
    return True


@pytest.mark.parametrize("value", [asks, Asks(), Asks().__call__])
def test_a_question_that_answers_by_a_coroutine_is_a_mistake(value: Any) -> None:
    assert is_coroutine_function(value)
    assert [Mistake("bank.eligible", value, "a plain function, no coroutine function", "wrong_type")] == found(
        function, value
    )


def test_a_plain_function_is_no_coroutine_function() -> None:
    assert [False, False] == [is_coroutine_function(len), is_coroutine_function(found)]


def test_an_unknown_name_is_named_with_the_nearest_known_one() -> None:
    checks = Checks("bank.")

    checks.unknown("windwo", 5, ("window", "name"))
    checks.unknown("colour", 6, ("window", "name"))

    allowed = "one of name, window"
    assert [
        Mistake("bank.windwo", 5, allowed, "unknown_key", "window"),
        Mistake("bank.colour", 6, allowed, "unknown_key", None),
    ] == checks.mistakes


def test_a_mistake_that_is_noted_is_out_of_range_if_nothing_else_is_said() -> None:
    checks = Checks()

    checks.wrong("rate", 5, "a share")

    assert [Mistake("rate", 5, "a share", "out_of_range")] == checks.mistakes


def test_all_mistakes_are_raised_together_and_none_if_there_is_none() -> None:
    checks = Checks("bank.")
    checks.done()
    whole(checks, 1)
    share(checks, 2)

    with pytest.raises(ConfigError) as wrong:
        checks.done()

    assert ["bank.calls", "bank.rate"] == [mistake.path for mistake in wrong.value.mistakes]


@pytest.mark.parametrize(
    ("value", "usable"),
    [
        (5, 5.0), (0, 0.0), (0.5, 0.5), (-1, None), (-0.5, None), (None, None), ("5", None), (True, None),
        (math.inf, None), (math.nan, None), (HUGE, None),
    ],
)  # fmt: skip
def test_seconds_are_usable_if_they_are_finite_and_not_negative(value: Any, usable: float | None) -> None:
    made = usable_seconds(value)

    assert (usable, type(usable)) == (made, type(made))


def test_the_nearest_name_is_the_one_that_was_meant() -> None:
    assert ["window", None] == [nearest("windwo", ["name", "window", "windows"]), nearest("xyz", ["name", "window"])]
