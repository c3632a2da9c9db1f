"""
Run calls on a bounded number of daemon threads, so that a caller can stop waiting for one.

Nothing in Python can stop a thread. One whose caller has left goes on until its function returns, and holds its place
in the bound until then. Daemon threads, because a hung one must not keep the interpreter from ending.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from enum import Enum
from typing import Any

from halfopen._runtime.clock import Clock
from halfopen._runtime.waiting import ThreadWaker

__all__ = ["Job", "JobState", "WorkerThreads"]

IDLE_SECONDS = 10.0
"""After so long without work a thread ends."""


class JobState(Enum):
    """Where a job stands."""

    NEW = "new"
    RUNNING = "running"
    DONE = "done"
    GIVEN_UP = "given up"
    WITHDRAWN = "withdrawn"


class Job:
    """One call on a worker thread: settled by the thread or given up by the caller, whichever comes first."""

    __slots__ = ("_context", "_error", "_fn", "_result", "_threads", "_waker", "state")

    def __init__(self, threads: WorkerThreads, fn: Callable[[], Any]) -> None:
        self._threads = threads
        self._fn = fn
        self._context = copy_context()
        self._waker = ThreadWaker()
        self._result: Any = None
        self._error: BaseException | None = None
        self.state = JobState.NEW

    def run(self) -> None:
        """Make the call, on the worker thread."""
        if not self._threads.begin(self):
            return
        try:
            self._result = self._context.run(self._fn)
        except BaseException as error:
            self._error = error
        self._threads.settle(self)
        self._waker.wake()

    def wait(self, clock: Clock, until: float) -> bool:
        """Wait until the call is over or *clock* reads *until*, and give it up then; say whether it is over."""
        try:
            self._waker.wait(clock, until)
        finally:
            self._threads.leave(self)
        return self.state is JobState.DONE

    def outcome(self) -> Any:
        """Return or raise what the call did."""
        error, self._error = self._error, None
        if error is None:
            return self._result
        try:
            raise error
        finally:
            del error


class WorkerThreads:
    """
    At most *limit* threads; started when needed, kept for a while.

    Attributes:
        running: Calls under way, with those that were given up.
        given_up: Calls under way whose caller has left.
        given_up_total: All calls so far whose caller left.
    """

    __slots__ = ("_idle", "_lock", "given_up", "given_up_total", "limit", "running")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.given_up_total = 0
        self.after_fork()

    def after_fork(self) -> None:
        """Begin anew in a child process, where the threads do not exist."""
        self._lock = threading.RLock()  # reentrant: a signal handler or a finalizer may come between
        self._idle: list[_Worker] = []
        self.running = self.given_up = 0

    def submit(self, fn: Callable[[], Any], name: str) -> Job | None:
        """Begin a call in a copy of the present context; None if every thread is taken."""
        job = Job(self, fn)
        worker = None
        counted = False
        try:
            with self._lock:
                # Without a call in between: an interrupt would lose the worker.
                if self.running >= self.limit:
                    return None
                self.running += 1
                counted = True
                if self._idle:
                    worker = self._idle[-1]
                    del self._idle[-1]
                    worker.job = job
            if worker is None:
                _Worker(self, job).start(name)
            else:
                worker.call()
        except BaseException:
            if counted:
                self._withdraw(job)
            if worker is not None:
                worker.call()
            raise
        return job

    def begin(self, job: Job) -> bool:
        """Say on the worker thread whether to make the call: it is still wanted, or was when its caller left."""
        with self._lock:
            if job.state is JobState.NEW:
                job.state = JobState.RUNNING
            return job.state is not JobState.WITHDRAWN

    def _withdraw(self, job: Job) -> None:
        with self._lock:
            if job.state is JobState.NEW:
                job.state = JobState.WITHDRAWN
                self.running -= 1

    def settle(self, job: Job) -> None:
        """Take note that the function of *job* has ended."""
        with self._lock:
            self.running -= 1
            if job.state is JobState.GIVEN_UP:
                self.given_up -= 1
            else:
                job.state = JobState.DONE

    def leave(self, job: Job) -> None:
        """Take note that the caller of *job* waits no longer."""
        with self._lock:
            if job.state is JobState.NEW or job.state is JobState.RUNNING:
                job.state = JobState.GIVEN_UP
                self.given_up += 1
                self.given_up_total += 1

    def rest(self, worker: _Worker) -> None:
        """Let *worker* be found by the next call."""
        with self._lock:
            self._idle.append(worker)

    def dismiss(self, worker: _Worker) -> bool:
        """Say whether *worker* may end: nobody has just chosen it for a call."""
        with self._lock:
            try:
                self._idle.remove(worker)
            except ValueError:
                return False
        return True


class _Worker:
    __slots__ = ("_called", "_threads", "job")

    def __init__(self, threads: WorkerThreads, job: Job) -> None:
        self._threads = threads
        self.job: Job | None = job
        # No semaphore: that is Python code, and an interrupt in it would leave its own lock held.
        self._called = threading.Lock()
        self._called.acquire()

    def start(self, name: str) -> None:
        threading.Thread(target=self._work, name=f"halfopen-{name}", daemon=True).start()

    def call(self) -> None:
        with suppress(RuntimeError):  # it has been called
            self._called.release()

    def _work(self) -> None:
        while True:
            job, self.job = self.job, None
            if job is not None:
                job.run()
                # Kept here it would keep the call's arguments and result alive while the thread is idle.
                del job
            self._threads.rest(self)
            if not self._called.acquire(timeout=IDLE_SECONDS):
                if self._threads.dismiss(self):
                    return
                # Chosen just as the time ran out: the job is on its way.
                self._called.acquire()
