"""What operators and programs may order a breaker to do, and saved states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from halfopen._breaker.judge import Judge, check_classifier
from halfopen._breaker.shell import Shell
from halfopen._core.checking import Checks, usable_seconds
from halfopen._core.settings import Settings
from halfopen._core.states import State
from halfopen._core.stays import StateObject
from halfopen.errors import ConfigError
from halfopen.typing import Classifier

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from halfopen._core.snapshots import Snapshot

__all__ = ["Orders", "Override", "make_settings"]

Until: TypeAlias = "float | timedelta | datetime | None"
"""The end of an order: seconds from now, a timedelta from now, or a datetime with a time zone."""


class Orders(Shell):
    """The part that obeys."""

    __slots__ = ()

    def trip(self, wait: float | None = None, *, reason: str | None = None, by: str | None = None) -> None:
        """
        Open the circuit, for *wait* seconds or as long as the backoff says.

        Raises:
            ConfigError: *wait* is no finite number above 0.
        """
        checks = Checks()
        checks.seconds("wait", wait, optional=True)
        checks.done()
        self._order(State.OPEN, wait=wait, note=reason, by=by)

    def reset(self, *, reason: str | None = None, by: str | None = None) -> None:
        """Close the circuit with an empty window and no memory of flapping."""
        self._order(State.CLOSED, note=reason, by=by)

    def force_open(self, until: Until = None, *, reason: str | None = None, by: str | None = None) -> Override:
        """Refuse every call, until the order is ended or *until* has come."""
        return self._override(State.FORCED_OPEN, until, reason, by)

    def disable(self, until: Until = None, *, reason: str | None = None, by: str | None = None) -> Override:
        """Admit every call and record nothing, until the order is ended or *until* has come."""
        return self._override(State.DISABLED, until, reason, by)

    def observe(self, until: Until = None, *, reason: str | None = None, by: str | None = None) -> Override:
        """Admit and record every call, and only say so when the circuit would have opened."""
        return self._override(State.METRICS_ONLY, until, reason, by)

    def try_now(self, *, reason: str | None = None, by: str | None = None) -> None:
        """Begin a round of trial calls at once."""
        self._order(State.HALF_OPEN, note=reason, by=by)

    def _override(self, target: State, until: Until, reason: str | None, by: str | None) -> Override:
        ends_in = _seconds_until(until, self._clock.wall())
        ends_at = None if ends_in is None else self._now() + ends_in
        return Override(self, self._order(target, ends_at=ends_at, note=reason, by=by))

    def _order(self, target: State, **order: Any) -> StateObject:
        now = self._now()
        with self._lock:
            self._collect(now)
            state = self._circuit.order(target, now, **order)
        self._after()
        return state

    def restore(self, saved: Snapshot | Mapping[str, Any]) -> None:
        """
        Go on where a saved breaker was: state, step, flap memory, remaining wait and orders.

        The window starts empty and a half-open round starts anew; a time in the far future or past is clamped.

        Args:
            saved: A `Snapshot`, or its `plain()` data, perhaps read from JSON.

        Raises:
            ConfigError: The data are no snapshot; every mistake is named.
        """
        from halfopen._core.snapshots import Snapshot, read_saved

        known = read_saved(saved.plain() if isinstance(saved, Snapshot) else saved)
        now, wall = self._now(), self._clock.wall()
        with self._lock:
            self._circuit.restore(known, now, wall)
        self._after()

    def configure(self, *, classify: Classifier | None = None, **changes: Any) -> None:
        """
        Change settings of the live breaker: all at once or, if one is wrong, none.

        Window, epoch, backoff step, trial calls and the remaining wait are kept.

        Raises:
            ConfigError: A setting is wrong or unknown; every mistake is named.
        """
        checks = Checks()
        if classify is not None:
            check_classifier(checks, classify)
        while True:
            present = self._circuit.settings
            if self._adopt(make_settings(checks, present, **changes), classify, present):
                return

    def adopt(self, settings: Settings, classify: Classifier | None = None) -> None:
        """Go on under other settings, which are checked already; see `configure`."""
        self._adopt(settings, classify)

    def _adopt(self, settings: Settings, classify: Classifier | None, instead_of: Settings | None = None) -> bool:
        """Return False, and change nothing, where other settings than *instead_of* have come into force meanwhile."""
        now = self._now()
        judge = None if classify is None else Judge(self.name, classify)
        with self._lock:
            if instead_of is not None and self._circuit.settings is not instead_of:
                return False
            self._judge = judge or self._judge
            self._refresh(now)
            self._circuit.configure(settings, now)
        self._after()
        return True


class Override:
    """
    The handle of an order: end it, or use it as a block that ends it.

    Ending is a no-op once the circuit has moved on, by another order or by the end time.
    """

    __slots__ = ("_breaker", "_state")

    def __init__(self, breaker: Shell, state: StateObject) -> None:
        self._breaker = breaker
        self._state = state

    def end(self, *, reason: str | None = None, by: str | None = None) -> None:
        """Close the circuit if this order is still in force."""
        breaker = self._breaker
        now = breaker._now()
        with breaker._lock:
            breaker._circuit.tick(now)  # its end time may have come unnoticed
            if breaker._circuit.state is self._state:
                breaker._circuit.order(State.CLOSED, now, note=reason, by=by)
        breaker._after()

    def __enter__(self) -> Override:
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()


def _seconds_until(until: Until, wall: float) -> float | None:
    from datetime import datetime, timedelta  # few programs give such orders, and every import would pay

    if isinstance(until, datetime) and until.tzinfo is not None:
        until = until.timestamp() - wall
    elif isinstance(until, timedelta):
        until = until.total_seconds()
    checks = Checks()
    allowed = "seconds from now greater than 0, a timedelta above 0, or a datetime in the future with a time zone"
    if isinstance(until, bool) or not isinstance(until, (int, float, type(None))):
        checks.wrong("until", until, allowed, "wrong_type")
    elif until is not None and not usable_seconds(until):
        checks.wrong("until", until, allowed)
    checks.done()
    return until  # type: ignore[return-value]  # the other forms are gone


def make_settings(checks: Checks, base: Settings | None = None, **values: Any) -> Settings:
    """Make settings, or raise one ConfigError for what was wrong before and what is wrong here."""
    known = {each.name for each in fields(Settings) if each.init} if base is not None else values
    for name, value in values.items():
        if name not in known:
            checks.unknown(name, value, known)
    values = {name: value for name, value in values.items() if name in known}
    try:
        settings = Settings(**values) if base is None else replace(base, **values)
    except ConfigError as wrong:
        checks.mistakes.extend(wrong.mistakes)
        raise ConfigError(checks.mistakes) from None
    checks.done()
    return settings
