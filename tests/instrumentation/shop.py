"""An application for gunicorn: `gunicorn tests.instrumentation.shop:app`, with a breaker and merged metrics."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from halfopen import CircuitOpenError, Registry
from halfopen.instrumentation.prometheus import wsgi_app
from halfopen.instrumentation.workers import Workers

registry = Registry()
bank = registry.circuit_breaker("bank")
workers = Workers(registry, os.environ["SHOP_RUN"], interval=float(os.environ["SHOP_INTERVAL"]))
_metrics = wsgi_app(workers.scrape)
_started = False


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Serve ``/metrics``, ``/pay`` and ``/pid``; begin to publish with the first request of each worker."""
    global _started
    if not _started:
        _started = True
        workers.start()
    path = environ["PATH_INFO"]
    if path == "/metrics":
        return _metrics(environ, start_response)
    if path == "/pay":
        try:
            bank.call(str)
        except CircuitOpenError:
            start_response("503 Service Unavailable", [])
            return [b""]
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{workers.worker} {os.getpid()}".encode()]
