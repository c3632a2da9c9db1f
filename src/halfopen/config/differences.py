"""What two configurations set differently, defaults included."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from halfopen._core.settings import Settings
from halfopen.adaptive_concurrency import AdaptiveConcurrency
from halfopen.bulkhead import Bulkhead
from halfopen.cache_fallback import CacheFallback
from halfopen.config.configuration import Configuration, Entry
from halfopen.config.items import is_list, is_mapping
from halfopen.config.notations import Reference
from halfopen.config.values import format_duration, format_share
from halfopen.hedge import Hedge
from halfopen.rate_limiter import RateLimiter
from halfopen.retry import Retry, RetryBudget
from halfopen.timeout import Timeout

__all__ = ["Difference", "differences", "effective"]

_CLASSES = {
    "retry_budget": RetryBudget, "retry": Retry, "timeout": Timeout, "bulkhead": Bulkhead, "rate_limiter": RateLimiter,
    "hedge": Hedge, "adaptive_concurrency": AdaptiveConcurrency, "cache_fallback": CacheFallback,
}  # fmt: skip
_NOT_SETTINGS = frozenset({"self", "name", "clock", "bus", "rng"})


@dataclass(frozen=True, slots=True)
class Difference:
    """
    One thing that two configurations set differently.

    Attributes:
        title: The policy.
        change: ``added``, ``removed`` or ``changed``.
        setting: Which setting, for a change.
        old: What was set, in the notation of a file; None where it was not.
        new: What is set.
    """

    title: str
    change: str
    setting: str | None = None
    old: str | None = None
    new: str | None = None

    def __str__(self) -> str:
        if self.setting is None:
            return f"{'+' if self.change == 'added' else '-'} {self.title}"
        return f"~ {self.title}.{self.setting}: {_or_none(self.old)} → {_or_none(self.new)}"


def _or_none(text: str | None) -> str:
    return "not set" if text is None else text


def differences(old: Configuration, new: Configuration) -> list[Difference]:
    """Return what *new* sets differently from *old*; a default that is written out is no difference."""
    before = {entry.title: entry for entry in old.entries}
    after = {entry.title: entry for entry in new.entries}
    found = [Difference(title, "removed") for title in before if title not in after]
    for title, entry in after.items():
        if title in before:
            found += _changes(title, effective(before[title]), effective(entry))
        else:
            found.append(Difference(title, "added"))
    return found


def _changes(title: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Difference]:
    for setting in dict.fromkeys([*old, *new]):
        if old.get(setting) != new.get(setting):
            yield Difference(title, "changed", setting, old.get(setting), new.get(setting))


def effective(entry: Entry) -> dict[str, str]:
    """Return every setting of an entry that counts, defaults included, in the notation of a file."""
    known: dict[str, Any] = {}
    if entry.kind.section == "breaker":
        known = {each.name: getattr(Settings(), each.name) for each in fields(Settings) if each.init}
    elif entry.kind.section in _CLASSES:
        parameters = inspect.signature(_CLASSES[entry.kind.section]).parameters.values()
        known = {p.name: p.default for p in parameters if p.default is not p.empty and p.name not in _NOT_SETTINGS}
    known.update(entry.values)
    # What a file names, it names by text: that says more than the object.
    named = {key: _as_listed(given, entry.values[key]) for key, given in entry.given.items() if _is_name(entry, key)}
    return dict(_flat("", {**known, **named}))


def _is_name(entry: Entry, key: str) -> bool:
    value: Any = entry.values.get(key)
    first = value[0] if is_list(value) and value else value
    return isinstance(first, Reference) or (callable(first) and not is_dataclass(first))


def _as_listed(given: Any, value: Any) -> Any:
    return [given] if is_list(value) and not is_list(given) else given


def _flat(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if is_dataclass(value) and not isinstance(value, type):
        yield path, type(value).__name__
        value = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
    if is_mapping(value):
        for key, below in value.items():
            yield from _flat(f"{path}.{key}" if path else str(key), below)
    else:
        yield path, _shown(path.rpartition(".")[2], value)


def _shown(setting: str, value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    number = isinstance(value, (int, float))
    if number and (setting.endswith("_rate_threshold") or setting in ("jitter", "share", "start")):
        return format_share(value)
    if number and setting in _DURATIONS:
        return format_duration(value)
    if is_list(value):
        return "[" + ", ".join(_shown("", each) for each in value) + "]"
    if isinstance(value, Reference):
        return f"{value.section}.{value.name}"
    return value.__name__ if isinstance(value, type) else f"{value:g}" if isinstance(value, float) else str(value)


_DURATIONS = frozenset({
    "slow_call_duration", "wait_in_open", "forget_after", "trial_timeout", "max_duration", "duration", "seconds",
    "first", "cap", "total", "retry_after_cap", "trial", "max_wait", "per", "delay", "at_least", "slow_after",
    "max_age", "backoff",
})  # fmt: skip
