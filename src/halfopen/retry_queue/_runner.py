"""The threads and tasks of a running queue."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from halfopen._runtime.clock import async_library

from ._caretaker import Caretaker
from ._dispatcher import Dispatcher
from ._store import Store
from ._workers import TaskWorkers, Threads

__all__ = ["Runner", "run_tasks"]


class Runner:
    """Dispatcher, upkeep and news from other processes, each on a thread."""

    def __init__(
        self,
        store: Store,
        dispatcher: Dispatcher,
        caretaker: Caretaker,
        changed: Callable[[set[str] | None], None],
        *,
        upkeep: float,
    ) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._caretaker = caretaker
        self._changed = changed
        self._upkeep = upkeep
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._workers: Threads | TaskWorkers | None = None

    @property
    def running(self) -> bool:
        """Whether `start` was called and `stop` was not."""
        return bool(self._threads)

    def start(self, workers: Threads | TaskWorkers) -> None:
        """Start dispatching to *workers*."""
        self._workers = workers
        self._stop.clear()
        self._dispatcher.restart()
        work: list[tuple[str, Callable[[], None]]] = [
            ("dispatch", lambda: self._dispatcher.run(workers)),
            ("upkeep", self._keep_up),
            ("watch", lambda: self._store.watch(self._changed, self._stop.wait)),
        ]
        for name, target in work:
            thread = threading.Thread(target=target, name=f"halfopen-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _keep_up(self) -> None:
        while True:
            self._caretaker.once()
            if self._stop.wait(self._upkeep):
                return

    def stop(self, grace: float) -> bool:
        """Claim nothing new, wait up to *grace* seconds for sends in flight; return whether all have ended."""
        self._dispatcher.stop()
        idle = self._dispatcher.wait_idle(grace)
        self.end()
        return idle

    def end(self) -> None:
        """End the threads."""
        self._dispatcher.stop()
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=5.0)
        self._threads.clear()
        if self._workers is not None:
            self._workers.close()


# Seconds for cancelled sends to settle; one that swallows its cancellation is left to its lease.
_LAST_WORDS = 5.0

Spawn = Callable[[Callable[..., Coroutine[Any, Any, None]], tuple[Any, ...]], None]


async def run_tasks(runner: Runner, dispatcher: Dispatcher, size: int, grace: float) -> None:
    """Run async senders in this event loop until cancelled; then let sends in flight end within *grace* seconds."""
    if async_library() is sys.modules.get("trio"):
        await _run_trio(runner, dispatcher, size, grace)
    else:
        await _run_asyncio(runner, dispatcher, size, grace)


async def _run_asyncio(runner: Runner, dispatcher: Dispatcher, size: int, grace: float) -> None:
    import asyncio

    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    def begin(function: Callable[..., Coroutine[Any, Any, None]], args: tuple[Any, ...]) -> None:
        task = loop.create_task(function(*args))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(lambda _: TaskWorkers.abandon(*args))

    def spawn(function: Callable[..., Coroutine[Any, Any, None]], args: tuple[Any, ...]) -> None:
        loop.call_soon_threadsafe(begin, function, args)

    async def finish() -> None:
        dispatcher.stop()
        until = loop.time() + grace
        while dispatcher.in_flight and loop.time() < until:
            await asyncio.sleep(0.01)
        while dispatcher.in_flight and loop.time() < until + _LAST_WORDS:
            for task in list(tasks):
                task.cancel()
            await asyncio.sleep(0.01)
        runner.end()

    runner.start(TaskWorkers(size, spawn))
    try:
        await asyncio.Event().wait()
    finally:
        ending = loop.create_task(finish())
        while not ending.done():
            # Whoever cancels may do so again and again; the end must come in good order all the same.
            with suppress(asyncio.CancelledError):
                await asyncio.shield(ending)


async def _run_trio(runner: Runner, dispatcher: Dispatcher, size: int, grace: float) -> None:
    import trio

    token = trio.lowlevel.current_trio_token()
    with trio.CancelScope(shield=True) as sends:
        async with trio.open_nursery() as nursery:

            def spawn(function: Callable[..., Coroutine[Any, Any, None]], args: tuple[Any, ...]) -> None:
                token.run_sync_soon(nursery.start_soon, function, *args)

            runner.start(TaskWorkers(size, spawn))
            try:
                # Only the waiting is cancelled from outside; the sends get their grace.
                sends.shield = False
                await trio.sleep_forever()
            finally:
                sends.shield = True
                dispatcher.stop()
                with trio.move_on_after(grace):
                    while dispatcher.in_flight:
                        await trio.sleep(0.02)
                nursery.cancel_scope.cancel()
        runner.end()
