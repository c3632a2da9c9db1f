"""Where the policies of a registry stand, by kind and name, and who is told of those that come and go."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import WeakValueDictionary

from halfopen._core.checking import nearest
from halfopen._core.events import Event, PolicyCreated, PolicyEvicted
from halfopen._runtime.bus import Bus
from halfopen._runtime.clock import SYSTEM_CLOCK, Clock
from halfopen._runtime.forking import renew_after_fork
from halfopen._runtime.keyed import KeyedPolicy
from halfopen.typing import Policy

if TYPE_CHECKING:
    from halfopen._registry.keyed_breakers import KeyedBreakers

__all__ = ["BREAKER", "Shelf", "kind_of_policy"]

E = TypeVar("E", bound=Event)

BREAKER = "circuit_breaker"
_SHARED = frozenset({"retry_budget"})


class Shelf:
    """The part of a registry that keeps policies."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SYSTEM_CLOCK
        self.bus = Bus()
        self._policies: OrderedDict[tuple[str, str], Any] = OrderedDict()
        self._families: OrderedDict[str, KeyedBreakers] = OrderedDict()
        # Those removed that somebody still holds: if one comes back, there must not be two of it.
        self._gone: WeakValueDictionary[tuple[str, str], Any] = WeakValueDictionary()
        self._shared: dict[tuple[str, str], Any] = {}  # what policies share, such as retry budgets
        self._source: Any = None
        self._watchers: tuple[tuple[Callable[[Any], object], Callable[[Any], object]], ...] = ()
        self._renew()
        renew_after_fork(self)

    def _renew(self) -> None:
        self._lock = threading.RLock()  # a signal handler may ask in the midst of it

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

    def put(self, kind: str, name: str, policy: Any) -> Any:
        """Keep *policy*, a family too, in place of the one of that kind and name; return the one it replaces."""
        with self._lock:
            replaced = self._swap(kind, name, policy)
        if replaced is None and kind not in _SHARED:
            self._tell(PolicyCreated, policy)
        return replaced

    def take_back(self, kind: str, name: str, replaced: Any) -> None:
        """Undo a `put` or a `remove`."""
        with self._lock:
            self._swap(kind, name, replaced)

    def _swap(self, kind: str, name: str, policy: Any) -> Any:
        place: dict[Any, Any] = self._shared if kind in _SHARED else self._policies
        key: Any = (kind, name)
        if kind == BREAKER and (isinstance(policy, KeyedPolicy) or name in self._families):
            place, key = cast("dict[Any, Any]", self._families), name
        replaced = place.pop(key, None) if policy is None else place.get(key)
        self._gone.pop((kind, name), None)
        if policy is not None:
            place[key] = policy
        elif replaced is not None:
            self._gone[kind, name] = replaced
        return replaced

    def remove(self, kind: str, name: str) -> bool:
        """Forget a policy or a family; return whether there was one. Whoever holds it can go on using it."""
        with self._lock:
            policy = self._swap(kind, name, None)
        if policy is not None and kind not in _SHARED:
            self._tell(PolicyEvicted, policy)
        return policy is not None

    def has(self, kind: str, name: str) -> bool:
        """Say whether there is a policy or a family of a kind with this name."""
        return self._look_up(kind, name) is not None

    def recall(self, kind: str, name: str) -> Any:
        """Return the policy or family of a kind with this name, or one removed that somebody still holds; or None."""
        with self._lock:
            known = self._look_up(kind, name)
            return self._gone.get((kind, name)) if known is None else known

    def _look_up(self, kind: str, name: str) -> Any:
        if kind == BREAKER and name in self._families:
            return self._families[name]
        place: dict[Any, Any] = self._shared if kind in _SHARED else self._policies
        return place.get((kind, name))

    def find(self, kind: str, name: str) -> Any:
        """Return the policy of a kind, such as ``circuit_breaker``, with this name; None if there is none."""
        return self._policies.get((kind, name))

    def __getitem__(self, title: str) -> Any:
        """
        Return a policy by kind and name as a file writes them: ``registry["pipeline.checkout"]``.

        Raises:
            KeyError: There is none; the nearest title is named.
        """
        section, _, name = title.partition(".")
        kind = BREAKER if section == "breaker" else section
        with self._lock:
            known = self._look_up(kind, name)
            if known is not None:
                return known
            others = [*self._policies, *self._shared, *((BREAKER, family) for family in self._families)]
        near = nearest(title, [f"{kind.removeprefix('circuit_')}.{name}" for kind, name in others])
        raise KeyError(f"there is no {title}" + (f"; did you mean {near}?" if near else ""))

    def subscribe(self, listener: Callable[[E], object], *kinds: type[E]) -> Callable[[], None]:
        """
        Call *listener* with the events of every policy made here; return what ends the subscription.

        Creation and eviction are events too: `PolicyCreated`, `PolicyEvicted`.
        """
        return self.bus.subscribe(listener, *kinds)

    def watch(self, made: Callable[[Any], object], gone: Callable[[Any], object]) -> Callable[[], None]:
        """
        Call *made* with each policy before it is handed out for the first time, *gone* with each that is let go.

        Both run at once on the thread that makes room or asks for the policy, and should be quick; what they raise is
        raised there. Return what ends that.
        """
        watcher = (made, gone)
        with self._lock:
            self._watchers = (*self._watchers, watcher)

        def end() -> None:
            with self._lock:
                self._watchers = tuple(one for one in self._watchers if one is not watcher)

        return end

    def _tell(self, event: Callable[..., Event], policy: Any) -> None:
        for made, gone in self._watchers:
            (made if event is PolicyCreated else gone)(policy)
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


def kind_of_policy(policy: Any) -> str:
    """Return the kind of a policy: its class in snake case, such as ``circuit_breaker``."""
    name = type(policy).__name__
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")
