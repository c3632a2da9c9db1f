"""What a scrape is made of: metrics, groups of series whose labels stay, and the values of one moment."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    "Numbers",
    "Scrape",
    "Values",
    "escape_label",
    "flat",
    "from_plain",
    "layout_of",
    "number",
    "to_plain",
    "writable",
]

Labels: TypeAlias = tuple[tuple[str, str], ...]
Values: TypeAlias = tuple[float, ...]
"""
The numbers of one series: of a histogram its cumulative buckets, its sum and its count; of a summary its sum and count.
"""
Numbers: TypeAlias = Sequence[Sequence[float]]
"""The numbers of each group of a layout, those of its series one after the other."""


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

    A scrape of a thousand breakers shows 90,000 numbers, and few of them have changed since the last one: the lines of
    a group are made anew only if one of its numbers has.
    """

    __slots__ = ("_made", "_templates", "groups", "names")

    def __init__(self, groups: Iterable[Group]) -> None:
        self.groups = tuple(groups)
        self.names = tuple(group.header.name for group in self.groups)
        self._templates: list[str] = []
        self._made: list[tuple[Sequence[float], str]] = []

    def chunks(self, numbers: Numbers) -> list[str]:
        """Return the lines of the text format, one chunk for each group."""
        made = self._made
        if not made:
            self._templates = [_template(group) for group in self.groups]
            made = self._made = [((), "")] * len(self.groups)
        chunks: list[str] = []
        for place, found in enumerate(numbers):
            before, text = made[place]
            if found != before:
                text = _filled(self._templates[place], found)
                made[place] = found, text  # at once: others may scrape meanwhile
            chunks.append(text)
        return chunks

    def apart(self, values: Values) -> Numbers:
        """Return the numbers of each group from those of all, one after the other."""
        ends = list(accumulate(len(group.rest) * group.header.width for group in self.groups))
        return [values[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    def series(self, numbers: Numbers) -> Iterator[tuple[Header, Labels, Values]]:
        """Return each series with its numbers."""
        for group, found in zip(self.groups, numbers, strict=True):
            width = group.header.width
            for place, rest in enumerate(group.rest):
                begin = place * width
                yield group.header, (*group.owner, *rest), tuple(found[begin : begin + width])


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
        self.parts: list[tuple[Layout, Numbers]] = []

    def series(self) -> dict[Header, list[tuple[Labels, Values]]]:
        """Return the series of each metric that has some."""
        found: dict[str, list[tuple[Labels, Values]]] = {name: [] for name in self.headers}
        for layout, numbers in self.parts:
            for header, labels, values in layout.series(numbers):
                found[header.name].append((labels, values))
        return {self.headers[name]: series for name, series in found.items() if series}

    def chunks(self) -> dict[Header, list[str]]:
        """Return the lines of each metric that has series."""
        # Thousands of policies of one kind have the same metrics: their chunks are put together column by column.
        rows: dict[tuple[str, ...], list[list[str]]] = {}
        for layout, numbers in self.parts:
            rows.setdefault(layout.names, []).append(layout.chunks(numbers))
        found: dict[str, list[str]] = {name: [] for name in self.headers}
        for names, chunks in rows.items():
            for name, column in zip(names, zip(*chunks, strict=True), strict=True):
                found[name] += column
        return {self.headers[name]: chunks for name, chunks in found.items() if chunks}


def layout_of(series: Mapping[tuple[Header, Labels], Values]) -> tuple[Layout, Numbers]:
    """Lay out numbers by their series; the series of one metric stand together."""
    groups: dict[Header, list[Labels]] = {}
    numbers: dict[Header, list[float]] = {}
    for (header, labels), values in series.items():
        groups.setdefault(header, []).append(labels)
        numbers.setdefault(header, []).extend(values)
    layout = Layout(Group(header, (), tuple(rest)) for header, rest in groups.items())
    return layout, list(numbers.values())


def flat(histograms: Iterable[HistogramSnapshot]) -> list[list[float]]:
    """Return histograms as the numbers of a series each."""
    numbers: list[list[float]] = []
    for histogram in histograms:
        one: list[float] = list(accumulate(histogram.counts))
        one += (histogram.sum, one[-1])
        numbers.append(one)
    return numbers


def writable(value: str) -> str:
    """Return a label's value as UTF-8 can hold it: half a surrogate pair, as in undecodable file names, is replaced."""
    if value.isascii():
        return value
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def escape_label(value: str) -> str:
    """Escape a label's value for the text formats."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return value


def number(value: float) -> str:
    """Show a number as Prometheus does."""
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _filled(template: str, numbers: Sequence[float]) -> str:
    if math.isfinite(sum(numbers)):
        return template % tuple(numbers)
    return template % tuple([number(each) for each in numbers])


def _template(group: Group) -> str:
    return "".join(_lines(group.header, (*group.owner, *rest)) for rest in group.rest)


def _lines(header: Header, labels: Labels) -> str:
    pairs = (f'{name}="{escape_label(value)}"' for name, value in labels)
    inner = ",".join(pairs).replace("%", "%%")
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
