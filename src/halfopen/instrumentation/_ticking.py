"""A daemon thread that does one thing every so many seconds, also in a forked child."""

from __future__ import annotations

import threading
from collections.abc import Callable

from halfopen._runtime.forking import renew_after_fork
from halfopen._runtime.late import logger

__all__ = ["Ticker"]


class Ticker:
    """
    Call *work* every *seconds*, on a thread of its own; what it raises is logged.

    Args:
        name: Of the thread.
        seconds: Between two calls.
        work: What to do.
    """

    def __init__(self, name: str, seconds: float, work: Callable[[], object]) -> None:
        self._name = name
        self._seconds = seconds
        self._work = work
        self._wanted = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        renew_after_fork(self)

    def start(self) -> None:
        """Begin; a no-op when it runs already."""
        self._wanted = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(self._stop,), name=self._name, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End, and wait for the work at hand, up to 5 s."""
        self._wanted = False
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5.0)
        self._stop = threading.Event()

    def _run(self, stop: threading.Event) -> None:
        while not stop.wait(self._seconds):
            try:
                self._work()
            except Exception:
                logger().exception("%s failed", self._name)

    def _renew(self) -> None:
        # Threads do not live on in a forked child.
        self._stop = threading.Event()
        self._thread = None
        if self._wanted:
            self.start()
