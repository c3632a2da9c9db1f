"""A console asked over HTTP, for the commands that look and order from a terminal; standard library only."""

from __future__ import annotations

import json
import unicodedata
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException
from typing import Any, cast
from urllib.parse import urlsplit

import click

__all__ = ["OneLine", "Remote", "Unreachable", "clean", "console_options"]

DEFAULT_URL = "http://127.0.0.1:8765"


_STEERING = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def clean(text: str) -> str:
    """Return a text that cannot steer a terminal: names and reasons may come from anybody."""
    return "".join("\ufffd" if unicodedata.category(one) in _STEERING else one for one in text)


class OneLine(click.Command):
    """A command that says in one line what is wrong with its input."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the arguments."""
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            error.ctx = None  # click would print the usage too
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            error.ctx = None
            raise


class Unreachable(click.ClickException):
    """The console cannot be asked."""

    exit_code = 2


class Remote:
    """
    A console at a URL.

    Args:
        url: Where its page is.
        token: Says who asks.

    Raises:
        click.BadParameter: The token cannot be one.
    """

    def __init__(self, url: str, token: str | None) -> None:
        if not url.startswith(("http://", "https://")):
            url = f"http://{url}"
        self.url = url.rstrip("/")
        self._token = None if token is None else token.strip()
        if self._token and not (self._token.isascii() and self._token.isprintable()):
            raise click.BadParameter("the token holds characters that no header may")
        self._opener = _opener(self.url)

    def get(self, path: str) -> Any:
        """Return what the console answers as JSON; an object."""
        status, data = self._ask(path, None, {})
        if status == 401:
            raise Unreachable(f"{self.url} wants to know who asks: set HALFOPEN_TOKEN")
        if status != 200:
            raise Unreachable(f"{self.url}/{path} answered {status}: {clean(str(data.get('error', '')))}")
        return data

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        """Send an order; return status and answer."""
        csrf = self.get("api/session")["csrf"]
        return self._ask(path, json.dumps(body).encode(), {"halfopen-csrf": csrf or ""})

    def events(self, timeout: float = 20.0) -> Iterator[tuple[str, Any]]:
        """Return the names and data of the stream's events, until it ends."""
        with self._open("api/events", None, {"accept": "text/event-stream"}, timeout) as answer:
            name = ""
            for raw in answer:
                line = raw.decode().rstrip("\r\n")
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    yield name, json.loads(line[6:])

    def _ask(self, path: str, data: bytes | None, headers: dict[str, str]) -> tuple[int, Any]:
        try:
            with self._open(path, data, headers, 15.0) as answer:
                return answer.status, self._object(answer.read())
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, _json_or_nothing(refused.read())
        except (OSError, HTTPException) as error:
            raise Unreachable(f"no console answers at {self.url}: {clean(str(error).strip())}") from None

    def _object(self, data: bytes) -> dict[str, Any]:
        found = _json_or_nothing(data)
        if not found:
            raise Unreachable(f"what answers at {self.url} is no halfopen console")
        return found

    def _open(self, path: str, data: bytes | None, headers: dict[str, str], timeout: float) -> Any:
        bearer = {} if not self._token else {"authorization": f"Bearer {self._token}"}
        try:
            request = urllib.request.Request(f"{self.url}/{path}", data, {**headers, **bearer})
            return self._opener.open(request, timeout=timeout)
        except urllib.error.HTTPError:
            raise
        except (OSError, ValueError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise Unreachable(f"no console answers at {self.url}: {clean(str(reason).strip())}") from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    # It would take the token to another host.
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _opener(url: str) -> urllib.request.OpenerDirector:
    try:
        here = urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
    except ValueError:
        here = False
    # A proxy cannot reach this machine's own console.
    return urllib.request.build_opener(_NoRedirect, *([urllib.request.ProxyHandler({})] if here else []))


def _json_or_nothing(data: bytes) -> dict[str, Any]:
    try:
        found: Any = json.loads(data)
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def console_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that says who asks."""
    return click.option(
        "--token", envvar="HALFOPEN_TOKEN", help="Says who asks; better in the environment, as HALFOPEN_TOKEN."
    )(command)
