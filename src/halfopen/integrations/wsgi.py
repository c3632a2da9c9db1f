"""Answer refusals in WSGI applications: a middleware, and an error handler for Flask."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from halfopen.errors import RejectedError
from halfopen.integrations._answers import Answer, answer, refusal_in

__all__ = ["Answer", "RefusalMiddleware", "answer", "error_handler"]

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]


class RefusalMiddleware:
    """
    Turn a refusal that leaves the application into 503, or 429 for a rate limiter's, with Retry-After.

    Bodies are passed on as they come. A refusal after the headers are sent goes on to the server (PEP 3333), which
    breaks the connection off.

    Args:
        app: The application inside. It must let the refusal through; frameworks that answer every exception
            themselves need a handler of theirs, see `error_handler` and `answer`.
    """

    def __init__(self, app: App) -> None:
        self.app = app

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request."""
        try:
            body = self.app(environ, start_response)
        except Exception as error:
            return _told(error, environ, start_response)
        return _Body(body, environ, start_response)


class _Body:
    """The application's body: one that is made piece by piece may meet a refusal before its first piece."""

    def __init__(self, body: Iterable[bytes], environ: Environ, start_response: StartResponse) -> None:
        self._body = body
        self._pieces = iter(body)
        self._environ = environ
        self._start_response = start_response
        self.close = getattr(body, "close", lambda: None)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._pieces)
        except StopIteration:
            raise
        except Exception as error:
            self._pieces = iter(_told(error, self._environ, self._start_response))
            return next(self._pieces)


def _told(error: Exception, environ: Environ, start_response: StartResponse) -> list[bytes]:
    refusal = refusal_in(error)
    if refusal is None:
        raise error
    told = answer(refusal)
    # With exc_info: it raises the refusal where headers have been sent already.
    start_response(told.line, list(told.headers.items()), sys.exc_info())
    return [b"" if environ.get("REQUEST_METHOD") == "HEAD" else told.body]


def error_handler(refusal: RejectedError) -> tuple[bytes, int, dict[str, str]]:
    """Answer a refusal in Flask: ``app.register_error_handler(RejectedError, error_handler)``."""
    status, headers, body = answer(refusal)
    return body, status, headers
