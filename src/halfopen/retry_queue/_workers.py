"""Who sends: threads, an asyncio loop, trio, or the caller itself."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from ._delivery import Attempt, Delivery
from ._reports import Report, Verdict

__all__ = ["Inline", "TaskWorkers", "Threads"]

_LOG = logging.getLogger("halfopen.retry_queue")


class Inline:
    """Sends in the caller's thread: for tests and single steps."""

    def launch(self, attempt: Attempt, done: Callable[[], None]) -> None:
        """Run *attempt* at once."""
        try:
            attempt.run()
        finally:
            done()


class Threads:
    """Up to *size* daemon threads, started when needed."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._jobs: queue.SimpleQueue[tuple[Callable[[], None], Callable[[], None]] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._lock = threading.Lock()

    def launch(self, attempt: Attempt, done: Callable[[], None]) -> None:
        """Run *attempt* on a thread."""
        self.submit(attempt.run, done)

    def submit(self, job: Callable[[], None], done: Callable[[], None]) -> None:
        """
        Run *job* on a thread, then *done*.

        Raises:
            RuntimeError: Not even one thread can be started.
        """
        with self._lock:
            if self._idle <= self._jobs.qsize() and len(self._threads) < self._size:
                self._add()
        self._jobs.put((job, done))

    def _add(self) -> None:
        thread = threading.Thread(target=self._run, name=f"halfopen-send-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has none left; those that run do the work
            if not self._threads:
                raise
            return
        self._threads.append(thread)

    def close(self) -> None:
        """End the threads once their jobs are done; does not wait for them."""
        for _ in self._threads:
            self._jobs.put(None)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            job = self._jobs.get()
            with self._lock:
                self._idle -= 1
            if job is None:
                return
            try:
                job[0]()
            except BaseException:
                _LOG.exception("a send of the retry queue ended badly")
            finally:
                job[1]()


class TaskWorkers:
    """
    Runs async senders as tasks; payloads are loaded and verified on threads, so that the event loop never reads a disk.

    Args:
        spawn: Starts a coroutine function with arguments as a task of the loop; callable from any thread.
    """

    def __init__(
        self, size: int, spawn: Callable[[Callable[..., Coroutine[Any, Any, None]], tuple[Any, ...]], None]
    ) -> None:
        self._threads = Threads(size)
        self._spawn = spawn

    def launch(self, attempt: Attempt, done: Callable[[], None]) -> None:
        """Load on a thread, send as a task."""

        def prepare() -> None:
            delivery = attempt.prepare()
            if isinstance(delivery, Report):
                attempt.lane.results.settle(attempt, delivery)
                done()
                return
            try:
                self._spawn(self._send, (attempt, delivery, done))
            except BaseException:
                done()
                raise

        self._threads.submit(prepare, lambda: None)

    async def _send(self, attempt: Attempt, delivery: Delivery, done: Callable[[], None]) -> None:
        try:
            await attempt.arun(delivery)
        finally:
            done()

    @staticmethod
    def abandon(attempt: Attempt, delivery: Delivery, done: Callable[[], None]) -> None:
        """Give back an attempt whose task was cancelled before it ran."""
        if not attempt.settled:
            attempt.lane.results.settle(attempt, Report(Verdict.NOT_SENT, "stopped"))
            done()

    def close(self) -> None:
        """End the loading threads."""
        self._threads.close()
