"""What a move of the breaker changes in its lane."""

from __future__ import annotations

from halfopen._core.events import CircuitTransitioned
from halfopen._core.states import Reason, State
from halfopen.circuit_breaker import CircuitBreaker
from halfopen.errors import ConfigError

from ._hub import Hub
from ._inspection import Look
from ._pacing import spread_delay
from ._profile import LaneProfile
from ._rows import AlertKind
from ._verdicts import SharedVerdict, pack, round_elsewhere, unpack

__all__ = ["Outage"]

_SENDS_FREELY = frozenset({State.CLOSED, State.DISABLED, State.METRICS_ONLY})
_ILL = frozenset({State.OPEN, State.HALF_OPEN})


class Outage:
    """
    Follows the breaker of one lane: keeps its verdict in the store, wakes the lane, starts the drain.

    Attributes:
        epoch: The breaker's epoch.
        profile: The lane's, as it is now.
        not_before: Monotonic time at which the drain may begin: lanes that recover together are spread.
    """

    def __init__(self, name: str, hub: Hub, breaker: CircuitBreaker, profile: LaneProfile) -> None:
        self.not_before = 0.0
        self._name = name
        self._hub = hub
        self._breaker = breaker
        self.profile = profile
        self._since: float | None = None
        self._draining = False
        self._seen: str | None = None
        self._restore()
        self.epoch = breaker.snapshot().epoch
        self.close = breaker.subscribe(self._moved, CircuitTransitioned)

    def _restore(self) -> None:
        look = self._hub.store.look(self._name)
        saved = unpack(look.breaker if look is not None else None)
        if saved is not None:
            self._adopt(saved)
            self._since = self._began()
        self._seen = None if look is None else look.breaker

    def _adopt(self, verdict: SharedVerdict) -> None:
        try:
            self._breaker.restore(verdict.snapshot)
        except ConfigError:
            return  # another version's snapshot: begin anew rather than not at all

    def _began(self) -> float | None:
        """Return since when, on the monotonic clock, the circuit is as ill as it was found; None where it is well."""
        if self._breaker.state not in _ILL:
            return None
        clock = self._hub.clock
        return clock.monotonic() - max(0.0, clock.wall() - self._breaker.snapshot().since)

    def heed(self, look: Look) -> bool:
        """Follow what another process said about this lane; True: it is making the trial calls, wait for it."""
        if look.breaker == self._seen:
            return False
        verdict = unpack(look.breaker)
        if verdict is None or verdict.by == self._hub.process:
            self._seen = look.breaker
            return False
        if verdict.state is State.HALF_OPEN:
            now = self._hub.clock.wall()
            return round_elsewhere(look.breaker, self._hub.process, now, self.profile.stale_round)
        self._seen = look.breaker
        if verdict.state is not self._breaker.state:
            self._adopt(verdict)
        return False

    def drained(self) -> None:
        """Note that nothing waits any more."""
        if self._draining:
            self._draining = False
            self._alert("drained", "the backlog is gone")

    def _moved(self, event: CircuitTransitioned) -> None:
        self.epoch = event.epoch
        if event.reason is not Reason.RESTORED:
            saved = pack(self._hub.process, self._breaker.snapshot().plain())
            self._hub.store.save_breaker(
                self._name,
                saved,
                process=self._hub.process,
                restart_pace=event.old in _SENDS_FREELY,
                # Of two processes that go half-open at once, the first one in the store makes the trial calls.
                yields_for=self.profile.stale_round if event.new is State.HALF_OPEN else None,
            )
        if event.new is State.CLOSED:
            self._closed(event)
        elif event.new is State.OPEN:
            self._opened(event)
        self._hub.attention(self._name)

    def _closed(self, event: CircuitTransitioned) -> None:
        now = self._hub.clock.monotonic()
        self._hub.store.make_due(self._name)
        lately = [at for lane, at in self._hub.closes.items() if lane != self._name and now - at <= self.profile.spread]
        self._hub.closes[self._name] = now
        self.not_before = now + spread_delay(len(lately), self.profile.spread, self._hub.rng)
        if self._since is not None:
            self._draining = True
            self._alert("closed", f"after {now - self._since:.0f} s; the drain begins")
        self._since = None

    def _opened(self, event: CircuitTransitioned) -> None:
        if event.old is not State.HALF_OPEN:
            self._since = self._hub.clock.monotonic()
            self._alert("opened", self._breaker.explain())
            return
        if event.reason is Reason.MAX_DURATION and self._empty_but_well(event):
            self._breaker.reset(reason="the lane is empty and every trial call succeeded")
        elif event.reason in (Reason.INCONCLUSIVE, Reason.MAX_DURATION):
            self._alert("inconclusive", self._breaker.explain())
        else:
            self._alert("reopened", self._breaker.explain())

    def _empty_but_well(self, event: CircuitTransitioned) -> bool:
        if self.profile.after_inconclusive != "close" or event.totals.failures or not event.totals.calls:
            return False
        look = self._hub.store.look(self._name)
        return look is None or look.next_due is None

    def _alert(self, kind: AlertKind, detail: str, message_id: str | None = None) -> None:
        self._hub.alerts.tell(kind, lane=self._name, message_id=message_id, detail=detail)
