"""A console asked over HTTP, for the commands that look and order from a terminal; standard library only."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import click

__all__ = ["Remote", "Unreachable", "console_options"]

DEFAULT_URL = "http://127.0.0.1:8765"


class Unreachable(click.ClickException):
    """The console cannot be asked."""

    exit_code = 2


class Remote:
    """
    A console at a URL.

    Args:
        url: Where its page is.
        token: Says who asks.
    """

    def __init__(self, url: str, token: str | None) -> None:
        if not url.startswith(("http://", "https://")):
            url = f"http://{url}"
        self.url = url.rstrip("/")
        self._token = token

    def get(self, path: str) -> Any:
        """Return what the console answers as JSON."""
        status, data = self._ask(path, None, {})
        if status != 200:
            raise Unreachable(f"{self.url}/{path} answered {status}: {data.get('error', '')}")
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
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, _json_or_nothing(refused.read())

    def _open(self, path: str, data: bytes | None, headers: dict[str, str], timeout: float) -> Any:
        bearer = {} if self._token is None else {"authorization": f"Bearer {self._token}"}
        request = urllib.request.Request(f"{self.url}/{path}", data, {**headers, **bearer})
        try:
            return urllib.request.urlopen(request, timeout=timeout)
        except urllib.error.HTTPError:
            raise
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise Unreachable(f"no console answers at {self.url}: {reason}") from None


def _json_or_nothing(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return {}


def console_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that says who asks."""
    return click.option(
        "--token", envvar="HALFOPEN_TOKEN", help="Says who asks; better in the environment, as HALFOPEN_TOKEN."
    )(command)
