"""What all lanes of one process share."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from halfopen._runtime.clock import Clock

from ._alerts import Alerts
from ._stats import Tally
from ._store import Store

__all__ = ["Hub"]


@dataclass(slots=True)
class Hub:
    """
    What all lanes of one process share.

    Attributes:
        instance: Tells the queues of one process apart.
        attention: Asks for a step of a lane.
        again: Writes the store did not take, to be tried again.
        tokens: Numbers for lease tokens; never the same twice, also for a lane that left and came back.
        closes: Monotonic times at which lanes of this process have closed lately, by lane.
    """

    store: Store
    clock: Clock
    rng: random.Random
    alerts: Alerts
    tally: Tally
    instance: str
    attention: Callable[[str], None]
    closes: dict[str, float] = field(default_factory=dict)
    again: list[Callable[[], None]] = field(default_factory=list)
    tokens: count[int] = field(default_factory=count)

    @property
    def process(self) -> str:
        """Name this process and this queue in leases and verdicts."""
        return f"{self.store.owner()}.{self.instance}"
