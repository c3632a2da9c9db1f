"""
One lane at work: the gates and the claim.

The gates come in this order: a message to send, a hold, a seat in the send window, the rate, the breaker's permit. The
permit comes last because trial calls are precious, and nothing is written before it is there.
"""

from __future__ import annotations

from dataclasses import dataclass

from halfopen._core.states import State
from halfopen.circuit_breaker import CircuitBreaker, Permit
from halfopen.errors import RejectedError

from ._delivery import AsyncSender, Attempt, Sender
from ._hub import Hub
from ._inspection import Look
from ._outage import Outage
from ._pacing import Rate
from ._profile import LaneProfile
from ._requests import ClaimRequest
from ._results import Results
from ._rows import Message

__all__ = ["Lane", "Step"]

_SENDS_FREELY = frozenset({State.CLOSED, State.DISABLED, State.METRICS_ONLY})
_TRIALS = frozenset({State.OPEN, State.HALF_OPEN})
_LOCKED_TRIES = 20


@dataclass(frozen=True, slots=True)
class Step:
    """
    What came of looking at a lane.

    Attributes:
        attempts: Claimed, to be sent now.
        wait: Seconds until the next look makes sense; None: until somebody calls.
        reason: What the lane waits for.
    """

    attempts: tuple[Attempt, ...] = ()
    wait: float | None = None
    reason: str = ""


class Lane:
    """The messages of one partner, driven by its breaker."""

    def __init__(
        self, name: str, hub: Hub, breaker: CircuitBreaker, sender: Sender | AsyncSender, profile: LaneProfile
    ) -> None:
        self.name = name
        self.breaker = breaker
        self.sender = sender
        self.profile = profile
        self.store = hub.store
        self.clock = hub.clock
        self.waits_for = ""
        self.results = Results(name, hub, breaker, profile)
        self.outage = Outage(name, hub, breaker, profile)
        self._hub = hub
        self._rate = Rate(profile.rate)

    def change(self, sender: Sender | AsyncSender, profile: LaneProfile) -> None:
        """Go on with another sender and other limits."""
        self.sender = sender
        self.profile = self.results.profile = self.outage.profile = profile
        self._rate = Rate(profile.rate)

    def close(self) -> None:
        """Stop listening to the breaker."""
        self.outage.close()

    def step(self, free: int) -> Step:
        """
        Look once: take what may be sent now, at most *free* messages, or say how long to wait.

        Raises:
            StoreUnavailableError: Nothing can be sent, because nothing can be marked.
        """
        step = self._step(free)
        self.waits_for = step.reason
        return step

    def _step(self, free: int) -> Step:
        look = self.store.look(self.name)
        trials_elsewhere = look is not None and self.outage.heed(look)
        if look is None or look.next_due is None:
            return self._nothing_waits()
        self.results.send_window = look.send_window
        if look.held:
            return Step(wait=None if look.hold_until is None else look.hold_until - self.clock.wall(), reason="hold")
        if trials_elsewhere:
            return Step(wait=0.5, reason="half_open elsewhere")
        now = self.clock.monotonic()
        if now < self.outage.not_before:
            return Step(wait=self.outage.not_before - now, reason="spread")
        state = self.breaker.state
        if (shut := self._shut(state)) is not None:
            return shut
        any_due = state not in _SENDS_FREELY
        if not any_due and look.next_due > self.clock.wall():
            return Step(wait=look.next_due - self.clock.wall(), reason="due")
        seats = min(free, self._seats(state, look))
        if seats <= 0:
            return Step(wait=1.0, reason="seats")
        if (allowed := self._rate.allowed(now)) <= 0:
            return Step(wait=self._rate.wait(now), reason="rate")
        return self._take(state, min(seats, allowed), any_due=any_due)

    def _nothing_waits(self) -> Step:
        if not self.results.in_flight:
            self.outage.drained()
        if self.breaker.state is State.HALF_OPEN:
            # Nobody asks this breaker anything while the lane is empty, yet its leases and its round must end.
            self.breaker.tick()
            return Step(wait=1.0, reason="empty")
        return Step(reason="empty")

    def _shut(self, state: State) -> Step | None:
        if state is State.FORCED_OPEN:
            ends = self.breaker.snapshot().ends_at
            return Step(wait=None if ends is None else max(0.0, ends - self.clock.wall()), reason=state.value)
        if state is State.OPEN:
            remaining = self.breaker.snapshot().remaining_wait
            if remaining is None or remaining > 0:
                return Step(wait=remaining, reason=state.value)
        return None

    def _seats(self, state: State, look: Look) -> int:
        return self._cap(state, look.send_window) - max(look.in_flight, len(self.results.in_flight))

    def _cap(self, state: State, send_window: int) -> int:
        if state in _TRIALS:
            return self.breaker.settings.half_open.permitted_calls
        return 1 if state is State.RECOVERING else min(send_window, self.profile.limit)

    def _take(self, state: State, seats: int, *, any_due: bool) -> Step:
        # Look first whether there is a message: a permit without one would use up the trial budget.
        ready = self.store.ready(self.name, seats, any_due=any_due)
        if ready == 0:
            return Step(wait=1.0, reason="order")
        permits, retry_after = self._permits(ready)
        if not permits:
            return Step(wait=min(retry_after or 1.0, 1.0), reason=self.breaker.state.value)
        attempts = self._claim(permits, state)
        self._rate.take(len(attempts), self.clock.monotonic())
        return Step(tuple(attempts), wait=None if attempts else 0.05)

    def _permits(self, wanted: int) -> tuple[list[Permit], float | None]:
        permits: list[Permit] = []
        for _ in range(wanted):
            try:
                permits.append(self.breaker.acquire())
            except RejectedError as refused:
                return permits, refused.retry_after
            if permits[0].trial is not permits[-1].trial:
                break  # the state moved under us: these belong to two rounds
        return permits, None

    def _claim(self, permits: list[Permit], state: State) -> list[Attempt]:
        trial = permits[0].trial
        recovering = state is State.RECOVERING
        token = f"{self.store.lease_prefix()}:{self._hub.process}:{next(self._hub.tokens)}"
        request = ClaimRequest(
            lane=self.name,
            limit=len(permits),
            token=token,
            lease=self.profile.lease,
            epoch=self.outage.epoch,
            cap=self._cap(State.HALF_OPEN if trial else state, 1) if trial or recovering else None,
            trial=trial,
            process=self._hub.process,
            stale_round=self.profile.stale_round,
            any_due=recovering,
            trial_size=self.profile.trial_size,
        )
        until = self.clock.monotonic() + request.lease
        messages: list[Message] = []
        try:
            messages = self._claimed(request)
        finally:
            for permit in permits[len(messages) :]:
                permit.ignore()
        attempts = [
            Attempt(self, message, token, permit, until) for message, permit in zip(messages, permits, strict=False)
        ]
        self.results.in_flight.update((attempt.message.seq, attempt) for attempt in attempts)
        return attempts

    def _claimed(self, request: ClaimRequest) -> list[Message]:
        for _ in range(_LOCKED_TRIES):
            if (messages := self.store.claim(request)) is not None:
                return messages
            self.clock.sleep(0.005)  # another process is claiming in this lane at this very moment
        return []
