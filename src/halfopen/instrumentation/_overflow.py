"""The one set of series for all policies whose names found no room."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from halfopen.instrumentation._metric import Metric, View
from halfopen.instrumentation._samples import Header, Kind, Labels, Layout, Numbers, Values, layout_of

__all__ = ["Overflow", "Sums"]

_STATE = "halfopen_circuit_breaker_state"


class Sums:
    """
    Sums over many policies, one for each layout: thousands of equal layouts are added number by number.

    Attributes:
        counted: Of counters and histograms.
        states: Whether any of the policies is in each state.
    """

    __slots__ = ("counted", "states")

    def __init__(self) -> None:
        self.counted: _ByLayout = {}
        self.states: _ByLayout = {}


_ByLayout: TypeAlias = dict[Layout, Values]


class Overflow:
    """
    Sums of counters and histograms over many policies, and whether any of them is in each state.

    Their other gauges would mean nothing together, so they have no series. What a policy that was let go has counted
    stays in the sums: a counter never falls.
    """

    def __init__(self, metrics: Sequence[Metric], owner: Labels) -> None:
        self._counters = View([each for each in metrics if each.header.kind is not Kind.GAUGE], owner)
        self._states = View([each for each in metrics if each.name == _STATE], owner)
        self._retired: _ByLayout = {}
        self._let_go: WeakKeyDictionary[Any, tuple[Layout, Values]] = WeakKeyDictionary()

    def see(self, policy: Any, look: Any, sums: Sums) -> None:
        """Count what one policy has counted into the sums of a scrape."""
        self._take_back(policy)
        _combine(sums.counted, *_whole(self._counters.see(look)), operator.add)
        _combine(sums.states, *_whole(self._states.see(look)), max)

    def retire(self, policy: Any, look: Any) -> None:
        """Keep what a policy has counted that is let go."""
        self._take_back(policy)
        numbers = self._let_go[policy] = _whole(self._counters.see(look))
        _combine(self._retired, *numbers, operator.add)

    def take(self, sums: Sums) -> tuple[Layout, Numbers]:
        """Return the series of a scrape's sums, with what those have counted that were let go."""
        for layout, values in self._retired.items():
            _combine(sums.counted, layout, values, operator.add)
        return layout_of({**_by_series(sums.states, max), **_by_series(sums.counted, operator.add)})

    def _take_back(self, policy: Any) -> None:
        before = self._let_go.pop(policy, None)
        if before is not None:
            _combine(self._retired, *before, operator.sub)


def _whole(seen: tuple[Layout, Numbers]) -> tuple[Layout, Values]:
    layout, numbers = seen
    return layout, tuple(chain.from_iterable(numbers))


def _combine(total: _ByLayout, layout: Layout, values: Values, how: Callable[[float, float], float]) -> None:
    there = total.get(layout)
    if there is not None:
        total[layout] = tuple(map(how, there, values))
    elif how is operator.sub:
        total[layout] = tuple(-value for value in values)
    else:
        total[layout] = values


def _by_series(total: _ByLayout, how: Callable[[float, float], float]) -> dict[tuple[Header, Labels], Values]:
    found: dict[tuple[Header, Labels], Values] = {}
    for layout, values in total.items():
        for header, labels, numbers in layout.series(layout.apart(values)):
            there = found.get((header, labels))
            found[header, labels] = numbers if there is None else tuple(map(how, there, numbers))
    return found
