"""Retry-After, whatever servers send: one reading for breakers and retries, and never an error of our own."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from halfopen import Failures
from halfopen._core.outcomes import FAILURE
from halfopen._runtime.asked_wait import asked_wait
from halfopen._runtime.retry_after import LONGEST, parse_retry_after
from halfopen.classification import retry_after

numbers = st.one_of(st.integers(), st.integers(min_value=10**300, max_value=10**400), st.floats())
digits = st.integers(min_value=0, max_value=10**400).map(str)
dates = st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2068, 12, 31)).map(
    lambda moment: moment.replace(microsecond=0, tzinfo=UTC)
)
near_dates = st.from_regex(
    r"\A(Mon|Sun)(day)?,? [0-9]{1,3}[ -](Jan|Feb)[ -][0-9]{1,5} [0-9]{1,3}:[0-9]{2}(:[0-9]{2})? ?(GMT|[+-][0-9]{4})?\Z"
)
texts = st.one_of(digits, st.text(), near_dates, st.sampled_from(["nan", "inf", "-1", "1e9", "1.5", "٣", "1_0"]))
anything = st.one_of(
    numbers, texts, st.binary(), st.none(), st.booleans(), st.timedeltas(), st.lists(st.integers(), max_size=2)
)
walls = st.floats(min_value=0, max_value=4e9)

FORMS = ("%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y")
"""RFC 9110, section 5.6.7: the form of today and two obsolete ones."""


@given(value=anything, wall=walls)
def test_whatever_it_is_it_is_a_wait_or_nothing(value: Any, wall: float) -> None:
    wait = parse_retry_after(value, wall)

    assert wait is None or (type(wait) is float and 0 <= wait <= LONGEST)


@given(text=digits, space=st.sampled_from(["", " ", "\t"]))
def test_digits_are_seconds(text: str, space: str) -> None:
    wait = parse_retry_after(space + text + space, 0)

    assert min(float(text), LONGEST) == wait


@given(moment=dates, wall=walls, form=st.sampled_from(FORMS))
def test_a_date_is_the_time_until_then_in_each_of_its_forms(moment: datetime, wall: float, form: str) -> None:
    wait = parse_retry_after(moment.strftime(form), wall)

    assert max(moment.timestamp() - wall, 0.0) == wait


@given(value=numbers)
def test_a_number_below_zero_or_beyond_all_floats_is_cut_and_what_is_no_number_is_nothing(value: float) -> None:
    wait = parse_retry_after(value, 0)

    if isinstance(value, float) and not math.isfinite(value):
        assert wait is None
    else:
        assert (0.0 if value < 0 else float(min(value, LONGEST))) == wait


@given(span=st.timedeltas())
def test_a_timedelta_is_its_seconds(span: timedelta) -> None:
    assert max(span.total_seconds(), 0.0) == parse_retry_after(span, 0)


class CarryingError(Exception):
    def __init__(self, **carried: Any) -> None:
        super().__init__("busy")
        vars(self).update(carried)


def places(value: Any) -> list[dict[str, Any]]:
    headers = {"Retry-After": value}
    response = SimpleNamespace(status_code=503, headers=headers)
    return [
        {"retry_after": value},
        {"headers": headers},
        {"response": response},
        {"retry_after": value, "headers": {"retry-after": "7"}},
        {"headers": headers, "response": SimpleNamespace(status_code=503, headers={"Retry-After": "7"})},
    ]


@given(value=anything, wall=walls)
def test_breakers_and_retries_read_the_same(value: Any, wall: float) -> None:
    for carried in places(value):
        error = CarryingError(**carried)

        assert asked_wait(error, wall) == retry_after(error, now=lambda: wall)


@given(value=st.one_of(numbers, digits, st.none(), st.timedeltas(), st.text(alphabet="0123456789.-+e", max_size=6)))
def test_a_failure_hands_up_what_a_retry_waits_for(value: Any) -> None:
    for carried in places(value):
        error = CarryingError(**{"status_code": 503, **carried})

        assert (FAILURE, asked_wait(error, 0.0)) == Failures().of_exception(error)
        assert asked_wait(CarryingError(retry_after=value), 0.0) == Failures().of_exception(
            CarryingError(retry_after=value)
        )[1]  # fmt: skip
