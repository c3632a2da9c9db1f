"""What every HTTP client's integration promises, over real sockets against a server that misbehaves."""

from __future__ import annotations

import gc
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from halfopen import (
    Bulkhead,
    BulkheadFullError,
    CallTimeoutError,
    CircuitBreaker,
    CircuitOpenError,
    Failures,
    HalfOpen,
    Outcome,
    Pipeline,
    RateLimitedError,
    RateLimiter,
    Registry,
    RejectedError,
    Retry,
    Snapshot,
    State,
    Timeout,
    deadline,
    failed_status,
)
from halfopen.testing import FakeClock
from tests.integrations.clients import CLIENTS, Client
from tests.integrations.fault_server import BODY, FaultServer, closed_port, serving, until

# httpx leaves generators suspended where a caller closes early; trio says so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <async_generator:pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with serving() as server:
        yield server


@pytest.fixture(params=CLIENTS)
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[..., Client]]:
    """Make the client of one library with the policies that a test wants."""
    with ExitStack() as stack:
        yield lambda guard=None: CLIENTS[request.param](stack, guard)


def family(**settings: Any) -> Any:
    return Registry(clock=settings.pop("clock", None)).keyed("*", **settings)


def outcomes(client: Client, url: str) -> tuple[int, int, int]:
    """Return the successes, failures and ignored calls of a host, once nothing is in flight."""
    assert until(lambda: client.guard[url].snapshot().counters.permits.in_flight == 0)
    counters = client.guard[url].snapshot().counters
    return counters.successes, counters.failures, counters.ignored


def look(client: Client, url: str) -> Snapshot:
    found: Snapshot = client.guard[url].snapshot()
    return found


# Outcomes


def test_an_answer_is_a_success_of_its_host(server: FaultServer, connect: Callable[..., Client]) -> None:
    client = connect()

    assert (200, BODY) == client.get(f"{server.url}/ok")
    assert (200, BODY) == client.get(f"{server.url}/chunks")

    assert [server.url] == list(client.guard)
    assert (2, 0, 0) == outcomes(client, server.url)


@pytest.mark.parametrize("status", [400, 404, 422])
def test_the_caller_s_mistake_is_the_answer_of_a_healthy_service(
    server: FaultServer, connect: Callable[..., Client], status: int
) -> None:
    client = connect()

    client.get(f"{server.url}/{status}")

    assert (1, 0, 0) == outcomes(client, server.url)


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_status_of_an_ill_service_is_a_failure_and_the_answer_arrives(
    server: FaultServer, connect: Callable[..., Client], status: int
) -> None:
    client = connect()

    assert (status, f"told {status}".encode()) == client.get(f"{server.url}/{status}")

    assert (0, 1, 0) == outcomes(client, server.url)


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_handed_to_the_breaker(server: FaultServer, connect: Callable[..., Client], status: int) -> None:
    client = connect(family(consecutive_failures=1, wait_in_open=30, clock=FakeClock()))
    server.retry_after = "120"

    client.get(f"{server.url}/{status}")

    assert 120 == look(client, server.url).remaining_wait


def test_a_refused_connection_is_a_failure(connect: Callable[..., Client]) -> None:
    client, url = connect(), f"http://127.0.0.1:{closed_port()}"

    with pytest.raises(client.refusal):
        client.get(f"{url}/")

    assert (0, 1, 0) == outcomes(client, url)


@pytest.mark.parametrize("fault", ["reset", "break-off", "break-off-chunked", "reset-midway"])
def test_a_connection_or_a_body_that_dies_is_a_failure(
    server: FaultServer, connect: Callable[..., Client], fault: str
) -> None:
    client = connect()

    with pytest.raises(client.broken):
        client.get(f"{server.url}/{fault}")

    assert (0, len(server.seen), 0) == outcomes(client, server.url)  # aiohttp itself tries once more after a reset


def test_a_stream_that_dies_midway_is_a_failure(server: FaultServer, connect: Callable[..., Client]) -> None:
    client = connect()

    with client.open(f"{server.url}/break-off") as body, pytest.raises(client.broken):
        body.some()
        body.rest()

    assert (0, 1, 0) == outcomes(client, server.url)


def test_a_server_that_hangs_is_a_failure(server: FaultServer, connect: Callable[..., Client]) -> None:
    client = connect()

    with pytest.raises(client.timeout):
        client.get(f"{server.url}/hang", timeout=0.1)

    assert (0, 1, 0) == outcomes(client, server.url)


def test_a_body_that_stops_is_a_failure(server: FaultServer, connect: Callable[..., Client]) -> None:
    client = connect()
    server.pause = 5

    with pytest.raises((*client.timeout, client.broken)):
        client.get(f"{server.url}/trickle", timeout=0.2)

    assert (0, 1, 0) == outcomes(client, server.url)


# Bodies


def test_a_stream_is_a_success_only_at_its_end(server: FaultServer, connect: Callable[..., Client]) -> None:
    client = connect()

    with client.open(f"{server.url}/trickle") as body:
        first = body.some()
        under_way = look(client, server.url).counters
        rest = body.rest()

    assert 0 < len(first) < len(BODY)
    assert (0, 1) == (under_way.successes, under_way.permits.in_flight)
    assert BODY == first + rest
    assert (1, 0, 0) == outcomes(client, server.url)


def test_a_stream_closed_early_is_ignored(server: FaultServer, connect: Callable[..., Client]) -> None:
    client = connect()

    with client.open(f"{server.url}/endless") as body:
        body.some()

    assert (0, 0, 1) == outcomes(client, server.url)


def test_a_stream_that_nobody_reads_is_not_read_ahead(server: FaultServer, connect: Callable[..., Client]) -> None:
    client = connect()

    with client.open(f"{server.url}/endless") as body:
        assert 200 == body.status

    assert (0, 0, 1) == outcomes(client, server.url)


def test_an_answer_without_a_body_is_known_at_once(server: FaultServer, connect: Callable[..., Client]) -> None:
    client = connect()

    client.get(f"{server.url}/ok", method="HEAD")
    with client.open(f"{server.url}/empty"):
        assert 2 == look(client, server.url).counters.successes

    assert (2, 0, 0) == outcomes(client, server.url)


def test_a_failed_status_is_known_before_its_body(server: FaultServer, connect: Callable[..., Client]) -> None:
    client = connect()

    with client.open(f"{server.url}/503") as body:
        assert 1 == look(client, server.url).counters.failures
        assert b"told 503" == body.rest()

    assert (0, 1, 0) == outcomes(client, server.url)


def test_each_hop_of_a_redirect_is_a_call(server: FaultServer, connect: Callable[..., Client]) -> None:
    client = connect()

    assert (200, BODY) == client.get(f"{server.url}/302")

    assert ["/302", "/ok"] == server.seen
    assert 2 == sum(outcomes(client, server.url))
    assert 1 <= outcomes(client, server.url)[0]


# Refusals


def test_a_refusal_is_an_error_of_the_library_and_of_halfopen(
    server: FaultServer, connect: Callable[..., Client]
) -> None:
    client = connect()
    client.guard[server.url].trip(wait=60)

    with pytest.raises(client.refusal) as caught:
        client.get(f"{server.url}/ok")

    error = caught.value
    assert isinstance(error, CircuitOpenError)
    assert (server.url, "open", "open") == (error.name, error.state, error.reason)
    assert error.retry_after is not None and 50 < error.retry_after <= 60
    assert str(error).startswith(f"circuit '{server.url}' refused the call: it is open; try again in ")
    assert [] == server.seen


def test_a_refusal_pickles(server: FaultServer, connect: Callable[..., Client]) -> None:
    client = connect()
    client.guard[server.url].force_open()
    with pytest.raises(CircuitOpenError) as caught:
        client.get(f"{server.url}/ok")

    copy = pickle.loads(pickle.dumps(caught.value))

    assert type(caught.value) is type(copy)
    assert isinstance(copy, client.refusal)
    assert (server.url, "forced_open", "forced_open", None) == (copy.name, copy.state, copy.reason, copy.retry_after)


def test_the_refusals_of_other_policies_are_errors_of_the_library(
    server: FaultServer, connect: Callable[..., Client]
) -> None:
    limiter, bulkhead = RateLimiter("limit", 1, 60), Bulkhead("room", 1)
    client = connect([limiter, bulkhead])
    with bulkhead.acquire(), pytest.raises(BulkheadFullError) as full:
        client.get(f"{server.url}/ok")

    with pytest.raises(RateLimitedError) as limited:
        client.get(f"{server.url}/ok")

    assert isinstance(full.value, client.refusal)
    assert isinstance(limited.value, client.refusal)
    assert 1 == pickle.loads(pickle.dumps(full.value)).limit
    assert 0 < pickle.loads(pickle.dumps(limited.value)).retry_after <= 60
    assert [] == server.seen


def test_a_refusal_inside_is_no_evidence_for_a_breaker_outside(
    server: FaultServer, connect: Callable[..., Client]
) -> None:
    client, outer = connect(), CircuitBreaker("outer")
    client.guard[server.url].trip(wait=60)

    with pytest.raises(RejectedError):
        outer.call(client.get, f"{server.url}/ok")

    assert 1 == outer.snapshot().counters.ignored


# Half-open


def test_a_service_that_recovers_is_tried_and_let_back(server: FaultServer, connect: Callable[..., Client]) -> None:
    clock = FakeClock()
    client = connect(family(consecutive_failures=2, wait_in_open=30, clock=clock))
    server.mode = "503"
    for _ in range(2):
        client.get(f"{server.url}/")
    with pytest.raises(CircuitOpenError):
        client.get(f"{server.url}/")
    clock.advance(30)
    client.get(f"{server.url}/")  # the first trial call fails
    assert State.OPEN is look(client, server.url).state
    server.mode = "ok"
    clock.advance(60)

    for _ in range(3):
        client.get(f"{server.url}/")

    assert State.CLOSED is look(client, server.url).state
    assert 6 == len(server.seen)


def test_a_trial_call_lasts_until_the_end_of_its_body(server: FaultServer, connect: Callable[..., Client]) -> None:
    client = connect(family(half_open=HalfOpen(permitted_calls=1)))
    client.guard[server.url].try_now()

    with client.open(f"{server.url}/trickle") as body:
        body.some()
        with pytest.raises(CircuitOpenError) as caught:
            client.get(f"{server.url}/ok")
        body.rest()

    assert "trial_budget" == caught.value.reason
    assert State.CLOSED is look(client, server.url).state


def test_a_trial_call_whose_body_breaks_off_opens_the_circuit(
    server: FaultServer, connect: Callable[..., Client]
) -> None:
    client = connect(family(half_open=HalfOpen(permitted_calls=1)))
    client.guard[server.url].try_now()

    with suppress(client.broken):
        client.get(f"{server.url}/break-off")

    assert State.OPEN is look(client, server.url).state


def test_eligible_sees_the_request(server: FaultServer, connect: Callable[..., Client]) -> None:
    reads_only = HalfOpen(permitted_calls=1, eligible=lambda call: call.args[0].method == "GET")
    client = connect(family(half_open=reads_only))
    client.guard[server.url].try_now()

    with pytest.raises(CircuitOpenError) as caught:
        client.get(f"{server.url}/ok", method="POST")
    client.get(f"{server.url}/ok")

    assert "not_eligible" == caught.value.reason
    assert State.CLOSED is look(client, server.url).state


# Deadlines


@pytest.mark.parametrize("fault", ["hang", "trickle", "trickle-until-close"])
def test_a_call_ends_by_the_ambient_deadline(server: FaultServer, connect: Callable[..., Client], fault: str) -> None:
    client = connect()
    began = time.monotonic()

    with deadline(1.0), pytest.raises((*client.timeout, client.broken)):
        client.get(f"{server.url}/{fault}")

    assert time.monotonic() - began < 30
    assert (0, 1, 0) == outcomes(client, server.url)


def test_without_time_left_nothing_is_sent(server: FaultServer, connect: Callable[..., Client]) -> None:
    client = connect()

    with deadline(0), pytest.raises(client.timeout) as caught:
        client.get(f"{server.url}/ok")

    assert isinstance(caught.value, RejectedError)
    assert isinstance(caught.value, TimeoutError)
    assert [] == server.seen
    assert 0 == sum(outcomes(client, server.url)[:2])


# Hosts and policies


def test_hosts_are_told_apart_and_their_number_is_bounded(server: FaultServer, connect: Callable[..., Client]) -> None:
    client = connect(family(max_keys=2))
    with serving() as second, serving() as third:
        client.guard[server.url].trip(wait=60)

        client.get(f"{second.url}/ok")
        client.get(f"{third.url}/ok")

        assert 2 == len(client.guard)
        assert {server.url, third.url} == set(client.guard)  # the open one stays, the idle one makes room
        with pytest.raises(CircuitOpenError):
            client.get(f"{server.url}/ok")


def test_one_breaker_can_serve_all_hosts(server: FaultServer, connect: Callable[..., Client]) -> None:
    breaker = CircuitBreaker("everything")
    client = connect(breaker)
    with serving() as second:
        client.get(f"{server.url}/ok")
        client.get(f"{second.url}/503")

    counters = breaker.snapshot().counters
    assert (1, 1) == (counters.successes, counters.failures)


def test_a_function_chooses_by_key(server: FaultServer, connect: Callable[..., Client]) -> None:
    breaker = CircuitBreaker("chosen")
    asked: list[str] = []
    client = connect(lambda key: asked.append(key) or breaker)

    client.get(f"{server.url}/ok")

    assert [server.url] == asked
    assert 1 == breaker.snapshot().counters.successes


@pytest.mark.parametrize("form", [list, lambda policies: Pipeline(*policies)], ids=["list", "pipeline"])
def test_policies_are_passed_in_the_order_they_read(
    server: FaultServer, connect: Callable[..., Client], form: Callable[[list[Any]], Any]
) -> None:
    breaker = CircuitBreaker("partner", consecutive_failures=3)
    retry = Retry("partner", on=CircuitOpenError, result=failed_status, attempts=3, backoff=0.0)
    client = connect(form([retry, breaker, Timeout("each", 5)]))

    assert (503, b"told 503") == client.get(f"{server.url}/503")

    assert ["/503"] * 3 == server.seen
    assert State.OPEN is breaker.state
    assert 0 == breaker.snapshot().counters.permits.in_flight


def test_a_timeout_of_a_pipeline_bounds_the_body_and_speaks_the_dialect(
    server: FaultServer, connect: Callable[..., Client]
) -> None:
    breaker = CircuitBreaker("partner")
    client = connect([breaker, Timeout("each", 0.15)])

    with pytest.raises(client.timeout):
        client.get(f"{server.url}/hang")

    assert 1 == breaker.snapshot().counters.failures


def test_a_classifier_of_the_breaker_s_own_wins(server: FaultServer, connect: Callable[..., Client]) -> None:
    class Strict(Failures):
        def of_result(self, value: Any, /) -> Any:
            status = getattr(value, "status_code", None) or value.status
            return Outcome.FAILURE if status == 404 else Outcome.SUCCESS

    breaker = CircuitBreaker("strict", classify=Strict())
    client = connect(breaker)

    client.get(f"{server.url}/404")
    client.get(f"{server.url}/503")

    counters = breaker.snapshot().counters
    assert (1, 1) == (counters.successes, counters.failures)


def test_a_classifier_that_raises_loses_no_permit(server: FaultServer, connect: Callable[..., Client]) -> None:
    class Broken(Failures):
        def of_result(self, value: Any, /) -> Any:
            raise KeyError("status")

    breaker = CircuitBreaker("broken", classify=Broken())
    client = connect(breaker)

    assert (200, BODY) == client.get(f"{server.url}/ok")

    counters = breaker.snapshot().counters
    assert (1, 0) == (counters.ignored, counters.permits.in_flight)


def test_errors_of_timeouts_keep_what_they_know(server: FaultServer, connect: Callable[..., Client]) -> None:
    client = connect(Timeout("slow", 0.1, worker_thread=True))

    with pytest.raises(client.timeout) as caught:
        client.get(f"{server.url}/hang", timeout=0.5)

    if isinstance(caught.value, CallTimeoutError):
        assert ("slow", 0.1) == (caught.value.name, caught.value.seconds)
    gc.collect()
