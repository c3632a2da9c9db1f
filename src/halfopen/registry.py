"""Named and keyed policies: one place that knows them all, and one stream of their events."""

from __future__ import annotations

import fnmatch
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from halfopen._breaker.orders import make_settings
from halfopen._core.checking import Checks, nearest
from halfopen._core.events import Event, PolicyCreated, PolicyEvicted
from halfopen._core.snapshots import Snapshot
from halfopen._runtime.bus import Bus
from halfopen._runtime.clock import SYSTEM_CLOCK, Clock
from halfopen._runtime.keyed import LARGEST_FAMILY, KeyedPolicy
from halfopen.circuit_breaker import CircuitBreaker
from halfopen.classification import Failures
from halfopen.errors import ConfigError
from halfopen.typing import Classifier, Policy

if TYPE_CHECKING:
    from halfopen.config import Changes

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

    def __init__(
        self,
        pattern: str,
        template: CircuitBreaker,
        max_keys: int,
        registry: Registry,
        key: Callable[..., Hashable] | None = None,
    ) -> None:
        self._registry = registry
        self._template = template
        self._news: deque[tuple[Callable[..., Event], CircuitBreaker]] = deque()
        super().__init__(pattern, self._like_template, max_keys=max_keys, key=key)

    def _like_template(self, name: str) -> CircuitBreaker:
        template, registry = self._template, self._registry
        return CircuitBreaker.from_settings(
            name,
            template.settings,
            classify=template.classifier,
            tags=template.tags,
            clock=registry.clock,
            bus=registry.bus,
        )

    def adopt(self, other: KeyedBreakers) -> None:
        """Go on under the template and the bounds of *other*; what the breakers know and remember is kept."""
        with self._lock:
            self._template, self._max_keys, self._key = other._template, other._max_keys, other._key
            members = [*self._alive.values(), self._other]
        for breaker in members:
            breaker.adopt(self._template.settings, self._template.classifier)
            breaker.tags = self._template.tags

    def __getitem__(self, key: Hashable) -> CircuitBreaker:
        """Return the breaker of *key*, made when it is first asked for."""
        # By its text, which is what the name holds: 5 and "5" are one key.
        breaker = super().__getitem__(key if isinstance(key, str) else str(key))
        while self._news:
            try:
                news = self._news.popleft()
            except IndexError:  # another thread was quicker
                break
            self._registry._tell(*news)
        return breaker

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self.name!r} cannot be copied or pickled: it belongs to its registry")

    def _take_in(self, policy: CircuitBreaker) -> None:
        self._news.append((PolicyCreated, policy))

    def _let_go(self, key: Hashable, policy: CircuitBreaker) -> None:
        self._news.append((PolicyEvicted, policy))

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
        self._lock = threading.RLock()  # a signal handler may ask in the midst of it
        self._policies: OrderedDict[tuple[str, str], Any] = OrderedDict()
        self._families: OrderedDict[str, KeyedBreakers] = OrderedDict()
        self._shared: dict[tuple[str, str], Any] = {}  # what policies share, such as retry budgets
        self._source: Any = None
        self._watchers: tuple[tuple[Callable[[Any], object], Callable[[Any], object]], ...] = ()

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], *, names: Mapping[str, Any] | None = None, clock: Clock | None = None
    ) -> Registry:
        """
        Return a registry with the policies of a configuration file; see `load`.

        Args:
            path: The file.
            names: Objects that the file may name, such as classifiers.
            clock: The source of time of every policy made here, for tests.

        Raises:
            ConfigError: Something is wrong; every mistake is named, with path and line.
        """
        registry = cls(clock=clock)
        registry.load(path, names=names)
        return registry

    def load(self, path: str | os.PathLike[str], *, names: Mapping[str, Any] | None = None) -> Changes:
        """
        Put the policies of a file in force, in place of those of the file before.

        A policy that is there already goes on under the settings of the file; so a breaker that was asked for before
        keeps its state.

        Args:
            path: `halfopen.toml`, the same as YAML, or the YAML of resilience4j.
            names: Objects that the file may name, such as classifiers.

        Raises:
            ConfigError: Something is wrong; every mistake is named, and nothing has changed.
        """
        from halfopen.config.reloading import Source

        source = Source(self, path, names or {}, self._source)
        changes: Changes = source.read_again()
        self._source = source
        return changes

    def reload(self) -> Changes:
        """
        Read the file again: all of it counts, or nothing.

        Breakers keep window, epoch, step, remaining wait and trial calls, the other policies what they hold and count.

        Raises:
            ConfigError: Something is wrong; every mistake is named, and nothing has changed.
            LookupError: There is no file: `load` one first.
        """
        changes: Changes = self._loaded().read_again()
        return changes

    def reload_on_change(self, every: float = 5.0) -> Callable[[], None]:
        """
        Look at the file every so many seconds and reload it when it has changed; return what ends that.

        What happened is logged by the logger ``halfopen``: a bad file changes nothing, and the log says why.

        Raises:
            LookupError: There is no file: `load` one first.
        """
        stop: Callable[[], None] = self._loaded().watch(every)
        return stop

    def reload_on_sighup(self) -> Callable[[], None]:
        """
        Reload the file on each SIGHUP, on a thread of its own; return what ends that. For the main thread only.

        Raises:
            LookupError: There is no file: `load` one first.
        """
        stop: Callable[[], None] = self._loaded().on_sighup()
        return stop

    def _loaded(self) -> Any:
        if self._source is None:
            raise LookupError("this registry was not made from a file: load() one first")
        return self._source

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
        checks = Checks()
        checks.text("name", name)
        checks.done()
        known: CircuitBreaker | None = self.find(_BREAKER, name)
        if known is None:
            known = self._from_family(name)
        if known is None:
            fresh = CircuitBreaker(
                name, classify=classify or Failures(), tags=tags, clock=self.clock, bus=self.bus, **settings
            )
            kept: CircuitBreaker = self.add(fresh)
            if kept is fresh:
                return fresh
            known = kept
        if classify is not None and known.classifier == Failures():
            # A file says when a breaker opens; what a failure is, the program may know better.
            known.configure(classify=classify)
        _want_same(known, settings, classify, tags)
        return known

    def keyed(
        self,
        pattern: str,
        *,
        max_keys: int = DEFAULT_MAX_KEYS,
        key: Callable[..., Hashable] | None = None,
        classify: Classifier | None = None,
        tags: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> KeyedBreakers:
        """
        Return the family *pattern*, one breaker for each key; make it when it is first asked for.

        Args:
            pattern: The name of each, with one ``*`` for the key: ``host:*``.
            max_keys: How many are kept at most, 1 to 1,000,000.
            key: Says, of a call's arguments, which key it has; with it the family is a policy itself.
            classify: Says which calls are failures, for all of them.
            tags: For all of them.
            settings: The template: the settings of `CircuitBreaker`.

        Raises:
            ConfigError: The pattern or a setting is wrong; every mistake is named.
        """
        checks = Checks()
        if not isinstance(pattern, str) or pattern.count("*") != 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            checks.wrong("pattern", pattern, "a text with one * for the key, such as host:*")
        else:
            with self._lock:
                known = self._families.get(pattern)
            if known is not None:
                _want_same(known._template, settings, classify, tags)
                return known
        checks.whole("max_keys", max_keys, 1, LARGEST_FAMILY)
        try:
            # The template is checked, and its rules are made, once for all keys.
            template = CircuitBreaker(
                str(pattern) or "*", classify=classify or Failures(), tags=tags, clock=self.clock, **settings
            )
        except ConfigError as wrong:
            raise ConfigError(checks.mistakes + list(wrong.mistakes)) from None
        checks.done()
        family = KeyedBreakers(pattern, template, max_keys, self, key)
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
        if isinstance(policy, KeyedBreakers) or (kind == _BREAKER and name in self._families):
            place, key = self._families, name
        replaced = place.pop(key, None) if policy is None else place.get(key)
        if policy is not None:
            place[key] = policy
        return replaced

    def remove(self, kind: str, name: str) -> bool:
        """Forget a policy or a family; return whether there was one. Whoever holds it can go on using it."""
        with self._lock:
            policy = self._swap(kind, name, None)
        if policy is not None and kind not in _SHARED:
            self._tell(PolicyEvicted, policy)
        return policy is not None

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
        kind = _BREAKER if section == "breaker" else section
        with self._lock:
            known = {
                **self._policies,
                **self._shared,
                **{(_BREAKER, each): self._families[each] for each in self._families},
            }
        if (kind, name) not in known:
            near = nearest(title, [f"{kind.removeprefix('circuit_')}.{name}" for kind, name in known])
            raise KeyError(f"there is no {title}" + (f"; did you mean {near}?" if near else ""))
        return known[kind, name]

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

    def tick(self) -> None:
        """Make due, in every breaker, what time alone decides."""
        for breaker in self.breakers():
            breaker.tick()

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

    def __repr__(self) -> str:
        return f"<Registry of {len(self._policies)} policies and {len(self._families)} families>"


_BREAKER = "circuit_breaker"
_SHARED = frozenset({"retry_budget"})


def kind_of_policy(policy: Any) -> str:
    """Return the kind of a policy: its class in snake case, such as ``circuit_breaker``."""
    name = type(policy).__name__
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")


def _want_same(
    breaker: CircuitBreaker, settings: dict[str, Any], classify: Classifier | None, tags: Mapping[str, str] | None
) -> None:
    """Raise ConfigError where what is asked for differs from what is there; nothing is ignored without a word."""
    checks = Checks(f"circuit_breaker.{breaker.name}.")
    wanted = make_settings(checks, breaker.settings, **settings)
    for name, value in settings.items():
        there = getattr(breaker.settings, name)
        if getattr(wanted, name) != there:
            checks.wrong(name, value, f"the breaker exists already, with {name} = {there!r}", "conflict")
    for name, value, present in (("classify", classify, breaker.classifier), ("tags", tags, breaker.tags)):
        if value is not None and value != present:
            checks.wrong(name, value, f"the breaker exists already, with {name} = {present!r}", "conflict")
    checks.done()
