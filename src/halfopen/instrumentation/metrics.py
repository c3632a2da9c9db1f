"""All metrics of a registry at one moment, with a bounded number of names."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, ref

from halfopen._core.checking import Checks
from halfopen._runtime.forking import renew_after_fork
from halfopen._runtime.keyed import OTHER, KeyedPolicy
from halfopen.circuit_breaker import CircuitBreaker
from halfopen.instrumentation import _durations
from halfopen.instrumentation._breaker_look import look_at
from halfopen.instrumentation._breaker_metrics import BREAKER_METRICS
from halfopen.instrumentation._gateway_metrics import DOOR_METRICS, GATEWAY_METRICS, GatewayLike
from halfopen.instrumentation._metric import Metric, View, counter, gauge
from halfopen.instrumentation._overflow import Overflow, Sums
from halfopen.instrumentation._policy_metrics import POLICY_METRICS
from halfopen.instrumentation._queue_metrics import QUEUE_METRICS, STORE_METRICS, QueueLike, StoreLike
from halfopen.instrumentation._samples import Scrape
from halfopen.instrumentation._sources import Sources
from halfopen.pipeline import Pipeline
from halfopen.registry import Registry, kind_of_policy

__all__ = ["DEFAULT_MAX_NAMES", "Metrics", "catalogue", "metrics_of"]

DEFAULT_MAX_NAMES = 200
_BREAKER = "circuit_breaker"

_OWN = (
    gauge("halfopen_build_info", "The version of halfopen.", lambda look: 1, otel="build.info", otel_unit="{build}"),
    counter(
        "halfopen_metric_names_dropped_total", "Policies whose series go to the name __other__, for lack of room.",
        lambda look: look, otel="metric_names.dropped", otel_unit="{name}",
    ),
)  # fmt: skip


def catalogue() -> dict[str, tuple[Metric, ...]]:
    """Return every metric by the kind of its owner, in the order of exposition."""
    return {
        _BREAKER: BREAKER_METRICS,
        **POLICY_METRICS,
        "queue": QUEUE_METRICS,
        "store": STORE_METRICS,
        "gateway": GATEWAY_METRICS,
        "door": DOOR_METRICS,
        "": _OWN,
    }


class Metrics:
    """
    The metrics of a registry's policies.

    Make it when the registry is made: durations are counted from then on, and every counter is there with 0 before
    its first event. `metrics_of` does, and keeps one for each registry.

    Args:
        registry: Whose policies.
        max_names: Names of one kind of policy that get series of their own, at least 1; the policies after them
            share the name ``__other__``. A name keeps its place for the life of the process.
        resilience4j: Whether the compatible set is exposed, too.
        resilience4j_buckets: Whether it has buckets.
        resilience4j_labels: Labels that each of its series gets, such as ``application`` or ``group``.

    Raises:
        ConfigError: *max_names* is out of its range.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        max_names: int = DEFAULT_MAX_NAMES,
        resilience4j: bool = False,
        resilience4j_buckets: bool = False,
        resilience4j_labels: dict[str, str] | None = None,
    ) -> None:
        checks = Checks()
        checks.whole("max_names", max_names, 1, 1_000_000)
        checks.done()
        self.registry = registry
        self._lock = threading.RLock()  # a signal handler may make a policy, or look, in the midst of it
        self._max_names = max_names
        self._names: dict[str, set[str]] = {}
        self._views: WeakKeyDictionary[Any, list[View]] = WeakKeyDictionary()
        self._dropped: WeakSet[Any] = WeakSet()
        self._dropped_count = 0
        self._overflows: dict[str, Overflow] = {}
        self._sources = Sources(max_names)
        self._sets = dict(catalogue())
        self._compatible: dict[str, tuple[Metric, ...]] = {}
        self._compatible_labels = tuple((resilience4j_labels or {}).items())
        if resilience4j:
            from halfopen.instrumentation.resilience4j_prometheus import compatible_metrics

            self._compatible = compatible_metrics(buckets=resilience4j_buckets)
        from halfopen import __version__

        self._build = View(_OWN[:1], (("version", __version__),))
        self._drops = View(_OWN[1:], ())
        sets = (*self._sets.values(), *self._compatible.values())
        self._headers = [metric.header for metrics in sets for metric in metrics]
        self._unwatch = registry.watch(_weakly(self, "_made"), _weakly(self, "_gone"))
        self._renew()
        renew_after_fork(self)

    def close(self) -> None:
        """Take no more note of new policies."""
        self._unwatch()

    def add_queue(self, queue: QueueLike) -> Callable[[], None]:
        """Expose a retry queue: anything with a `stats()` as `QueueLike` has it; return what takes it away again."""
        return self._sources.add("queue", queue)

    def add_store(self, store: StoreLike) -> Callable[[], None]:
        """Expose a store that processes share, as `StoreLike` describes it; return what takes it away again."""
        return self._sources.add("store", store)

    def add_gateway(self, traffic: GatewayLike) -> Callable[[], None]:
        """Expose what has gone through a gateway, as `GatewayLike` counts it; return what takes it away again."""
        return self._sources.add("gateway", traffic)

    def scrape(self) -> Scrape:
        """Look at every policy; no lock is held while the numbers are put in order."""
        scrape = Scrape(self._headers)
        add = scrape.parts.append
        taken: set[tuple[str, str]] = set()  # no series may be there twice
        overflown = {kind: Sums() for kind in self._overflows}
        for kind, policy in self._policies():
            look = look_at(policy) if kind == _BREAKER else policy.snapshot()
            views = self._views.get(policy)
            if views is None or (kind, policy.name) in taken:
                with self._lock:
                    views = self._room(kind, policy, taken)
                    if views is None:
                        self._overflow(kind).see(policy, look, overflown.setdefault(kind, Sums()))
                        continue
            taken.add((kind, policy.name))
            for view in views:
                add(view.see(look))
        with self._lock:
            for kind, sums in overflown.items():
                add(self._overflows[kind].take(sums))
            dropped = self._dropped_count
        others, unnamed = self._sources.see()
        scrape.parts += others
        add(self._build.see(None))
        add(self._drops.see(dropped + unnamed))
        return scrape

    def _policies(self) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        families = [family.breakers() for family in list(self.registry._families.values())]
        for policy in chain(self.registry, *families):
            for kind, one in _inside(policy):
                if kind in self._sets and id(one) not in seen:
                    seen.add(id(one))
                    yield kind, one

    def _views_of(self, kind: str, policy: Any) -> list[View] | None:
        views = self._views.get(policy)
        if views is None and policy not in self._dropped:
            views = self._new_views(kind, policy)
        return views

    def _room(self, kind: str, policy: Any, taken: set[tuple[str, str]]) -> list[View] | None:
        views = self._views_of(kind, policy)
        if views is not None and (kind, policy.name) in taken:
            self._drop(policy)
            return None
        return views

    def _new_views(self, kind: str, policy: Any) -> list[View] | None:
        names = self._names.setdefault(kind, set())
        if policy.name not in names:
            if len(names) >= self._max_names:
                self._drop(policy)
                return None
            names.add(policy.name)
        views = [View(self._sets[kind], (("name", policy.name),))]
        if kind in self._compatible:
            views.append(View(self._compatible[kind], (*self._compatible_labels, ("name", policy.name))))
        self._views[policy] = views
        return views

    def _drop(self, policy: Any) -> None:
        self._views.pop(policy, None)
        self._dropped.add(policy)
        self._dropped_count += 1

    def _overflow(self, kind: str) -> Overflow:
        if kind not in self._overflows:
            self._overflows[kind] = Overflow(self._sets[kind], (("name", OTHER),))
        return self._overflows[kind]

    def _made(self, policy: Any) -> None:
        for kind, one in _inside(policy):
            if kind == _BREAKER:
                _durations.attach(one)
            if kind in self._sets:
                with self._lock:
                    self._views_of(kind, one)

    def _gone(self, policy: Any) -> None:
        if policy in self._dropped and isinstance(policy, CircuitBreaker):
            look = look_at(policy)
            with self._lock:
                self._overflow(_BREAKER).retire(policy, look)

    def _renew(self) -> None:
        """Begin to count durations, in the process that made this and in each forked from it."""
        self._lock = threading.RLock()  # a signal handler may make a policy, or look, in the midst of it
        # Without the registry's lock: in a forked child, a thread that is no more may have held it.
        for policy in list(self.registry._policies.values()):
            self._made(policy)
        for family in list(self.registry._families.values()):
            for breaker in list(family._kept.values()):
                self._made(breaker)


def _inside(policy: Any) -> Iterable[tuple[str, Any]]:
    """Return a policy, or what it is made of, each with its kind."""
    if type(policy) is CircuitBreaker:
        return ((_BREAKER, policy),)
    if isinstance(policy, KeyedPolicy):
        return [(kind_of_policy(one), one) for one in _members(policy)]  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(policy, Pipeline):
        return [found for one in policy.policies for found in _inside(one)]
    return [(kind_of_policy(policy), policy)]


def _members(family: KeyedPolicy[Any]) -> list[Any]:
    with family._lock:
        members = list(family._kept.values())
    return [*members, family._other] if family.overflows else members


def _weakly(metrics: Metrics, method: str) -> Callable[[Any], None]:
    reference = ref(metrics)

    def call(policy: Any) -> None:
        alive = reference()
        if alive is not None:
            getattr(alive, method)(policy)

    return call


class _Making:
    """The lock under which metrics are made; a forked child has one that nobody holds."""

    def __init__(self) -> None:
        self._renew()
        renew_after_fork(self)

    def _renew(self) -> None:
        self.lock = threading.RLock()


_MAKING = _Making()


def metrics_of(registry: Registry, **settings: Any) -> Metrics:
    """
    Return the metrics of *registry*, made when they are first asked for.

    Args:
        registry: Whose policies.
        settings: Those of `Metrics`; to be given by whoever asks first.

    Raises:
        ValueError: There are metrics already, and *settings* are given.
    """
    with _MAKING.lock:
        # Kept by the registry itself, so that both can go together.
        known: Metrics | None = vars(registry).get("_metrics")
        if known is None:
            known = vars(registry)["_metrics"] = Metrics(registry, **settings)
        elif settings:
            raise ValueError("this registry has metrics already; give their settings when they are first asked for")
        return known
