"""A row of the catalogue: one metric, where its numbers come from, and what OpenTelemetry calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from halfopen._core.histogram import DURATION_BUCKETS, HistogramSnapshot
from halfopen.instrumentation._samples import Group, Header, Kind, Labels, Layout, Numbers, flat, writable

__all__ = ["Labelled", "Metric", "View", "counter", "gauge", "histogram", "of"]

Labelled: TypeAlias = Mapping[tuple[str, ...], float]
"""Numbers by the values of several labels, for the few metrics whose series depend on the settings."""


@dataclass(frozen=True, slots=True)
class Metric:
    """
    One metric of one kind of policy.

    Attributes:
        header: What is said of it once.
        labels: Names of its labels beside the owner's.
        values: The closed list of values for each of them.
        read: Fetches the numbers from a look: one number, or one for each value of the one label, or numbers by
            labels if *open_ended*. None is unknown, and then there is no series.
        open_ended: Which series there are depends on the settings; otherwise all are there from the start.
        keys: The label values of its series, if they are always the same.
        otel: Its name in OpenTelemetry, without ``halfopen.``.
        otel_unit: Its unit there.
        otel_labels: The attribute for each label, without ``halfopen.``.
    """

    header: Header
    read: Callable[[Any], Any]
    labels: tuple[str, ...] = ()
    values: tuple[tuple[str, ...], ...] = ()
    open_ended: bool = False
    otel: str = ""
    otel_unit: str = ""
    otel_labels: tuple[str, ...] = ()

    keys: tuple[tuple[str, ...], ...] = ()

    @property
    def name(self) -> str:
        """Its name as exposed."""
        return self.header.name


class View:
    """The metrics of one policy, with the layouts their series had so far."""

    __slots__ = ("_layouts", "_owner", "_plan")

    def __init__(self, metrics: Sequence[Metric], owner: Labels) -> None:
        self._plan = [(metric.read, _how(metric), metric) for metric in metrics]
        self._owner = tuple((name, writable(value)) for name, value in owner)
        self._layouts: dict[tuple[Any, ...], Layout] = {}

    def see(self, look: Any) -> tuple[Layout, Numbers]:
        """Return the series that there are in *look*, and their numbers."""
        numbers: list[Sequence[float]] = []
        shape: list[Any] = []  # what tells this layout from others
        for read, how, metric in self._plan:
            found = read(look)
            if found is None:
                shape.append(metric.header.name)
            elif how == _ONE:
                numbers.append((found,))
            elif how == _EACH:
                numbers.append(found)
            elif how == _OPEN_ENDED:
                shape.append(tuple(found))
                numbers.append(tuple(found.values()))
            else:
                numbers += found if type(found) is list else flat(found)
        key = tuple(shape)
        layout = self._layouts.get(key)
        return layout or self._lay_out(key), numbers

    def _lay_out(self, key: tuple[Any, ...]) -> Layout:
        if len(self._layouts) >= _KEPT:
            self._layouts.clear()
        shape = list(key)
        groups: list[Group] = []
        for _, how, metric in self._plan:
            if shape and shape[0] == metric.header.name:
                del shape[0]
                continue
            labels = _labels(metric.labels, shape.pop(0) if metric.open_ended else metric.keys)
            # Of a histogram each series is a group: most do not change from one scrape to the next.
            parts = [(one,) for one in labels] if how == _HISTOGRAM else [labels]
            groups += [Group(metric.header, self._owner, part) for part in parts]
        layout = self._layouts[key] = Layout(groups)
        return layout


def _how(metric: Metric) -> int:
    if metric.header.kind is Kind.HISTOGRAM:
        return _HISTOGRAM
    if metric.open_ended:
        return _OPEN_ENDED
    return _EACH if metric.labels else _ONE


# Not an enumeration: to read its members takes longer than to do what they say.
_ONE, _EACH, _OPEN_ENDED, _HISTOGRAM = range(4)
_KEPT = 4


@lru_cache(maxsize=1000)
def _labels(names: tuple[str, ...], keys: tuple[tuple[str, ...], ...]) -> tuple[Labels, ...]:
    return tuple(tuple(zip(names, key, strict=True)) for key in keys)


def of(numbers: Mapping[Any, float], values: Iterable[str]) -> tuple[float, ...]:
    """Return the numbers of a mapping in the order of a closed list, 0 where there is none."""
    return tuple([numbers.get(value, 0) for value in values])


def _unit(name: str) -> str:
    return "seconds" if name.removesuffix("_total").endswith("_seconds") else ""


def _metric(kind: Kind, name: str, text: str, read: Callable[[Any], Any], **more: Any) -> Metric:
    bounds = more.pop("bounds", ())
    label = more.pop("label", None)
    if label is not None:
        more["labels"], more["values"] = (label[0],), (tuple(label[1]),)
        more["keys"] = tuple((value,) for value in label[1])
    elif "labels" not in more:
        more["keys"] = ((),)
    return Metric(Header(name, kind, text, _unit(name), tuple(bounds)), read, **more)


def counter(name: str, text: str, read: Callable[[Any], Any], **more: Any) -> Metric:
    """Describe a counter."""
    return _metric(Kind.COUNTER, name, text, read, **more)


def gauge(name: str, text: str, read: Callable[[Any], Any], **more: Any) -> Metric:
    """Describe a gauge."""
    return _metric(Kind.GAUGE, name, text, read, **more)


def histogram(
    name: str, text: str, read: Callable[[Any], list[list[float]] | Sequence[HistogramSnapshot]], **more: Any
) -> Metric:
    """Describe a histogram, read whole or as its numbers; the buckets are those for durations by default."""
    return _metric(Kind.HISTOGRAM, name, text, read, **{"bounds": DURATION_BUCKETS, **more})
