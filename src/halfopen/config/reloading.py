"""The file a registry was made from, and the three occasions to read it again: an order, a signal, a change."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from halfopen._core.checking import Checks
from halfopen._runtime.forking import renew_after_fork
from halfopen.config.applying import Changes, apply
from halfopen.config.configuration import Configuration
from halfopen.config.loading import load
from halfopen.errors import ConfigError

if TYPE_CHECKING:
    from halfopen.registry import Registry

__all__ = ["Source"]

_log = logging.getLogger("halfopen")


class Source:
    """
    The file that counts in a registry.

    Attributes:
        path: The file.
        configuration: What of it is in force; None before it was read.
        followers: Who else reads the file, such as a gateway: each is told its path, may raise a `ConfigError`, and
            returns what puts its part in force once the policies are.
    """

    def __init__(
        self, registry: Registry, path: str | os.PathLike[str], names: Mapping[str, Any], before: Source | None
    ) -> None:
        self._registry = registry
        self.path = os.fspath(path)
        self._names = names
        self._seen: Any = None
        self.configuration: Configuration | None = None if before is None else before.configuration
        self.followers: list[Callable[[str], Callable[[], object]]] = [] if before is None else before.followers
        self._renew()
        renew_after_fork(self)

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._asked = False

    def read_again(self) -> Changes:
        """
        Read the file and put it in force.

        Raises:
            ConfigError: Something is wrong; every mistake is named, and nothing has changed.
        """
        with self._lock:
            self._asked = False
            self._seen = self._look()
            new = load(self.path, names=self._names)
            steps = [follow(self.path) for follow in self.followers]
            changes = apply(new, self._registry, self.configuration)
            self.configuration = new
            for step in steps:
                step()
        return changes

    def watch(self, every: float) -> Callable[[], None]:
        """Read the file again when it has changed; return what ends that."""
        checks = Checks()
        checks.seconds("every", every)
        checks.done()
        ended = threading.Event()

        def run() -> None:
            while not ended.wait(every):
                source = self._present()
                if source._look() != source._seen:
                    source.try_again("it has changed")

        threading.Thread(target=run, name="halfopen-reload", daemon=True).start()
        return ended.set

    def on_sighup(self) -> Callable[[], None]:
        """Read the file again on SIGHUP; return what ends that."""
        before = signal.getsignal(signal.SIGHUP)
        ended = threading.Event()

        def reload(number: int, frame: Any) -> None:
            if not ended.is_set():
                self._present().ask()
            if callable(before):
                before(number, frame)

        def end() -> None:
            ended.set()  # for a handler that was put over ours, and calls it
            if signal.getsignal(signal.SIGHUP) is reload:
                _restore(before)

        signal.signal(signal.SIGHUP, reload)
        return end

    def ask(self) -> None:
        """Read the file again soon, once for however many ask until then; for signal handlers."""
        if self._asked:
            return
        self._asked = True
        # A thread, because the signal may have interrupted one that holds a lock we need.
        thread = threading.Thread(target=self.try_again, args=("on SIGHUP",), name="halfopen-reload", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads; the handler must not raise into whatever it interrupted
            self._asked = False
            _log.exception("%s was not reloaded (on SIGHUP)", self.path)

    def try_again(self, why: str) -> bool:
        """Read the file again; log what came of it, and return whether it is in force."""
        try:
            changes = self.read_again()
        except ConfigError as error:
            _log.error("%s was not reloaded (%s), and the settings before stay in force: %s", self.path, why, error)
            return False
        except Exception:
            _log.exception("%s was not reloaded (%s), and the settings before stay in force", self.path, why)
            return False
        _log.info("%s was reloaded (%s): %s", self.path, why, changes)
        return True

    def _present(self) -> Source:
        """Return the file that counts now: another one may have been loaded since."""
        present: Source = self._registry._loaded()
        return present

    def _look(self) -> Any:
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def _restore(before: Any) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL if before is None else before)
