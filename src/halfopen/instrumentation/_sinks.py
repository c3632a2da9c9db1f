"""Where notifications go: a webhook, a command, or a function."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast
from urllib.parse import urlsplit

from halfopen._core.checking import Checks

if TYPE_CHECKING:
    from halfopen.instrumentation._messages import Notification

__all__ = ["Command", "Function", "Sink", "Webhook", "worth_retrying"]

_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


class Sink(Protocol):
    """Takes notifications; runs on a thread of its own and may raise."""

    @property
    def name(self) -> str:
        """Return what logs and counters call it."""
        ...

    def send(self, notification: Notification) -> None:
        """Deliver it, or raise."""
        ...


class Webhook:
    """
    Post each notification to a URL.

    Args:
        url: http or https. It may be a secret: only its host is ever logged.
        form: ``json`` for `Notification.plain()`, ``slack`` for what Slack, Mattermost and Discord's ``/slack``
            address understand.
        headers: Sent along, such as an Authorization.
        timeout: Seconds for connecting and for each read.
        name: What logs and counters call it; default the host.

    Raises:
        ConfigError: A value is wrong; all of them are named.
    """

    def __init__(
        self,
        url: str,
        *,
        form: Literal["json", "slack"] = "json",
        headers: Mapping[str, str] | None = None,
        timeout: float = 10.0,
        name: str | None = None,
    ) -> None:
        checks = Checks()
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            checks.wrong("url", "…", "an http or https URL with a host")
        if form not in ("json", "slack"):
            checks.wrong("form", form, "json or slack")
        checks.seconds("timeout", timeout)
        checks.done()
        self.name = name or str(parts.hostname)
        self._url = url
        self._form = form
        self._headers = {"Content-Type": "application/json", "User-Agent": "halfopen", **(headers or {})}
        self._timeout = timeout
        self._opener = urllib.request.build_opener(_NoRedirect)

    def send(self, notification: Notification) -> None:
        """Post it; raise `urllib.error.URLError` or `OSError` if it was not accepted."""
        data = {"text": _for_slack(notification.text)} if self._form == "slack" else notification.plain()
        request = urllib.request.Request(self._url, json.dumps(data).encode(), self._headers, method="POST")
        with self._opener.open(request, timeout=self._timeout) as response:
            response.read()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    # A redirected POST would become a GET without a body, and look like success.
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _for_slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class Command:
    """
    Run a program for each notification, without a shell; it finds the JSON on its standard input.

    Args:
        arguments: The program and its arguments; names of breakers never become arguments.
        timeout: Seconds after which it is killed.
        name: What logs and counters call it; default the program.
    """

    def __init__(self, arguments: Sequence[str], *, timeout: float = 30.0, name: str | None = None) -> None:
        checks = Checks()
        if isinstance(arguments, str) or not arguments:
            checks.wrong("arguments", arguments, "a list: the program and its arguments", "wrong_type")
        checks.seconds("timeout", timeout)
        checks.done()
        self.name = name or str(arguments[0])
        self._arguments = [str(one) for one in arguments]
        self._timeout = timeout

    def send(self, notification: Notification) -> None:
        """Run it; raise `subprocess.SubprocessError` or `OSError` if it failed."""
        subprocess.run(
            self._arguments,
            input=json.dumps(notification.plain()).encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=self._timeout,
            check=True,
        )


class Function:
    """Call a function with each notification."""

    def __init__(self, function: Callable[[Notification], object], *, name: str | None = None) -> None:
        self.name = name or cast("str", getattr(function, "__qualname__", type(function).__name__))
        self._function = function

    def send(self, notification: Notification) -> None:
        """Call it."""
        self._function(notification)


def worth_retrying(error: Exception) -> bool:
    """Say whether a sink's error may pass by itself."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code in _PASSING
    return not isinstance(error, (FileNotFoundError, PermissionError, TypeError))
