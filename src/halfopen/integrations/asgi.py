"""Answer refusals in ASGI applications: a middleware, and an exception handler for Starlette and FastAPI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from halfopen.errors import RejectedError
from halfopen.integrations._answers import Answer, answer, refusal_in

__all__ = ["Answer", "RefusalMiddleware", "answer", "exception_handler"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class RefusalMiddleware:
    """
    Turn a refusal that leaves the application into 503, or 429 for a rate limiter's, with Retry-After.

    A websocket that is not accepted yet is denied (HTTP 403), an accepted one closed with 1013, "try again later". A
    refusal after an answer has begun goes on to the server, which breaks the connection off.

    Args:
        app: The application inside. It must let the refusal through; frameworks that answer every exception
            themselves need a handler of theirs, see `exception_handler` and `answer`.
    """

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        begun: list[str] = []

        async def watched(message: MutableMapping[str, Any]) -> None:
            begun.append(message["type"]) if not begun else None
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except Exception as error:
            refusal = refusal_in(error)
            if refusal is None or not await _told(scope, begun, send, refusal):
                raise


async def _told(scope: Scope, begun: list[str], send: Send, refusal: RejectedError) -> bool:
    if scope["type"] == "websocket" and "websocket.close" not in begun:
        await send({"type": "websocket.close", "code": 1013, "reason": "try again later"})
        return True
    if scope["type"] != "http" or begun:
        return False
    await Refused(refusal)(scope, None, send)
    return True


class Refused:
    """The answer to a refusal as an ASGI application, which Starlette takes for a response."""

    def __init__(self, refusal: RejectedError) -> None:
        self.answer = answer(refusal)

    async def __call__(self, scope: Scope, receive: Any, send: Send) -> None:
        """Send it."""
        status, headers, body = self.answer
        raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": b"" if scope.get("method") == "HEAD" else body})


async def exception_handler(request: Any, refusal: Any) -> Any:
    """Answer a refusal in Starlette or FastAPI: ``app.add_exception_handler(RejectedError, exception_handler)``."""
    return Refused(refusal)
