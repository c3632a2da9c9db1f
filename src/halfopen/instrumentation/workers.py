"""
The metrics of a server with several worker processes: each publishes a file, and any of them serves all.

```python
workers = Workers(registry, "/run/shop")    # in each worker, after the fork
workers.start()
app = prometheus.wsgi_app(workers.scrape)
```

A worker is a slot number, never a pid: a worker that is started again takes the place of the one that went, and its
counters begin anew, which Prometheus takes for a restart. Gauges of different workers are never added up; each series
has the label ``worker``.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import finalize

from halfopen._core.checking import Checks
from halfopen._runtime.forking import renew_after_fork
from halfopen._runtime.late import logger
from halfopen.instrumentation._samples import Scrape, from_plain, to_plain
from halfopen.instrumentation._ticking import Ticker
from halfopen.instrumentation.metrics import Metrics, metrics_of
from halfopen.registry import Registry

__all__ = ["Published", "Workers", "merged", "published"]

_FORMAT = 1
_INTERVALS_ALIVE = 3
_MOST_WORKERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """
    What one worker has published.

    Attributes:
        worker: Its slot.
        pid: Its process, for people.
        at: Unix time of the look.
        interval: Seconds between two looks.
        gone: Whether it has missed three of them.
        breakers: The plain data of each `Snapshot`, for a console.
        metrics: The plain data of its metrics.
    """

    worker: int
    pid: int
    at: float
    interval: float
    gone: bool
    breakers: list[dict[str, Any]]
    metrics: list[Any]


class Workers:
    """
    One worker among several.

    Args:
        source: The registry of this process, or its `Metrics`.
        directory: The run directory that the workers share, on a local disk; made if it is missing.
        interval: Seconds between two looks; a worker that has missed three is gone.
        worker: The slot, where something else numbers the workers; else the first free one is taken.

    Raises:
        ConfigError: A setting is out of its range.
    """

    def __init__(
        self,
        source: Registry | Metrics,
        directory: str | os.PathLike[str],
        *,
        interval: float = 5.0,
        worker: int | None = None,
    ) -> None:
        checks = Checks()
        checks.seconds("interval", interval)
        checks.whole("worker", worker, 0, _MOST_WORKERS, optional=True)
        checks.done()
        self.metrics = metrics_of(source) if isinstance(source, Registry) else source
        self.directory = Path(directory)
        self.interval = interval
        self._wanted = worker
        self._publishing = threading.Lock()
        self._slot: int | None = None
        self._release: finalize[[int], Workers] | None = None
        self._ticker = Ticker("halfopen-worker-snapshots", interval, self.publish)
        renew_after_fork(self)

    @property
    def worker(self) -> int:
        """The slot of this process, taken when it is first asked for."""
        if self._slot is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._slot, lock = _take_slot(self.directory, self._wanted)
            self._release = None if lock is None else finalize(self, os.close, lock)
        return self._slot

    def start(self) -> None:
        """Publish now, and then at every interval."""
        self.publish()
        self._ticker.start()

    def stop(self) -> None:
        """Publish no more, take back what was published, and free the slot."""
        self._ticker.stop()
        if self._slot is not None:
            with suppress(OSError):
                self._file(self._slot).unlink()
            self._slot = None
        if self._release is not None:
            self._release()
            self._release = None

    def publish(self) -> None:
        """Look at the policies of this process, and let the other processes know."""
        with self._publishing:
            self._publish(self.worker)

    def _publish(self, slot: int) -> None:
        data = {
            "format": _FORMAT,
            "worker": slot,
            "pid": os.getpid(),
            "at": time.time(),
            "interval": self.interval,
            "metrics": to_plain(self.metrics.scrape()),
            "breakers": [snapshot.plain() for snapshot in self.metrics.registry.snapshots()],
        }
        fresh = self.directory / f".worker-{slot}.{os.getpid()}.new"
        fresh.write_text(json.dumps(data, separators=(",", ":")), encoding="utf-8")
        fresh.replace(self._file(slot))

    def scrape(self) -> Scrape:
        """Publish, and return the metrics of all workers that are not gone."""
        self.publish()
        return merged(self.directory)

    def _file(self, slot: int) -> Path:
        return self.directory / f"worker-{slot}.json"

    def _renew(self) -> None:
        self._publishing = threading.Lock()
        # A forked child is a worker of its own. The lock belongs to the open file, which it shares with its parent:
        # closing it here leaves the slot to the parent alone.
        if self._release is not None:
            self._release()
        self._slot = self._release = None


def _take_slot(directory: Path, wanted: int | None) -> tuple[int, int | None]:
    """Take a slot, and the file that keeps it; the system frees it when this process ends, however it ends."""
    if wanted is not None:
        return wanted, None
    try:
        import fcntl
    except ImportError:
        raise RuntimeError("this system has no file locks; say worker=, a number for each process") from None
    for slot in range(_MOST_WORKERS):
        # flock and not lockf: two in one process keep each other out as well.
        file = os.open(directory / f".worker-{slot}.lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            continue
        return slot, file
    raise RuntimeError(f"{_MOST_WORKERS} workers are at {directory} already")


def published(directory: str | os.PathLike[str], *, now: float | None = None) -> list[Published]:
    """
    Return what the workers have published, by slot; those that are gone are marked.

    Args:
        directory: The run directory.
        now: The present Unix time, for tests.
    """
    moment = time.time() if now is None else now
    return sorted(_read_all(Path(directory), moment), key=lambda one: one.worker)


def _read_all(directory: Path, now: float) -> Iterator[Published]:
    for path in directory.glob("worker-*.json"):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            if data.pop("format") == _FORMAT:
                # Far ahead as well: it was written before somebody set the clock back.
                gone = abs(now - data["at"]) > _INTERVALS_ALIVE * data["interval"]
                yield Published(gone=gone, **data)
        except FileNotFoundError:
            continue  # its worker has just stopped
        except (OSError, ValueError, KeyError, TypeError):
            logger().exception("%s is no snapshot of a worker", path)


def merged(directory: str | os.PathLike[str], *, now: float | None = None) -> Scrape:
    """
    Return the metrics of all workers that are not gone, each series with the label ``worker``.

    Args:
        directory: The run directory.
        now: The present Unix time, for tests.
    """
    total = Scrape([])
    for one in published(directory, now=now):
        if not one.gone:
            scrape = from_plain(one.metrics, (("worker", str(one.worker)),))
            total.headers = {**scrape.headers, **total.headers}
            total.parts += scrape.parts
    return total
