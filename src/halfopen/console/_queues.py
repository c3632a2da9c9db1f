"""Retry queues on the console: gauges and rates, lanes, messages, and orders to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from halfopen._runtime.late import logger
from halfopen.console._rates import Rate
from halfopen.retry_queue import Message, MessageState, QueueError, RetryQueue, Selection

__all__ = ["BULK", "SINGLE", "QueueLook", "message_of"]

SINGLE = frozenset({"retry", "resend", "resubmit", "cancel"})
BULK = frozenset({"retry", "resend", "resubmit", "cancel"})
_HOLDING = frozenset({"open", "half_open", "forced_open"})


class QueueLook:
    """Looks at retry queues from a thread, because their stores are on disk."""

    def __init__(self, queues: Iterable[RetryQueue]) -> None:
        self.queues = {queue.name: queue for queue in queues}
        self._rates = {name: Rate() for name in self.queues}

    async def look(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the present of each queue."""
        found: list[tuple[str, dict[str, Any]]] = []
        for name, queue in self.queues.items():
            try:
                found.append((name, await asyncio.to_thread(self._one, queue)))
            except Exception as error:
                if not isinstance(error, (QueueError, OSError)):
                    logger().exception("the queue %r cannot be looked at", name)
                found.append((name, {"up": False}))
        return found

    def _one(self, queue: RetryQueue) -> dict[str, Any]:
        stats, lanes = queue.stats(), queue.lanes()
        came, went = self._rates[queue.name].add(time.monotonic(), (stats.enqueued, stats.completed))
        waiting = {lane.lane: _waiting(lane.messages) for lane in lanes}
        drains = [lane.drain_seconds for lane in lanes if lane.drain_seconds is not None]
        return {
            "up": stats.store_up,
            "store": stats.store,
            "ready": stats.messages["ready"],
            "delayed": stats.messages["delayed"],
            "in_flight": stats.messages["in_flight"],
            "awaiting": stats.messages["awaiting_receipt"],
            "error": stats.messages["error"],
            "dead": stats.messages["dead"],
            "oldest": stats.oldest_message,
            "alert_after": queue.too_old,
            "rates": {"in": came, "out": went},
            "drain": max(drains, default=None),
            "held_by": {
                lane.lane: waiting[lane.lane] for lane in lanes if lane.breaker in _HOLDING and waiting[lane.lane]
            },
            "lanes": [
                {
                    "lane": lane.lane,
                    "breaker": lane.breaker,
                    "waiting": waiting[lane.lane],
                    "in_flight": lane.messages.get("sending", 0),
                    "dead": lane.messages.get("dead", 0) + lane.messages.get("error", 0),
                    "oldest": lane.oldest,
                    "hold": lane.hold,
                    "waits_for": lane.waits_for,
                    "drain": None if lane.drain_seconds is None else round(lane.drain_seconds),
                }
                for lane in lanes
            ],
        }


def _waiting(messages: dict[str, int]) -> int:
    return messages.get("waiting", 0) + messages.get("unknown_delivery", 0)


def message_of(message: Message, *, operator: bool) -> dict[str, Any]:
    """Return what may be shown of a message: no payload, and what the partner answered to operators only."""
    shown = {
        "seq": message.seq,
        "id": message.id,
        "lane": message.lane,
        "type": message.kind,
        "size": message.size,
        "state": message.state.value,
        "created": message.created,
        "deadline": message.deadline,
        "due": message.due,
        "attempts": message.attempts,
        "maybe_delivered": message.maybe_delivered,
    }
    return {**shown, "detail": message.last_detail} if operator else shown


def selection_of(data: dict[str, Any]) -> Selection:
    """
    Return which messages are meant.

    Raises:
        ValueError: A state is unknown.
    """
    states = frozenset(MessageState(state) for state in data.get("states") or ())
    return Selection(lane=data.get("lane"), states=states)


def carry_out(queue: RetryQueue, order: dict[str, Any], who: str) -> dict[str, Any]:
    """
    Carry out an order to a queue, in a thread of its own.

    Raises:
        QueueError: It was refused.
    """
    action, lane, reason = order["action"], str(order.get("lane")), order.get("reason") or ""
    if action == "pause":
        queue.hold(lane, until=order.get("ends_in"), note=reason, by=who)
        return {"done": 1}
    if action == "resume":
        queue.release(lane, note=reason, by=who)
        return {"done": 1}
    confirm = {"confirm": bool(order.get("confirm"))} if action == "resubmit" else {}
    deadline = order.get("deadline")
    if order.get("message") is not None:
        options = {} if action == "cancel" else {"deadline": deadline, **confirm}
        getattr(queue, action)(order["message"], reason=reason, by=who, **options)
        return {"done": 1}
    done = queue.bulk(
        action, selection_of(order["selection"]), expected=order["expected"], deadline=deadline,
        reason=reason, by=who, **confirm,
    )  # fmt: skip
    return {"done": done}
