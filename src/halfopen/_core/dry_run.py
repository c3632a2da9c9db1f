"""What an observed circuit would do: a circuit of the same settings beside it, which nobody asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from halfopen._core.backoff import Exponential
from halfopen._core.outcomes import Outcome
from halfopen._core.states import State

if TYPE_CHECKING:
    from halfopen._core.circuit import Circuit
    from halfopen._core.events import Event

__all__ = ["DryRun"]


class DryRun:
    """
    Hands the calls of an observed circuit to another one, and counts what that one refuses, and when it opens.

    A call is asked for when it ends, so one that was under way at the opening counts as refused: right where calls are
    short against the wait. No eligibility is asked, jitter is left out, and a backoff in user code, which cannot be
    called here, counts as the default one.

    Args:
        observed: Whose counters the results go to.
        now: The present, in seconds.
    """

    __slots__ = ("_circuit", "_observed")

    def __init__(self, observed: Circuit, now: float) -> None:
        self._observed = observed
        middle: Any = _Middle()
        self._circuit = type(observed)(observed.name, observed.settings, now, middle, _Nowhere())

    def settle(self, outcome: Outcome, slow: bool, retry_after: float | None, now: float) -> None:
        """Take a call that has ended."""
        circuit = self._circuit
        circuit.tick(now)
        before = circuit.state
        refusal = before.admit(now, _SERIAL, True)
        if refusal is not None:
            self._observed.counters.dry_refused += 1
            return
        circuit.state.settle(_SERIAL, outcome, slow, retry_after, now)
        opened = circuit.state
        if opened.kind is State.OPEN and opened is not before:
            self._wait(now)
            if before.kind is State.CLOSED and opened.why is not None:
                openings = self._observed.counters.dry_openings
                openings[opened.why] = openings.get(opened.why, 0) + 1

    def _wait(self, now: float) -> None:
        wanted = self._circuit.wait_wanted
        if wanted is not None:
            opened, event, _ = wanted
            self._circuit.set_wait(opened, _DEFAULT(event.step, self._circuit.rng))

    def adopt(self, now: float) -> None:
        """Go on under changed settings."""
        self._circuit.configure(self._observed.settings, now)


class _Middle:
    """A source of chance without any."""

    def uniform(self, low: float, high: float) -> float:
        return (low + high) / 2


class _Nowhere:
    """An outbox that wants nothing."""

    def wants(self, kind: type[Event]) -> bool:
        return False

    def put(self, event: Event) -> None:
        """Forget it."""


_SERIAL = 1  # one call at a time: it is asked for and settled in one step
_DEFAULT = Exponential()
