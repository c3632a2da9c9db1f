"""The properties of one instance of resilience4j, read as Spring Boot reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from halfopen.config.items import Findings, Item, dotted, is_list, plain
from halfopen.config.values import parse_java_duration

__all__ = ["Properties", "canonical"]


def canonical(name: str) -> str:
    """Return a property name as Spring compares it: no case, no dashes, no underscores."""
    return re.sub(r"[-_]", "", name).lower()


@dataclass(slots=True)
class Properties:
    """The settings of one instance, and typed looks at them."""

    items: Mapping[str, Item]
    where: Item
    findings: Findings
    notes: list[tuple[str, str, int | None]]
    wrong: set[str] = field(default_factory=set[str])

    def has(self, name: str) -> bool:
        """Say whether a setting is given."""
        return canonical(name) in self.items

    def note(self, name: str, text: str) -> None:
        """Note that a setting, or the whole instance, has no exact twin."""
        item = self.items.get(canonical(name), self.where)
        self.notes.append((dotted(item.path), text, item.line))

    def made(self, name: str, value: Any, *, shown: bool = True) -> Item:
        """Return a setting of ours that stands where *name* does, or where the instance does."""
        item = self.items.get(canonical(name), self.where)
        return Item(value, item.path, item.line, plain(item) if shown and item is not self.where else None)

    def plain(self, name: str, default: Any) -> Any:
        """Return a value as it is given; Spring reads numbers and flags in texts, quoted or from the environment."""
        item = self.items.get(canonical(name))
        if item is None:
            return default
        if isinstance(item.value, str):
            return _read(item.value.strip())
        return plain(item)

    def seconds(self, name: str, default: float, *, zero: bool = False) -> float:
        """Return a duration in seconds."""
        item = self.items.get(canonical(name))
        if item is None:
            return default
        seconds = parse_java_duration(self.plain(name, None))
        if seconds is None or seconds < 0 or (seconds == 0 and not zero):
            least = "of at least 0" if zero else "greater than 0"
            kind = "wrong_type" if seconds is None else "out_of_range"
            allowed = f'a duration {least}: 500 (milliseconds), "30s", "500ms" or "PT30S"'
            self._wrong(name, item, allowed, kind)
            return default
        return seconds

    def share(self, name: str, default: float) -> float:
        """Return a percentage as a share."""
        item = self.items.get(canonical(name))
        value = self.plain(name, default)
        if item is None:
            return default / 100
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 < value <= 100:
            self._wrong(name, item, "a percentage above 0 and up to 100", "out_of_range" if number else "wrong_type")
            return default / 100
        return float(Decimal(repr(value)) / 100)  # 33.3 is 0.333

    def number(self, name: str, default: float, low: float, high: float = float("inf")) -> float:
        """Return a number within bounds, which count."""
        item = self.items.get(canonical(name))
        value = self.plain(name, default)
        if item is None:
            return default
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not low <= value <= high:
            bounds = f"of at least {low:g}" if high == float("inf") else f"from {low:g} to {high:g}"
            self._wrong(name, item, f"a number {bounds}", "out_of_range" if is_number else "wrong_type")
            return default
        return float(value)

    def whole(self, name: str, default: int, low: int = 1) -> int:
        """Return a whole number of at least *low*."""
        item = self.items.get(canonical(name))
        value = self.plain(name, default)
        if item is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            kind = "out_of_range" if isinstance(value, int) and not isinstance(value, bool) else "wrong_type"
            self._wrong(name, item, f"a whole number of at least {low}", kind)
            return default
        return value

    def flag(self, name: str) -> bool:
        """Return a flag, False where it is not given."""
        item = self.items.get(canonical(name))
        value = self.plain(name, False)
        if isinstance(value, bool):
            return value
        if item is not None:
            self._wrong(name, item, "true or false", "wrong_type")
        return False

    def word(self, name: str, default: str, *allowed: str) -> str:
        """Return one of some words, whatever their case."""
        item = self.items.get(canonical(name))
        value = canonical(str(self.plain(name, default)))
        for word in allowed:
            if canonical(word) == value:
                return word
        if item is not None:
            self._wrong(name, item, "one of " + ", ".join(allowed), "wrong_type")
        return default

    def classes(self, name: str) -> list[str] | None:
        """Return the Python exceptions for a list of Java classes; None where none is given."""
        if not self.has(name):
            return None
        given: Any = self.plain(name, [])
        if type(given) is dict:  # recordExceptions[0], recordExceptions[1] …
            given = list(self.plain(name, {}).values())
        names = [str(each) for each in (given if is_list(given) else str(given).split(","))]
        twins = [(java.strip(), _CLASSES.get(java.strip().rpartition(".")[2].rpartition("$")[2])) for java in names]
        lost = [java for java, twin in twins if twin is None]
        if lost:
            self.note(name, f"no Python class is known for {', '.join(lost)}: put yours here")
        return list(dict.fromkeys(twin for _, twin in twins if twin is not None))

    def _wrong(self, name: str, item: Item, allowed: str, kind: str) -> None:
        self.wrong.add(canonical(name))
        self.findings.wrong(item, allowed, kind)


def _read(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)


_CLASSES = {
    "Throwable": "Exception",
    "Exception": "Exception",
    "RuntimeException": "Exception",
    "IOException": "OSError",
    "UncheckedIOException": "OSError",
    "ConnectException": "ConnectionError",
    "SocketException": "ConnectionError",
    "ResourceAccessException": "ConnectionError",
    "UnknownHostException": "OSError",
    "SocketTimeoutException": "TimeoutError",
    "HttpTimeoutException": "TimeoutError",
    "TimeoutException": "TimeoutError",
    "IllegalArgumentException": "ValueError",
    "IllegalStateException": "RuntimeError",
    "NullPointerException": "AttributeError",
    "UnsupportedOperationException": "NotImplementedError",
    "CallNotPermittedException": "halfopen:CircuitOpenError",
    "BulkheadFullException": "halfopen:BulkheadFullError",
    "RequestNotPermitted": "halfopen:RateLimitedError",
}
