"""Processes that the kill tests start and kill: `python -m tests.retry_queue.children ROLE STORE …`."""

from __future__ import annotations

import hashlib
import http.client
import os
import random
import signal
import sys
import time
from typing import Any

from halfopen import CircuitBreaker, HalfOpen, constant
from halfopen.retry_queue import (
    Delivery,
    LaneProfile,
    MessageSchedule,
    Report,
    RetryQueue,
    SqliteStore,
    Store,
    Verdict,
)
from halfopen.retry_queue.answers import judge_status

LANES = ("p0", "p1", "p2")
TIMEOUT = 0.4
PROFILE = LaneProfile(
    limit=4,
    timeout=TIMEOUT,
    trial_timeout=TIMEOUT,
    lease_margin=5.0,  # a worker that is slow on a busy machine is no dead one
    spread=0.05,
    schedule=MessageSchedule(first=0.05, cap=0.2, attempt_limit=100_000),
)


def open_store(where: str, clock: Any = None) -> Store:
    """Open what *where* names: a path, or `schema@conninfo`."""
    if "@" not in where:
        return SqliteStore(where, inline=2000, poll=0.05, clock=clock)
    from halfopen.retry_queue.postgres import PostgresStore

    schema, conninfo = where.split("@", 1)
    return PostgresStore(conninfo, schema=schema, inline=2000, poll=0.5, clock=clock)


def enqueue(where: str, journal: str) -> None:
    """Enqueue for ever; write each ID and digest to *journal* once it was accepted."""
    store = open_store(where)
    queue = RetryQueue(store)
    rng = random.Random()
    out = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        lane = rng.choice(LANES)
        body = os.urandom(20) * rng.choice([1, 1, 1, 1, 5, 5, 500])
        stream = rng.choice([None, None, "ordered"])
        accepted = queue.enqueue(lane, body, stream=stream, document_type=rng.choice(["850", "810"]))
        line = f"{accepted.message_id} {lane} {hashlib.sha256(body).hexdigest()} {stream or '-'}\n"
        os.write(out, line.encode())
        time.sleep(rng.random() * 0.02)


def sender(port: int) -> Any:
    """Make a sender that posts to the witness."""

    def send(delivery: Delivery) -> Report:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=delivery.timeout)
        try:
            headers = {
                "Message-ID": delivery.message_id,
                "X-Worker": str(os.getpid()),
                "X-Lane": delivery.lane,
                "X-Trial": str(delivery.trial),
            }
            connection.request("POST", "/", body=delivery.body(), headers=headers)
            answer = connection.getresponse()
            receipt = answer.read()
        finally:
            connection.close()
        report = judge_status(answer.status, PROFILE)
        return Report(report.verdict, report.detail, receipt=receipt) if report.verdict is Verdict.DELIVERED else report

    return send


def gate(lane: str) -> CircuitBreaker:
    """Make a breaker that trips and recovers fast."""
    half_open = HalfOpen(permitted_calls=2, trial_timeout=TIMEOUT + 0.2)
    return CircuitBreaker(lane, consecutive_failures=2, wait_in_open=constant(0.15), half_open=half_open)


def send(where: str, port: str) -> None:
    """Send for ever."""
    queue = RetryQueue(open_store(where), workers=8, upkeep=0.1)
    for lane in LANES:
        queue.lane(lane, sender=sender(int(port)), breaker=gate(lane), profile=PROFILE)
    queue.start()
    signal.pause()


def fault(where: str, point: str, seen: str) -> None:
    """Send one message and be killed at a named point."""
    store = open_store(where)

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def post(delivery: Delivery) -> Report:
        body = delivery.body()
        if point == "before the body":
            die()
        with open(seen, "ab") as file:
            file.write(delivery.message_id.encode() + b" " + body + b"\n")
        if point == "after the answer":
            die()
        return Report(Verdict.DELIVERED, receipt=b"mdn")

    if point.endswith("the mark"):
        original = store.claim

        def claim(request: Any) -> Any:
            if point == "before the mark":
                die()
            original(request)
            die()

        store.claim = claim  # type: ignore[method-assign]  # the fault
    if point.endswith("the result"):
        finish = store.finish

        def finishing(*arguments: Any) -> Any:
            if point == "before the result":
                die()
            finish(*arguments).result()
            die()

        store.finish = finishing  # type: ignore[method-assign]  # the fault
    queue = RetryQueue(store)
    queue.lane("acme", sender=post)
    queue.tick()


def hold(where: str, seen: str) -> None:
    """Begin to send one message, and never end."""

    def post(delivery: Delivery) -> Report:
        delivery.body()
        open(seen, "x").close()
        signal.pause()
        return Report(Verdict.DELIVERED)

    queue = RetryQueue(open_store(where))
    queue.lane("acme", sender=post, profile=LaneProfile(timeout=3600.0))
    queue.tick()


if __name__ == "__main__":
    role, *arguments = sys.argv[1:]
    {"enqueue": enqueue, "send": send, "fault": fault, "hold": hold}[role](*arguments)
