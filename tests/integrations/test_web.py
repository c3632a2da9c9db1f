"""Refusals that leave a web application, over real sockets: the middlewares, and the examples of five frameworks."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import json
import socketserver
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse, IncompleteRead, RemoteDisconnected
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import pytest
import uvicorn

from halfopen import CircuitOpenError, RateLimitedError, RejectedError, deadline
from halfopen.integrations import asgi, wsgi
from halfopen.integrations._answers import answer, refusal_in
from tests.integrations.fault_server import until

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "web"
OPEN = CircuitOpenError("partner", "open", "open", 12.3)
LIMITED = RateLimitedError("limit", 0.2)


@contextmanager
def serving_asgi(app: Any) -> Iterator[int]:
    config = uvicorn.Config(app, port=0, log_level="critical", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        assert until(lambda: server.started, 10)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass

    def get_stderr(self) -> Any:
        return io.StringIO()


class _Threading(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


@contextmanager
def serving_wsgi(app: Any) -> Iterator[int]:
    with _Threading(("127.0.0.1", 0), _Quiet) as server:
        server.set_app(app)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def get(port: int, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path)
        response: HTTPResponse = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    finally:
        connection.close()


# What is answered


def test_an_open_circuit_is_503_and_a_limiter_429_with_whole_seconds() -> None:
    first, second = answer(OPEN), answer(LIMITED)

    assert (503, "13") == (first.status, first.headers["Retry-After"])
    assert (429, "1") == (second.status, second.headers["Retry-After"])
    assert "503 Service Unavailable" == first.line


def test_where_nobody_knows_how_long_there_is_no_retry_after() -> None:
    told = answer(CircuitOpenError("partner", "forced_open", "forced_open", None))

    assert 503 == told.status
    assert "Retry-After" not in told.headers


def test_a_deadline_that_had_passed_is_504() -> None:
    from halfopen.integrations._http import seconds_left

    with deadline(0), pytest.raises(RejectedError) as caught:
        seconds_left()

    assert 504 == answer(caught.value).status


def test_the_problem_document_does_not_name_the_circuit() -> None:
    told = answer(OPEN)

    assert {
        "type": "about:blank",
        "title": "Service Unavailable",
        "status": 503,
        "detail": "Try again in 13 s.",
    } == json.loads(told.body)
    assert "application/problem+json" == told.headers["Content-Type"]


def test_a_group_of_nothing_but_refusals_is_the_longest_of_them() -> None:
    mixed = ExceptionGroup("both", [OPEN, ValueError()])

    assert OPEN is refusal_in(ExceptionGroup("all", [LIMITED, ExceptionGroup("inner", [OPEN])]))
    assert refusal_in(mixed) is None


# The middlewares


def asgi_app(scope: Any, receive: Any, send: Any) -> Any:
    async def serve() -> None:
        if scope["path"] == "/begun":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
        if scope["path"] == "/ok":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"fine"})
            return
        raise {"/limited": LIMITED, "/mistake": ValueError("a mistake")}.get(scope["path"], OPEN)

    return serve()


def wsgi_app(environ: Any, start_response: Any) -> Iterable[bytes]:
    path = environ["PATH_INFO"]
    if path == "/late":
        return _late(start_response)
    if path == "/begun":
        return _begun(start_response)
    if path == "/ok":
        start_response("200 OK", [])
        return [b"fine"]
    raise {"/limited": LIMITED, "/mistake": ValueError("a mistake")}.get(path, OPEN)


def _late(start_response: Any) -> Iterator[bytes]:
    start_response("200 OK", [])
    raise OPEN
    yield b""


def _begun(start_response: Any) -> Iterator[bytes]:
    start_response("200 OK", [("Content-Length", "9")])
    yield b"half"
    raise OPEN


@pytest.fixture(scope="module", params=["asgi", "wsgi"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    if request.param == "asgi":
        with serving_asgi(asgi.RefusalMiddleware(asgi_app)) as port:
            yield port
    else:
        with serving_wsgi(wsgi.RefusalMiddleware(wsgi_app)) as port:
            yield port


def test_the_middleware_turns_a_refusal_into_an_answer(port: int) -> None:
    status, headers, body = get(port, "/open")

    assert (503, "13", "no-store") == (status, headers["retry-after"], headers["cache-control"])
    assert 503 == json.loads(body)["status"]
    assert 429 == get(port, "/limited")[0]


def test_the_middleware_leaves_everything_else_alone(port: int) -> None:
    assert (200, b"fine") == get(port, "/ok")[::2]
    assert 500 == get(port, "/mistake")[0]


def test_head_gets_no_body(port: int) -> None:
    status, headers, body = get(port, "/open", "HEAD")

    assert (503, "13", b"") == (status, headers["retry-after"], body)


def test_an_answer_that_has_begun_breaks_off(port: int) -> None:
    with pytest.raises((IncompleteRead, RemoteDisconnected, ConnectionError)):
        get(port, "/begun")


def test_an_answer_that_has_begun_gets_no_second_head() -> None:
    sent: list[str] = []

    async def send(message: Any) -> None:
        sent.append(message["type"])

    with pytest.raises(CircuitOpenError):
        asyncio.run(asgi.RefusalMiddleware(asgi_app)({"type": "http", "path": "/begun"}, None, send))  # type: ignore[arg-type]

    assert ["http.response.start", "http.response.body"] == sent


def test_a_body_that_is_made_late_may_still_be_refused() -> None:
    with serving_wsgi(wsgi.RefusalMiddleware(wsgi_app)) as port:
        assert 503 == get(port, "/late")[0]


def test_the_body_of_a_wsgi_application_is_closed() -> None:
    class Body(list[bytes]):
        closed = False

        def close(self) -> None:
            self.closed = True

    body = Body([b"a", b"b"])
    guarded = wsgi.RefusalMiddleware(lambda environ, start_response: body)

    passed = guarded({}, lambda *told: None)

    assert [b"a", b"b"] == list(passed)
    passed.close()  # type: ignore[attr-defined]  # servers call it where it is there
    assert body.closed


@pytest.mark.parametrize(("begun", "told"), [(False, 1), (True, 2)])
def test_a_websocket_is_denied_or_closed_to_be_tried_again_later(begun: bool, told: int) -> None:
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if begun:
            await send({"type": "websocket.accept"})
        raise OPEN

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(asgi.RefusalMiddleware(app)({"type": "websocket"}, None, send))  # type: ignore[arg-type]

    assert told == len(sent)
    assert ("websocket.close", 1013) == (sent[-1]["type"], sent[-1]["code"])


# The frameworks


def example(name: str) -> Any:
    known = sys.modules.get(name)
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["starlette_app", "fastapi_app", "litestar_app", "django_app", "flask_app"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_example_of_a_framework_answers_refusals(name: str) -> None:
    module = example(name)
    serving = serving_wsgi if name in ("django_app", "flask_app") else serving_asgi
    with serving(module.app) as port:
        assert {"EUR": 1.0} == json.loads(get(port, "/rates")[2])
        assert 200 == get(port, "/report")[0]

        module.rates.trip(wait=60)
        status, headers, body = get(port, "/rates")
        limited, limits, _ = get(port, "/report")

    assert (503, 503) == (status, json.loads(body)["status"])
    assert 50 <= int(headers["retry-after"]) <= 60
    assert headers["content-type"].startswith("application/problem+json")
    assert 429 == limited
    assert 50 <= int(limits["retry-after"]) <= 60
