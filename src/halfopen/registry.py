"""Named and keyed policies: one place that knows them all, and one stream of their events."""

from __future__ import annotations

import fnmatch
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, TypeVar

from halfopen._breaker.orders import make_settings
from halfopen._core.checking import Checks
from halfopen._core.events import Event, PolicyCreated, PolicyEvicted
from halfopen._core.snapshots import Snapshot
from halfopen._runtime.bus import Bus
from halfopen._runtime.clock import SYSTEM_CLOCK, Clock
from halfopen._runtime.keyed import KeyedPolicy
from halfopen.circuit_breaker import CircuitBreaker
from halfopen.classification import Failures
from halfopen.typing import Classifier, Policy

__all__ = ["KeyedBreakers", "Registry"]

E = TypeVar("E", bound=Event)

DEFAULT_MAX_KEYS = 10_000


class KeyedBreakers(KeyedPolicy[CircuitBreaker]):
    """
    Equal breakers, one for each key: ``hosts["example.com"]``.

    At most *max_keys* are kept. The one that was not asked for longest makes room, but never one that is not CLOSED
    or has a permit in flight; and one that some caller still holds comes back as itself when it is asked for again.
    Where none can go, further keys share one breaker whose key is ``__other__``, and `overflows` counts.
    """

    def __init__(self, pattern: str, make: Callable[[str], CircuitBreaker], max_keys: int, registry: Registry) -> None:
        self._registry = registry
        self._gone: list[CircuitBreaker] = []
        super().__init__(pattern, make, max_keys=max_keys)

    def __getitem__(self, key: Hashable) -> CircuitBreaker:
        """Return the breaker of *key*, made when it is first asked for."""
        known = self._kept.get(key)
        breaker = super().__getitem__(key)
        if breaker is not known:
            self._registry._tell(PolicyCreated, breaker)
        while self._gone:
            self._registry._tell(PolicyEvicted, self._gone.pop())
        return breaker

    def _let_go(self, key: Hashable, policy: CircuitBreaker) -> None:
        self._gone.append(policy)

    def breakers(self) -> list[CircuitBreaker]:
        """Return those that are kept now, and ``__other__`` once it was needed."""
        with self._lock:
            kept = list(self._kept.values())
        return [*kept, self._other] if self.overflows else kept


class Registry:
    """
    Keep policies by name, and publish the events of all of them on one bus.

    Args:
        clock: The source of time of every policy made here, for tests.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SYSTEM_CLOCK
        self.bus = Bus()
        self._lock = threading.Lock()
        self._policies: OrderedDict[tuple[str, str], Any] = OrderedDict()
        self._families: OrderedDict[str, KeyedBreakers] = OrderedDict()

    def circuit_breaker(
        self,
        name: str,
        *,
        classify: Classifier | None = None,
        tags: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> CircuitBreaker:
        """
        Return the breaker *name*; make it when it is first asked for.

        A name that fits the pattern of a family, as ``host:example.com`` fits ``host:*``, is made from its template.

        Args:
            name: The breaker's name.
            classify: Says which calls are failures.
            tags: For grouping in metrics and consoles.
            settings: Those of `CircuitBreaker`.

        Raises:
            ConfigError: A setting is wrong, or the breaker exists with other settings.
        """
        known: CircuitBreaker | None = self.find(_BREAKER, name)
        if known is None and not settings and classify is None and tags is None:
            known = self._from_family(name)
        if known is None:
            fresh = CircuitBreaker(
                name, classify=classify or Failures(), tags=tags, clock=self.clock, bus=self.bus, **settings
            )
            kept: CircuitBreaker = self.add(fresh)
            if kept is fresh:
                return fresh
            known = kept
        if settings:
            _want_same(known, settings)
        return known

    def keyed(
        self,
        pattern: str,
        *,
        max_keys: int = DEFAULT_MAX_KEYS,
        classify: Classifier | None = None,
        tags: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> KeyedBreakers:
        """
        Return the family *pattern*, one breaker for each key; make it when it is first asked for.

        Args:
            pattern: The name of each, with one ``*`` for the key: ``host:*``.
            max_keys: How many are kept at most, 1 to 1,000,000.
            classify: Says which calls are failures, for all of them.
            tags: For all of them.
            settings: The template: the settings of `CircuitBreaker`.

        Raises:
            ConfigError: The pattern or a setting is wrong; every mistake is named.
        """
        with self._lock:
            known = self._families.get(pattern)
        if known is not None:
            return known
        checks = Checks()
        if not isinstance(pattern, str) or pattern.count("*") != 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            checks.wrong("pattern", pattern, "a text with one * for the key, such as host:*")
        checks.done()
        # The template is checked, and its rules are made, once for all keys.
        template = CircuitBreaker(pattern, classify=classify or Failures(), tags=tags, clock=self.clock, **settings)

        def make(name: str) -> CircuitBreaker:
            return CircuitBreaker.from_settings(
                name,
                template.settings,
                classify=template.classifier,
                tags=template.tags,
                clock=self.clock,
                bus=self.bus,
            )

        family = KeyedBreakers(pattern, make, max_keys, self)
        with self._lock:
            return self._families.setdefault(pattern, family)

    def _from_family(self, name: str) -> CircuitBreaker | None:
        with self._lock:
            families = list(self._families.items())
        for pattern, family in families:
            head, _, tail = pattern.partition("*")
            if len(name) > len(head) + len(tail) and name.startswith(head) and name.endswith(tail):
                return family[name[len(head) : len(name) - len(tail)]]
        return None

    def add(self, policy: Any) -> Any:
        """
        Keep *policy* under its kind and name, unless there is one already; return the one that is kept.

        A breaker that is added should be made with this registry's `bus`, or its events go elsewhere.
        """
        kind = kind_of_policy(policy)
        with self._lock:
            kept = self._policies.setdefault((kind, policy.name), policy)
        if kept is policy:
            self._tell(PolicyCreated, policy)
        return kept

    def remove(self, kind: str, name: str) -> bool:
        """Forget a policy; return whether there was one. Whoever holds it can go on using it."""
        with self._lock:
            policy = self._policies.pop((kind, name), None)
        if policy is not None:
            self._tell(PolicyEvicted, policy)
        return policy is not None

    def find(self, kind: str, name: str) -> Any:
        """Return the policy of a kind, such as ``circuit_breaker``, with this name; None if there is none."""
        return self._policies.get((kind, name))

    def breakers(self, name: str = "*", **tags: str) -> list[CircuitBreaker]:
        """
        Return the breakers, named and keyed ones, whose name fits and which have all these tags.

        Args:
            name: A pattern with ``*`` and ``?``.
            tags: Tags and their values.
        """
        with self._lock:
            found: list[CircuitBreaker] = [policy for (kind, _), policy in self._policies.items() if kind == _BREAKER]
            families = list(self._families.values())
        for family in families:
            found += family.breakers()
        return [
            breaker
            for breaker in found
            if fnmatch.fnmatchcase(breaker.name, name)
            and all(breaker.tags.get(tag) == value for tag, value in tags.items())
        ]

    def snapshots(self) -> list[Snapshot]:
        """Return a look at every breaker."""
        return [breaker.snapshot() for breaker in self.breakers()]

    def subscribe(self, listener: Callable[[E], object], *kinds: type[E]) -> Callable[[], None]:
        """
        Call *listener* with the events of every policy made here; return what ends the subscription.

        Creation and eviction are events too: `PolicyCreated`, `PolicyEvicted`.
        """
        return self.bus.subscribe(listener, *kinds)

    def tick(self) -> None:
        """Make due, in every breaker, what time alone decides."""
        for breaker in self.breakers():
            breaker.tick()

    def _tell(self, event: Callable[..., Event], policy: Any) -> None:
        if self.bus.wants(event):  # type: ignore[arg-type]  # a class of events is handed in
            tags = getattr(policy, "tags", {})
            self.bus.put(event(name=policy.name, at=self.clock.monotonic(), kind=kind_of_policy(policy), tags=tags))
            self.bus.flush()

    def __iter__(self) -> Iterator[Policy]:
        with self._lock:
            return iter(list(self._policies.values()))

    def __len__(self) -> int:
        return len(self._policies)

    def __contains__(self, name: object) -> bool:
        with self._lock:
            return any(known == name for _, known in self._policies)

    def __repr__(self) -> str:
        return f"<Registry of {len(self._policies)} policies and {len(self._families)} families>"


_BREAKER = "circuit_breaker"


def kind_of_policy(policy: Any) -> str:
    """Return the kind of a policy: its class in snake case, such as ``circuit_breaker``."""
    name = type(policy).__name__
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")


def _want_same(breaker: CircuitBreaker, settings: dict[str, Any]) -> None:
    checks = Checks(f"circuit_breaker.{breaker.name}.")
    wanted = make_settings(checks, breaker.settings, **settings)
    for name, value in settings.items():
        there = getattr(breaker.settings, name)
        if getattr(wanted, name) != there:
            checks.wrong(name, value, f"the breaker exists already, with {name} = {there!r}", "conflict")
    checks.done()
