"""The task that looks, bundles what changed, and sends it to every page; slow pages are let go."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from halfopen._core.events import CircuitTransitioned
from halfopen._core.gcra import Gcra
from halfopen._runtime.late import logger
from halfopen.console._audit import AuditLog
from halfopen.console._channel import ACTIONS, Order
from halfopen.console._collecting import Collector
from halfopen.console._picture import Picture
from halfopen.console._queues import QueueLook
from halfopen.console._sources import Local, Report, RunDirectory

__all__ = ["Client", "Hub"]

MOST_PATCHES = 5
"""Patches in a second, in the long run."""
AT_ONCE = 2
"""Patches without a pause after a quiet time; further ones come a fifth of a second apart, so no move waits longer."""
LOOK = 0.5
"""Seconds between two looks at what is on trial, so that moves find room among the patches."""
SWEEP = 1.0
"""Seconds between two looks at everything."""
LIVE = 50
"""Breakers on trial that are looked at between two sweeps."""
DIRECTORY_EVERY = 0.5
QUEUES_EVERY = 2.0
QUEUES_AFTER_A_MOVE = 0.5
"""Seconds between two looks at the queues while a move is no older than one turn of theirs."""
CLIENT_QUEUE = 64

_ON_TRIAL = frozenset({"half_open", "recovering"})
_ACTION_OF = {state.value: action for action, state in ACTIONS.items()}


class Client:
    """One page: a bounded line of events; when it is full the stream ends, and the page comes back."""

    def __init__(self, size: int = CLIENT_QUEUE) -> None:
        self.line: asyncio.Queue[bytes] = asyncio.Queue(size)
        self.ended = asyncio.Event()

    def put(self, event: bytes) -> None:
        """Send an event, or end the stream if too many wait."""
        try:
            self.line.put_nowait(event)
        except asyncio.QueueFull:
            self.ended.set()


def _moves_of(told: dict[str, Any]) -> list[list[Any]]:
    moves: list[list[Any]] = told["moves"]
    return moves


class Hub:
    """One for each console: the picture, the pages, and the task between them."""

    def __init__(
        self, picture: Picture, local: Local | None, directory: RunDirectory | None, queues: QueueLook, audit: AuditLog
    ) -> None:
        self.picture = picture
        self.local = local
        self.directory = directory
        self.queues = queues
        self.audit = audit
        self.collector = Collector(picture, self._ordered_elsewhere)
        self.clients: set[Client] = set()
        self._acks: dict[tuple[str, str], tuple[Order, asyncio.Future[dict[str, Any]]]] = {}
        self.dropped = 0
        self.abort: Callable[[Any], object] = lambda client: None  # cuts a connection off, where the server can
        self._dirty: set[str] = set()
        self._wake = asyncio.Event()
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._swept = self._read = self._queued = self._looked = -1e9
        self._pace = Gcra(MOST_PATCHES, 1.0, AT_ONCE)
        self._unsubscribe: Any = None
        self._writing: set[asyncio.Future[None]] = set()  # asyncio keeps no strong reference

    # Life

    async def start(self) -> None:
        """Begin to look, unless it does already; return when there is a first picture."""
        if self._task is not None and not self._task.done():
            await self._ready.wait()
            return
        self._ready = asyncio.Event()
        loop = asyncio.get_running_loop()
        if self.local is not None:

            def moved(event: CircuitTransitioned) -> None:
                with suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(self.touch, event.name)

            self._unsubscribe = self.local.registry.subscribe(moved, CircuitTransitioned)
        self._task = asyncio.create_task(self._run(), name="halfopen-console")
        await self._ready.wait()

    async def stop(self) -> None:
        """Look no more, and end every stream."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        # Not cancelled: before Python 3.12, wait_for swallows that when what it waits for comes at the same moment.
        task, self._task = self._task, None
        self._wake.set()
        if task is not None:
            await task
        self.end_streams()

    def end_streams(self) -> None:
        """End every stream; the pages come back."""
        for client in self.clients:
            client.ended.set()

    def touch(self, name: str) -> None:
        """Look at one breaker as soon as the bundle allows."""
        self._dirty.add(name)
        self._wake.set()

    async def _run(self) -> None:
        while self._task is not None:
            try:
                await self._turn()
            except Exception:
                logger().exception("the console could not look")
                await asyncio.sleep(SWEEP)
            self._ready.set()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), LOOK)
            self._wake.clear()
            await asyncio.sleep(max(self._pace.due(time.monotonic()) - time.monotonic(), 0.0))

    async def _turn(self) -> None:
        now = time.monotonic()
        sweep = now - self._swept >= SWEEP
        if self.directory is not None and (now - self._read >= DIRECTORY_EVERY or sweep):
            self._read = now
            await self._look_elsewhere(sweep)
        if self.local is not None:
            await self._look_here(sweep)
        if self._queues_are_due(now):
            self._queued = now
            await self._look_at_queues()
        if sweep:
            self._swept = now
        if sweep or self.picture.changed:
            self.publish()

    def publish(self) -> None:
        """Send what has changed."""
        event = self.picture.patch()
        self._pace.take(time.monotonic())
        for client in list(self.clients):
            if not client.ended.is_set():
                client.put(event)
                self.dropped += client.ended.is_set()
        self.picture.pages = {"watching": len(self.clients), "let_go": self.dropped}

    # Looking

    async def _look_here(self, sweep: bool) -> None:
        local = self.local
        assert local is not None
        dirty, self._dirty = self._dirty, set()
        if sweep:
            known = local.breakers()
            for name in self.collector.names(local.id) - known.keys():
                self.collector.forget(name, local.id)
            self.collector.process(local.id, 0.0, False, "here")
            names = list(known)
        else:
            names = list(dirty | self._live())
        for number, name in enumerate(names):
            self._look_at(name, remember=sweep)
            if number % 25 == 24:
                await asyncio.sleep(0)

    def _live(self) -> set[str]:
        now = time.monotonic()
        if not self.clients or now - self._looked < LOOK - 0.02:
            return set()
        self._looked = now
        keys = self.picture.keys("breaker")
        unquiet = [key[1] for key in keys if (self.picture.get(key) or {}).get("state") in _ON_TRIAL]
        return set(unquiet[:LIVE])

    def _look_at(self, name: str, *, remember: bool) -> None:
        local = self.local
        breaker = None if local is None else local.find(name)
        if local is None or breaker is None:
            return
        told = local.told(breaker)
        self.collector.member(name, local.id, told, lambda: local.moves(name))
        self.collector.breaker(name, remember=remember)

    def look_now(self, name: str) -> None:
        """Look at one breaker of this process at once."""
        self._look_at(name, remember=False)
        self._wake.set()

    async def _look_elsewhere(self, sweep: bool) -> None:
        assert self.directory is not None
        began = time.monotonic()
        try:
            reports = await asyncio.to_thread(self.directory.read)
        except OSError:
            logger().exception("the run directory cannot be read")
            self.picture.put(("store",), {"kind": "run directory", "up": False, "latency": None})
            return
        latency = round(time.monotonic() - began, 2)
        self.picture.put(("store",), {"kind": "run directory", "up": True, "latency": latency})
        touched: set[str] = set()
        for report in reports:
            touched |= self._take(report, sweep)
        for name in touched:
            self.collector.breaker(name, remember=sweep)

    def _take(self, report: Report, sweep: bool) -> set[str]:
        for request_id, ack in report.acks.items():
            self._acknowledge(report.id, request_id, ack)
        self.collector.process(report.id, report.age, report.gone, report.channel)
        names = self.collector.names(report.id)
        for name in names - report.breakers.keys():
            self.collector.forget(name, report.id)
        for name, told in report.breakers.items():
            fetch = partial(_moves_of, told) if "moves" in told else None
            self.collector.member(name, report.id, told, fetch)
        return set(report.breakers)

    def _acknowledge(self, process: str, request_id: str, ack: dict[str, Any]) -> None:
        order, waiting = self._acks.pop((request_id, process), (None, None))
        if order is not None and waiting is not None and not waiting.done():
            self.obeyed(order, process, ack)
            waiting.set_result(ack)

    def expect(self, order: Order, process: str) -> asyncio.Future[dict[str, Any]]:
        """Return what will hold the answer of another process."""
        while len(self._acks) > 1000:
            self._acks.pop(next(iter(self._acks)))
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._acks[order.request_id, process] = (order, future)
        return future

    def obeyed(self, order: Order, process: str, result: dict[str, Any]) -> None:
        """Take note that a move to come is the doing of this console."""
        if result["done"]:
            self.collector.ours.add((order.breaker, process, result["epoch"]))

    def late(self, order: Order, process: str, entry: dict[str, Any]) -> None:
        """Complete the audit entry when a process answers after all."""
        _, future = self._acks.get((order.request_id, process), (None, None))
        if future is not None:
            future.add_done_callback(lambda done: self._complete(done, process, entry))

    def _complete(self, done: asyncio.Future[dict[str, Any]], process: str, entry: dict[str, Any]) -> None:
        if not done.cancelled():
            after: dict[str, Any] = {**(entry.get("after") or {}), process: done.result()["state"]}
            self._in_background(self._result(entry, after))

    async def _result(self, entry: dict[str, Any], after: dict[str, Any]) -> None:
        await asyncio.to_thread(self.audit.result, entry, after=after)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    def _queues_are_due(self, now: float) -> bool:
        """Lanes begin and cease to wait with the moves of their breakers, and their dispatchers a little later."""
        moved = self.collector.moved_at
        every = QUEUES_AFTER_A_MOVE if now - moved < QUEUES_EVERY else QUEUES_EVERY
        return self._queued <= moved or now - self._queued >= every

    async def _look_at_queues(self) -> None:
        for name, fields in await self.queues.look():
            self.picture.put(("queue", name), fields)

    def _ordered_elsewhere(self, name: str, process: str, move: list[Any]) -> None:
        """Write an order from code, or from another console, into the audit log as well."""
        facts = {
            "who": move[8] or "code",
            "source": "code",
            "action": _ACTION_OF.get(move[2], move[2]),
            "target": name,
            "scope": [process],
            "reason": move[7],
            "ends_at": None,
            "before": {process: move[1]},
            "after": {process: move[2]},
            "request_id": None,
        }

        async def write() -> None:
            try:
                entry = await asyncio.to_thread(self.audit.order, **facts)
            except OSError:
                logger().exception("an order from code is not in the audit log")
            else:
                self.collector.happened("audit", breaker=name, entry=entry)

        self._in_background(write())
