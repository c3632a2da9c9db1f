"""The estimate of false refusals against outages whose truth is known."""

from __future__ import annotations

import random

import pytest

from halfopen import CircuitBreaker, CircuitOpenError, CountWindow, HalfOpen, State, exponential
from halfopen._core.backoff import Backoff
from halfopen.testing import FakeClock

pytestmark = pytest.mark.slow

RATE = 10.0
"""Calls per second."""


def ratio(outages: int, span: tuple[float, float], half_open: HalfOpen, wait: Backoff, failing: float) -> float:
    """Return the sum of the estimates over the calls that were refused although they would have succeeded."""
    clock = FakeClock()
    rng = random.Random(11)
    breaker = CircuitBreaker(
        "one", window=CountWindow(20), half_open=half_open, wait_in_open=wait, clock=clock, rng=random.Random(7)
    )
    truth = 0
    for _ in range(outages):
        ends = clock.monotonic() + rng.uniform(*span)
        while clock.monotonic() < ends or breaker.state is not State.CLOSED:
            bad = clock.monotonic() < ends and rng.random() < failing
            try:
                permit = breaker.acquire()
            except CircuitOpenError:
                truth += not bad
            else:
                (permit.failure if bad else permit.success)()
            clock.advance(1 / RATE)
        clock.advance(700)  # longer than any wait, so that flapping is forgotten
    return breaker.snapshot().counters.estimated_false_rejections / truth


RATED = HalfOpen(permitted_calls=5, failure_rate_threshold=0.5)


@pytest.mark.parametrize(
    ("outages", "span", "half_open", "wait", "failing", "expected"),
    [
        (60, (20, 300), RATED, exponential(10, 2, 60), 1.0, (0.6, 1.5)),
        (40, (30, 40), RATED, exponential(10, 2, 60), 1.0, (0.4, 0.9)),
        (40, (120, 130), RATED, exponential(10, 2, 60), 1.0, (1.0, 5.5)),
        (60, (20, 300), HalfOpen(), exponential(30, 2, 600), 1.0, (0.5, 1.2)),
        (60, (20, 300), HalfOpen(), exponential(10, 2, 60), 1.0, (0.5, 1.3)),
        (60, (20, 300), HalfOpen(), exponential(10, 2, 60), 0.6, (0.4, 1.1)),
    ],
    ids=["rate verdict", "short outages", "unlucky length", "default", "default, short waits", "brown-out"],
)
def test_the_estimate_is_right_in_order_of_magnitude(
    outages: int, span: tuple[float, float], half_open: HalfOpen, wait: Backoff, failing: float,
    expected: tuple[float, float],
) -> None:  # fmt: skip
    low, high = expected

    assert low < ratio(outages, span, half_open, wait, failing) < high
