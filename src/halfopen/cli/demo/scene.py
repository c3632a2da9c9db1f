"""What the screen shows at one moment, gathered into plain data."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import halfopen
from halfopen.cli.demo.account import Account
from halfopen.cli.demo.narrator import Line
from halfopen.cli.demo.story import Pace, Story

__all__ = ["Camera", "Circuit", "Meter", "Rates", "Scene"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Calls in a second of the watch."""

    sent: float = 0.0
    refused: float = 0.0
    failed: float = 0.0


class Meter:
    """The rates over the last second."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int, int, int]] = deque()

    def read(self, account: Account) -> Rates:
        """Take the present counts in and return the rates."""
        now = time.monotonic()
        self._marks.append((now, account.sends, account.refused, account.failed))
        while now - self._marks[0][0] > 1.0:
            self._marks.popleft()
        then, sends, refused, failed = self._marks[0]
        span = now - then
        if span <= 0:
            return Rates()
        return Rates(
            sent=(account.sends - sends) / span,
            refused=(account.refused - refused) / span,
            failed=(account.failed - failed) / span,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """
    One moment. Times are seconds of the story.

    Attributes:
        calls, failures: What the window holds; while open, what it held when the circuit tripped.
        trials: The slots of the half-open round: each ``free``, ``running``, ``succeeded`` or ``failed``.
        next_trial: Seconds until the next trial call, while open.
        wait: How long the circuit stays open this time, or was the last time.
        others: The comparisons: their titles and latest accounts.
        console: URL of the console, if there is one.
    """

    title: str
    speed: float
    now: float
    state: str
    calls: int
    failures: int
    window: int
    limit: float
    trials: tuple[str, ...]
    next_trial: float | None
    wait: float
    step: int
    rates: Rates
    account: Account
    others: tuple[tuple[str, Account | None], ...]
    lines: tuple[Line, ...]
    console: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circuit:
    """
    What a picture needs of a breaker's snapshot, wherever the breaker is. Times are seconds of the watch.

    Attributes:
        trials: The status of each slot of the present round.
    """

    state: str
    calls: int = 0
    failures: int = 0
    remaining_wait: float | None = None
    wait: float = 0.0
    step: int = 0
    trials: tuple[str, ...] = ()

    @classmethod
    def of(cls, snapshot: Mapping[str, Any]) -> Circuit:
        """Read the plain data of a snapshot."""
        known = {name: snapshot[name] for name in ("state", "calls", "failures", "remaining_wait", "wait", "step")}
        return cls(**known, trials=tuple(slot["status"] for slot in snapshot["trials"]))


class Camera:
    """
    Take scenes of one breaker and the account that goes with it.

    Args:
        title: What is played.
        circuit: Says what the breaker is like at the moment.
        story: Window and limits.
        pace: How fast the story passes.
        console: URL of the console.
    """

    def __init__(
        self, title: str, circuit: Callable[[], Circuit], story: Story, pace: Pace, *, console: str = ""
    ) -> None:
        self._title = title
        self._console = console
        self._circuit = circuit
        self._story = story
        self._pace = pace
        self._meter = Meter()
        self._tripped = (0, 0)

    def moved(self, move: halfopen.CircuitTransitioned) -> None:
        """Remember what the window held when the circuit tripped."""
        if (move.old, move.new) == ("closed", "open") and move.reason != "restored":
            self._tripped = (move.totals.calls, move.totals.failures)

    def take(self, account: Account, others: tuple[tuple[str, Account | None], ...], lines: list[Line]) -> Scene:
        """Return the present scene."""
        snapshot = self._circuit()
        is_open = snapshot.state == "open"
        calls, failures = self._tripped if is_open else (snapshot.calls, snapshot.failures)
        left = snapshot.remaining_wait
        return Scene(
            title=self._title,
            speed=self._pace.speed,
            now=account.now,
            state=snapshot.state,
            calls=calls,
            failures=failures,
            window=self._story.window,
            limit=self._story.failure_rate,
            trials=snapshot.trials or ("free",) * self._story.trials,
            next_trial=None if left is None else left * self._pace.speed,
            wait=snapshot.wait * self._pace.speed,
            step=snapshot.step,
            rates=self._meter.read(account),
            account=account,
            others=others,
            lines=tuple(lines),
            console=self._console,
        )
