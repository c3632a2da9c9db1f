"""The story of the demo: what happens when, in seconds of the story, and the pace at which they pass."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

__all__ = ["DEFAULT_SPEED", "MAX_SPEED", "Pace", "Story", "clock_face", "wall_ahead"]

DEFAULT_SPEED = 10.0
MAX_SPEED = 200.0
_MOST_PER_SECOND = 150.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """
    One bad day of one partner. All times are seconds of the story.

    The partner turns to 503 at *ill_at* and stays so until *back_at*, and for *noticed* seconds after it has refused
    as many requests as any breaker needs to see: on a machine that stands still for a moment it would otherwise be
    back before anybody knew. It comes back cold: it works slowly and takes
    *capacity* requests at once, *growth* more for each one it has answered since. One too many and it falls over for
    *relapse* seconds, and is as cold as before. After *warm_after* answers it is well. At *rescued_at* its operators
    make it well whatever its callers do, so that every variant of the story has an end.

    A partner who speaks AS2 also breaks the connection before its answer to the *unanswered*-th message that it takes,
    and answers the *evasive*-th request with a maintenance page and status 200.

    The hub and its senders are the same in every variant; only the guard between them and the partner differs.
    """

    rate: float = 4.0
    accept_until: float = 310.0
    ends_at: float = 450.0

    ill_at: float = 50.0
    back_at: float = 100.0
    noticed: float = 30.0
    relapse: float = 15.0
    rescued_at: float = 280.0
    normal: float = 0.5
    slow: float = 3.0
    receipt_delay: float = 1.0
    capacity: int = 4
    growth: int = 2
    warm_after: int = 12
    unanswered: int = 25
    evasive: int = 45

    streams: int = 3
    ordered_every: int = 12

    threads: int = 4
    tasks: int = 4
    max_attempts: int = 5
    retry_first: float = 10.0

    window: int = 20
    failure_rate: float = 0.5
    wait: float = 30.0
    wait_factor: float = 2.0
    wait_cap: float = 600.0
    trials: int = 3
    trial_timeout: float = 60.0

    @property
    def telling(self) -> int:
        """Return how many failures open the circuit."""
        return math.ceil(self.window * self.failure_rate)

    @property
    def senders(self) -> int:
        """Return how many requests can be on their way at once."""
        return self.threads + self.tasks


@dataclass(slots=True)
class Pace:
    """How story time passes: *speed* seconds of the story in one second of the watch, from `start` on."""

    speed: float = DEFAULT_SPEED
    began: float = field(default=0.0)

    def start(self) -> None:
        """Let the story begin now."""
        self.began = time.monotonic()

    def now(self) -> float:
        """Return the seconds of the story that have passed."""
        return (time.monotonic() - self.began) * self.speed

    def watch(self, seconds: float) -> float:
        """Return how long *seconds* of the story take on the watch."""
        return seconds / self.speed

    def at_least(self, seconds: float, floor: float) -> float:
        """
        Return *seconds* of the story on the watch, but no less than *floor*.

        For limits that guard against a hang: at a high speed a busy machine would break them.
        """
        return max(seconds / self.speed, floor)

    def rate(self, story: Story) -> float:
        """Return messages per second of the story; the machine is spared more than 150 a second of the watch."""
        return min(story.rate, _MOST_PER_SECOND / self.speed)

    @property
    def tick(self) -> float:
        """Return how long an idle sender naps, in seconds of the watch."""
        return min(0.05, max(0.002, 0.2 / self.speed))


def wall_ahead() -> float:
    """
    Return by how much the wall clock is ahead of the monotonic one, which processes of one machine share.

    Of several readings the one counts in which the machine stood still least between the two clocks.
    """
    readings = [(time.monotonic(), time.time(), time.monotonic()) for _ in range(50)]
    before, wall, after = min(readings, key=lambda reading: reading[2] - reading[0])
    return wall - (before + after) / 2


def clock_face(seconds: float) -> str:
    """Return *seconds* as minutes and seconds: ``1:05``."""
    whole = max(0, int(seconds))
    return f"{whole // 60}:{whole % 60:02d}"
