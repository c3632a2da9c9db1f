"""The state of a breaker and what guards it: one lock, and what must be done after it is released."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from halfopen._breaker.judge import Judge
from halfopen._breaker.permits import Permit, SettledFreePermit, Watch
from halfopen._core.backoff import Exponential
from halfopen._core.checking import usable_seconds
from halfopen._core.circuit import Circuit, Report
from halfopen._core.events import CallFailed, CallIgnored, CallRejected, CallSucceeded
from halfopen._core.settings import Settings
from halfopen._core.states import Refusal, State
from halfopen._core.stays import StateObject
from halfopen._runtime.bus import Bus
from halfopen._runtime.clock import Clock
from halfopen.errors import CircuitOpenError
from halfopen.typing import Classifier

if TYPE_CHECKING:
    from random import Random

__all__ = ["Shell"]

# A member fetched from its enumeration costs 50 ns on Python 3.11.
_OPEN = Refusal.OPEN
_NEVER = math.inf
_OUTCOMES = (CallSucceeded, CallFailed, CallIgnored)


class Shell:
    """
    What every part of a breaker shares.

    The lock guards decisions and nothing else: user code, timers and listeners have their turn in `_after`. It is
    reentrant, because a signal handler may call the breaker it interrupts.
    """

    __slots__ = (
        "__weakref__", "_abandoned", "_bus", "_circuit", "_clock", "_judge", "_lock", "_now", "_timer", "_warned",
        "name", "tags",
    )  # fmt: skip

    def _build(
        self,
        name: str,
        settings: Settings,
        classify: Classifier,
        tags: Mapping[str, str],
        clock: Clock,
        rng: Random,
        bus: Bus,
    ) -> None:
        self.name = name
        self.tags = tags
        self._judge = Judge(name, classify)
        self._clock = clock
        self._now = clock.monotonic
        self._bus = bus
        self._lock = threading.RLock()
        self._abandoned: list[Watch] = []
        self._timer: Any = None
        self._warned = False
        self._circuit = Circuit(name, settings, self._now(), rng, bus)
        self._refresh(self._now())
        bus.attach(self)

    def tick(self) -> None:
        """Make due what time alone decides: leases, the ends of rounds, ramps and orders, and a timer's move."""
        now = self._now()
        with self._lock:
            self._collect(now)
            self._circuit.tick(now)
        self._after()

    def _refuse(self, state: StateObject, now: float) -> CircuitOpenError:
        """Count a refusal that needs no thought, and return what to raise."""
        circuit, refusal = self._circuit, state.refusal
        if refusal is _OPEN and not circuit.tells_refusals:
            next(circuit.counters.refused_open)  # what `refused` comes down to
        else:
            with self._lock:
                circuit.refused(state, refusal, now)
        if self._bus.waiting or circuit.wait_wanted is not None:
            self._after()
        shut_until = state.shut_until
        return CircuitOpenError(self.name, state.kind, refusal, None if shut_until == _NEVER else shut_until - now)

    def _settle_permit(self, permit: Permit, report: Report, now: float) -> None:
        circuit, state, serial = self._circuit, permit._state, permit._serial
        with self._lock:
            self._collect(now)
            if serial == 0:
                permit.__class__ = SettledFreePermit
                circuit.counters.free_settled += state.lost is circuit.lost  # unless a fork came between
                circuit.settle(state, 0, report, now)
            elif serial in circuit.outstanding or serial in getattr(state, "expired", ()):
                circuit.settle(state, serial, report, now)
                circuit.outstanding.pop(serial, None)
        self._after()

    def _collect(self, now: float) -> None:
        abandoned = self._abandoned
        while abandoned:
            # Crossed off when it is done: after an interrupt it is done again, which changes nothing.
            first = abandoned[0]
            self._circuit.abandon(first.serial, now)
            if abandoned and abandoned[0] is first:
                del abandoned[0]

    def _after(self) -> None:
        """Do what must not be done under the lock: user code, timers, listeners."""
        if self._circuit.wait_wanted is not None:
            self._resolve_wait()
        if self._circuit.settings.automatic_half_open:
            self._schedule()
        if self._bus.waiting:
            self._bus.flush()

    def _resolve_wait(self) -> None:
        wanted = self._circuit.wait_wanted
        if wanted is None:
            return
        opened, event, _ = wanted
        seconds = self._ask_backoff(event.step)
        with self._lock:
            self._circuit.set_wait(opened, seconds)

    def _ask_backoff(self, step: int) -> float:
        circuit = self._circuit
        try:
            given = circuit.settings.backoff(step, circuit.rng)
            seconds = usable_seconds(given)
            if seconds is None:
                raise ValueError(f"a wait is a number of seconds of at least 0, not {given!r}")
        except Exception:
            self._judge.log_once("the backoff of %r gave no wait; the default one is used")
            return Exponential()(step, circuit.rng)
        return seconds

    def _schedule(self) -> None:
        due = self._circuit.state.due()
        timer = self._timer
        if due == math.inf or (timer is not None and self._now() < timer[0] <= due):
            return
        if timer is not None:
            timer[1].cancel()
        try:
            self._timer = (due, self._clock.call_at(due, _weak_tick(self)))
        except Exception:  # no further thread can be started, say
            self._timer = None
            self._judge.log_once("no timer could be set for %r; its next call moves it on")

    # Upkeep

    def _idle(self) -> bool:
        """Say whether nothing would be lost if it were forgotten: CLOSED, and no permit in flight."""
        circuit = self._circuit
        now = self._now()
        with self._lock:
            circuit.fold(now)
            return circuit.state.kind is State.CLOSED and circuit.in_flight() == 0

    def listeners_changed(self) -> None:
        """Take note that somebody began, or ceased, to listen."""
        now = self._now()
        with self._lock:
            self._refresh(now)

    def _refresh(self, now: float) -> None:
        """Let the circuit know what it has to tell and to judge, from the next call on."""
        circuit, wants = self._circuit, self._bus.wants
        circuit.judges_every_success = self._judge.judges_results or wants(CallSucceeded)
        circuit.tells_refusals = wants(CallRejected)
        circuit.tells_outcomes = any(wants(kind) for kind in _OUTCOMES)
        circuit.fold(now)

    def after_fork(self) -> None:
        """Begin anew in a child process: the parent's calls are not ours, and its lock may be held."""
        self._lock = threading.RLock()
        self._abandoned = []
        self._timer = None
        # In place, because wrapped functions hold the circuit.
        self._circuit.begin(self._now())
        self._refresh(self._now())


def _weak_tick(breaker: Shell) -> Callable[[], None]:
    reference = weakref.ref(breaker)

    def tick() -> None:
        alive = reference()
        if alive is not None:
            alive._timer = None
            alive.tick()

    return tick
