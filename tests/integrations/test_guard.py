"""What the clients' integrations share: crowds at half-open, permits that are lost, policies in layers, dialects."""

from __future__ import annotations

import asyncio
import gc
import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

import aiohttp
import anyio
import httpx
import pytest
import requests
import trio
import urllib3

from halfopen import (
    CircuitBreaker,
    CircuitOpenError,
    HalfOpen,
    Hedge,
    Outcome,
    Pipeline,
    Registry,
    RejectedError,
    State,
    Timeout,
    deadline,
    in_trial,
)
from halfopen._runtime.deadline import DeadlinePassedError
from halfopen.integrations._dialect import Dialect
from halfopen.integrations._guard import Guard
from halfopen.integrations._http import bodiless, host_key, shorter
from halfopen.integrations._settling import Evidence
from halfopen.integrations.aiohttp import GuardMiddleware
from halfopen.integrations.httpx import DIALECT, AsyncGuardedTransport, GuardedTransport
from halfopen.integrations.requests import GuardedAdapter
from halfopen.integrations.urllib3 import GuardedPoolManager, guard_manager
from tests.integrations.fault_server import BODY, FaultServer, serving, until


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with serving() as server:
        yield server


def half_open(server: FaultServer, trials: int = 3) -> Any:
    family = Registry().keyed("*", half_open=HalfOpen(permitted_calls=trials))
    family[server.url].try_now()
    return family


SHORT = httpx.Timeout(60.0, read=1.0)

# Crowds: exactly the trial budget reaches a server that hangs


def test_of_a_crowd_of_threads_the_trial_budget_reaches_the_server(server: FaultServer) -> None:
    family = half_open(server)
    server.mode = "hang"
    barrier = threading.Barrier(40)
    with httpx.Client(transport=GuardedTransport(guard=family), trust_env=False) as client:

        def call() -> str:
            barrier.wait()
            try:
                client.get(server.url, timeout=SHORT)
            except CircuitOpenError as refusal:
                return refusal.reason
            except httpx.TimeoutException:
                return "tried"
            return "answered"

        with ThreadPoolExecutor(40) as pool:
            told = [call.result() for call in [pool.submit(call) for _ in range(40)]]

    assert until(lambda: len(server.seen) >= 3)
    assert 3 == len(server.seen)
    assert {"tried": 3, "trial_budget": 37} == {word: told.count(word) for word in told}


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_of_a_crowd_of_tasks_the_trial_budget_reaches_the_server(server: FaultServer, backend: str) -> None:
    family = half_open(server)
    server.mode = "hang"
    refused: list[str] = []

    async def crowd() -> None:
        async with httpx.AsyncClient(transport=AsyncGuardedTransport(guard=family), trust_env=False) as client:

            async def call() -> None:
                try:
                    await client.get(server.url, timeout=SHORT)
                except CircuitOpenError as refusal:
                    refused.append(refusal.reason)
                except httpx.TimeoutException:
                    pass

            async with anyio.create_task_group() as tasks:
                for _ in range(100):
                    tasks.start_soon(call)

    anyio.run(crowd, backend=backend)

    assert until(lambda: len(server.seen) >= 3)
    assert 3 == len(server.seen)
    assert 97 == len(refused)


def test_of_a_crowd_of_aiohttp_tasks_the_trial_budget_reaches_the_server(server: FaultServer) -> None:
    family = half_open(server)
    server.mode = "trickle"
    server.pause = 0.003

    async def crowd() -> list[Any]:
        async with aiohttp.ClientSession(middlewares=[GuardMiddleware(guard=family)]) as session:

            async def call() -> bytes:
                async with session.get(server.url) as response:
                    return await response.read()

            return await asyncio.gather(*[call() for _ in range(100)], return_exceptions=True)

    told = asyncio.run(crowd())

    assert 3 == len(server.seen) == told.count(BODY)
    assert 97 == sum(isinstance(each, CircuitOpenError) for each in told)
    assert State.CLOSED is family[server.url].state


# Permits that nobody brings back


@pytest.mark.parametrize("library", ["httpx", "requests", "urllib3", "aiohttp"])
@pytest.mark.filterwarnings(
    "ignore:.*Unclosed response:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_a_response_that_is_forgotten_gives_its_trial_back(server: FaultServer, library: str) -> None:
    family = half_open(server, trials=1)
    url = f"{server.url}/endless"
    if library == "httpx":
        with httpx.Client(transport=GuardedTransport(guard=family), trust_env=False) as client:
            client.send(client.build_request("GET", url), stream=True)
            gc.collect()
    elif library == "requests":
        with requests.Session() as session:
            session.mount("http://", GuardedAdapter(guard=family))
            session.get(url, stream=True)
            gc.collect()
    elif library == "urllib3":
        with GuardedPoolManager(guard=family) as pools:
            pools.request("GET", url, preload_content=False)
            gc.collect()
    else:

        async def forget() -> None:
            async with aiohttp.ClientSession(middlewares=[GuardMiddleware(guard=family)]) as session:
                await session.get(url)
                gc.collect()

        asyncio.run(forget())
        gc.collect()  # aiohttp holds a response as long as its connection lives

    breaker = family[server.url]
    breaker.tick()
    permits = breaker.snapshot().counters.permits
    assert (0, State.HALF_OPEN) == (permits.in_flight, breaker.state)
    assert breaker.acquire().trial


def test_a_cancelled_call_is_ignored_on_asyncio_and_trio(server: FaultServer) -> None:
    async def cancelled(family: Any) -> None:
        async with (
            httpx.AsyncClient(transport=AsyncGuardedTransport(guard=family), trust_env=False) as client,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(client.get, f"{server.url}/hang")
            while not server.seen:
                await anyio.sleep(0.005)
            tasks.cancel_scope.cancel()

    for backend in ("asyncio", "trio"):
        family = Registry().keyed("*")
        server.seen.clear()
        anyio.run(cancelled, family, backend=backend)
        counters = family[server.url].snapshot().counters
        assert (0, 0, 1) == (counters.successes, counters.failures, counters.ignored)


def test_an_interrupt_while_reading_is_no_evidence(server: FaultServer) -> None:
    transport = GuardedTransport()
    with (
        httpx.Client(transport=transport, trust_env=False) as client,
        suppress(KeyboardInterrupt),
        client.stream("GET", f"{server.url}/chunks") as response,
    ):
        for _ in response.iter_raw():
            raise KeyboardInterrupt

    counters = transport.guard[server.url].snapshot().counters
    assert (0, 0, 1) == (counters.successes, counters.failures, counters.ignored)


# Policies in layers


@pytest.mark.parametrize("library", ["httpx", "urllib3"])
def test_two_breakers_around_one_call_both_see_its_body_end(server: FaultServer, library: str) -> None:
    outer, inner = CircuitBreaker("outer"), CircuitBreaker("inner")
    for path in ("chunks", "break-off"):
        if library == "httpx":
            transport = GuardedTransport(guard=[outer, inner])
            with httpx.Client(transport=transport, trust_env=False) as client, suppress(httpx.TransportError):
                client.get(f"{server.url}/{path}")
        else:
            with GuardedPoolManager(guard=[outer, inner]) as pools, suppress(urllib3.exceptions.HTTPError):
                pools.request("GET", f"{server.url}/{path}", preload_content=False, retries=False).read()

    for breaker in (outer, inner):
        counters = breaker.snapshot().counters
        assert (1, 1, 0) == (counters.successes, counters.failures, counters.permits.in_flight)


def test_the_recommended_pipeline_judges_the_last_answer_and_its_body(server: FaultServer) -> None:
    pipeline = Pipeline.standard("api", on=httpx.TransportError, attempts=1)
    with httpx.Client(transport=GuardedTransport(guard=pipeline), trust_env=False) as client:
        client.get(f"{server.url}/ok")
        with pytest.raises(httpx.RemoteProtocolError):
            client.get(f"{server.url}/break-off")

    breaker = pipeline.find(CircuitBreaker)
    assert breaker is not None
    counters = breaker.snapshot().counters
    assert (1, 1) == (counters.successes, counters.failures)


def test_a_hedge_that_loses_leaves_no_permit_behind(server: FaultServer) -> None:
    breaker = CircuitBreaker("api")
    hedge = Hedge("api", 0.05, budget=None)

    async def main() -> int:
        transport = AsyncGuardedTransport(guard=[hedge, breaker])
        async with httpx.AsyncClient(transport=transport, trust_env=False) as client:
            return (await client.get(f"{server.url}/pair")).status_code

    assert 200 == asyncio.run(main())
    assert 2 == len(server.seen)
    assert until(lambda: breaker.snapshot().counters.permits.in_flight == 0)


def test_what_is_called_inside_a_trial_call_knows_it(server: FaultServer) -> None:
    seen: list[bool] = []

    class Noting(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            seen.append(in_trial())
            return super().handle_request(request)

    transport = GuardedTransport(Noting(), guard=half_open(server))
    with httpx.Client(transport=transport, trust_env=False) as client:
        client.get(f"{server.url}/ok")
        transport.guard[server.url].reset()
        client.get(f"{server.url}/ok")

    assert [True, False] == seen


def test_a_trial_call_can_have_a_tighter_timeout(server: FaultServer) -> None:
    breaker = CircuitBreaker("api")
    breaker.try_now()
    transport = GuardedTransport(guard=[breaker, Timeout("api", 300, trial=0.1)])
    began = time.monotonic()

    with httpx.Client(transport=transport, trust_env=False) as client, pytest.raises(httpx.ReadTimeout):
        client.get(f"{server.url}/hang")

    assert time.monotonic() - began < 30
    assert State.OPEN is breaker.state


def test_a_proxy_s_pools_are_guarded_by_the_host_behind_it(server: FaultServer) -> None:
    with urllib3.ProxyManager(server.url) as manager:
        family = guard_manager(manager)
        server.mode = "ok"

        manager.request("GET", "http://far.example/ok", retries=False)

    assert ["http://far.example:80"] == list(family)


def test_a_pickled_requests_session_is_guarded_anew(server: FaultServer) -> None:
    with requests.Session() as session:
        session.mount("http://", GuardedAdapter())
        copy = pickle.loads(pickle.dumps(session))
    with closing(copy):
        copy.get(f"{server.url}/ok")

        assert 1 == copy.get_adapter(server.url).guard[server.url].snapshot().counters.successes


# Deadlines against a server that trickles its headers


def test_headers_that_trickle_are_cut_off_at_the_deadline() -> None:
    with _trickling_headers() as url:
        for call in (_by_urllib3, _by_requests, _by_httpx, _by_httpx2, _by_httpx_async, _by_aiohttp):
            began = time.monotonic()
            with pytest.raises(Exception) as caught, deadline(1.0):
                call(url)

            assert time.monotonic() - began < 30, call
            assert "Timeout" in type(caught.value).__name__, call


def _by_urllib3(url: str) -> None:
    with GuardedPoolManager() as pools:
        pools.request("GET", url, retries=False)


def _by_requests(url: str) -> None:
    with requests.Session() as session:
        session.mount("http://", GuardedAdapter())
        session.get(url)


def _by_httpx(url: str) -> None:
    with httpx.Client(transport=GuardedTransport(), trust_env=False) as client:
        client.get(url)


def _by_httpx2(url: str) -> None:
    import httpx2

    from halfopen.integrations.httpx2 import GuardedTransport as Guarded2

    with httpx2.Client(transport=Guarded2(), trust_env=False) as client:
        client.get(url)


def _by_httpx_async(url: str) -> None:
    async def get() -> None:
        async with httpx.AsyncClient(transport=AsyncGuardedTransport(), trust_env=False) as client:
            await client.get(url)

    trio.run(get)


def _by_aiohttp(url: str) -> None:
    async def get() -> None:
        async with aiohttp.ClientSession(middlewares=[GuardMiddleware()]) as session:
            await session.get(url)

    asyncio.run(get())


class _trickling_headers:
    """A server that answers each connection with headers, a byte every 20 ms, without end."""

    def __enter__(self) -> str:
        import socket

        self._ending = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}/"

    def _serve(self) -> None:
        self._listening.settimeout(0.05)
        while not self._ending.is_set():
            with suppress(OSError):
                connection, _ = self._listening.accept()
                with connection:
                    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
                    while not self._ending.wait(0.02):
                        connection.sendall(b"x")

    def __exit__(self, *exc: object) -> None:
        self._ending.set()
        self._thread.join()
        self._listening.close()


# Small parts


@pytest.mark.parametrize(
    ("scheme", "host", "port", "key"),
    [
        ("http", "Example.COM", None, "http://example.com:80"),
        ("https", "example.com", None, "https://example.com:443"),
        ("https", "example.com", 8443, "https://example.com:8443"),
        ("http", "::1", 80, "http://[::1]:80"),
        ("http", "[::1]", 80, "http://[::1]:80"),
        ("http+unix", "socket", None, "http+unix://socket:0"),
    ],
)
def test_a_key_has_scheme_host_and_port(scheme: str, host: str, port: int | None, key: str) -> None:
    assert key == host_key(scheme, host, port)


def test_what_ends_with_its_headers() -> None:
    assert bodiless("HEAD", 200, {})
    assert all(bodiless("GET", status, {}) for status in (101, 204, 304))
    assert bodiless("GET", 200, {"content-length": "0"})
    assert not bodiless("GET", 200, {"content-length": "1"})


def test_the_nearer_of_two_times() -> None:
    assert [None, 1.0, 1.0, 1.0] == [shorter(*pair) for pair in [(None, None), (1.0, None), (None, 1.0), (1.0, 2.0)]]


def test_what_says_nothing_of_the_other_side_is_ignored() -> None:
    evidence = Evidence(ill=(OSError,), ours=(PermissionError,))

    assert Outcome.FAILURE is evidence.of_exception(ConnectionResetError())
    assert Outcome.IGNORED is evidence.of_exception(PermissionError())
    assert Outcome.IGNORED is evidence.of_exception(ValueError())


def test_a_refusal_of_a_kind_made_elsewhere_is_spoken_too() -> None:
    class LaneFullError(RejectedError):
        pass

    spoken = DIALECT.of(LaneFullError("lane"))

    assert isinstance(spoken, LaneFullError)
    assert isinstance(spoken, httpx.ConnectError)
    assert "lane" == spoken.name
    assert spoken is DIALECT.of(spoken)  # type: ignore[arg-type]  # a refusal, too


def test_a_deadline_refusal_keeps_its_name_and_seconds() -> None:
    spoken = DIALECT.of(DeadlinePassedError("request", 2.5))

    copy = pickle.loads(pickle.dumps(spoken))

    assert isinstance(copy, httpx.ConnectTimeout)
    assert isinstance(copy, TimeoutError)
    assert ("request", 2.5) == (copy.name, copy.seconds)


def test_a_dialect_makes_each_class_once() -> None:
    dialect = Dialect(__name__, ConnectionError, TimeoutError, TimeoutError)
    one, other = (dialect.of(CircuitOpenError("a", "open", "open", None)) for _ in range(2))

    assert type(one) is type(other)
    assert ("a", "open", "open", None) == one.args


def test_a_family_with_a_key_function_of_its_own_is_asked_with_the_request(server: FaultServer) -> None:
    from halfopen._runtime.keyed import KeyedPolicy

    family: KeyedPolicy[CircuitBreaker] = KeyedPolicy(
        "path:*", CircuitBreaker, key=lambda request: request.url.path.strip("/")
    )
    with httpx.Client(transport=GuardedTransport(guard=family), trust_env=False) as client:
        client.get(f"{server.url}/ok")

    assert ["ok"] == list(family)


@pytest.mark.parametrize("wrong", [5, "partner", [CircuitBreaker("a"), None], CircuitBreaker])
def test_what_cannot_guard_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(TypeError, match="guard is a policy"):
        GuardedTransport(guard=wrong)


def test_a_refusal_in_another_library_s_dialect_is_translated() -> None:
    from halfopen.integrations.requests import DIALECT as OTHER

    foreign = OTHER.of(CircuitOpenError("a", "open", "open", 3.0))

    spoken = DIALECT.of(foreign)  # type: ignore[arg-type]  # a refusal, too

    assert isinstance(spoken, httpx.ConnectError)
    assert not isinstance(spoken, requests.RequestException)
    assert ("a", 3.0) == (spoken.name, spoken.retry_after)  # type: ignore[attr-defined]


def test_a_guard_of_no_policies_lets_everything_through() -> None:
    guard = Guard([], Evidence(ill=()), lambda request, response, settling: None, lambda response: None)

    assert "answer" == guard.call("key", lambda request: "answer", None)
