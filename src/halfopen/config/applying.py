"""Make the policies of a configuration in a registry, or let those that are there go on under it: all or nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from halfopen._runtime.keyed import KeyedPolicy
from halfopen._runtime.wiring import users_of
from halfopen.classification import Failures
from halfopen.config.adopting import adopt
from halfopen.config.configuration import Configuration, Entry
from halfopen.config.notations import Reference
from halfopen.config.settings import Site
from halfopen._pipeline.watching import wire_retries
from halfopen.registry import DEFAULT_MAX_KEYS, KeyedBreakers, Registry
from halfopen.typing import Classifier

__all__ = ["Changes", "apply"]

_CLASSIFYING = ("on", "ignore", "result", "classify")
Title = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """
    What a file changed, by the titles of policies such as ``breaker.payments``.

    Attributes:
        added: Policies that were not there.
        changed: Policies that go on under other settings.
        removed: Policies that the file no longer has; whoever holds one can go on using it.
        unchanged: All others.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"{len(getattr(self, what))} {what}" for what in ("added", "changed", "removed", "unchanged")]
        return ", ".join(parts)


def apply(new: Configuration, registry: Registry, old: Configuration | None = None) -> Changes:
    """
    Put a configuration in force.

    Everything is made before anything is changed, and if a change fails those made so far are taken back.

    Args:
        new: The configuration.
        registry: Where it counts.
        old: The one it replaces.
    """
    plan = _Plan(new, registry, old)
    undo: list[Callable[[], None]] = []
    try:
        for entry in new.entries:
            undo.append(plan.settle(entry))
        gone = plan.gone()
        for entry in gone:
            undo.append(_removed(registry, entry))
    except BaseException:
        for step in reversed(undo):
            step()
        raise
    return plan.changes(gone)


class _Plan:
    def __init__(self, new: Configuration, registry: Registry, old: Configuration | None) -> None:
        self.new = new
        self.registry = registry
        self.old = old
        self.kept: dict[Title, Any] = {}
        self.fresh: dict[Title, Any] = {}
        site = Site(registry.clock, registry.bus, self.find)
        for entry in new.entries:
            title = (entry.kind.section, entry.name)
            if entry.kind.section == "pipeline" and self._same_pipeline(entry):
                self.fresh[title] = self.kept[title] = registry[entry.title]
                continue
            made = _family(entry, site, registry) if entry.keyed else entry.make(site)
            there = _there(registry, entry)
            self.fresh[title] = made
            self.kept[title] = made if there is None or type(there) is not type(made) else there

    def _same_pipeline(self, entry: Entry) -> bool:
        """Say whether a pipeline has the same policies as before; what is decorated with it goes on then."""
        there = _there(self.registry, entry)
        return there is not None and there.policies == tuple(map(self.find, entry.references()))

    def find(self, reference: Reference) -> Any:
        return self.kept[reference.section, reference.name]

    def settle(self, entry: Entry) -> Callable[[], None]:
        """Put one policy in force; return what takes that back."""
        title = (entry.kind.section, entry.name)
        fresh, there = self.fresh[title], self.kept[title]
        if there is fresh is _there(self.registry, entry):
            return lambda: None
        if there is not fresh:
            self._keep_classifier(entry, there, fresh)
            before = _copied(there)
            if adopt(there, fresh):
                self._watch_anew(entry, there)
                return lambda: _adopted(there, before)
        registry, kind = self.registry, entry.kind.kind
        replaced = registry.put(kind, entry.name, fresh)
        return lambda: registry.take_back(kind, entry.name, replaced)

    def _keep_classifier(self, entry: Entry, there: Any, fresh: Any) -> None:
        """Leave a classifier alone that the program brought, unless the file has, or had, one of its own."""
        before = None if self.old is None else self.old.find(entry.kind.section, entry.name)
        told = any(key in each.values for each in (entry, before) if each is not None for key in _CLASSIFYING)
        if entry.kind.kind != "circuit_breaker" or told:
            return
        kept, made = (getattr(each, "_template", each) for each in (there, fresh))
        classifier: Classifier = kept.classifier
        if classifier != Failures():
            made.configure(classify=classifier)

    def _watch_anew(self, entry: Entry, there: Any) -> None:
        """Let a retry whose breaker the file names no longer watch the one around it, as any other does."""
        before = None if self.old is None else self.old.find(entry.kind.section, entry.name)
        if entry.kind.section != "retry" or before is None or "breaker" in entry.values:
            return
        if "breaker" in before.values:
            there.breaker = None
            for pipeline in users_of(there):
                wire_retries(pipeline)

    def gone(self) -> list[Entry]:
        """Return what the old configuration had and the new one has not."""
        before = () if self.old is None else self.old.entries
        return [entry for entry in before if self.new.find(entry.kind.section, entry.name) is None]

    def changes(self, gone: list[Entry]) -> Changes:
        added: list[str] = []
        changed: list[str] = []
        unchanged: list[str] = []
        for entry in self.new.entries:
            title = (entry.kind.section, entry.name)
            before = None if self.old is None else self.old.find(*title)
            same = before is not None and before.given == entry.given
            new = before is None and self.kept[title] is self.fresh[title]
            (unchanged if same else added if new else changed).append(entry.title)
        return Changes(
            added=tuple(added),
            changed=tuple(changed),
            removed=tuple(entry.title for entry in gone),
            unchanged=tuple(unchanged),
        )


def _adopted(policy: Any, before: Any) -> None:
    adopt(policy, before)


def _there(registry: Registry, entry: Entry) -> Any:
    try:
        return registry[entry.title]
    except KeyError:
        return None


def _copied(policy: Any) -> Any:
    """Return a policy with the settings of *policy*, to adopt from."""
    if not hasattr(policy, "_other"):
        return copy.copy(policy)
    before = object.__new__(policy.__class__)
    before.__dict__.update(policy.__dict__)
    before._other = copy.copy(policy._other)
    return before


def _removed(registry: Registry, entry: Entry) -> Callable[[], None]:
    policy = _there(registry, entry)
    registry.remove(entry.kind.kind, entry.name)
    return lambda: registry.take_back(entry.kind.kind, entry.name, policy)


def _family(entry: Entry, site: Site, registry: Registry) -> Any:
    family = entry.family
    if entry.kind.kind == "circuit_breaker":
        most = family.get("max_keys", DEFAULT_MAX_KEYS)
        return KeyedBreakers(entry.name, entry.make(site), most, registry, family.get("key"))

    def make(name: str) -> Any:
        return entry.kind.make(name, {k: v for k, v in entry.values.items() if k not in family}, site)

    return KeyedPolicy(entry.name, make, **family)
