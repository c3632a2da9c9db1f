"""An interrupt wherever CPython can deliver one while a call waits: nobody stays in line, and no place is lost."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from halfopen._core.slots import Ticket
from halfopen.rate_limiter import RateLimiter
from tests.policies.interrupting import Interrupt, at_place

pytestmark = pytest.mark.skipif(sys.implementation.name != "cpython", reason="counts CPython's instructions")

PATIENCE = 30.0


def interrupt() -> None:
    raise Interrupt


class Recorder:
    """Somebody in line who is woken, or not."""

    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> bool:
        self.woken += 1
        return True


@contextmanager
def meanwhile(waiting: Any, then: Any) -> Iterator[None]:
    """Once *waiting()* is true, or the block is over, do *then* on another thread."""
    over = threading.Event()

    def run() -> None:
        end = time.monotonic() + PATIENCE
        while not (over.is_set() or waiting()):
            assert time.monotonic() < end
            time.sleep(0.0001)
        then()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def places(run: Any) -> None:
    """Call *run* with 0, 1, 2 … until it says that there is no such place; that it got far is part of the test."""
    number = 0
    while run(number):
        number += 1
    assert number > 15


def test_one_interrupted_in_the_line_of_a_rate_limiter_wakes_who_stands_behind() -> None:
    def run(number: int) -> bool:
        limiter: Any = RateLimiter("geo", 1e6, burst=1, max_wait=60)
        meter = limiter._meter
        ahead, behind = Ticket(Recorder()), Ticket(Recorder())
        meter.line.join(ahead)

        def go_on() -> None:
            meter.line.join(behind)
            meter._leave_line(ahead)

        with meanwhile(lambda: meter.line.waiting == 2, go_on):
            reached = at_place(number, lambda: limiter.call(int), interrupt)

        assert (number, behind, 1) == (number, meter.line.first(), meter.line.waiting)
        assert behind.waker.woken >= 1, number
        assert limiter._meter.lock.acquire(timeout=1), number
        return reached

    places(run)
