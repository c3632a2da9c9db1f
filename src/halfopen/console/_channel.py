"""Orders to breakers, and the run directory through which they reach other processes and their answers come back."""

from __future__ import annotations

import json
import os
import re
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from halfopen._core.states import State
from halfopen._runtime.late import logger
from halfopen.circuit_breaker import CircuitBreaker
from halfopen.console._looks import Looker, moves_of, settings_of
from halfopen.instrumentation._ticking import Ticker
from halfopen.instrumentation.workers import Workers
from halfopen.registry import Registry

__all__ = ["ACTIONS", "Member", "Order", "carry_out", "read_members", "write_order"]

_FORMAT = 1
_ORDER_LIVES = 30.0
"""Seconds after which an order that a process has not read is void: it would come as a surprise."""

ACTIONS: dict[str, State] = {
    "try_now": State.HALF_OPEN,
    "trip": State.OPEN,
    "force_open": State.FORCED_OPEN,
    "disable": State.DISABLED,
    "observe": State.METRICS_ONLY,
    "reset": State.CLOSED,
}
ENDING = frozenset({"force_open", "disable", "observe"})
"""Orders that may have an end time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """
    An order to one breaker in some processes.

    Attributes:
        epochs: What the operator saw: process → epoch.
        ends_in: Seconds; None: until another order. For ``trip``, the wait.
    """

    request_id: str
    action: str
    breaker: str
    reason: str | None
    by: str
    ends_in: float | None
    epochs: Mapping[str, int]


def carry_out(breaker: CircuitBreaker, order: Order, process: str) -> dict[str, Any]:
    """Obey, unless the breaker has moved since the operator looked; return what came of it."""
    now = breaker.snapshot()
    if now.epoch != order.epochs.get(process):
        return {"done": False, "state": str(now.state), "epoch": now.epoch}
    obey = getattr(breaker, order.action)
    if order.action in ENDING or order.action == "trip":
        obey(order.ends_in, reason=order.reason, by=order.by)
    else:
        obey(reason=order.reason, by=order.by)
    after = breaker.snapshot()
    return {"done": True, "state": str(after.state), "epoch": after.epoch}


class Member:
    """
    One worker process of several, seen and steered through a console elsewhere.

    It publishes how its breakers are into the run directory, also as metrics (see `instrumentation.workers`), and
    obeys the orders it finds there. Whoever may write to the directory can give orders, so it is made for its owner
    alone.

    ```python
    member = Member(registry, "/run/shop", name="web")    # in each worker, after the fork
    member.start()
    ```

    Args:
        registry: Whose breakers.
        directory: The run directory that the workers and the console share.
        name: Shown with the number of the slot: ``web-3``.
        interval: Seconds between two looks.
        worker: The slot, where something else numbers the workers.
    """

    def __init__(
        self,
        registry: Registry,
        directory: str | os.PathLike[str],
        *,
        name: str = "worker",
        interval: float = 1.0,
        worker: int | None = None,
    ) -> None:
        Path(directory).mkdir(mode=0o700, parents=True, exist_ok=True)
        self.registry = registry
        self.name = name
        self._workers = Workers(registry, directory, interval=interval, worker=worker)
        self._looker = Looker()
        self._acks: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._interval = interval
        self._published = 0.0
        self._ticker = Ticker("halfopen-console-member", min(interval, 0.25), self.tick)

    @property
    def id(self) -> str:
        """The name of this process on the console."""
        return f"{self.name}-{self._workers.worker}"

    def start(self) -> None:
        """Publish now and then at every interval, and obey."""
        self.publish()  # first, or the console would take this process for one that only publishes metrics
        self._workers.start()
        self._ticker.start()

    def stop(self) -> None:
        """Publish and obey no more; the console lists this process as gone."""
        self._ticker.stop()
        self._workers.stop()

    def tick(self) -> None:
        """Obey what has been ordered; publish when something was, or when it is time."""
        if self._obey() or time.monotonic() - self._published >= self._interval:
            self.publish()

    def publish(self) -> None:
        """Let the console know how the breakers are."""
        self._published = time.monotonic()
        slot, directory = self._workers.worker, self._workers.directory
        data = {
            "format": _FORMAT,
            "id": self.id,
            "at": time.time(),
            "interval": self._interval,
            "acks": dict(self._acks),
            "breakers": {breaker.name: self._told(breaker) for breaker in self.registry.breakers()},
        }
        fresh = directory / f".console-{slot}.{os.getpid()}.new"
        fresh.write_text(json.dumps(data, separators=(",", ":")), encoding="utf-8")
        fresh.replace(directory / f"console-{slot}.json")

    def _told(self, breaker: CircuitBreaker) -> dict[str, Any]:
        return {
            "tags": dict(breaker.tags),
            "settings": settings_of(breaker.settings),
            "look": self._looker.look(breaker),
            "moves": moves_of(breaker),
            "window": self._looker.window(breaker),
        }

    def _obey(self) -> bool:
        found = False
        for path in sorted(self._workers.directory.glob(f"order-*.for-{_safe(self.id)}.json")):
            order = _read_order(path)
            path.unlink(missing_ok=True)
            if order is not None and order.request_id not in self._acks:
                found = True
                self._acks[order.request_id] = self._one(order)
                while len(self._acks) > 50:
                    self._acks.popitem(last=False)
        return found

    def _one(self, order: Order) -> dict[str, Any]:
        for breaker in self.registry.breakers():
            if breaker.name == order.breaker and order.action in ACTIONS:
                return carry_out(breaker, order, self.id)
        return {"done": False, "state": None, "epoch": None}


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def _read_order(path: Path) -> Order | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        ordered = data.pop("at")
        return Order(**data) if time.time() - ordered < _ORDER_LIVES else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        logger().exception("%s is no order", path)
        return None


def write_order(directory: Path, order: Order, process: str) -> None:
    """Leave an order for another process."""
    name = f"order-{time.time_ns()}.for-{_safe(process)}.json"
    fresh = directory / f".{name}.new"
    fresh.write_text(json.dumps({**asdict(order), "epochs": dict(order.epochs), "at": time.time()}), encoding="utf-8")
    fresh.replace(directory / name)


def read_members(directory: Path) -> Iterator[dict[str, Any]]:
    """Return what each member has published last."""
    for path in sorted(directory.glob("console-*.json")):
        with suppress(OSError, ValueError):
            data = json.loads(path.read_text(encoding="utf-8"))
            if _is_member(data):
                data["slot"] = int(path.stem.removeprefix("console-"))
                yield data


def _is_member(data: Any) -> bool:
    """Say whether this is what `Member.publish` writes, and not half of it or another version's."""
    if not isinstance(data, dict) or cast("dict[str, Any]", data).get("format") != _FORMAT:
        return False
    wanted: dict[str, Any] = {"id": str, "at": (int, float), "interval": (int, float), "breakers": dict, "acks": dict}
    return all(isinstance(cast("dict[str, Any]", data).get(name), kind) for name, kind in wanted.items())
