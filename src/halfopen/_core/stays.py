"""
The stays in the states: what each admits, how it takes an outcome, and what time does to it.

Here what they share, and the stays that gather no evidence; the others are in `counting` and `rounds`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import repeat
from typing import TYPE_CHECKING

from halfopen._core.outcomes import Outcome
from halfopen._core.states import Reason, Refusal, State
from halfopen._core.windows import Totals

if TYPE_CHECKING:
    from halfopen._core.circuit import Circuit

__all__ = ["NO_ROOM", "Disabled", "ForcedOpen", "Open", "StateObject"]

NO_ROOM: Iterator[bool] = repeat(True, 0)
"""Every failure is judged."""


class StateObject:
    """One stay in one state; its identity is the epoch."""

    kind: State
    full_until = -math.inf
    """Until then every trial call is taken, unless one reports: set by a refusal, so that the next ones cost little."""

    __slots__ = (
        "calm_until",
        "circuit",
        "ends_at",
        "entered",
        "epoch",
        "gated",
        "lost",
        "quiet",
        "quiet_failures",
        "quiet_permits",
        "records",
        "refusal",
        "room",
        "shut_until",
        "slow_after",
        "why",
    )  # fmt: skip

    def __init__(self, circuit: Circuit, why: Reason | None, now: float) -> None:
        self.circuit = circuit
        self.why = why
        self.entered = now
        self.epoch: int = circuit.epoch + 1
        self.gated = True
        self.records = True
        self.ends_at = math.inf  # of an order
        self.shut_until = -math.inf  # before it nobody is admitted, whatever else happens,
        self.refusal = Refusal.OPEN  # for this reason
        self.calm_until = -math.inf
        self.slow_after = circuit.slow_after
        # Durations of fast successes not yet folded in: of wrapped calls, and of calls that hold a permit.
        self.quiet: list[float] = []
        self.quiet_permits: list[float] = []
        # The same of failures that cannot trip: (successes not yet folded in that came before, duration, class).
        self.quiet_failures: list[tuple[int, float, type[BaseException]]] = []
        self.room = NO_ROOM  # gives True to as many failures as may stay quiet
        self.lost = circuit.lost

    def end_at(self, when: float) -> None:
        """Let the order end at *when*."""
        self.ends_at = when
        if self.shut_until == math.inf:
            self.shut_until = when

    def admit(self, now: float, serial: int, eligible: bool) -> Refusal | None:
        """Return why the call is refused, or None."""
        return None

    def settle(self, serial: int, outcome: Outcome, slow: bool, retry_after: float | None, now: float) -> None:
        """Take an outcome of this very epoch."""

    def tick(self, now: float) -> None:
        """Make due what is due: here, the end of an order."""
        if now >= self.ends_at:
            self.circuit.close(Reason.OVERRIDE_ENDED, now)

    def due(self) -> float:
        """Return when `tick` will have something to do; infinity for never."""
        return self.ends_at

    def retry_after(self, now: float) -> float | None:
        """Return the seconds after which asking again makes sense, if anybody can know."""
        return None

    def owns(self, serial: int) -> bool:
        """Say whether a permit of this state still counts."""
        return True

    def held(self) -> Totals:
        """Return what the window, or the round of trial calls, holds."""
        return Totals(0, 0, 0, 0)

    def fold(self) -> None:
        """Count the quiet successes; there are none where nothing is calm."""

    def calm(self, now: float) -> None:
        """Say until when fast successes may stay quiet."""

    def adopt(self, now: float) -> None:
        """Go on under changed settings."""
        self.slow_after = self.circuit.slow_after
        self.calm(now)


class Open(StateObject):
    """Everything is refused until the wait is over."""

    kind = State.OPEN
    __slots__ = ()

    def __init__(self, circuit: Circuit, why: Reason, now: float, wait: float | None) -> None:
        super().__init__(circuit, why, now)
        self.shut_until = math.inf if wait is None else now + wait

    @property
    def until(self) -> float:
        """When the wait ends; infinity while it is not known."""
        return self.shut_until

    def admit(self, now: float, serial: int, eligible: bool) -> Refusal | None:
        if now < self.until:
            return Refusal.OPEN
        if not eligible:
            return Refusal.NOT_ELIGIBLE
        return self.circuit.half_open(Reason.WAIT_ELAPSED, now).admit(now, serial, eligible)

    def tick(self, now: float) -> None:
        if self.circuit.settings.automatic_half_open and now >= self.until:
            self.circuit.half_open(Reason.WAIT_ELAPSED, now)

    def due(self) -> float:
        return self.until if self.circuit.settings.automatic_half_open else math.inf

    def retry_after(self, now: float) -> float | None:
        return None if self.until == math.inf else max(self.until - now, 0.0)


class ForcedOpen(StateObject):
    """Everything is refused, by order."""

    kind = State.FORCED_OPEN
    __slots__ = ()

    def __init__(self, circuit: Circuit, why: Reason | None, now: float) -> None:
        super().__init__(circuit, why, now)
        self.shut_until = math.inf
        self.refusal = Refusal.FORCED_OPEN

    def admit(self, now: float, serial: int, eligible: bool) -> Refusal | None:
        return Refusal.FORCED_OPEN

    def retry_after(self, now: float) -> float | None:
        return None if self.ends_at == math.inf else max(self.ends_at - now, 0.0)


class Disabled(StateObject):
    """Everything is admitted and nothing recorded, by order."""

    kind = State.DISABLED
    __slots__ = ()

    def __init__(self, circuit: Circuit, why: Reason | None, now: float) -> None:
        super().__init__(circuit, why, now)
        self.records = False
