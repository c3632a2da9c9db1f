from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from halfopen._runtime.asked_wait import NEVER, asked_wait
from halfopen._runtime.retry_after import LONGEST, parse_retry_after

NOON = 784111777.0  # Sun, 06 Nov 1994 08:49:37 GMT


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (3, 3.0),
        (2.5, 2.5),
        ("120", 120.0),
        (" 7 ", 7.0),
        (b"4", 4.0),
        (timedelta(minutes=1), 60.0),
        ("Sun, 06 Nov 1994 08:50:37 GMT", 60.0),
        ("Sun, 06 Nov 1994 08:00:00 GMT", 0.0),
        (-5, 0.0),
        ("-5", None),
        ("1.5", 1.5),
        ("0", 0.0),
        ("9" * 400, LONGEST),
        (10**400, LONGEST),
        (-(10**400), 0.0),
        ("1e3", None),
        ("+5", None),
        ("5.", None),
        (".5", None),
        ("1_000", None),
        ("0x10", None),
        ("\u0663", None),
        (float("inf"), None),
        (timedelta(seconds=-3), 0.0),
        ("Fri, 99 Jan 2026 03:05:05 GMT", None),
        ("Fri, 02 Jan 99999 03:05:05 GMT", None),
        (None, None),
        (True, None),
        ("soon", None),
        ("", None),
        ("nan", None),
        ("inf", None),
        (float("nan"), None),
        ([], None),
    ],
)
def test_a_retry_after_is_seconds_or_a_date(value: Any, seconds: float | None) -> None:
    assert seconds == parse_retry_after(value, NOON)


def test_it_is_found_on_the_error_its_headers_and_its_response() -> None:
    places = [
        SimpleNamespace(retry_after=3),
        SimpleNamespace(headers={"Retry-After": "3"}),
        SimpleNamespace(headers={"retry-after": "3"}),
        SimpleNamespace(response=SimpleNamespace(headers={"Retry-After": "3"})),
        SimpleNamespace(headers=None, response=SimpleNamespace(headers={"Retry-After": b"3"})),
    ]

    assert [3.0] * len(places) == [asked_wait(place, NOON) for place in places]


@pytest.mark.parametrize(
    "source",
    [ValueError(), SimpleNamespace(headers=3), SimpleNamespace(response=None), SimpleNamespace(retry_after="x"), None],
)
def test_whatever_does_not_say_asks_for_nothing(source: Any) -> None:
    assert None is asked_wait(source, NOON)


def test_an_attribute_that_raises_is_passed_over() -> None:
    class Awkward(Exception):
        headers: ClassVar = {"Retry-After": "9"}

        @property
        def retry_after(self) -> float:
            raise RuntimeError

    assert 9.0 == asked_wait(Awkward(), NOON)


class RpcError(Exception):
    def __init__(self, *metadata: tuple[str, Any]) -> None:
        self.metadata = metadata

    def trailing_metadata(self) -> tuple[tuple[str, Any], ...]:
        return self.metadata


@pytest.mark.parametrize(
    ("value", "seconds"), [("250", 0.25), (b"1500", 1.5), ("0", 0.0), ("-1", NEVER), ("soon", NEVER), ("1.5", NEVER)]
)
def test_grpc_pushback_is_milliseconds_and_anything_else_forbids(value: Any, seconds: float) -> None:
    assert seconds == asked_wait(RpcError(("other", "1"), ("grpc-retry-pushback-ms", value)), NOON)


def test_an_rpc_error_without_pushback_asks_for_nothing() -> None:
    assert None is asked_wait(RpcError(("other", "1")), NOON)
    assert None is asked_wait(SimpleNamespace(trailing_metadata=lambda: None), NOON)


def test_httpx_responses_are_understood() -> None:
    httpx = pytest.importorskip("httpx")
    response = httpx.Response(503, headers={"retry-after": "11"}, request=httpx.Request("GET", "http://x"))
    error = httpx.HTTPStatusError("down", request=response.request, response=response)

    assert 11.0 == asked_wait(response, NOON)
    assert 11.0 == asked_wait(error, NOON)
    assert None is asked_wait(httpx.ConnectError("down"), NOON)
