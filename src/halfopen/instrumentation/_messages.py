"""What a notification says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from halfopen._core.events import CircuitTransitioned
from halfopen.instrumentation._sentences import breaker_of, sentence
from halfopen.registry import Registry

__all__ = ["Move", "Notification", "move_of"]

SHOWN_AT_MOST = 20
"""Moves that the text of one notification spells out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """
    One move of one circuit breaker.

    Attributes:
        name: The breaker.
        old, new, reason: The states and why, in lower case.
        at: Unix time.
        epoch: The number of the state that began.
        step: The backoff step.
        wait: Seconds that it will stay open; None unless it opened.
        note, by: What an order said.
        tags: The breaker's tags.
        sentence: What `explain()` says.
    """

    name: str
    old: str
    new: str
    reason: str
    at: float
    epoch: int
    step: int
    wait: float | None
    note: str | None
    by: str | None
    tags: Mapping[str, str]
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """
    Moves to tell, oldest first.

    Attributes:
        source: Which process or service tells them.
        moves: At least one.
    """

    source: str
    moves: tuple[Move, ...]

    @property
    def text(self) -> str:
        """The moves in words, a line each."""
        lines = [f"{move.name}: {move.sentence}" for move in self.moves[:SHOWN_AT_MOST]]
        if len(self.moves) == 1:
            return f"[{self.source}] {lines[0]}"
        more = len(self.moves) - len(lines)
        tail = [f"… and {more} more"] if more else []
        return "\n".join([f"[{self.source}] {_summary(self.moves)}", *lines, *tail])

    def plain(self) -> dict[str, Any]:
        """Return it as data that JSON can hold."""
        return {
            "version": 1,
            "source": self.source,
            "text": self.text,
            "moves": [{**asdict(move), "tags": dict(move.tags)} for move in self.moves],
        }


def _summary(moves: tuple[Move, ...]) -> str:
    counts: dict[str, int] = {}
    for move in moves:
        counts[move.new] = counts.get(move.new, 0) + 1
    return f"{len(moves)} moves: " + ", ".join(f"{count} to {new.replace('_', '-')}" for new, count in counts.items())


def move_of(registry: Registry, event: CircuitTransitioned, at: float) -> Move:
    """Return what is told of a move at the Unix time *at*."""
    breaker = breaker_of(registry, event.name)
    return Move(
        name=event.name,
        old=event.old.value,
        new=event.new.value,
        reason=event.reason.value,
        at=at,
        epoch=event.epoch,
        step=event.step,
        wait=event.wait,
        note=event.note,
        by=event.by,
        tags={} if breaker is None else dict(breaker.tags),
        sentence=sentence(registry, event),
    )
