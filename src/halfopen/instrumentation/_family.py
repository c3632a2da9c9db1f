"""The metrics of one kind of owner: most are a number, a mapping or a histogram of its snapshot, and named after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

from halfopen._core.histogram import DURATION_BUCKETS
from halfopen.instrumentation._metric import Metric, counter, gauge, histogram, of

__all__ = ["Family"]

Source: TypeAlias = str | Callable[[Any], Any]
"""An attribute of the look, or what makes the numbers of it."""


class Family:
    """
    Describes the metrics of one kind: ``halfopen_KIND_WHAT…``, in OpenTelemetry ``halfopen.KIND.WHAT``.

    Args:
        kind: ``retry``, ``queue`` …
        unit: Of what it counts, unless a metric says otherwise.
    """

    def __init__(self, kind: str, unit: str = "{call}") -> None:
        self._kind = kind
        self._unit = unit

    def counts(self, what: str, text: str, source: Source, label: str, values: Sequence[str], **more: Any) -> Metric:
        """Describe counters by the values of one label."""
        return counter(f"halfopen_{self._kind}_{what}_total", text, **self._each(what, source, label, values, more))

    def levels(self, what: str, text: str, source: Source, label: str, values: Sequence[str], **more: Any) -> Metric:
        """Describe gauges by the values of one label."""
        return gauge(f"halfopen_{self._kind}_{what}", text, **self._each(what, source, label, values, more))

    def total(self, what: str, text: str, source: Source, **more: Any) -> Metric:
        """Describe a counter."""
        return counter(f"halfopen_{self._kind}_{what}_total", text, _read(source), **self._told(what, more))

    def level(self, what: str, text: str, source: Source, **more: Any) -> Metric:
        """Describe a gauge; in seconds if *what* says so."""
        return gauge(f"halfopen_{self._kind}_{what}", text, _read(source), **self._told(what, more))

    def spread(
        self, what: str, text: str, source: Source, bounds: Sequence[float] = DURATION_BUCKETS, **more: Any
    ) -> Metric:
        """Describe a histogram, read from one `HistogramSnapshot`; in seconds if *what* says so."""
        read = _read(source)
        more = {"bounds": bounds, **self._told(what, more)}
        return histogram(f"halfopen_{self._kind}_{what}", text, lambda look: (read(look),), **more)

    def _each(
        self, what: str, source: Source, label: str, values: Sequence[str], more: dict[str, Any]
    ) -> dict[str, Any]:
        read = _read(source)

        def each(look: Any) -> tuple[float, ...]:
            return of(read(look), values)

        return {"read": each, "label": (label, values), **self._told(what, {"otel_labels": (label,), **more})}

    def _told(self, what: str, more: dict[str, Any]) -> dict[str, Any]:
        seconds = what.endswith("_seconds")
        name = what.removesuffix("_seconds")
        return {"otel": f"{self._kind}.{name}", "otel_unit": "s" if seconds else self._unit, **more}


def _read(source: Source) -> Callable[[Any], Any]:
    return attrgetter(source) if isinstance(source, str) else source
