"""What a notification says."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from halfopen._core.events import CircuitTransitioned
from halfopen.instrumentation._sentences import breaker_of, sentence
from halfopen.registry import Registry

__all__ = ["Move", "Notification", "move_of"]

SHOWN_AT_MOST = 20
"""Moves that the text of one notification spells out."""
_STEERING = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


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
        return self.shortened(None, str)

    def shortened(self, at_most: int | None, escape: Callable[[str], str]) -> str:
        """Return the text in another language, with as many moves as fit into *at_most* characters of it."""
        room = None if at_most is None else max(at_most // 4, 1)
        lines = [_cut(escape(_one_line(f"{move.name}: {move.sentence}")), room) for move in self.moves[:SHOWN_AT_MOST]]
        source = _cut(escape(_one_line(self.source)), room)
        if len(self.moves) == 1:
            return f"[{source}] {lines[0]}"
        summary = f"[{source}] {_summary(self.moves)}"
        while True:
            more = len(self.moves) - len(lines)
            text = "\n".join([summary, *lines, *([f"… and {more} more"] if more else [])])
            if at_most is None or len(text) <= at_most or not lines:
                return text
            del lines[-1]

    def plain(self) -> dict[str, Any]:
        """Return it as data that JSON can hold."""
        return {
            "version": 1,
            "source": self.source,
            "text": self.text,
            "moves": [{**asdict(move), "tags": dict(move.tags)} for move in self.moves],
        }


def _one_line(text: str) -> str:
    """Replace what would begin a line, or steer whatever shows the text: names may hold anything."""
    return "".join("\ufffd" if unicodedata.category(one) in _STEERING else one for one in text)


def _cut(text: str, room: int | None) -> str:
    if room is None or len(text) <= room:
        return text
    return re.sub(r"&[a-z]*$", "", text[: room - 1]) + "…"  # not in the middle of &amp;


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
