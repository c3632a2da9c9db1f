"""A signal handler that makes policies and looks at metrics in the midst of a look at the same metrics."""

from __future__ import annotations

import sys
from itertools import count

import pytest

from halfopen.instrumentation.metrics import Metrics
from halfopen.registry import Registry
from tests.policies.interrupting import at_place

pytestmark = pytest.mark.skipif(sys.implementation.name != "cpython", reason="counts CPython's places")


def test_metrics_can_be_looked_at_in_the_midst_of_a_look() -> None:
    numbers = count()

    def run(place: int) -> bool:
        registry = Registry()
        metrics = Metrics(registry, max_names=2)
        for name in ("a", "b", "c"):
            registry.circuit_breaker(name).call(int)

        def intrude() -> None:
            registry.circuit_breaker(f"new {next(numbers)}").call(int)
            metrics.scrape()

        def look() -> None:
            registry.circuit_breaker(f"more {next(numbers)}")
            metrics.scrape()

        reached = at_place(place, look, intrude)
        found = metrics.scrape().series()
        names = [labels for header, series in found.items() if header.name.endswith("state") for labels, _ in series]
        assert (place, len(names)) == (place, len(set(names)))
        return reached

    # The places are many and much alike: every seventh one, each time from another one on.
    place = 0
    while run(place):
        place += 7
    assert place > 100
