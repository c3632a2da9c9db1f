"""The story in sentences: what the circuit and the partner did, and when."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import halfopen
from halfopen.cli.demo.account import Account
from halfopen.cli.demo.story import Pace, Story

__all__ = ["Line", "Narrator"]

_PARTNER = {
    ("well", "down"): "the partner turns to 503",
    ("cold", "down"): "the partner falls over again: too many requests at once",
    ("down", "cold"): "the partner is back, but cold: slow, and easily knocked over",
    ("cold", "well"): "the partner is warm again and takes everything",
    ("down", "well"): "the partner's operators have made it well",
}


@dataclass(frozen=True, slots=True, order=True)
class Line:
    """One sentence, at a second of the story."""

    at: float
    text: str


class Narrator:
    """
    Collect the sentences.

    Moves of the circuit are told from any thread and said at the next `look`, so that they and the partner's come in
    the order in which they happened.
    """

    def __init__(self, story: Story, pace: Pace) -> None:
        self.lines: list[Line] = []
        self._story = story
        self._pace = pace
        self._lock = threading.Lock()
        self._moves: list[halfopen.CircuitTransitioned] = []
        self._others: list[Line] = []
        self._condition = "well"
        self._draining = False

    @property
    def behind(self) -> bool:
        """Return whether there are moves that were not said yet."""
        return bool(self._moves)

    def moved(self, move: halfopen.CircuitTransitioned) -> None:
        """Take note of a move of the circuit."""
        with self._lock:
            self._moves.append(move)

    def say(self, at: float, text: str) -> None:
        """Add a sentence of somebody else's."""
        with self._lock:
            self._others.append(Line(at, text))

    def look(self, account: Account) -> None:
        """Say what happened since the last look."""
        with self._lock:
            moves, self._moves = self._moves, []
            others, self._others = self._others, []
        self.lines += sorted([*map(self._move, moves), *others, *self._partner(account)])
        if self._draining and account.outstanding <= self._story.senders:
            self._draining = False
            self.lines.append(Line(account.now, "the kept messages are delivered"))

    def _move(self, move: halfopen.CircuitTransitioned) -> Line:
        totals, trials = move.totals, self._story.trials
        if move.reason == "restored":
            at = (move.at - self._pace.began) * self._pace.speed
            return Line(at, f"{_shown(move.new)}: the restarted gateway goes on where the killed one was")
        seconds = "" if move.wait is None else f"{move.wait * self._pace.speed:.0f} s"
        sentence = {
            ("closed", "open"): f"{totals.failures} of the last {totals.calls} calls failed; first trial in {seconds}",
            ("open", "half_open"): f"the wait is over; {trials} trial calls may pass",
            ("half_open", "open"): f"a trial call failed; the wait grows to {seconds}",
            ("half_open", "closed"): f"{trials} of {trials} trial calls succeeded; kept messages go out",
        }.get((move.old, move.new), str(move.reason))
        self._draining = self._draining or move.new == "closed"
        at = (move.at - self._pace.began) * self._pace.speed
        return Line(at, f"{_shown(move.old)} → {_shown(move.new)}: {sentence}")

    def _partner(self, account: Account) -> list[Line]:
        books = account.books
        if books is None or books.condition == self._condition:
            return []
        sentence = _PARTNER.get((self._condition, books.condition), f"the partner is {books.condition}")
        self._condition = books.condition
        return [Line(books.since, sentence)]


def _shown(state: str) -> str:
    return state.replace("_", "-").upper()
