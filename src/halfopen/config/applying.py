"""Make the policies of a configuration in a registry, or let those that are there go on under it: all or nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from halfopen._pipeline.watching import is_retry, unwire, watch_anew
from halfopen._runtime.keyed import KeyedPolicy
from halfopen.classification import Failures
from halfopen.config.adopting import adopt
from halfopen.config.configuration import Configuration, Entry
from halfopen.config.items import Findings
from halfopen.config.notations import Reference
from halfopen.config.settings import KINDS, Site
from halfopen.errors import ConfigError
from halfopen.pipeline import Pipeline
from halfopen.registry import DEFAULT_MAX_KEYS, KeyedBreakers, Registry
from halfopen.typing import Classifier, Policy

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
        removed: Policies that the file no longer has; whoever holds one can go on using it, and if a later file has it
            again while somebody does, it is the same one.
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

    Raises:
        ConfigError: A function that a pipeline guards already cannot be guarded by its new policies.
    """
    plan = _Plan(new, registry, old)
    undo: list[Callable[[], None]] = []
    gone = plan.gone()
    retries = [retry for entry in gone for retry in _retries_of(_there(registry, entry))]
    try:
        for entry in new.entries:
            undo.append(plan.settle(entry))
        for entry in gone:
            undo.append(_removed(registry, entry))
    except BaseException:
        for step in reversed(undo):
            step()
        raise
    undo.clear()  # it holds what is removed
    for retry in retries:
        watch_anew(retry)
    return plan.changes(gone)


def _retries_of(policy: Any) -> list[Any]:
    return [part for part in getattr(policy, "flat", ()) if is_retry(part)]


class _Plan:
    def __init__(self, new: Configuration, registry: Registry, old: Configuration | None) -> None:
        self.new = new
        self.registry = registry
        self.old = old
        self.known = {title for title in map(_title, new.entries) if registry.has(*title)}
        self.kept: dict[Title, Any] = {}
        self.fresh: dict[Title, Any] = {}
        site = Site(registry.clock, registry.bus, self.find)
        for entry in new.entries:
            if entry.kind.section == "pipeline":
                continue  # made of the others, which must be settled first
            made = _family(entry, site, registry) if entry.keyed else entry.make(site)
            there = registry.recall(*_title(entry))
            self.fresh[_title(entry)] = made
            self.kept[_title(entry)] = made if type(there) is not type(made) else there

    def find(self, reference: Reference) -> Any:
        return self.kept[_kind(reference.section), reference.name]

    def settle(self, entry: Entry) -> Callable[[], None]:
        """Put one policy in force; return what takes that back."""
        if entry.kind.section == "pipeline":
            return self._settle_pipeline(entry)
        fresh, there = self.fresh[_title(entry)], self.kept[_title(entry)]
        back = self._put(entry, there)
        if there is fresh:
            return back
        self._keep_classifier(entry, there, fresh)
        before = _copied(there)
        if not adopt(there, fresh):
            return self._put(entry, fresh)
        self._watch_anew(entry, there)

        def undo() -> None:
            adopt(there, before)
            back()

        return undo

    def _put(self, entry: Entry, policy: Any) -> Callable[[], None]:
        registry, (kind, name) = self.registry, _title(entry)
        replaced = registry.put(kind, name, policy)
        return lambda: registry.take_back(kind, name, replaced)

    def _settle_pipeline(self, entry: Entry) -> Callable[[], None]:
        there: Any = self.registry.recall(*_title(entry))
        parts = tuple(map(self.find, entry.references()))
        before: tuple[Policy, ...] | None = None
        fresh = not isinstance(there, Pipeline)
        try:
            if fresh:
                there = Pipeline(*parts, name=entry.name)
            elif there.policies != parts:
                before = there.policies
                there.configure(*parts)
        except TypeError as error:
            raise _refused(entry, self.new.file, str(error)) from None
        except ConfigError as error:
            raise _refused(entry, self.new.file, "; ".join(each.allowed for each in error.mistakes)) from None
        back = self._put(entry, there)

        def undo() -> None:
            back()
            if before is not None:
                there.configure(*before)
            elif fresh:
                unwire(there)

        return undo

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
            watch_anew(there)

    def gone(self) -> list[Entry]:
        """Return what the old configuration had and the new one has not."""
        before = () if self.old is None else self.old.entries
        return [entry for entry in before if self.new.find(entry.kind.section, entry.name) is None]

    def changes(self, gone: list[Entry]) -> Changes:
        added: list[str] = []
        changed: list[str] = []
        unchanged: list[str] = []
        for entry in self.new.entries:
            before = None if self.old is None else self.old.find(entry.kind.section, entry.name)
            same = before is not None and before.given == entry.given
            new = before is None and _title(entry) not in self.known
            (unchanged if same else added if new else changed).append(entry.title)
        return Changes(
            added=tuple(added),
            changed=tuple(changed),
            removed=tuple(entry.title for entry in gone),
            unchanged=tuple(unchanged),
        )


def _title(entry: Entry) -> Title:
    return entry.kind.kind, entry.name


def _kind(section: str) -> str:
    return KINDS[section].kind


def _refused(entry: Entry, file: str, why: str) -> ConfigError:
    findings = Findings(file)
    findings.wrong(entry.place.table.get("policies", entry.place), why, "conflict")
    return ConfigError(findings.mistakes)


def _there(registry: Registry, entry: Entry) -> Any:
    return registry.recall(*_title(entry)) if registry.has(*_title(entry)) else None


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
