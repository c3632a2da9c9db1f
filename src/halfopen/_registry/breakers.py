"""Breakers by name: made when they are first asked for, on their own or as one of a family."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from halfopen._breaker.orders import make_settings
from halfopen._core.checking import Checks
from halfopen._core.snapshots import Snapshot
from halfopen._registry.keyed_breakers import DEFAULT_MAX_KEYS, KeyedBreakers
from halfopen._registry.shelf import BREAKER, Shelf
from halfopen._runtime.keyed import LARGEST_FAMILY
from halfopen.circuit_breaker import CircuitBreaker
from halfopen.classification import Failures
from halfopen.errors import ConfigError
from halfopen.typing import Classifier

__all__ = ["Breakers"]


class Breakers(Shelf):
    """The part of a registry that makes breakers and finds them."""

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
        known: CircuitBreaker | None = self.find(BREAKER, name)
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

    def breakers(self, name: str = "*", **tags: str) -> list[CircuitBreaker]:
        """
        Return the breakers, named and keyed ones, whose name fits and which have all these tags.

        Args:
            name: A pattern with ``*`` and ``?``.
            tags: Tags and their values.
        """
        with self._lock:
            found: list[CircuitBreaker] = [policy for (kind, _), policy in self._policies.items() if kind == BREAKER]
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

    def tick(self) -> None:
        """Make due, in every breaker, what time alone decides."""
        for breaker in self.breakers():
            breaker.tick()


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
