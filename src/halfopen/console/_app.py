"""The console as an ASGI application: routes, who may ask for what, and the start and end of the hub."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, cast

from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from halfopen.console._files import SECURITY_HEADERS, file_response
from halfopen.console._hub import Hub
from halfopen.console._identity import COOKIE, Access, Identity, cookie_of
from halfopen.console._orders import Answer, Orders
from halfopen.console._picture import dumps
from halfopen.console._queues import message_of, selection_of
from halfopen.console._stream import EventStream
from halfopen.retry_queue import UnknownMessageError

__all__ = ["Console"]

MOST_BODY = 64 * 1024
MOST_PAGES = 1000
"""Streams at one time; a further page is asked to come later, and looks at snapshots meanwhile."""
_RANGES = (60.0, 120.0, 300.0, 900.0, 3600.0, 21600.0)


class _Text(Convertor[str]):
    """A part of a path that may be anything: names hold slashes and line breaks too."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("halfopen_text", _Text())


class Console:
    """
    The ASGI application of a console; made by `app`.

    It looks from the first request on, or from the start of its lifespan. Where it is mounted in another application,
    whose lifespan it does not see, `start` and `stop` may be called from that one's.
    """

    def __init__(self, hub: Hub, access: Access) -> None:
        self._hub = hub
        self._access = access
        self._orders = Orders(hub)
        self._starlette = Starlette(routes=self._routes(), lifespan=self._lifespan)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
            return
        if scope["type"] != "http":
            await self._starlette(scope, receive, send)
            return
        request = Request(scope, receive)
        if not self._access.host_allowed(request):
            refused = _json({"error": "the console is not asked under this name; see its hosts="}, 400)
            await refused(scope, receive, send)
            return
        await self._hub.start()

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                have = {name for name, _ in message["headers"]}
                message["headers"] = list(message["headers"]) + [
                    (name.encode(), value.encode())
                    for name, value in SECURITY_HEADERS.items()
                    if name.encode() not in have
                ]
            await send(message)

        await self._starlette(scope, receive, guarded)

    async def start(self) -> None:
        """Begin to look; a no-op when it does already."""
        await self._hub.start()

    async def stop(self) -> None:
        """End every stream, look no more, and close the audit log."""
        await self._hub.stop()
        self._hub.audit.close()

    def end_streams(self) -> None:
        """End every stream, so that a server can shut down; the pages come back to the next one."""
        self._hub.end_streams()

    def cut_off_by(self, abort: Callable[[Any], object]) -> None:
        """Let the server say how a connection, named by its client address, is cut off."""
        self._hub.abort = abort

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncGenerator[None]:
        await self._hub.start()
        try:
            yield
        finally:
            await self.stop()

    def _routes(self) -> list[Route]:
        get, post = ["GET"], ["POST"]
        return [
            Route("/", self._page, methods=get),
            Route("/static/{path:path}", self._file, methods=get),
            Route("/api/session", self._session, methods=get),
            Route("/api/login", self._login, methods=post),
            Route("/api/logout", self._logout, methods=post),
            Route("/api/snapshot", self._look(self._snapshot), methods=get),
            Route("/api/events", self._events, methods=get),
            Route("/api/events", self._do(self._mark), methods=post),
            Route("/api/audit", self._look(self._audit), methods=get),
            Route("/api/breakers/{name:halfopen_text}/actions", self._do(self._act), methods=post),
            Route("/api/breakers/{name:halfopen_text}", self._look(self._detail), methods=get),
            Route("/api/queues/{name:halfopen_text}/actions", self._do(self._act_on_queue), methods=post),
            Route("/api/queues/{name:halfopen_text}/messages", self._look(self._messages), methods=get),
            Route(
                "/api/queues/{name:halfopen_text}/messages/{message:halfopen_text}",
                self._look(self._message),
                methods=get,
            ),
        ]

    # The page

    async def _page(self, request: Request) -> Response:
        return file_response(request, "index.html")

    async def _file(self, request: Request) -> Response:
        return file_response(request, request.path_params["path"])

    # Who asks

    async def _session(self, request: Request) -> Response:
        who = self._access.who(request)
        return _json(
            {
                "who": None if who is None else who.name,
                "role": None if who is None and not self._access.anonymous else "viewer" if who is None else who.role,
                "csrf": None if who is None else self._access.csrf(who),
                "sign_in": bool(self._access.tokens),
            }
        )

    async def _login(self, request: Request) -> Response:
        body = await _body(request)
        if not self._access.same_site(request):
            return _json({"error": "another origin"}, 403)
        shown = cast("Mapping[str, Any]", body).get("token") if isinstance(body, dict) else None
        who = self._access.by_token(shown) if isinstance(shown, str) else None
        if who is None or not isinstance(shown, str):
            await asyncio.sleep(0.5)
            return _json({"error": "nobody has this token"}, 401)
        response = _json({"who": who.name, "role": who.role, "csrf": self._access.csrf(who)})
        path = request.scope.get("root_path", "").rstrip("/") + "/"
        response.set_cookie(
            COOKIE, cookie_of(shown), path=path, httponly=True, samesite="strict", secure=request.url.scheme == "https"
        )
        return response

    async def _logout(self, request: Request) -> Response:
        if not self._access.same_site(request):
            return _json({"error": "another origin"}, 403)
        response = _json({})
        response.delete_cookie(COOKIE, path=request.scope.get("root_path", "").rstrip("/") + "/")
        return response

    def _look(self, endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def look(request: Request) -> Response:
            return await endpoint(request) if self._access.may_look(request) else _json({"error": "who asks?"}, 401)

        return look

    def _do(
        self, endpoint: Callable[[Request, Any, Identity], Awaitable[Answer]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def do(request: Request) -> Response:
            who = self._access.who(request)
            if who is None:
                return _json({"error": "no action without an identity"}, 401)
            if who.role != "operator":
                return _json({"error": f"{who.name} is a viewer, and only operators act"}, 403)
            if not self._access.same_site(request):
                return _json({"error": "another origin"}, 403)
            if not self._access.csrf_right(request, who):
                return _json({"error": "the CSRF token is wrong; api/session has the right one"}, 403)
            status, answer = await endpoint(request, await _body(request), who)
            return _json(answer, status)

        return do

    # Looking

    async def _snapshot(self, _: Request) -> Response:
        return Response(self._hub.picture.snapshot(), headers=_NO_STORE, media_type="application/json")

    async def _events(self, request: Request) -> Any:
        if not self._access.may_look(request):
            return _json({"error": "who asks?"}, 401)
        if request.method == "HEAD":
            return Response(headers=_NO_STORE, media_type="text/event-stream")
        if len(self._hub.clients) >= MOST_PAGES:
            refused = _json({"error": f"{MOST_PAGES} pages are watching already"}, 503)
            refused.headers["retry-after"] = "30"
            return refused
        return EventStream(self._hub, request.headers.get("last-event-id"))

    async def _detail(self, request: Request) -> Response:
        name = request.path_params["name"]
        collector = self._hub.collector
        states = collector.states(name)
        if not states:
            return _json({"error": f"there is no breaker {name!r}"}, 404)
        seconds = min((one for one in _RANGES if one >= _float(request, "seconds", 900.0)), default=_RANGES[-1])
        now = time.time()
        timeline = collector.timelines.get(name)
        windows = {process: self._window(name, process) for process in states}
        audit = await asyncio.to_thread(self._hub.audit.entries, target=name, limit=20)
        return _json(
            {
                "name": name,
                "time": round(now, 3),
                "seconds": seconds,
                "timeline": None if timeline is None else timeline.points(seconds, now),
                "moves": {process: self._moves(name, process) for process in states},
                "windows": {process: window for process, window in windows.items() if window is not None},
                "audit": audit,
            }
        )

    def _moves(self, name: str, process: str) -> list[list[Any]]:
        local = self._hub.local
        if local is not None and process == local.id:
            return local.moves(name)
        moves: list[list[Any]] = self._hub.collector.told(name, process, "moves") or []
        return moves

    def _window(self, name: str, process: str) -> dict[str, Any] | None:
        local = self._hub.local
        if local is not None and process == local.id:
            return local.window(name)
        window: dict[str, Any] | None = self._hub.collector.told(name, process, "window")
        return window

    async def _audit(self, request: Request) -> Response:
        target = request.query_params.get("breaker")
        before = request.query_params.get("before")
        limit = int(min(max(_float(request, "limit", 50.0), 1.0), 500.0))
        try:
            moment = None if before is None else float(before)
        except ValueError:
            return _json({"error": "before is a Unix time"}, 400)
        entries = await asyncio.to_thread(self._hub.audit.entries, target=target, before=moment, limit=limit)
        return _json({"entries": entries, "durable": self._hub.audit.path is not None})

    # Queues

    async def _messages(self, request: Request) -> Response:
        queue = self._hub.queues.queues.get(request.path_params["name"])
        if queue is None:
            return _json({"error": "there is no such queue"}, 404)
        ask = request.query_params
        try:
            selection = selection_of({"lane": ask.get("lane"), "states": ask.getlist("state")})
        except ValueError as error:
            return _json({"error": str(error)}, 400)
        after = int(min(max(_float(request, "after", 0.0), 0.0), 2.0**62))
        found = await asyncio.to_thread(queue.list, selection, after=after, limit=50)
        count = await asyncio.to_thread(queue.count, selection)
        operator = self._is_operator(request)
        return _json({"messages": [message_of(one, operator=operator) for one in found], "count": count})

    async def _message(self, request: Request) -> Response:
        queue = self._hub.queues.queues.get(request.path_params["name"])
        try:
            if queue is None:
                raise UnknownMessageError(request.path_params["message"])
            message = await asyncio.to_thread(queue.get, request.path_params["message"])
        except UnknownMessageError:
            return _json({"error": "there is no such message"}, 404)
        operator = self._is_operator(request)
        history = await asyncio.to_thread(queue.history, message.id)
        shown = [
            {"at": one.at, "what": one.what, "outcome": one.outcome, "attempt": one.attempt, "who": one.who}
            | ({"detail": one.detail} if operator else {})
            for one in history
        ]
        return _json({"message": message_of(message, operator=operator), "history": shown})

    def _is_operator(self, request: Request) -> bool:
        who = self._access.who(request)
        return who is not None and who.role == "operator"

    # Doing

    async def _act(self, request: Request, body: Any, who: Identity) -> Answer:
        return await self._orders.breaker(request.path_params["name"], body, who)

    async def _act_on_queue(self, request: Request, body: Any, who: Identity) -> Answer:
        return await self._orders.queue(request.path_params["name"], body, who)

    async def _mark(self, _: Request, body: Any, who: Identity) -> Answer:
        return await self._orders.mark(body, who)


_NO_STORE = {"cache-control": "no-store"}


def _json(data: Any, status: int = 200) -> Response:
    return Response(dumps(data), status, headers=_NO_STORE, media_type="application/json")


async def _body(request: Request) -> Any:
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > MOST_BODY:
            return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _float(request: Request, name: str, default: float) -> float:
    try:
        value = float(request.query_params.get(name, default))
    except ValueError:
        return default
    return value if math.isfinite(value) else default
