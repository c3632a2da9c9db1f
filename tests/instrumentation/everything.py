"""A registry with every kind of policy and a queue, in every state, for whatever reads metrics; also as a process."""

from __future__ import annotations

import random
import socketserver
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from halfopen import (
    AdaptiveConcurrency,
    Bulkhead,
    CacheFallback,
    CountWindow,
    Fallback,
    HalfOpen,
    Hedge,
    Ramp,
    RateLimiter,
    Registry,
    Retry,
    Timeout,
)
from halfopen._core.histogram import Histogram
from halfopen.gateway._traffic import Traffic
from halfopen.instrumentation.metrics import Metrics, metrics_of
from halfopen.instrumentation.prometheus import WSGIApp, wsgi_app
from halfopen.retry_queue import QueueStats

__all__ = ["Everything", "FakeQueue", "FakeStore", "serve"]


class FakeQueue:
    """A queue whose numbers are set by hand."""

    def __init__(self, name: str = "hooks") -> None:
        self.name = name
        self.enqueued = self.completed = self.dead = 0
        self.ready = 2
        self.oldest: float | None = None

    def stats(self) -> QueueStats:
        return QueueStats(
            queue=self.name,
            messages={"ready": self.ready, "delayed": 3, "in_flight": 1, "error": 1, "dead": self.dead},
            oldest_message=self.oldest or (time.time() - 30 if self.ready else None),
            attempts=dict(Counter(success=self.completed, failure=self.completed, ignored=0)),
            commands={"retry": 1},
            enqueued=self.enqueued,
            completed=self.completed,
            dead_letters=self.dead,
            completion_age_buckets=(*(self.completed,) * 9, self.completed),
            completion_age_sum=0.5 * self.completed,
            store="sqlite",
            store_up=True,
            lanes_held=1,
            alerts={"receipt_overdue": 4 * self.dead, "expiring": self.dead, "security": self.dead},
        )


class FakeStore:
    """A store that processes share."""

    view_age = 0.05

    def __init__(self, store: str = "valkey", *, up: bool = True) -> None:
        self.store = store
        self.up = up
        histogram = Histogram()
        histogram.add(0.004)
        self.operations = {"exchange": histogram.snapshot()}

    def stats(self) -> FakeStore:
        return self


async def _nowhere(message: object) -> None:
    """Send to nobody."""


def passed(traffic: Traffic, status: int, *, answered: bool) -> None:
    """Let a request to ``acme`` pass a gateway."""
    passage = traffic.begin("acme", _nowhere)
    for message in ({"type": "http.response.start", "status": status}, {"type": "http.response.body"}):
        with suppress(StopIteration):
            passage.send(message).send(None)
    passage.end(answered=answered)


class Everything:
    """All of it; `step` makes a round of calls."""

    def __init__(self, *, resilience4j: bool = True, buckets: bool = False) -> None:
        self.registry = registry = Registry()
        self.metrics: Metrics = metrics_of(registry, resilience4j=resilience4j, resilience4j_buckets=buckets)
        breaker = registry.circuit_breaker
        window = CountWindow(10)
        self.healthy = breaker("healthy")
        self.outage = breaker(
            "outage", window=window, minimum_calls=4, wait_in_open=0.3, half_open=HalfOpen(permitted_calls=2)
        )
        self.brown_out = breaker("brown-out", window=CountWindow(20), minimum_calls=20, failure_rate_threshold=0.9)
        self.ramped = breaker("ramped", ramp=Ramp(duration=3600), wait_in_open=0.05, consecutive_failures=1)
        self.half_open = breaker("half-open", half_open=HalfOpen(trial_timeout=3600))
        self.half_open.try_now()
        self.held = self.half_open.acquire()
        for _ in range(3):
            with suppress(Exception):
                self.ramped.call(self.fail)
        time.sleep(0.06)
        for _ in range(3):
            self.ramped.call(self.work)
        self.forced = breaker("forced")
        self.forced.force_open(reason="maintenance")
        breaker("off").disable()
        breaker("observed").observe()
        self.retry = registry.add(Retry("retry", on=ConnectionError, attempts=3, backoff=0.001))
        self.bulkhead = registry.add(Bulkhead("bulkhead", 2))
        self.limiter = registry.add(RateLimiter("limiter", 5))
        self.timeout = registry.add(Timeout("timeout", 0.001, worker_thread=True))
        self.fallback = registry.add(Fallback("fallback", "instead", on=ConnectionError))
        registry.add(Hedge("hedge", 0.5))
        registry.add(AdaptiveConcurrency("adaptive"))
        registry.add(CacheFallback("cache", on=ConnectionError, max_age=60))
        self.hasty = breaker("hasty")
        self.queue = FakeQueue()
        self.metrics.add_queue(self.queue)
        self.metrics.add_queue(FakeQueue("stuck"))
        self.metrics.add_store(FakeStore())
        self.metrics.add_store(FakeStore("lost", up=False))
        self.traffic = Traffic()
        self.traffic.know(["acme"])
        self.metrics.add_gateway(self.traffic)
        self.broken = True

    @staticmethod
    def work() -> str:
        return "done"

    @staticmethod
    def fail() -> None:
        raise ConnectionError

    def step(self) -> None:
        """Make a few calls of every kind."""
        work, fail = self.work, self.fail
        for _ in range(5):
            self.healthy.call(work)
            with suppress(Exception):
                self.outage.call(fail if self.broken else work)
            with suppress(Exception):
                self.brown_out.call(fail if random.random() < 0.5 else work)
            with suppress(Exception):
                self.forced.call(work)
            with suppress(Exception):
                self.limiter.call(work)
        for guard in (self.retry, self.fallback, self.bulkhead):
            for fn in (work, fail):
                with suppress(Exception):
                    guard.call(fn)
        with suppress(Exception), self.bulkhead.acquire(), self.bulkhead.acquire():
            self.bulkhead.call(work)
        with suppress(Exception):
            self.timeout.call(time.sleep, 0.005)
        # Opened for no reason: about half of what it refuses, by the estimate, would have succeeded.
        if self.hasty.state == "closed":
            self.hasty.trip(wait=0.2)
        for _ in range(20):
            with suppress(Exception):
                self.hasty.call(work)
        passed(self.traffic, 200, answered=True)
        passed(self.traffic, 503, answered=False)
        self.traffic.turn_away("unknown-partner")
        self.queue.dead += 1
        self.queue.enqueued += 2
        self.queue.completed += 1


class _Quiet(WSGIRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


def serve(app: WSGIApp) -> _Server:
    """Serve *app* on a free port of the loopback, on a thread."""
    server = _Server(("127.0.0.1", 0), _Quiet)
    server.set_app(app)  # type: ignore[arg-type]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main() -> None:
    """Serve metrics, print the port, and make calls until standard input ends."""
    everything = Everything()
    server = serve(wsgi_app(everything.metrics))
    print(server.server_port, flush=True)
    threading.Thread(target=_step_forever, args=(everything,), daemon=True).start()
    sys.stdin.read()


def _step_forever(everything: Everything) -> None:
    while True:
        everything.broken = time.monotonic() % 3 < 1.5  # opens and closes again and again
        everything.step()
        time.sleep(0.05)


if __name__ == "__main__":
    main()
