"""What has to happen from time to time: leases, deadlines, receipts, results the store did not take, pruning."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable

from ._delivery import Attempt
from ._errors import StoreUnavailableError
from ._hub import Hub
from ._lane import Lane
from ._profile import LaneProfile, MessageSchedule
from ._rows import Message, MessageState
from ._rules import Change

__all__ = ["Caretaker", "Keep"]

_LOG = logging.getLogger("halfopen.retry_queue")

_STEP = 60.0
_EXPIRY_PAUSE = 600.0
_SLOWLY = 60.0
_HOURLY = 3600.0
_DAY = 86_400.0


class Keep:
    """
    How long finished messages are kept.

    Args:
        bodies: Seconds after which the bytes of `done` and `cancelled` messages go.
        rows: Seconds after which their rows, receipts and history go. Errors and dead letters stay.
    """

    def __init__(self, *, bodies: float = 7 * _DAY, rows: float = 90 * _DAY) -> None:
        self.bodies = bodies
        self.rows = rows


class Caretaker:
    """
    Upkeep of one process; every process of a store may run one.

    Args:
        lanes: The lanes of this process.
        expiring_within: Seconds before its deadline at which a message is announced.
        too_old: Seconds after which a waiting message is announced, once per lane.
    """

    def __init__(self, hub: Hub, lanes: dict[str, Lane], keep: Keep, *, expiring_within: float, too_old: float) -> None:
        self._hub = hub
        self._lanes = lanes
        self._keep = keep
        self._expiring_within = expiring_within
        self._too_old = too_old
        self._announced: set[str] = set()
        self._old_lanes: set[str] = set()
        self._wall_shift = hub.clock.wall() - hub.clock.monotonic()
        self._expiry_from = float("-inf")
        self._slowly_at = float("-inf")
        self._hourly_at = hub.clock.monotonic() + _HOURLY

    def once(self) -> None:
        """Do what is due; a store that is gone is tried again next time."""
        try:
            self._round()
        except StoreUnavailableError as error:
            _LOG.warning("upkeep of the retry queue has to wait: %s", error)

    def _round(self) -> None:
        now = self._hub.clock.monotonic()
        self._watch_clock(now)
        self._renew(now)
        self._write_again()
        self._announce(self._hub.store.reap(self._profile_of, self._own()))
        overdue = self._hub.store.overdue(self._profile_of)
        self._blame(overdue)
        self._announce(overdue)
        if now >= self._expiry_from:
            self._announce(self._hub.store.expire())
        if now >= self._slowly_at:
            self._slowly_at = now + _SLOWLY
            self._slowly()
        if now >= self._hourly_at:
            self._hourly_at = now + _HOURLY
            wall = self._hub.clock.wall()
            self._hub.store.prune(wall - self._keep.bodies, wall - self._keep.rows)
            self._hub.store.sweep_bodies()

    def _watch_clock(self, now: float) -> None:
        shift = self._hub.clock.wall() - now
        step, self._wall_shift = shift - self._wall_shift, shift
        if abs(step) < _STEP:
            return
        if step > 0:
            # Dead letters because somebody set the clock wrong would be a poor joke: give him time to mend it.
            self._expiry_from = now + _EXPIRY_PAUSE
        self._slowly_at = now
        self._hub.alerts.tell("clock_stepped", detail=f"the wall clock was stepped by {step:+.0f} s")

    def _renew(self, now: float) -> None:
        held: list[Attempt] = []
        for lane in list(self._lanes.values()):
            for attempt in list(lane.results.in_flight.values()):
                if attempt.lease_until - now < lane.profile.lease * 2 / 3:
                    held.append(attempt)
        if not held:
            return
        leases = [attempt.lane.profile.lease for attempt in held]
        pairs = list(zip(held, leases, strict=True))
        self._hub.store.renew((one.message.seq, one.token, lease) for one, lease in pairs).result()
        for attempt, lease in pairs:
            attempt.lease_until = now + lease

    def _write_again(self) -> None:
        waiting, self._hub.again = self._hub.again, []
        for write in waiting:
            write()

    def _own(self) -> frozenset[int]:
        return frozenset(seq for lane in list(self._lanes.values()) for seq in list(lane.results.in_flight))

    def _profile_of(self, lane: str) -> LaneProfile:
        known = self._lanes.get(lane)
        return _STRANGER if known is None else known.profile

    def _announce(self, changed: Iterable[tuple[Message, Change]]) -> None:
        for message, change in changed:
            lane = self._lanes.get(message.lane)
            if lane is not None:
                lane.results.announce(message, change)
            elif change.state is MessageState.DEAD:
                self._hub.tally.dead()
                self._hub.alerts.tell("dead", lane=message.lane, message_id=message.id, detail=change.detail)
            self._hub.attention(message.lane)

    def _blame(self, overdue: Iterable[tuple[Message, Change]]) -> None:
        for message, _ in overdue:
            if (lane := self._lanes.get(message.lane)) is not None:
                lane.results.blame_missing_receipt(message, lane.outage.epoch)

    def _slowly(self) -> None:
        horizon = max((lane.profile.schedule.horizon for lane in list(self._lanes.values())), default=_DAY)
        self._hub.store.clamp_due(horizon)
        soon = self._hub.store.expiring(self._expiring_within)
        fresh = [message for message in soon if message.id not in self._announced]
        self._announced = {message.id for message in soon}
        self._tell_what_is_old()
        for message in fresh:
            self._hub.alerts.tell(
                "expiring", lane=message.lane, message_id=message.id, detail="its deadline comes soon"
            )

    def _tell_what_is_old(self) -> None:
        limit = self._hub.clock.wall() - self._too_old
        old = {lane: created for lane, created in self._hub.store.oldest_per_lane().items() if created < limit}
        for lane in old.keys() - self._old_lanes:
            minutes = (self._hub.clock.wall() - old[lane]) / 60
            self._hub.alerts.tell("too_old", lane=lane, detail=f"its oldest message waits for {minutes:.0f} minutes")
        self._old_lanes = set(old)


# Another process knows this lane's limits; until it comes, nobody gives its messages up.
_STRANGER = LaneProfile(schedule=MessageSchedule(attempt_limit=sys.maxsize), receipt_resends=sys.maxsize)
