"""What a scrape is made of: metrics, groups of series whose labels stay, and the values of one moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Any, TypeAlias

from halfopen._core.histogram import HistogramSnapshot

__all__ = [
    "Group",
    "Header",
    "Kind",
    "Labels",
    "Layout",
    "Scrape",
    "Values",
    "escape_label",
    "flat",
    "from_plain",
    "layout_of",
    "number",
    "to_plain",
]

Labels: TypeAlias = tuple[tuple[str, str], ...]
Values: TypeAlias = tuple[float, ...]
"""
The numbers of some series, one after the other.

A series of a histogram has its cumulative buckets, its sum and its count; one of a summary its sum and its count.
"""


class Kind(StrEnum):
    """The types of the text format."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Header:
    """
    What is said of a metric once.

    Attributes:
        name: As it is exposed, a counter's ``_total`` included.
        unit: ``seconds`` where the name ends so; else empty.
        bounds: Upper bounds of a histogram's buckets, without the last one.
    """

    name: str
    kind: Kind
    help: str
    unit: str = ""
    bounds: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        """How many numbers one series has."""
        if self.kind is Kind.HISTOGRAM:
            return len(self.bounds) + 3
        return 2 if self.kind is Kind.SUMMARY else 1


@dataclass(frozen=True, slots=True)
class Group:
    """
    Some series of one metric.

    Attributes:
        owner: Labels that all of them have.
        rest: The further labels of each.
    """

    header: Header
    owner: Labels
    rest: tuple[Labels, ...]


class Layout:
    """
    Series whose labels stay from one look to the next, with the text around their numbers prepared.

    A scrape of a thousand breakers formats 90,000 numbers; one format string for each breaker is what makes that quick.
    """

    __slots__ = ("_text", "groups", "names")

    def __init__(self, groups: Iterable[Group]) -> None:
        self.groups = tuple(groups)
        self.names = tuple(group.header.name for group in self.groups)
        self._text: str | None = None

    def chunks(self, values: Values) -> list[str]:
        """Return the lines of the text format, one chunk for each metric."""
        if self._text is None:
            self._text = _BETWEEN.join(_template(group) for group in self.groups)
        return (self._text % values).split(_BETWEEN)

    def series(self, values: Values) -> Iterator[tuple[Header, Labels, Values]]:
        """Return each series with its numbers."""
        begin = 0
        for group in self.groups:
            width = group.header.width
            for rest in group.rest:
                yield group.header, (*group.owner, *rest), values[begin : begin + width]
                begin += width


_BETWEEN = "\0"


class Scrape:
    """
    All metrics at one moment.

    Attributes:
        headers: The metrics, in the order of exposition; those without series are not exposed.
        parts: Layouts with their numbers, one for each policy.
    """

    __slots__ = ("headers", "parts")

    def __init__(self, headers: Iterable[Header]) -> None:
        self.headers = {header.name: header for header in headers}
        self.parts: list[tuple[Layout, Values]] = []

    def series(self) -> dict[Header, list[tuple[Labels, Values]]]:
        """Return the series of each metric that has some."""
        found: dict[str, list[tuple[Labels, Values]]] = {name: [] for name in self.headers}
        for layout, values in self.parts:
            for header, labels, numbers in layout.series(values):
                found[header.name].append((labels, numbers))
        return {self.headers[name]: series for name, series in found.items() if series}

    def chunks(self) -> dict[Header, list[str]]:
        """Return the lines of each metric that has series."""
        found: dict[str, list[str]] = {name: [] for name in self.headers}
        for layout, values in self.parts:
            for name, chunk in zip(layout.names, layout.chunks(values), strict=True):
                found[name].append(chunk)
        return {self.headers[name]: chunks for name, chunks in found.items() if chunks}


def layout_of(series: Mapping[tuple[Header, Labels], Values]) -> tuple[Layout, Values]:
    """Lay out numbers by their series; the series of one metric stand together."""
    groups: dict[Header, list[Labels]] = {}
    numbers: dict[Header, list[float]] = {}
    for (header, labels), values in series.items():
        groups.setdefault(header, []).append(labels)
        numbers.setdefault(header, []).extend(values)
    layout = Layout(Group(header, (), tuple(rest)) for header, rest in groups.items())
    return layout, tuple(value for values in numbers.values() for value in values)


def flat(histograms: Iterable[HistogramSnapshot]) -> list[float]:
    """Return histograms as the numbers of a group."""
    numbers: list[float] = []
    for histogram in histograms:
        numbers += accumulate(histogram.counts)
        numbers += (histogram.sum, numbers[-1])
    return numbers


def escape_label(value: str) -> str:
    """Escape a label's value for the text formats."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return value


def number(bound: float) -> str:
    """Show a bucket's bound as Prometheus does."""
    return repr(float(bound))


def _template(group: Group) -> str:
    return "".join(_lines(group.header, (*group.owner, *rest)) for rest in group.rest)


def _lines(header: Header, labels: Labels) -> str:
    # The text between chunks is no character that Prometheus could show in a name.
    pairs = (f'{name}="{escape_label(value)}"' for name, value in labels)
    inner = ",".join(pairs).replace("%", "%%").replace(_BETWEEN, "\N{REPLACEMENT CHARACTER}")
    braces = f"{{{inner}}}" if inner else ""
    name = header.name
    if header.kind is Kind.HISTOGRAM:
        comma = "," if inner else ""
        bounds = (*(number(bound) for bound in header.bounds), "+Inf")
        buckets = "".join(f'{name}_bucket{{{inner}{comma}le="{bound}"}} %s\n' for bound in bounds)
        return f"{buckets}{name}_sum{braces} %s\n{name}_count{braces} %s\n"
    if header.kind is Kind.SUMMARY:
        return f"{name}_sum{braces} %s\n{name}_count{braces} %s\n"
    return f"{name}{braces} %s\n"


def to_plain(scrape: Scrape) -> list[Any]:
    """Return a scrape as data that JSON can hold."""
    return [
        [[header.name, header.kind.value, header.help, header.unit, header.bounds], series]
        for header, series in scrape.series().items()
    ]


def from_plain(data: Iterable[Any], labels: Labels) -> Scrape:
    """Return a scrape from such data, every series with *labels* more, put first."""
    headers: list[Header] = []
    series: dict[tuple[Header, Labels], Values] = {}
    for (name, kind, text, unit, bounds), rows in data:
        header = Header(name, Kind(kind), text, unit, tuple(bounds))
        headers.append(header)
        for own, values in rows:
            series[header, (*labels, *((key, value) for key, value in own))] = tuple(values)
    scrape = Scrape(headers)
    scrape.parts.append(layout_of(series))
    return scrape
