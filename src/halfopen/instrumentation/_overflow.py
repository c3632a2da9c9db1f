"""The one set of series for all policies whose names found no room."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from halfopen.instrumentation._metric import Metric, View
from halfopen.instrumentation._samples import Header, Kind, Labels, Layout, Values, layout_of

__all__ = ["Overflow", "Sums"]

Sums: TypeAlias = dict[tuple[Header, Labels], Values]
_STATE = "halfopen_circuit_breaker_state"


class Overflow:
    """
    Sums of counters and histograms over many policies, and whether any of them is in each state.

    Their other gauges would mean nothing together, so they have no series. What a policy that was let go has counted
    stays in the sums: a counter never falls.
    """

    def __init__(self, metrics: Sequence[Metric], owner: Labels) -> None:
        summed = [each for each in metrics if each.header.kind is not Kind.GAUGE or each.name == _STATE]
        self._view = View(summed, owner)
        self._retired: Sums = {}
        self._let_go: WeakKeyDictionary[Any, Sums] = WeakKeyDictionary()

    def see(self, policy: Any, look: Any, sums: Sums) -> None:
        """Count what one policy has counted into the sums of a scrape."""
        self._take_back(policy)
        _combine(sums, self._numbers(look), operator.add)

    def retire(self, policy: Any, look: Any) -> None:
        """Keep what a policy has counted that is let go."""
        self._take_back(policy)
        numbers = {key: values for key, values in self._numbers(look).items() if key[0].name != _STATE}
        self._let_go[policy] = numbers
        _combine(self._retired, numbers, operator.add)

    def _take_back(self, policy: Any) -> None:
        before = self._let_go.pop(policy, None)
        if before is not None:
            _combine(self._retired, before, operator.sub)

    def take(self, sums: Sums) -> tuple[Layout, Values]:
        """Return the series of a scrape's sums, with what those have counted that were let go."""
        _combine(sums, self._retired, operator.add)
        return layout_of(sums)

    def _numbers(self, look: Any) -> Sums:
        layout, values = self._view.see(look)
        return {(header, labels): numbers for header, labels, numbers in layout.series(values)}


def _combine(total: Sums, more: Sums, how: Callable[[float, float], float]) -> None:
    for key, values in more.items():
        there = total.get(key)
        way = max if key[0].name == _STATE else how
        total[key] = values if there is None else tuple(way(a, b) for a, b in zip(there, values, strict=True))
