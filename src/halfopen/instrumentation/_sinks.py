"""Where notifications go: a webhook, a command, or a function."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast
from urllib.parse import urlsplit

from halfopen._core.checking import Checks

if TYPE_CHECKING:
    from halfopen.instrumentation._messages import Notification

__all__ = ["Command", "Function", "Sink", "Webhook", "worth_retrying"]

SLACK_AT_MOST = 2000
"""Characters: Discord refuses more, and Slack cuts messages into pieces of 4,000."""

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
        host = _host(url)
        if host is None:
            checks.wrong("url", "…", "an http or https URL with a host and without credentials")
        if form not in ("json", "slack"):
            checks.wrong("form", form, "json or slack")
        checks.seconds("timeout", timeout)
        checks.done()
        self.name = name or str(host)
        self._url = url
        self._form = form
        self._headers = {"Content-Type": "application/json", "User-Agent": "halfopen", **(headers or {})}
        self._timeout = timeout
        self._opener = urllib.request.build_opener(_NoRedirect)

    def send(self, notification: Notification) -> None:
        """Post it; raise `urllib.error.URLError` or `OSError` if it was not accepted."""
        slack = self._form == "slack"
        data = {"text": notification.shortened(SLACK_AT_MOST, _for_slack)} if slack else notification.plain()
        request = urllib.request.Request(self._url, json.dumps(data).encode(), self._headers, method="POST")
        with self._opener.open(request, timeout=self._timeout):
            pass  # accepted; whatever else it says may never end


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    # A redirected POST would become a GET without a body, and look like success.
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _host(url: str) -> str | None:
    """Return the host of a URL that can be posted to, else None."""
    if not url.isprintable() or " " in url:
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    usable = parts.scheme in ("http", "https") and parts.username is None
    return parts.hostname or None if usable else None


def _for_slack(text: str) -> str:
    # Mattermost and Discord know mentions without angle brackets too; a space of no width ends them.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "@\u200b")


class Command:
    """
    Run a program for each notification, without a shell; it finds the JSON on its standard input.

    Args:
        arguments: The program and its arguments; names of breakers never become arguments.
        timeout: Seconds after which it is killed, with what it started.
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
        with subprocess.Popen(
            self._arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                process.communicate(json.dumps(notification.plain()).encode(), timeout=self._timeout)
            except BaseException:
                _kill(process)
                raise
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, self._arguments[0])


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a program and those it started; a no-op for one that has ended."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()


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
