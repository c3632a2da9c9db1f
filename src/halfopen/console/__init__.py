"""
The live console: see every breaker, and steer it; one page without a build step, and JSON for everything on it.

```python
from halfopen.console import Identity, app

console = app(registry, audit="audit.jsonl", tokens={"a long secret": Identity("dana", "operator")})
```

`app` returns an ASGI application, to mount or to serve; `halfopen console` runs one over a run directory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping

from starlette.requests import Request

from halfopen.console._app import Console
from halfopen.console._audit import AuditLog
from halfopen.console._channel import Member
from halfopen.console._hub import Hub
from halfopen.console._identity import LOOPBACK, Access, Identity
from halfopen.console._picture import Picture
from halfopen.console._queues import QueueLook
from halfopen.console._sources import Local, RunDirectory
from halfopen.registry import Registry
from halfopen.retry_queue import RetryQueue

__all__ = ["Console", "Identity", "Member", "app"]


def app(
    registry: Registry | None = None,
    *,
    queues: Iterable[RetryQueue] = (),
    run_directory: str | os.PathLike[str] | None = None,
    process: str | None = None,
    audit: str | os.PathLike[str] | None = None,
    title: str = "",
    environment: str = "",
    tokens: Mapping[str, Identity] | None = None,
    identify: Callable[[Request], Identity | None] | None = None,
    proxy_header: str | None = None,
    trusted_proxies: Collection[str] = ("127.0.0.1", "::1"),
    operators: Collection[str] = (),
    anonymous: bool = True,
    hosts: Collection[str] | None = LOOPBACK,
) -> Console:
    """
    Return a console as an ASGI application.

    It is read-only until somebody says who asks: a token, the embedding application, or a proxy's header.

    Args:
        registry: The breakers of this process; None: only those of others.
        queues: Retry queues to show; the breakers before their lanes are shown too.
        run_directory: Where the other processes publish; see `Member`.
        process: The name of this process; default host and pid.
        audit: The audit log, a file of JSON lines; None: in memory only, and the page says so.
        title: Of the page.
        environment: Shown beside it, such as ``PRODUCTION · eu-west-1``.
        tokens: Secret → identity.
        identify: The embedding application's answer to who asks.
        proxy_header: The header in which an authenticating proxy says who asks; never trusted unless named here.
        trusted_proxies: Addresses from which that header counts.
        operators: Names that may give orders, as the proxy says them.
        anonymous: Whether somebody unknown may look.
        hosts: Names under which the console is asked; None: any.

    Raises:
        OSError: The audit log cannot be opened.
        ValueError: There is nothing to show, or two queues have one name.
    """
    shown = tuple(queues)
    if registry is None and run_directory is None and not shown:
        raise ValueError("there is nothing to show: give a registry, a run directory or queues")
    if len({queue.name for queue in shown}) < len(shown):
        raise ValueError("each queue needs a name of its own: RetryQueue(…, name=…)")
    local = None if registry is None and not shown else Local(registry or Registry(), shown, process)
    directory = None if run_directory is None else RunDirectory(run_directory)
    hub = Hub(Picture(title, environment), local, directory, QueueLook(shown), AuditLog(audit))
    access = Access(
        tokens=dict(tokens or {}),
        identify=identify,
        proxy_header=proxy_header,
        trusted_proxies=trusted_proxies,
        operators=operators,
        anonymous=anonymous,
        hosts=hosts,
        secret=Access.new_secret(),
    )
    return Console(hub, access)
