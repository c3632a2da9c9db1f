"""Rates from sums, and the past of each breaker at three resolutions, in bounded memory."""

from __future__ import annotations

from array import array
from collections import deque
from typing import Any

__all__ = ["Rate", "Timeline", "rounded"]

SPAN = 10.0
"""Seconds over which a rate is taken."""

FINEST, FINEST_POINTS = 1.0, 180
FINE, FINE_POINTS = 5.0, 180
COARSE, COARSE_POINTS = 60.0, 360
_UNKNOWN = float("nan")


def rounded(value: float) -> float:
    """Return three significant digits: enough to read, and calm."""
    return float(f"{value:.3g}")


class Rate:
    """How fast some sums grow, over the last 10 s or since the last move; a sum that shrinks began anew."""

    __slots__ = ("_last", "_seen")

    def __init__(self) -> None:
        self._seen: deque[tuple[float, tuple[float, ...]]] = deque(maxlen=16)
        self._last: tuple[float, ...] | None = None

    def add(self, now: float, sums: tuple[float, ...], *, anew: bool = False) -> tuple[float, ...]:
        """Take note of the sums at *now*, with *anew* of a new state; return the growth per second."""
        seen = self._seen
        if any(new < old for _, before in list(seen)[-1:] for new, old in zip(sums, before, strict=True)):
            seen.clear()
            self._last = None
        if anew:
            seen.clear()
        if not seen or now - seen[-1][0] >= SPAN / 12:
            seen.append((now, sums))
        while len(seen) > 1 and now - seen[0][0] > SPAN:
            seen.popleft()
        began, first = seen[0]
        if now - began < 0.5:
            # Too short to say: what it was before a move is nearer the truth than nothing.
            return self._last or (0.0,) * len(sums)
        self._last = tuple(rounded((new - old) / (now - began)) for new, old in zip(sums, first, strict=True))
        return self._last


class Timeline:
    """Asked and refused per second, failure share while closed: 3 min by seconds, 15 min by 5 s, 6 h by minutes."""

    __slots__ = ("_coarse", "_fine", "_finest")

    def __init__(self) -> None:
        self._finest = _Ring(FINEST, FINEST_POINTS)
        self._fine = _Ring(FINE, FINE_POINTS)
        self._coarse = _Ring(COARSE, COARSE_POINTS)

    def add(self, now: float, asked: float, refused: float, failed: float | None) -> None:
        """Take note of one look."""
        for ring in (self._finest, self._fine, self._coarse):
            ring.add(now, asked, refused, failed)

    def points(self, seconds: float, now: float) -> dict[str, Any]:
        """Return the last *seconds* as lists of equal length."""
        short, middle = FINEST * FINEST_POINTS, FINE * FINE_POINTS
        ring = self._finest if seconds <= short else self._fine if seconds <= middle else self._coarse
        return ring.points(now - seconds)


class _Ring:
    """Points at a fixed distance; each is the mean of the looks in its span."""

    __slots__ = ("_columns", "_count", "_every", "_filled", "_next", "_size", "_slot", "_sums")

    def __init__(self, every: float, size: int) -> None:
        self._every = every
        self._size = size
        # Whole from the beginning: what a console needs, it needs at once, and no more later.
        self._columns: list[array[float]] = [
            array(kind, bytes(width * size)) for kind, width in (("d", 8), ("f", 4), ("f", 4), ("f", 4))
        ]
        self._filled = 0
        self._next = 0
        self._slot = -1
        self._sums = [0.0, 0.0, 0.0]
        self._count = [0, 0]

    def add(self, now: float, asked: float, refused: float, failed: float | None) -> None:
        slot = int(now // self._every)
        if slot != self._slot:
            self._flush()
            self._slot, self._sums, self._count = slot, [0.0, 0.0, 0.0], [0, 0]
        self._sums[0] += asked
        self._sums[1] += refused
        self._count[0] += 1
        if failed is not None:
            self._sums[2] += failed
            self._count[1] += 1

    def _point(self) -> tuple[float, float, float, float]:
        looks, closed = self._count
        failed = self._sums[2] / closed if closed else _UNKNOWN
        return self._slot * self._every, self._sums[0] / looks, self._sums[1] / looks, failed

    def _flush(self) -> None:
        if not self._count[0]:
            return
        for column, value in zip(self._columns, self._point(), strict=True):
            column[self._next] = value
        self._filled = min(self._filled + 1, self._size)
        self._next = (self._next + 1) % self._size

    def points(self, after: float) -> dict[str, list[float | None]]:
        begin = self._next if self._filled == self._size else 0
        rows = [list(column[begin:]) + list(column[:begin]) for column in self._columns]
        rows = [row[: self._filled] for row in rows]
        if self._count[0]:
            for row, value in zip(rows, self._point(), strict=True):
                row.append(value)
        kept = [index for index, at in enumerate(rows[0]) if at >= after]
        names = ("time", "asked", "refused", "failed")
        return {
            name: [None if row[index] != row[index] else round(row[index], 4) for index in kept]
            for name, row in zip(names, rows, strict=True)
        }
