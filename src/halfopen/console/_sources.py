"""Where the numbers come from: the breakers of this process, and what other processes have published."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from halfopen.circuit_breaker import CircuitBreaker
from halfopen.console._channel import read_members
from halfopen.console._looks import Looker, from_published, moves_of, settings_of
from halfopen.instrumentation.workers import published
from halfopen.registry import Registry
from halfopen.retry_queue import RetryQueue

__all__ = ["Local", "Report", "RunDirectory"]

_MISSED = 3
"""Intervals without a word after which a process is gone."""


@dataclass(slots=True)
class Report:
    """
    What is known of one process.

    Attributes:
        age: Seconds since it looked.
        channel: How orders reach it: ``here``, ``directory`` or None.
        breakers: Name → ``tags``, ``settings``, ``look``, and perhaps ``moves`` and ``window``.
    """

    id: str
    age: float
    gone: bool
    channel: str | None
    breakers: dict[str, dict[str, Any]]
    acks: dict[str, Any] = field(default_factory=dict)


class Local:
    """The breakers of this process: of a registry, and those before the lanes of its retry queues."""

    def __init__(self, registry: Registry, queues: Iterable[RetryQueue], name: str | None) -> None:
        self.registry = registry
        self.queues = tuple(queues)
        self.id = name or f"{socket.gethostname().partition('.')[0]}-{os.getpid()}"
        self._looker = Looker()
        self._settings: dict[str, tuple[Any, dict[str, Any]]] = {}
        self._known: dict[str, CircuitBreaker] = {}

    def breakers(self) -> dict[str, CircuitBreaker]:
        """Return them by name; the registry's come first where a lane has the same name."""
        found = {breaker.name: breaker for queue in self.queues for breaker in queue.breakers()}
        found |= {breaker.name: breaker for breaker in self.registry.breakers()}
        self._looker.forget(self._known.keys() - found.keys())
        self._known = found
        return found

    def find(self, name: str) -> CircuitBreaker | None:
        """Return one of them, as of the last `breakers`."""
        return self._known.get(name)

    def told(self, breaker: CircuitBreaker) -> dict[str, Any]:
        """Return the present of one breaker."""
        kept = self._settings.get(breaker.name)
        if kept is None or kept[0] is not breaker.settings:
            kept = self._settings[breaker.name] = (breaker.settings, settings_of(breaker.settings))
        return {"tags": dict(breaker.tags), "settings": kept[1], "look": self._looker.look(breaker)}

    def moves(self, name: str) -> list[list[Any]]:
        """Return the last moves of one breaker."""
        breaker = self.find(name)
        return [] if breaker is None else moves_of(breaker)

    def window(self, name: str) -> dict[str, Any] | None:
        """Return the window of one breaker, call by call."""
        breaker = self.find(name)
        return None if breaker is None else self._looker.window(breaker)


class RunDirectory:
    """Other processes, through the run directory in which they publish; those that vanished are remembered as gone."""

    def __init__(self, directory: str | os.PathLike[str], *, remember: float = 86_400.0) -> None:
        self.directory = Path(directory)
        self._remember = remember
        self._last: dict[str, tuple[float, Report]] = {}

    def read(self) -> list[Report]:
        """Return what each process has published last."""
        now = time.time()
        members = {data["slot"]: data for data in read_members(self.directory)}
        fresh = {report.id: report for report in self._fresh(members, now)}
        for slot in members:
            self._last.pop(f"worker-{slot}", None)
        for name, (at, report) in list(self._last.items()):
            if name not in fresh and now - at < self._remember:
                report.gone, report.age, report.channel = True, now - at, None
                fresh[name] = report
        self._last = {name: (now - report.age, report) for name, report in fresh.items()}
        return [fresh[name] for name in sorted(fresh)]

    def _fresh(self, members: dict[int, dict[str, Any]], now: float) -> Iterable[Report]:
        for data in members.values():
            # Far ahead as well: it was written before somebody set the clock back.
            gone = abs(now - data["at"]) > _MISSED * data["interval"] + 1.0
            channel = None if gone else "directory"
            yield Report(data["id"], max(now - data["at"], 0.0), gone, channel, data["breakers"], data["acks"])
        for one in published(self.directory, now=now):
            if one.worker not in members:
                breakers = {each["name"]: _told(each) for each in one.breakers}
                yield Report(f"worker-{one.worker}", max(now - one.at, 0.0), one.gone, None, breakers)


def _told(snapshot: dict[str, Any]) -> dict[str, Any]:
    look, settings = from_published(snapshot)
    return {"tags": snapshot["tags"], "settings": settings, "look": look}
