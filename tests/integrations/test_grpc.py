"""The gRPC interceptors over real sockets: four kinds of calls, two colours."""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import grpc
import grpc.aio
import pytest

from halfopen import (
    AdaptiveConcurrency,
    Bulkhead,
    BulkheadFullError,
    CircuitBreaker,
    CircuitOpenError,
    HalfOpen,
    Pipeline,
    RateLimitedError,
    RateLimiter,
    RejectedError,
    Retry,
    State,
    deadline,
)
from halfopen.integrations.grpc import GuardInterceptor
from halfopen.integrations.grpc_aio import guard_interceptors
from halfopen.testing import FakeClock
from tests.integrations.fault_server import closed_port, serving, until
from tests.integrations.grpc_server import SERVICE, GrpcFaultServer, serving_grpc

KINDS = ["UnaryUnary", "UnaryStream", "StreamUnary", "StreamStream"]
STREAMS = ["UnaryStream", "StreamStream"]


@pytest.fixture
def server() -> Iterator[GrpcFaultServer]:
    logging.getLogger("grpc").setLevel(logging.CRITICAL)
    with serving_grpc() as server:
        yield server


class Sync:
    """Calls through `grpc`."""

    error = grpc.RpcError

    def __init__(self, stack: ExitStack, target: str, guard: Any) -> None:
        interceptor = GuardInterceptor(target, guard=guard)
        self.guard = interceptor.guard
        channel = stack.enter_context(grpc.insecure_channel(target))
        self._channel = grpc.intercept_channel(channel, interceptor)

    def call(self, kind: str, wanted: str, timeout: float | None = 60.0) -> list[bytes]:
        sent: Any = iter([wanted.encode()]) if kind.startswith("Stream") else wanted.encode()
        answer = self._method(kind)(sent, timeout=timeout)
        return list(answer) if kind.endswith("Stream") else [answer]

    def start_and_cancel(self, kind: str) -> None:
        sent: Any = iter([b"endless"]) if kind.startswith("Stream") else b"endless"
        call = self._method(kind)(sent, timeout=60)
        next(call)
        call.cancel()

    def open(self, kind: str) -> Callable[[], object]:
        """Begin a stream that has no end; return what cancels it."""
        sent: Any = iter([b"endless"]) if kind.startswith("Stream") else b"endless"
        call = self._method(kind)(sent, timeout=60)
        next(call)
        return call.cancel  # type: ignore[no-any-return]

    def future(self, wanted: str) -> Any:
        return self._method("UnaryUnary").future(wanted.encode(), timeout=60)

    def stream(self, wanted: str) -> Any:
        return self._method("UnaryStream")(wanted.encode(), timeout=60)

    def _method(self, kind: str) -> Any:
        # Names of the factories are those of the kinds in snake case.
        name = "".join("_" + letter.lower() if letter.isupper() else letter for letter in kind).lstrip("_")
        return getattr(self._channel, name)(f"/{SERVICE}/{kind}")


_LOOPS: list[asyncio.AbstractEventLoop] = []


@pytest.fixture(scope="module", autouse=True)
def loop() -> Iterator[None]:
    """Run one loop for all tests: grpc.aio has known trouble with several in one process (grpc/grpc#25364)."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    _LOOPS.append(loop)
    yield
    _LOOPS.clear()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


class Aio:
    """Calls through `grpc.aio`, on a loop in a thread of its own."""

    error = grpc.aio.AioRpcError

    def __init__(self, stack: ExitStack, target: str, guard: Any) -> None:
        assert _LOOPS, "the fixture `loop` runs the loop"
        self._loop = _LOOPS[0]
        self._channel = self._run(self._open(target, guard))
        stack.callback(lambda: self._run(self._channel.close()))

    async def _open(self, target: str, guard: Any) -> Any:
        interceptors = guard_interceptors(target, guard=guard)
        self.guard = interceptors[0].guard
        return grpc.aio.insecure_channel(target, interceptors=interceptors)

    def call(self, kind: str, wanted: str, timeout: float | None = 60.0) -> list[bytes]:
        return self._run(self._call(kind, wanted, timeout))  # type: ignore[no-any-return]

    async def _call(self, kind: str, wanted: str, timeout: float | None) -> list[bytes]:
        call = self._method(kind, wanted, timeout)
        return [message async for message in call] if kind.endswith("Stream") else [await call]

    def start_and_cancel(self, kind: str) -> None:
        async def start_and_cancel() -> None:
            call = self._method(kind, "endless", 60)
            await anext(aiter(call))
            call.cancel()

        self._run(start_and_cancel())

    def open(self, kind: str) -> Callable[[], object]:
        """Begin a stream that has no end; return what cancels it."""

        async def begin() -> Any:
            call = self._method(kind, "endless", 60)
            await anext(aiter(call))
            return call

        async def cancel(call: Any) -> None:
            call.cancel()

        call = self._run(begin())
        return lambda: self._run(cancel(call))

    def write(self, kind: str, wanted: str) -> list[bytes]:
        async def write() -> list[bytes]:
            call = self._method(kind, None, 60)
            for letter in wanted:
                await call.write(letter.encode())
            await call.done_writing()
            return [message async for message in call] if kind.endswith("Stream") else [await call]

        return self._run(write())  # type: ignore[no-any-return]

    def cancel_unary(self) -> None:
        async def cancel() -> None:
            call = self._method("UnaryUnary", "hang", 60)
            await asyncio.sleep(0.1)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

        self._run(cancel())

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        from contextvars import copy_context

        context, done, told = copy_context(), threading.Event(), []

        def start() -> None:
            task = self._loop.create_task(coroutine, context=context)
            task.add_done_callback(lambda task: (told.append(task), done.set()))

        self._loop.call_soon_threadsafe(start)
        assert done.wait(60)
        return told[0].result()

    def _method(self, kind: str, wanted: str | None, timeout: float | None) -> Any:
        name = "".join("_" + letter.lower() if letter.isupper() else letter for letter in kind).lstrip("_")
        method = getattr(self._channel, name)(f"/{SERVICE}/{kind}")
        if wanted is None:
            return method(timeout=timeout)
        return method(iter([wanted.encode()]) if kind.startswith("Stream") else wanted.encode(), timeout=timeout)


@pytest.fixture(params=[Sync, Aio], ids=["sync", "aio"])
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    with ExitStack() as stack:
        yield lambda target, guard=None: request.param(stack, target, guard)


@pytest.fixture
def client(server: GrpcFaultServer, connect: Callable[..., Any]) -> Any:
    return connect(server.target)


def outcomes(breaker: CircuitBreaker) -> tuple[int, int, int]:
    """Return successes, failures and ignored calls, once nothing is in flight."""
    assert until(lambda: breaker.snapshot().counters.permits.in_flight == 0)
    counters = breaker.snapshot().counters
    return counters.successes, counters.failures, counters.ignored


def breaker_of(client: Any, server: GrpcFaultServer) -> CircuitBreaker:
    breaker: CircuitBreaker = client.guard[f"grpc://{server.target}"]
    return breaker


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_is_a_success_of_its_target(server: GrpcFaultServer, client: Any, kind: str) -> None:
    answer = client.call(kind, "ok")

    assert ([b"one", b"two", b"three"] if kind.endswith("Stream") else [b"answer"]) == answer
    assert [f"grpc://{server.target}"] == list(client.guard)
    assert (1, 0, 0) == outcomes(breaker_of(client, server))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("code", ["UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL", "raise"])
def test_a_code_of_an_ill_service_is_a_failure(server: GrpcFaultServer, client: Any, kind: str, code: str) -> None:
    with pytest.raises(client.error) as caught:
        client.call(kind, code)

    assert ("UNKNOWN" if code == "raise" else code) == caught.value.code().name
    assert (0, 1, 0) == outcomes(breaker_of(client, server))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("code", ["NOT_FOUND", "INVALID_ARGUMENT", "ALREADY_EXISTS"])
def test_the_caller_s_mistake_is_an_answer(server: GrpcFaultServer, client: Any, kind: str, code: str) -> None:
    with pytest.raises(client.error):
        client.call(kind, code)

    assert (1, 0, 0) == outcomes(breaker_of(client, server))


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_hangs_is_a_failure(server: GrpcFaultServer, client: Any, kind: str) -> None:
    with pytest.raises(client.error):
        client.call(kind, "hang", timeout=0.2)

    assert (0, 1, 0) == outcomes(breaker_of(client, server))


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_that_dies_midway_is_a_failure(server: GrpcFaultServer, client: Any, kind: str) -> None:
    with pytest.raises(client.error):
        client.call(kind, "midway-UNAVAILABLE")

    assert (0, 1, 0) == outcomes(breaker_of(client, server))


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_that_is_cancelled_is_ignored(server: GrpcFaultServer, client: Any, kind: str) -> None:
    client.start_and_cancel(kind)

    assert (0, 0, 1) == outcomes(breaker_of(client, server))


def test_a_port_where_nobody_listens_and_a_server_that_resets_are_failures(connect: Callable[..., Any]) -> None:
    refused = f"127.0.0.1:{closed_port()}"
    client = connect(refused)
    with pytest.raises(client.error):
        client.call("UnaryUnary", "ok")
    assert (0, 1, 0) == outcomes(client.guard[f"grpc://{refused}"])

    with serving() as other:
        other.mode = "reset"
        client = connect(f"127.0.0.1:{other.server_port}")
        with pytest.raises(client.error):
            client.call("UnaryStream", "ok", timeout=1)

    assert (0, 1, 0) == outcomes(client.guard[f"grpc://127.0.0.1:{other.server_port}"])


@pytest.mark.parametrize("kind", KINDS)
def test_the_server_s_pushback_bounds_the_wait(server: GrpcFaultServer, connect: Callable[..., Any], kind: str) -> None:
    breaker = CircuitBreaker("partner", consecutive_failures=1, wait_in_open=30, clock=FakeClock())
    client = connect(server.target, breaker)
    server.pushback = "120000"

    with pytest.raises(client.error):
        client.call(kind, "UNAVAILABLE")

    assert until(lambda: breaker.state is State.OPEN)
    assert 120 == breaker.snapshot().remaining_wait


@pytest.mark.parametrize("kind", KINDS)
def test_a_refusal_is_an_rpc_error_with_unavailable(server: GrpcFaultServer, client: Any, kind: str) -> None:
    breaker_of(client, server).trip(wait=600)

    with pytest.raises(client.error) as caught:
        client.call(kind, "ok")

    error = caught.value
    assert isinstance(error, CircuitOpenError)
    assert grpc.StatusCode.UNAVAILABLE is error.code()
    assert str(error) == error.details()
    assert error.retry_after is not None and 500 < error.retry_after <= 600
    assert 500_000 < int(dict(error.trailing_metadata())["grpc-retry-pushback-ms"]) <= 600_000
    copy = pickle.loads(pickle.dumps(error))
    assert (type(error), error.args, error.code()) == (type(copy), copy.args, copy.code())
    assert [] == server.seen


def test_a_limiter_s_refusal_is_resource_exhausted(server: GrpcFaultServer, connect: Callable[..., Any]) -> None:
    client = connect(server.target, RateLimiter("limit", 1, 60))
    client.call("UnaryUnary", "ok")

    with pytest.raises(client.error) as caught:
        client.call("UnaryUnary", "ok")

    assert isinstance(caught.value, RateLimitedError)
    assert grpc.StatusCode.RESOURCE_EXHAUSTED is caught.value.code()


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_that_recovers_is_tried_and_let_back(
    server: GrpcFaultServer, connect: Callable[..., Any], kind: str
) -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("partner", consecutive_failures=1, wait_in_open=30, clock=clock)
    client = connect(server.target, breaker)
    with pytest.raises(client.error):
        client.call(kind, "UNAVAILABLE")
    assert until(lambda: breaker.state is State.OPEN)
    clock.advance(30)

    for _ in range(3):
        client.call(kind, "ok")
        assert until(lambda: breaker.snapshot().counters.permits.in_flight == 0)

    assert State.CLOSED is breaker.state


@pytest.mark.parametrize("kind", KINDS)
def test_timeouts_are_cut_to_the_deadline(server: GrpcFaultServer, client: Any, kind: str) -> None:
    began = time.monotonic()

    with deadline(0.5), pytest.raises(client.error):
        client.call(kind, "hang", timeout=None)

    assert time.monotonic() - began < 40
    assert (0, 1, 0) == outcomes(breaker_of(client, server))


def test_without_time_left_nothing_is_sent(server: GrpcFaultServer, client: Any) -> None:
    with deadline(0), pytest.raises(client.error) as caught:
        client.call("UnaryUnary", "ok")

    assert isinstance(caught.value, RejectedError)
    assert grpc.StatusCode.DEADLINE_EXCEEDED is caught.value.code()
    assert [] == server.seen


def test_eligible_sees_the_method(server: GrpcFaultServer, connect: Callable[..., Any]) -> None:
    def reads(call: Any) -> bool:
        method = call.args[0].method
        return bool((method if isinstance(method, str) else method.decode()).endswith("/UnaryStream"))

    breaker = CircuitBreaker("partner", half_open=HalfOpen(permitted_calls=1, eligible=reads))
    breaker.try_now()
    client = connect(server.target, breaker)

    with pytest.raises(CircuitOpenError):
        client.call("UnaryUnary", "ok")
    client.call("UnaryStream", "ok")

    assert until(lambda: breaker.state is State.CLOSED)


def test_a_retry_around_the_breaker_sees_the_errors_of_unary_calls(
    server: GrpcFaultServer, connect: Callable[..., Any]
) -> None:
    breaker = CircuitBreaker("partner")
    client = connect(server.target, [Retry("partner", on=grpc.RpcError, attempts=3, backoff=0.0), breaker])

    with pytest.raises(client.error):
        client.call("UnaryUnary", "UNAVAILABLE")

    assert ["UNAVAILABLE"] * 3 == server.seen
    assert (0, 3, 0) == outcomes(breaker)


def test_a_future_settles_when_it_is_done(server: GrpcFaultServer) -> None:
    with ExitStack() as stack:
        client = Sync(stack, server.target, None)

        good, bad = client.future("ok"), client.future("UNAVAILABLE")

        assert b"answer" == good.result()
        assert isinstance(bad.exception(), grpc.RpcError)
        assert (1, 1, 0) == outcomes(breaker_of(client, server))


def test_a_refused_future_tells_when_it_is_asked(server: GrpcFaultServer) -> None:
    with ExitStack() as stack:
        client = Sync(stack, server.target, None)
        breaker_of(client, server).force_open()

        assert isinstance(client.future("ok").exception(), CircuitOpenError)


def test_a_stream_that_its_user_forgets_is_cancelled_and_ignored(server: GrpcFaultServer) -> None:
    with ExitStack() as stack:
        client = Sync(stack, server.target, None)
        call = client.stream("endless")
        next(call)

        del call
        gc.collect()

        assert until(lambda: breaker_of(client, server).snapshot().counters.permits.in_flight == 0)
        counters = breaker_of(client, server).snapshot().counters
        assert (0, 0) == (counters.successes, counters.failures)


@pytest.mark.parametrize("kind", ["StreamUnary", "StreamStream"])
def test_requests_can_be_written_one_by_one(server: GrpcFaultServer, kind: str) -> None:
    with ExitStack() as stack:
        client = Aio(stack, server.target, None)

        client.write(kind, "ok")

        assert (1, 0, 0) == outcomes(breaker_of(client, server))


def test_a_unary_call_that_its_user_cancels_is_ignored(server: GrpcFaultServer) -> None:
    with ExitStack() as stack:
        client = Aio(stack, server.target, None)

        client.cancel_unary()

        assert (0, 0, 1) == outcomes(breaker_of(client, server))


@pytest.mark.parametrize("kind", ["UnaryStream", "StreamStream"])
@pytest.mark.parametrize(
    "make",
    [lambda: Bulkhead("b", 1), lambda: AdaptiveConcurrency("b", initial_limit=1, max_limit=1)],
    ids=["bulkhead", "adaptive"],
)
@pytest.mark.parametrize("inside", [False, True], ids=["alone", "around a breaker"])
def test_a_place_is_taken_until_the_stream_ends(
    server: GrpcFaultServer, connect: Callable[..., Any], kind: str, make: Callable[[], Any], inside: bool
) -> None:
    place = make()
    client = connect(server.target, [place, CircuitBreaker("inner")] if inside else place)
    cancel = client.open(kind)

    with pytest.raises(BulkheadFullError) as refused:
        client.call("UnaryStream", "ok")
    cancel()
    assert until(lambda: place.snapshot().in_use == 0)
    after = client.call(kind, "ok")

    assert isinstance(refused.value, client.error)
    assert grpc.StatusCode.UNAVAILABLE is refused.value.code()
    assert [b"one", b"two", b"three"] == after
    assert until(lambda: place.snapshot().in_use == 0)


@pytest.mark.parametrize("kind", ["UnaryUnary", "StreamUnary", "UnaryStream", "StreamStream"])
@pytest.mark.parametrize("wanted", ["ok", "UNAVAILABLE"])
def test_a_place_is_free_again_however_a_call_ends(
    server: GrpcFaultServer, connect: Callable[..., Any], kind: str, wanted: str
) -> None:
    bulkhead = Bulkhead("b", 1)
    client = connect(server.target, Pipeline(bulkhead, CircuitBreaker("inner"), name="p"))

    for _ in range(3):
        with suppress(grpc.RpcError):
            client.call(kind, wanted)
        assert until(lambda: bulkhead.snapshot().in_use == 0)

    assert (3, 0) == (bulkhead.snapshot().admitted, bulkhead.snapshot().in_use)
