"""The metrics of a retry queue and of a shared store, whoever made them: these protocols are all that is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from halfopen._core.histogram import HistogramSnapshot
from halfopen.instrumentation._family import Family
from halfopen.instrumentation._metric import Metric, gauge, histogram
from halfopen.instrumentation.enumerations import (
    QUEUE_ALERTS,
    QUEUE_ATTEMPTS,
    QUEUE_COMMANDS,
    QUEUE_STATES,
    STORE_OPERATIONS,
)

__all__ = ["AGE_BUCKETS", "QUEUE_METRICS", "STORE_METRICS", "QueueLike", "QueueNumbers", "StoreLike", "StoreNumbers"]

AGE_BUCKETS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)


class QueueNumbers(Protocol):
    """What a queue counts; `halfopen.retry_queue.QueueStats` is one."""

    @property
    def queue(self) -> str: ...
    @property
    def messages(self) -> Mapping[str, int]: ...
    @property
    def oldest_message(self) -> float | None: ...
    @property
    def attempts(self) -> Mapping[str, int]: ...
    @property
    def commands(self) -> Mapping[str, int]: ...
    @property
    def enqueued(self) -> int: ...
    @property
    def completed(self) -> int: ...
    @property
    def dead_letters(self) -> int: ...
    @property
    def completion_age_buckets(self) -> tuple[int, ...]:
        """Cumulative counts of `AGE_BUCKETS`, and of all."""
        ...

    @property
    def completion_age_sum(self) -> float: ...
    @property
    def store(self) -> str: ...
    @property
    def store_up(self) -> bool: ...
    @property
    def lanes_held(self) -> int: ...
    @property
    def alerts(self) -> Mapping[str, int]: ...


class QueueLike(Protocol):
    """A queue."""

    def stats(self) -> QueueNumbers:
        """Return its numbers."""
        ...


class StoreNumbers(Protocol):
    """What is known of a store that processes share; *view_age* is in seconds, None where there is no view."""

    @property
    def store(self) -> str: ...
    @property
    def up(self) -> bool: ...
    @property
    def view_age(self) -> float | None: ...
    @property
    def operations(self) -> Mapping[str, HistogramSnapshot]: ...


class StoreLike(Protocol):
    """A store."""

    def stats(self) -> StoreNumbers:
        """Return its numbers."""
        ...


def _ages(look: Any) -> HistogramSnapshot:
    cumulative = look.completion_age_buckets
    counts = tuple(upto - before for upto, before in zip(cumulative, (0, *cumulative), strict=False))
    return HistogramSnapshot(AGE_BUCKETS, counts, look.completion_age_sum)


def _operations(look: Any) -> tuple[HistogramSnapshot, ...]:
    return tuple(look.operations.get(operation, _NONE) for operation in STORE_OPERATIONS)


_NONE = HistogramSnapshot((), (0,) * 12, 0.0)
_queue = Family("queue", "{message}")

QUEUE_METRICS: tuple[Metric, ...] = (
    _queue.levels("messages", "Messages; those behind an open breaker or a held lane are delayed, not ready.",
                  "messages", "state", QUEUE_STATES, otel_labels=("queue.message.state",)),
    _queue.level("oldest_message_timestamp_seconds",
                 "Unix time at which the oldest live message was enqueued; absent when empty.",
                 "oldest_message", otel="queue.oldest_message.timestamp"),
    _queue.counts("attempts", "Finished attempts of delivery.",
                  "attempts", "outcome", QUEUE_ATTEMPTS, otel_unit="{attempt}"),
    _queue.counts("commands", "Orders of operators carried out.",
                  "commands", "command", QUEUE_COMMANDS, otel_unit="{command}", otel_labels=("queue.command",)),
    _queue.total("enqueued", "Messages taken in.", "enqueued"),
    _queue.total("completed", "Messages that reached their goal.", "completed"),
    _queue.total("dead_letters", "Messages given up on.", "dead_letters"),
    _queue.level("lanes_held", "Lanes that are held, by an order or for a configuration that partners refuse.",
                 "lanes_held", otel="queue.lanes.held", otel_unit="{lane}"),
    _queue.counts("alerts", "Alerts raised, those included that were too many to tell.",
                  "alerts", "kind", QUEUE_ALERTS,
                  otel_unit="{alert}", otel_labels=("queue.alert",)),
    _queue.spread("completion_age_seconds", "From enqueued to done.", _ages, AGE_BUCKETS, otel="queue.completion.age"),
)  # fmt: skip

STORE_METRICS: tuple[Metric, ...] = (
    gauge("halfopen_store_up", "1 while the shared store can be reached.",
          lambda look: int(look.up), otel="store.up", otel_unit="{store}"),
    histogram(
        "halfopen_store_operation_seconds", "Durations of operations on the store.",
        _operations, label=("op", STORE_OPERATIONS),
        otel="store.operation", otel_unit="s", otel_labels=("store.operation",),
    ),
    gauge("halfopen_store_view_age_seconds", "Age of the view that this process acts on; absent where there is none.",
          lambda look: look.view_age, otel="store.view.age", otel_unit="s"),
)  # fmt: skip
