"""From rows and breakers to what consoles and metrics show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from halfopen._core.states import State

from ._inspection import LaneCounts
from ._lane import Lane
from ._rows import LaneRow, MessageState
from ._stats import LaneStats, QueueStats, Tally
from ._store import Store
from ._verdicts import unpack

__all__ = ["lane_stats", "queue_stats"]

_FREE = frozenset({State.CLOSED, State.DISABLED, State.METRICS_ONLY})


def queue_stats(
    name: str, store: Store, lanes: Mapping[str, Lane], tally: Tally, alerts: Mapping[str, int]
) -> QueueStats:
    """Sum the lanes up. Messages behind an open breaker or a hold are delayed, not ready."""
    messages: Counter[str] = Counter(ready=0, delayed=0, in_flight=0, awaiting_receipt=0, error=0, dead=0)
    now = store.read(lambda reader: reader.now)
    rows = store.lane_rows()
    held = {row.lane for row in rows if row.held(now)}
    free = {row.lane for row in rows if _state(row, lanes) in _FREE} - held
    for lane, counts in store.counts().items():
        _add(messages, counts, sends=lane in free)
    return QueueStats(
        queue=name,
        messages=dict(messages),
        oldest_message=store.oldest_live(),
        attempts=dict(tally.attempts),
        commands=dict(tally.commands),
        enqueued=tally.enqueued,
        completed=tally.completed,
        dead_letters=tally.dead_letters,
        completion_age_buckets=tally.cumulative(),
        completion_age_sum=tally.age_sum,
        store=store.name,
        store_up=tally.store_up,
        lanes_held=len(held),
        alerts=dict(alerts),
    )


def _state(row: LaneRow, lanes: Mapping[str, Lane]) -> State:
    """Return the state of a lane's breaker: that of this process, or what another one said last."""
    if (lane := lanes.get(row.lane)) is not None:
        return lane.breaker.state
    verdict = unpack(row.breaker)
    return State.CLOSED if verdict is None else verdict.state


def _add(messages: Counter[str], counts: LaneCounts, *, sends: bool) -> None:
    ready = counts.due if sends else 0
    messages["ready"] += ready
    messages["delayed"] += counts.states.get(MessageState.WAITING, 0) - ready
    messages["in_flight"] += counts.states.get(MessageState.SENDING, 0)
    for state in (MessageState.AWAITING_RECEIPT, MessageState.ERROR, MessageState.DEAD):
        messages[state.value] += counts.states.get(state, 0)


def lane_stats(store: Store, lanes: Mapping[str, Lane]) -> list[LaneStats]:
    """Show each lane: backlog, pace, what it waits for."""
    counts, oldest = store.counts(), store.oldest_per_lane()
    found: list[LaneStats] = []
    for row in store.lane_rows():
        lane = lanes.get(row.lane)
        states = counts.get(row.lane, LaneCounts()).states
        found.append(
            LaneStats(
                lane=row.lane,
                breaker=_state(row, lanes).value if lane is not None or row.breaker is not None else None,
                messages={state.value: number for state, number in states.items()},
                send_window=row.send_window,
                hold=row.hold,
                waits_for="nobody sends it here" if lane is None else lane.waits_for,
                oldest=oldest.get(row.lane),
                drain_seconds=None if lane is None else lane.results.drain_seconds(states.get(MessageState.WAITING, 0)),
            )
        )
    return found
