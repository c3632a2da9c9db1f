"""
The generic cell rate algorithm: a rate with bursts, in one number of state.

Source: ITU-T Recommendation I.371 and ATM Forum UNI 3.1, "virtual scheduling algorithm". With an emission interval
T = per / rate and a tolerance tau = (burst - 1) × T, a cell that arrives at *t* conforms when t >= TAT - tau, where
TAT is the theoretical arrival time; it then moves TAT to max(TAT, t) + T. It admits exactly what a token bucket of
*burst* tokens refilled at *rate* / *per* admits, without a refill to compute or to forget.
"""

from __future__ import annotations

import math

__all__ = ["Gcra", "seconds_until"]


class Gcra:
    """
    When the next permit is free.

    Args:
        rate: Permits in *per* seconds.
        per: Seconds.
        burst: Permits that may be used at once after a quiet time.
    """

    __slots__ = ("burst", "interval", "tat", "tolerance")

    def __init__(self, rate: float, per: float, burst: int) -> None:
        self.interval = per / rate
        self.tolerance = (burst - 1) * self.interval
        self.burst = burst
        self.tat = -math.inf

    def take(self, now: float) -> bool:
        """Take a permit if one is free at *now*."""
        tat = self.tat
        if now < tat - self.tolerance:
            return False
        self.tat = (tat if tat > now else now) + self.interval  # not `max`: nobody may come between
        return True

    def due(self, now: float, ahead: int = 0) -> float:
        """Return when a permit is free for somebody with *ahead* others in front; not after *now*: at once."""
        if ahead == 0:
            return self.tat - self.tolerance
        return max(self.tat, now) + ahead * self.interval - self.tolerance

    def available(self, now: float) -> int:
        """Return how many permits are free at *now*."""
        behind = now - (self.tat - self.tolerance)
        if behind < 0:
            return 0
        # A hair's breadth, because n intervals added up one by one are not n × interval.
        return min(self.burst, int(min(behind / self.interval + 1e-9, self.burst)) + 1)

    def change(self, now: float, rate: float, per: float, burst: int) -> None:
        """Go on at *now* with another rate; permits used so far stay used, and come back at the new rate."""
        interval = per / rate
        if self.tat > now:
            self.tat = now + (self.tat - now) * (interval / self.interval)
        self.interval = interval
        self.tolerance = (burst - 1) * interval
        self.burst = burst


def seconds_until(due: float, now: float) -> float:
    """Return the smallest wait with ``now + wait >= due`` in float arithmetic, where ``due - now`` may fall short."""
    wait = due - now
    while now + wait < due:
        wait = math.nextafter(wait, math.inf)
    return max(wait, 0.0)
