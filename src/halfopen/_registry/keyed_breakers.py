"""Families of breakers: equal ones, one for each key."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import NoReturn

from halfopen._core.events import Event, PolicyCreated, PolicyEvicted
from halfopen._registry.shelf import Shelf
from halfopen._runtime.keyed import KeyedPolicy
from halfopen.circuit_breaker import CircuitBreaker

__all__ = ["DEFAULT_MAX_KEYS", "KeyedBreakers"]

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
        registry: Shelf,
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
