"""What is exposed beside a registry's policies: queues, stores and gateways, each asked for its numbers at a scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from halfopen._runtime.late import logger
from halfopen.instrumentation._gateway_metrics import DOOR_METRICS, GATEWAY_METRICS, bounded, door_of
from halfopen.instrumentation._metric import View
from halfopen.instrumentation._queue_metrics import QUEUE_METRICS, STORE_METRICS
from halfopen.instrumentation._samples import Layout, Numbers

__all__ = ["Sources"]

_Part = tuple[Layout, Numbers]


class Sources:
    """
    Queues, stores and gateways; one that raises is left out of a scrape, and the log says so.

    Args:
        max_names: Partners of gateways that get series of their own.
    """

    def __init__(self, max_names: int) -> None:
        self._max_names = max_names
        self._kinds: dict[str, list[Any]] = {"queue": [], "store": [], "gateway": []}

    def add(self, kind: str, source: Any) -> Callable[[], None]:
        """Add a source, once; return what takes it away again."""
        sources = self._kinds[kind]
        if not any(one is source for one in sources):
            sources.append(source)

        def end() -> None:
            sources[:] = [one for one in sources if one is not source]

        return end

    def see(self) -> tuple[list[_Part], int]:
        """Return the series of all of them, and how many partners have none of their own."""
        gateways, unnamed = self._of_gateways()
        return [*self._of_queues(), *gateways], unnamed

    def _of_queues(self) -> Iterator[_Part]:
        queues = _by_name("queue", self._kinds["queue"])
        stores = _by_name("store", self._kinds["store"])
        for name, numbers in queues.items():
            yield View(QUEUE_METRICS, (("queue", name),)).see(numbers)
        for name, known in stores.items():
            yield View(STORE_METRICS, (("store", name),)).see(known)
        # Several queues may keep their messages in one store: one series, and down if any of them says so.
        up: dict[str, bool] = {}
        for numbers in queues.values():
            up[numbers.store] = up.get(numbers.store, True) and numbers.store_up
        for name in up.keys() - stores.keys():
            yield View(STORE_METRICS[:1], (("store", name),)).see(_Up(up[name]))

    def _of_gateways(self) -> tuple[list[_Part], int]:
        known = [numbers for _, numbers in _asked(self._kinds["gateway"])]
        if not known:
            return [], 0
        partners = {partner.name: partner for numbers in known for partner in numbers.partners}
        shown, unnamed = bounded(partners.values(), self._max_names)
        parts = [View(GATEWAY_METRICS, (("name", partner.name),)).see(partner) for partner in shown]
        return [*parts, View(DOOR_METRICS, ()).see(door_of(known))], unnamed


class _Up(NamedTuple):
    up: bool


def _asked(sources: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    for source in list(sources):
        try:
            yield source, source.stats()
        except Exception:
            logger().exception("%r gave no numbers; its metrics are left out", source)


def _by_name(kind: str, sources: Iterable[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _, numbers in _asked(sources):
        name = getattr(numbers, kind)
        if found.setdefault(name, numbers) is not numbers:
            logger().warning("there are two of the %s %r; the metrics of the second are left out", kind, name)
    return found
