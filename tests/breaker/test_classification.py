"""What a finished call says about the dependency."""

from __future__ import annotations

import urllib.error
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import format_datetime
from http import HTTPStatus
from typing import Any

import pytest

from halfopen import CircuitBreaker, ConfigError, Failures, HalfOpen, Outcome, State, failed_status
from halfopen._core.outcomes import FAILURE, IGNORED, SUCCESS
from halfopen._runtime.retry_after import LONGEST
from halfopen.classification import http_status, retry_after
from halfopen.testing import FakeClock


class Response:
    def __init__(self, status_code: Any, headers: Any = None) -> None:
        self.status_code = status_code
        self.headers = {} if headers is None else headers


class ResponseError(Exception):
    """As httpx and requests do it."""

    def __init__(self, status: Any, headers: Any = None) -> None:
        self.response = Response(status, headers)


class StatusError(Exception):
    """As aiohttp does it."""

    def __init__(self, status: Any, headers: Any = None) -> None:
        self.status = status
        self.headers = headers


class CodeError(Exception):
    """As urllib does it."""

    def __init__(self, code: Any, headers: Any = None) -> None:
        self.code = code
        self.headers = headers


class SlottedError(Exception):
    __slots__ = ("status_code",)

    def __init__(self, status_code: Any, headers: Any = None) -> None:
        self.status_code = status_code


class PropertyError(Exception):
    def __init__(self, status: Any, headers: Any = None) -> None:
        self.args = (status,)

    @property
    def status(self) -> Any:
        return self.args[0]


class DynamicError(Exception):
    def __init__(self, status: Any, headers: Any = None) -> None:
        self.args = (status,)

    def __getattr__(self, name: str) -> Any:
        if name == "status_code":
            return self.args[0]
        raise AttributeError(name)


CARRIERS = [ResponseError, StatusError, CodeError, SlottedError, PropertyError, DynamicError]


def outcome(answer: Any) -> Outcome:
    return answer[0] if isinstance(answer, tuple) else answer


def later(answer: Any) -> float | None:
    return answer[1] if isinstance(answer, tuple) else None


@pytest.mark.parametrize("carrier", CARRIERS)
def test_an_exception_that_carries_a_status_is_judged_by_it(carrier: Any) -> None:
    for status in range(100, 600):
        ill = status in (408, 429) or status >= 500
        assert (FAILURE if ill else SUCCESS) == outcome(Failures().of_exception(carrier(status))), status
        assert ill == failed_status(Response(status)), status


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("status", [None, 0, 99, 600, -404, "404", 404.0, True, False, lambda: 404, object()])
def test_what_is_no_status_is_not_judged_by(carrier: Any, status: Any) -> None:
    assert FAILURE == outcome(Failures().of_exception(carrier(status)))
    assert http_status(carrier(status)) is None


def test_a_member_of_http_status_is_a_status() -> None:
    assert SUCCESS == Failures().of_exception(StatusError(HTTPStatus.NOT_FOUND))
    assert 503 == http_status(StatusError(HTTPStatus.SERVICE_UNAVAILABLE))


def test_the_statuses_of_urllib_are_read() -> None:
    headers = Message()
    headers["Retry-After"] = "7"

    for status, expected in ((404, SUCCESS), (503, FAILURE)):
        error = urllib.error.HTTPError("http://x", status, "x", headers, None)
        answer = Failures().of_exception(error)
        assert expected == outcome(answer)
        error.close()
    assert 7.0 == later(answer)


@pytest.mark.parametrize(
    ("name", "argument"),
    [("requests", "requests"), ("httpx", "httpx"), ("aiohttp", "aiohttp")],
)
def test_the_statuses_of_real_libraries_are_read(name: str, argument: str) -> None:
    library = pytest.importorskip(name)
    errors: dict[str, Any] = {
        "requests": lambda status: library.HTTPError(response=_requests_response(library, status)),
        "httpx": lambda status: library.HTTPStatusError(
            "x", request=library.Request("GET", "http://x"), response=library.Response(status)
        ),
        "aiohttp": lambda status: library.ClientResponseError(None, (), status=status),
    }

    assert SUCCESS == outcome(Failures().of_exception(errors[argument](404)))
    assert FAILURE == outcome(Failures().of_exception(errors[argument](503)))


def _requests_response(requests: Any, status: int) -> Any:
    response = requests.Response()
    response.status_code = status
    return response


@pytest.mark.parametrize("status", [400, 404, 422, 499])
def test_answers_of_a_healthy_service_never_trip(status: int, clock: FakeClock) -> None:
    breaker = CircuitBreaker("x", minimum_calls=1, consecutive_failures=1, clock=clock)

    def refuse() -> None:
        raise ResponseError(status)

    for _ in range(300):
        with pytest.raises(ResponseError):
            breaker.call(refuse)

    assert State.CLOSED is breaker.state
    assert 300 == breaker.snapshot().counters.successes


# Who wins


class Base(Exception):
    pass


class Special(Base):
    pass


TABLE: list[tuple[dict[str, Any], Exception, Outcome]] = [
    ({}, ValueError(), FAILURE),
    ({"on": OSError}, ValueError(), SUCCESS),
    ({"on": OSError}, ConnectionError(), FAILURE),
    ({"on": (OSError, ValueError)}, ValueError(), FAILURE),
    ({"on": ()}, ValueError(), SUCCESS),
    ({"on": lambda error: "ill" in str(error)}, ValueError("ill"), FAILURE),
    ({"on": lambda error: "ill" in str(error)}, ValueError("well"), SUCCESS),
    ({"on": (OSError, lambda error: True)}, ValueError(), FAILURE),
    ({"ignore": ValueError}, ValueError(), IGNORED),
    ({"ignore": ValueError}, KeyError(), FAILURE),
    ({"ignore": (KeyError, lambda error: error.args == (3,))}, ValueError(3), IGNORED),
    ({"on": ValueError, "ignore": ValueError}, ValueError(), IGNORED),
    ({"on": Special, "ignore": Base}, Special(), IGNORED),
    ({"on": Base, "ignore": Special}, Special(), IGNORED),
    ({"on": Base, "ignore": Special}, Base(), FAILURE),
    ({"ignore": ResponseError}, ResponseError(503), IGNORED),
    ({"on": OSError}, ResponseError(503), SUCCESS),
    ({"on": ResponseError}, ResponseError(404), SUCCESS),
    ({"on": ResponseError}, ResponseError(503), FAILURE),
    ({"ignore": Exception}, ValueError(), IGNORED),
    ({"on": BaseException}, ValueError(), FAILURE),
]


@pytest.mark.parametrize(("settings", "error", "expected"), TABLE)
def test_ignore_wins_over_on_and_on_over_the_status(
    settings: dict[str, Any], error: Exception, expected: Outcome
) -> None:
    assert expected == outcome(Failures(**settings).of_exception(error))


@pytest.mark.parametrize(
    "settings",
    [{"on": 3}, {"on": int}, {"ignore": "ValueError"}, {"ignore": (ValueError, 3)}, {"on": None}, {"result": 3}],
)
def test_what_does_not_match_exceptions_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        Failures(**settings)


def test_every_mistake_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as wrong:
        Failures(on=3, ignore=(4, int), result=5)  # type: ignore[arg-type]

    assert ["on", "ignore", "ignore", "result"] == [mistake.path for mistake in wrong.value.mistakes]


# Results


def test_returned_values_are_looked_at_only_when_asked(clock: FakeClock) -> None:
    plain = CircuitBreaker("x", clock=clock)
    asked = CircuitBreaker("x", clock=clock, classify=Failures(result=failed_status))

    for breaker in (plain, asked):
        breaker.call(lambda: Response(503))
        breaker(lambda: Response(503))()

    assert (2, 0) == (plain.snapshot().counters.successes, plain.snapshot().counters.failures)
    assert (0, 2) == (asked.snapshot().counters.successes, asked.snapshot().counters.failures)


@pytest.mark.parametrize(("status", "expected"), [(200, (1, 0)), (404, (1, 0)), (429, (0, 1)), (503, (0, 1))])
def test_a_block_can_show_its_response(status: int, expected: Any, clock: FakeClock) -> None:
    breaker = CircuitBreaker("x", clock=clock)

    with breaker.acquire() as permit:
        permit.result(Response(status))

    counters = breaker.snapshot().counters
    assert expected == (counters.successes, counters.failures)


@pytest.mark.parametrize("value", [None, 3, "text", object(), {}, [], Response("503")])
def test_a_value_without_a_status_is_a_success(value: Any) -> None:
    assert SUCCESS == Failures().of_result(value)


# Retry-After

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("120", 120.0),
        (" 7 ", 7.0),
        ("0", 0.0),
        ("9" * 400, LONGEST),
        ("-5", None),
        ("1.5", 1.5),
        ("soon", None),
        ("", None),
        ("٣", None),
        ("nan", None),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90.0),
        ("Fri, 02 Jan 2026 03:05:05 GMT", 60.0),
        ("Friday, 02-Jan-26 03:05:05 GMT", 60.0),
        ("Fri Jan  2 03:05:05 2026", 60.0),
        ("Fri, 02 Jan 2026 05:05:05 +0200", 60.0),
        ("Fri, 02 Jan 2026 03:05:05 -0000", 60.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("Fri, 99 Jan 2026 03:05:05 GMT", None),
        ("Fri, 02 Jan 99999 03:05:05 GMT", None),
    ],
)
@pytest.mark.parametrize("header", ["Retry-After", "retry-after"])
def test_retry_after_is_read_in_seconds_and_as_a_date(value: str, expected: float | None, header: str) -> None:
    error = ResponseError(503, {header: value})

    assert expected == retry_after(error, now=NOW.timestamp)
    assert expected == retry_after(error.response, now=NOW.timestamp)


def test_a_date_without_a_zone_is_in_gmt_wherever_this_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        error = ResponseError(503, {"Retry-After": "Fri Jan  2 03:05:05 2026"})
        assert 60.0 == retry_after(error, now=NOW.timestamp)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("carrier", [ResponseError, StatusError, CodeError])
@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_handed_up_with_the_failure(carrier: Any, status: int) -> None:
    assert (FAILURE, 12.0) == Failures().of_exception(carrier(status, {"Retry-After": "12"}))


def test_retry_after_of_an_answer_is_not_handed_up() -> None:
    assert SUCCESS == Failures().of_exception(ResponseError(404, {"Retry-After": "12"}))


def test_an_exception_may_carry_retry_after_itself() -> None:
    error = ValueError()
    error.retry_after = 12  # type: ignore[attr-defined]

    assert (FAILURE, 12) == Failures().of_exception(error)


def test_retry_after_lengthens_the_wait_up_to_the_cap(clock: FakeClock) -> None:
    def refuse(seconds: str) -> None:
        raise ResponseError(503, {"Retry-After": seconds})

    waits = []
    for seconds in ("5", "300", "99999"):
        breaker = CircuitBreaker("x", clock=clock, consecutive_failures=1, half_open=HalfOpen())
        with pytest.raises(ResponseError):
            breaker.call(refuse, seconds)
        waits.append(breaker.snapshot().remaining_wait)

    assert 27 <= waits[0] <= 33
    assert [300, 600] == waits[1:]


# Things that raise when they are looked at


class Raises:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name} here")


class RaisingProperty(Exception):
    @property
    def response(self) -> Any:
        raise RuntimeError("no response")

    @property
    def status_code(self) -> Any:
        raise RuntimeError("no status")

    @property
    def retry_after(self) -> Any:
        raise RuntimeError("none")


class RaisingHeaders(dict[str, str]):
    def get(self, *args: Any) -> Any:
        raise RuntimeError("no headers")


class RaisingInt(int):
    def __ge__(self, other: object) -> bool:
        raise RuntimeError("incomparable")

    __le__ = __lt__ = __gt__ = __eq__ = __ge__  # type: ignore[assignment]
    __hash__ = int.__hash__


@pytest.mark.parametrize(
    "error",
    [
        RaisingProperty(),
        ResponseError(503, Raises()),
        ResponseError(503, RaisingHeaders()),
        ResponseError(503, {"retry-after": 12}),
        ResponseError(503, {"retry-after": None}),
        ResponseError(503, 3),
    ],
)
def test_what_raises_when_it_is_looked_at_is_still_a_failure(error: Exception, make: Any, counted: Any) -> None:
    breaker = make()

    def refuse() -> None:
        raise error

    with pytest.raises(type(error)):
        breaker.call(refuse)

    assert (0, 1, 0) == counted(breaker)


def test_a_response_that_raises_when_it_is_looked_at_has_no_status() -> None:
    error = ValueError()
    error.response = Raises()  # type: ignore[attr-defined]

    assert http_status(error) is None
    assert FAILURE == outcome(Failures().of_exception(error))


def test_notes_and_causes_change_nothing(make: Any, counted: Any) -> None:
    breaker = make()

    def refuse() -> None:
        error = ValueError("x")
        error.add_note("seen")
        raise error from KeyError("cause")

    with pytest.raises(ValueError, match="x") as raised:
        breaker.call(refuse)

    assert (0, 1, 0) == counted(breaker)
    assert ["seen"] == raised.value.__notes__
    assert isinstance(raised.value.__cause__, KeyError)


def test_the_exception_passes_unwrapped_with_its_own_traceback(make: Any) -> None:
    error = ValueError("x")

    def refuse() -> None:
        raise error

    with pytest.raises(ValueError, match="x") as raised:
        make()(refuse)()

    assert raised.value is error
    assert (None, None) == (error.__cause__, error.__context__)
    assert "refuse" == raised.traceback[-1].name
    assert len(raised.traceback) <= 3
