"""How well the partner is, decided from the script and what reaches it; no clock, no socket."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from halfopen.cli.demo.story import Story

__all__ = ["Condition", "Health", "Visit"]


class Condition(StrEnum):
    """What the partner is like at the moment."""

    WELL = "well"
    DOWN = "down"
    COLD = "cold"


@dataclass(frozen=True, slots=True)
class Visit:
    """A request that the partner has begun to work on: for how long, and in which of its lives."""

    work: float
    life: int


class Health:
    """
    The partner's condition. The caller holds a lock and hands in *now*, in seconds of the story.

    A fall ends a life: requests of an earlier life get 503, however far they had come.
    """

    def __init__(self, story: Story) -> None:
        self._story = story
        self._until = 0.0
        self._inside = 0
        self._answered = 0
        self._refused = 0
        self.life = 0
        self.condition = Condition.WELL
        self.since = 0.0
        self.ill_since: float | None = None
        self.well_since: float | None = None
        self.rescued = False
        self.falls = 0
        self.sick_hits = 0
        self.peak_cold = 0

    def look(self, now: float) -> Condition:
        """Let what is due by *now* happen and return the condition."""
        story = self._story
        if self.ill_since is None and now >= story.ill_at:
            self.ill_since = story.ill_at
            self._go_down(story.ill_at, story.back_at)
        if self.condition is Condition.DOWN and now >= self._until and self._refused >= story.telling:
            self.condition, self.since, self._answered = Condition.COLD, self._until, 0
        if self.condition is not Condition.WELL and now >= story.rescued_at:
            self.rescued = True
            self._recover(story.rescued_at)
        return self.condition

    def arrive(self, now: float) -> Visit | None:
        """Take a request in; None means 503 at once."""
        condition = self.look(now)
        if condition is not Condition.WELL:
            self.sick_hits += 1
        if condition is Condition.DOWN:
            self._refuse(now)
            return None
        if condition is Condition.COLD and self._inside >= self._room():
            self._fall(now)
            return None
        self._inside += 1
        if condition is Condition.COLD:
            self.peak_cold = max(self.peak_cold, self._inside)
        return Visit(self._work(condition), self.life)

    def leave(self, visit: Visit, now: float) -> bool:
        """Let a request out; False means that the partner fell while it was inside: 503."""
        if visit.life != self.life:
            self._refuse(now)
            return False
        self._inside -= 1
        if self.condition is Condition.COLD:
            self._answered += 1
            if self._answered >= self._story.warm_after:
                self._recover(now)
        return True

    def _refuse(self, now: float) -> None:
        self._refused += 1
        if self._refused == self._story.telling:
            self._until = max(self._until, now + self._story.noticed)

    def _room(self) -> int:
        return self._story.capacity + self._story.growth * self._answered

    def _work(self, condition: Condition) -> float:
        if condition is Condition.WELL:
            return self._story.normal
        cold = 1.0 - self._answered / self._story.warm_after
        return self._story.normal + (self._story.slow - self._story.normal) * cold

    def _fall(self, now: float) -> None:
        self.falls += 1
        self._go_down(now, now + self._story.relapse)

    def _go_down(self, now: float, until: float) -> None:
        self.condition, self.since, self._until = Condition.DOWN, now, until
        self.life += 1
        self._inside = 0

    def _recover(self, now: float) -> None:
        self.condition, self.since, self.well_since = Condition.WELL, now, now
