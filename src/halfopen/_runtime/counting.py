"""A counter whose step needs no lock."""

from __future__ import annotations

from itertools import count

__all__ = ["Count"]


class Count:
    """
    Counts by `itertools.count`, whose step is atomic on every Python and costs a fifth of a lock.

    Attributes:
        step: Call it to count one.
    """

    __slots__ = ("_looked", "step")

    def __init__(self) -> None:
        self._looked = 0
        self.step = count().__next__

    def value(self) -> int:
        """Return how often it was stepped; call this under a lock."""
        # Only a step tells where the count stands, so the looks themselves are subtracted.
        value = self.step() - self._looked
        self._looked += 1
        return value
