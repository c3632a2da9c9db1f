"""
Metrics for Prometheus: text to serve, applications that serve it, and a collector for prometheus_client.

```python
registry = Registry()
metrics_of(registry)                    # counts from here on
app = prometheus.asgi_app(registry)     # mount it at /metrics
```
"""

from __future__ import annotations

import asyncio
import gzip
import os
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, TypeAlias

from halfopen.instrumentation._samples import Kind, Scrape, number
from halfopen.instrumentation.exposition import (
    OPENMETRICS,
    TEXT,
    negotiate,
    openmetrics_text,
    prometheus_text,
    wants_gzip,
)
from halfopen.instrumentation.metrics import Metrics, metrics_of
from halfopen.registry import Registry

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as ClientMetric

__all__ = [
    "OPENMETRICS",
    "TEXT",
    "ASGIApp",
    "Collector",
    "Metrics",
    "MultiprocessWarning",
    "Source",
    "WSGIApp",
    "asgi_app",
    "metrics_of",
    "render",
    "wsgi_app",
]

Source: TypeAlias = "Registry | Metrics | Callable[[], Scrape]"
"""Where metrics come from: a registry, its `Metrics`, or a function such as `workers.Workers.scrape`."""
ASGIApp: TypeAlias = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Any]], Callable[[dict[str, Any]], Awaitable[None]]],
    Awaitable[None],
]
WSGIApp: TypeAlias = Callable[[Mapping[str, Any], Callable[..., Any]], Iterable[bytes]]


class MultiprocessWarning(RuntimeWarning):
    """prometheus_client drops custom collectors where several processes share its files."""


def render(source: Source, *, openmetrics: bool = False) -> str:
    """
    Return the metrics of the present moment as text.

    Args:
        source: A registry, its `Metrics`, or a function that returns a scrape.
        openmetrics: OpenMetrics 1.0 instead of the Prometheus format 0.0.4.
    """
    scrape = _reader(source)()
    return openmetrics_text(scrape) if openmetrics else prometheus_text(scrape)


def _reader(source: Source) -> Callable[[], Scrape]:
    if isinstance(source, Registry):
        return metrics_of(source).scrape
    return source.scrape if isinstance(source, Metrics) else source


def _answer(
    read: Callable[[], Scrape], method: str, accept: str, encodings: str
) -> tuple[int, list[tuple[str, str]], bytes]:
    if method not in ("GET", "HEAD"):
        return 405, [("Allow", "GET, HEAD"), ("Content-Length", "0")], b""
    wanted = negotiate(accept)
    body = (openmetrics_text if wanted else prometheus_text)(read()).encode()
    headers = [("Content-Type", OPENMETRICS if wanted else TEXT)]
    if wants_gzip(encodings):
        # The quickest level: the text repeats itself so much that it shrinks to a twentieth all the same.
        body = gzip.compress(body, 1, mtime=0)
        headers.append(("Content-Encoding", "gzip"))
    headers += [
        ("Content-Length", str(len(body))),
        ("Cache-Control", "no-store"),
        ("Vary", "Accept, Accept-Encoding"),
    ]
    return 200, headers, b"" if method == "HEAD" else body


def wsgi_app(source: Source) -> WSGIApp:
    """Return a WSGI application that answers every GET with the metrics, in the format and coding asked for."""
    read = _reader(source)

    def app(environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        asked = (environ.get(f"HTTP_{name}", "") for name in ("ACCEPT", "ACCEPT_ENCODING"))
        status, headers, body = _answer(read, environ.get("REQUEST_METHOD", "GET"), *asked)
        start_response("200 OK" if status == 200 else "405 Method Not Allowed", headers)
        return [body]

    return app


def asgi_app(source: Source) -> ASGIApp:
    """Return an ASGI application that answers every GET with the metrics, in the format and coding asked for."""
    read = _reader(source)

    async def app(
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"metrics are served over HTTP, not over {scope['type']}")
        asked = (_asked(scope["headers"], name) for name in (b"accept", b"accept-encoding"))
        status, headers, body = await _aside(_answer, read, scope["method"], *asked)
        encoded = [(key.lower().encode(), value.encode()) for key, value in headers]
        await send({"type": "http.response.start", "status": status, "headers": encoded})
        await send({"type": "http.response.body", "body": body})

    return app


def _asked(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str:
    return ",".join(value.decode("latin-1") for key, value in headers if key.lower() == name)


async def _aside(work: Callable[..., Any], *arguments: Any) -> Any:
    """Do it on a thread, because a store may be slow to answer; outside of asyncio, here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work(*arguments)
    return await asyncio.to_thread(work, *arguments)


async def _live(receive: Callable[[], Awaitable[Any]], send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


class Collector:
    """
    A collector for prometheus_client: ``prometheus_client.REGISTRY.register(Collector(registry))``.

    Where ``PROMETHEUS_MULTIPROC_DIR`` is set, prometheus_client leaves out every custom collector without a word; so
    this one says so. Serve `halfopen.instrumentation.workers` there instead.
    """

    def __init__(self, source: Source) -> None:
        self._read = _reader(source)
        if os.environ.get("PROMETHEUS_MULTIPROC_DIR") or os.environ.get("PROMETHEUS_MULTIPROC_DIR".lower()):
            warnings.warn(
                "PROMETHEUS_MULTIPROC_DIR is set, and prometheus_client drops custom collectors there: no metric of"
                " halfopen will be exposed. Serve halfopen.instrumentation.workers.Workers as well, the merged"
                " endpoint of all worker processes.",
                MultiprocessWarning,
                stacklevel=2,
            )

    def describe(self) -> Iterable[ClientMetric]:
        """Return nothing, so that registering takes no look."""
        return []

    def collect(self) -> Iterator[ClientMetric]:
        """Return the metrics of the present moment."""
        from prometheus_client.metrics_core import Metric

        for header, series in self._read().series().items():
            metric = Metric(header.name.removesuffix("_total"), header.help, header.kind.value)
            for labels, numbers in series:
                _add(metric, header.kind, header.bounds, dict(labels), numbers)
            yield metric


def _add(
    metric: ClientMetric, kind: Kind, bounds: tuple[float, ...], labels: dict[str, str], numbers: tuple[float, ...]
) -> None:
    name = metric.name
    if kind is Kind.HISTOGRAM:
        for bound, count in zip((*(number(each) for each in bounds), "+Inf"), numbers, strict=False):
            metric.add_sample(f"{name}_bucket", {**labels, "le": bound}, count)
    if kind in (Kind.HISTOGRAM, Kind.SUMMARY):
        metric.add_sample(f"{name}_sum", labels, numbers[-2])
        metric.add_sample(f"{name}_count", labels, numbers[-1])
    else:
        metric.add_sample(f"{name}_total" if kind is Kind.COUNTER else name, labels, numbers[0])
