"""The sentence about a move, for log lines and notifications."""

from __future__ import annotations

from halfopen._core.events import CircuitTransitioned
from halfopen.circuit_breaker import CircuitBreaker
from halfopen.registry import Registry

__all__ = ["breaker_of", "sentence"]


def breaker_of(registry: Registry, name: str) -> CircuitBreaker | None:
    """Return the breaker of an event, if it still exists."""
    named: CircuitBreaker | None = registry.find("circuit_breaker", name)
    if named is not None:
        return named
    return next((breaker for breaker in registry.breakers() if breaker.name == name), None)


def sentence(registry: Registry, event: CircuitTransitioned) -> str:
    """Return what `explain()` says about this very move; in fewer words if the breaker has moved on meanwhile."""
    breaker = breaker_of(registry, event.name)
    if breaker is not None:
        history = breaker.history
        if history and history[-1].epoch == event.epoch:
            said = breaker.explain()
            if breaker.history[-1].epoch == event.epoch:
                return said
    return _short(event)


def _short(event: CircuitTransitioned) -> str:
    words = f"{event.old.value.replace('_', '-')} → {event.new.value.replace('_', '-')} ({event.reason.value})"
    who = f" by {event.by}" if event.by else ""
    note = f": {event.note}" if event.note else ""
    wait = f"; next trial after {event.wait:.3g} s" if event.wait is not None else ""
    return f"{words}{who}{note}{wait}"
