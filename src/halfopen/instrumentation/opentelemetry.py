"""
The same metrics through the OpenTelemetry API, and events on the spans of traced calls.

```python
instruments = Instruments(registry)                 # metrics, read whenever the SDK exports
spans = SpanEvents(registry); spans.start()         # moves, refusals and retries as span events
```

The call path is not touched by metrics: all instruments but the histograms are observable. OpenTelemetry has no
observable histogram, so what our own buckets have gained since the last export is recorded then, one value for each
observation: exact in count and sum under the boundaries that are advised, interpolated within a bucket.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Observation

from halfopen._core.events import CallRejected, CircuitTransitioned
from halfopen._runtime.forking import renew_after_fork
from halfopen.instrumentation._metric import Metric
from halfopen.instrumentation._samples import Kind, Labels, Values
from halfopen.instrumentation.metrics import Metrics, catalogue, metrics_of
from halfopen.registry import Registry
from halfopen.retry import RetryScheduled

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.util.types import AttributeValue

__all__ = ["Instruments", "SpanEvents", "spread"]

_SAME_EXPORT = 0.5
"""Seconds within which the callbacks of one export share one look."""
_UP_DOWN = frozenset({"{breaker}", "{message}", "{store}"})
_UP_DOWN_NAMES = frozenset(
    {"circuit_breaker.window.calls", "bulkhead.in_use", "bulkhead.waiting", "gateway.requests.in_progress"}
)


class Instruments:
    """
    The instruments of a registry's policies; registries that share a meter provider share them.

    Args:
        source: The registry, or its `Metrics`.
        meter_provider: Where from; default the global one.
    """

    def __init__(self, source: Registry | Metrics, *, meter_provider: MeterProvider | None = None) -> None:
        self._metrics = metrics_of(source) if isinstance(source, Registry) else source
        _shared(meter_provider).add(self._metrics)


class _Shared:
    """One set of instruments: the SDK makes each name once, and would drop the callbacks of a second set."""

    def __init__(self, meter_provider: MeterProvider | None) -> None:
        from halfopen import __version__

        self._readers: list[_Reader] = []
        meter = metrics.get_meter("halfopen", __version__, meter_provider)
        self._histograms: list[tuple[Metric, str, Any]] = []
        for kind, rows in catalogue().items():
            for metric in rows:
                self._create(meter, kind, metric)

    def add(self, source: Metrics) -> None:
        if not any(reader.source is source for reader in self._readers):
            self._readers.append(_Reader(source, self._histograms))

    def _create(self, meter: Meter, kind: str, metric: Metric) -> None:
        name, unit, text = f"halfopen.{metric.otel}", metric.otel_unit, metric.header.help
        if metric.header.kind is Kind.HISTOGRAM:
            made = meter.create_histogram(
                name, unit, text, explicit_bucket_boundaries_advisory=list(metric.header.bounds)
            )
            self._histograms.append((metric, kind, made))
            return
        callback: Callable[[CallbackOptions], Iterable[Observation]] = partial(self._observe, metric, kind)
        if metric.header.kind is Kind.COUNTER:
            meter.create_observable_counter(name, [callback], unit, text)
        elif unit in _UP_DOWN or metric.otel in _UP_DOWN_NAMES:
            meter.create_observable_up_down_counter(name, [callback], unit, text)
        else:
            meter.create_observable_gauge(name, [callback], unit, text)

    def _observe(self, metric: Metric, kind: str, options: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(values[0], _attributes(kind, metric, labels))
            for reader in list(self._readers)
            for labels, values in reader.look().get(metric.name, [])
        ]


class _Reader:
    """Looks at one registry, once for all callbacks of an export, and records what its histograms have gained."""

    def __init__(self, source: Metrics, histograms: list[tuple[Metric, str, Any]]) -> None:
        self.source = source
        self._histograms = histograms
        self._renew()
        renew_after_fork(self)
        self._looked = float("-inf")
        self._series: dict[str, list[tuple[Labels, Values]]] = {}
        self._recorded: dict[tuple[str, Labels], Values] = {}

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def look(self) -> dict[str, list[tuple[Labels, Values]]]:
        with self._lock:
            now = time.monotonic()
            if now - self._looked > _SAME_EXPORT:
                found = self.source.scrape().series()
                self._series = {header.name: series for header, series in found.items()}
                self._looked = time.monotonic()
                self._record_histograms()
            return self._series

    def _record_histograms(self) -> None:
        for metric, kind, made in self._histograms:
            for labels, values in self._series.get(metric.name, []):
                before = self._recorded.get((metric.name, labels), (0,) * len(values))
                if values[-1] < before[-1]:
                    before = (0,) * len(values)  # another policy took over the name
                self._recorded[metric.name, labels] = values
                attributes = _attributes(kind, metric, labels)
                for value, times in spread(metric.header.bounds, before, values):
                    for _ in range(times):
                        made.record(value, attributes)


_SHARED: WeakKeyDictionary[MeterProvider, _Shared] = WeakKeyDictionary()
_GLOBAL: list[_Shared] = []
_LOCK = threading.Lock()


def _shared(provider: MeterProvider | None) -> _Shared:
    with _LOCK:
        if provider is None or provider is metrics.get_meter_provider():
            if not _GLOBAL:
                _GLOBAL.append(_Shared(None))
            return _GLOBAL[0]
        if provider not in _SHARED:
            _SHARED[provider] = _Shared(provider)
        return _SHARED[provider]


def spread(bounds: tuple[float, ...], before: Values, values: Values) -> list[tuple[float, int]]:
    """
    Return values, and how often each, that bring a histogram from *before* to *values*: the same buckets and sum.

    All lie at the same relative height in their buckets, which makes the sum right; what is above the last bound takes
    the rest.
    """
    cumulative = [int(now - then) for now, then in zip(values[:-2], before[:-2], strict=True)]
    counts = [upto - below for upto, below in zip(cumulative, [0, *cumulative], strict=False)]
    total = values[-2] - before[-2]
    lows, highs = (0.0, *bounds), (*bounds, bounds[-1])
    least = sum(low * count for low, count in zip(lows, counts, strict=True))
    room = sum((high - low) * count for low, high, count in zip(lows, highs, counts, strict=True))
    share = min(max((total - least) / room, 1e-6), 1.0) if room > 0 else 1.0
    found = [(low + share * (high - low), count) for low, high, count in zip(lows, highs, counts, strict=True)]
    if counts[-1]:
        rest = total - sum(value * count for value, count in found[:-1])
        found[-1] = (max(rest / counts[-1], bounds[-1] * (1 + 1e-9)), counts[-1])
    return [(value, count) for value, count in found if count > 0]


def _attributes(kind: str, metric: Metric, labels: Labels) -> dict[str, AttributeValue]:
    given = dict(zip(metric.labels, metric.otel_labels, strict=True))
    owner = {"name": f"{kind}.name", "queue": "queue.name", "store": "store.name", "version": "version"}
    return {f"halfopen.{given.get(name) or owner[name]}": value for name, value in labels}


class SpanEvents:
    """
    Put what happens to a traced call onto its span: moves it causes, its refusal, its retries.

    A listener runs on the thread that publishes. While another, slow listener of the same registry keeps one thread
    busy, that thread publishes what others have to tell as well, and it goes to the wrong span: put slow ones on a
    queue of their own.

    Args:
        registry: Whose policies; a retry is heard if it publishes on the registry's bus.
        refusals: Whether refusals are told. They cost an event object each, and no more where no span records.
    """

    def __init__(self, registry: Registry, *, refusals: bool = True) -> None:
        self._registry = registry
        self._refusals = refusals
        self._unsubscribe: list[Callable[[], None]] = []

    def start(self) -> None:
        """Begin; a no-op when it runs already."""
        if not self._unsubscribe:
            subscribe = self._registry.subscribe
            self._unsubscribe = [subscribe(_moved, CircuitTransitioned), subscribe(_retried, RetryScheduled)]
            if self._refusals:
                self._unsubscribe.append(subscribe(_refused, CallRejected))

    def stop(self) -> None:
        """End."""
        for end in self._unsubscribe:
            end()
        self._unsubscribe = []


def _moved(event: CircuitTransitioned) -> None:
    attributes: dict[str, AttributeValue] = {
        "halfopen.circuit_breaker.name": event.name,
        "halfopen.transition.from": event.old.value,
        "halfopen.transition.to": event.new.value,
        "halfopen.reason": event.reason.value,
        "halfopen.circuit_breaker.backoff_step": event.step,
    }
    if event.wait is not None:
        attributes["halfopen.circuit_breaker.wait"] = event.wait
    _tell("halfopen.circuit_breaker.transition", attributes)


def _refused(event: CallRejected) -> None:
    attributes: dict[str, AttributeValue] = {
        "halfopen.circuit_breaker.name": event.name,
        "halfopen.circuit_breaker.state": event.state.value,
        "halfopen.reason": event.reason.value,
    }
    if event.retry_after is not None:
        attributes["halfopen.retry_after"] = event.retry_after
    _tell("halfopen.circuit_breaker.rejection", attributes)


def _retried(event: RetryScheduled) -> None:
    attributes: dict[str, AttributeValue] = {
        "halfopen.retry.name": event.name,
        "halfopen.retry.attempt": event.attempt,
        "halfopen.retry.delay": event.delay,
    }
    if event.error is not None:
        attributes["error.type"] = type(event.error).__name__
    _tell("halfopen.retry.scheduled", attributes)


def _tell(name: str, attributes: dict[str, AttributeValue]) -> None:
    span = trace.get_current_span()
    if span.is_recording():
        span.add_event(name, attributes)
