"""What a breaker tells about itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from halfopen._breaker.shell import Shell
from halfopen._core.events import CircuitTransitioned, Event
from halfopen._core.settings import Settings
from halfopen._core.states import State
from halfopen.typing import Classifier

if TYPE_CHECKING:
    from halfopen._core.recent_calls import RecentCalls
    from halfopen._core.snapshots import Snapshot

__all__ = ["Looking"]

E = TypeVar("E", bound=Event)


class Looking(Shell):
    """The part that answers questions."""

    __slots__ = ()

    @property
    def state(self) -> State:
        """The present state. What time has decided is made due first; OPEN is left by a call or the timer only."""
        if self._circuit.state.gated:
            self.tick()
        return self._circuit.state.kind

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._circuit.settings

    @property
    def classifier(self) -> Classifier:
        """What says which calls are failures."""
        return self._judge.classifier

    @property
    def history(self) -> tuple[CircuitTransitioned, ...]:
        """The last 100 moves, oldest first."""
        with self._lock:
            return tuple(self._circuit.history or ())

    def snapshot(self) -> Snapshot:
        """Return a frozen look at everything; see `Snapshot`."""
        from halfopen._core.snapshots import take  # here, so that `import halfopen` does not wait for it

        self.tick()
        now, wall = self._now(), self._clock.wall()
        with self._lock:
            return take(self._circuit, now, wall, self.tags)

    def recent_calls(self, most: int = 200) -> RecentCalls | None:
        """
        Return what the window holds, call by call or bucket by bucket, of a count window at most the last *most* calls.

        A state without a window shows that of the last state that had one; None: there was none.
        """
        from halfopen._core.recent_calls import recent_calls

        now = self._now()
        with self._lock:
            return recent_calls(self._circuit, now, most)

    def unix_time(self, at: float) -> float:
        """Return the Unix time of a moment on this breaker's clock, such as the *at* of an event."""
        return at + self._clock.wall() - self._clock.monotonic()

    def explain(self) -> str:
        """Put the last decision and its arithmetic into one sentence, with local times."""
        from halfopen._core.explain import explain

        look = self.snapshot()
        with self._lock:
            last = self._circuit.history[-1] if self._circuit.history else None
        return explain(look, self.settings, last, _local_time)

    def subscribe(self, listener: Callable[[E], object], *kinds: type[E]) -> Callable[[], None]:
        """Call *listener* with the events of this breaker's bus; return what ends the subscription."""
        return self._bus.subscribe(listener, *kinds)


def _local_time(unix: float) -> str:
    from datetime import datetime, timedelta

    try:
        moment = datetime.fromtimestamp(unix)
    except (ValueError, OverflowError, OSError):  # beyond the calendar
        return "the end of time" if unix > 0 else "the beginning of time"
    return moment.strftime("%H:%M:%S" if abs(datetime.now() - moment) < timedelta(days=1) else "%Y-%m-%d %H:%M:%S")
