"""
What pipelines mean, in plain nested calls over a plain clock: the reference of the property test.

One caller at a time. Each policy here is a few lines without a lock, a window or a quick path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any

Inner = Callable[[], str]


class Refused(Exception):
    def __init__(self, retry_after: Fraction | None) -> None:
        self.retry_after = retry_after


class TooLate(Exception):
    """The call looked at the clock and found its time was up."""


@dataclass
class World:
    """The clock, the ambient deadline, how many trial calls enclose the present code, and what was reached."""

    now: Fraction = Fraction(0)
    deadline: Fraction | None = None
    trials: int = 0
    log: list[str] = field(default_factory=list)
    reached: Counter[str] = field(default_factory=Counter)

    def left(self) -> Fraction | None:
        return None if self.deadline is None else self.deadline - self.now


@dataclass
class Breaker:
    world: World
    streak_limit: int
    wait: int
    state: str = "closed"
    streak: int = 0
    ignored: int = 0
    until: Fraction = Fraction(0)
    epoch: int = 0

    def __call__(self, inner: Inner) -> str:
        if self.state == "open":
            if self.world.now < self.until:
                self.world.reached["refused by a breaker"] += 1
                raise Refused(self.until - self.world.now)
            self.state, self.ignored = "half_open", 0
            self.epoch += 1
        epoch = self.epoch
        trial = self.state == "half_open"
        self.world.trials += trial
        self.world.reached["trial calls"] += trial
        try:
            result = inner()
        except Refused:
            self.world.trials -= trial
            if epoch == self.epoch:
                self._refused(trial)
            raise
        except Exception:
            self.world.trials -= trial
            if epoch == self.epoch:
                self.streak += 1
                if trial or self.streak >= self.streak_limit:
                    self.open()
            raise
        self.world.trials -= trial
        if epoch == self.epoch:
            self.world.reached["closed again"] += trial
            self.epoch += trial
            self.state, self.streak = "closed", 0
        return result

    def _refused(self, trial: bool) -> None:
        self.ignored += trial
        if trial and self.ignored >= 10:
            self.world.reached["inconclusive rounds"] += 1
            self.open()

    def open(self) -> None:
        """Trip; an outcome of a call that began before is void."""
        self.epoch += 1
        self.world.reached["opened"] += 1
        self.state, self.streak, self.until = "open", 0, self.world.now + self.wait


@dataclass
class Retry:
    world: World
    attempts: int
    delay: int
    watches: Breaker | None = None

    def __call__(self, inner: Inner) -> str:
        for attempt in range(1, self.attempts + 1):
            try:
                return inner()
            except Exception as error:
                delay = self._delay(error, attempt)
                if delay is None:
                    raise
                self.world.now += delay
                self.world.reached["retries"] += 1
                if self._pointless():
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _delay(self, error: Exception, attempt: int) -> Fraction | None:
        if self._pointless() or not isinstance(error, (Refused, ConnectionError)) or attempt == self.attempts:
            return None
        left, delay = self.world.left(), Fraction(self.delay)
        if isinstance(error, Refused):
            if error.retry_after is None or left is None or error.retry_after > 60:
                return None
            self.world.reached["waits for a refusal"] += error.retry_after < left
            delay = max(delay, error.retry_after)
        return None if left is not None and delay >= left else delay

    def _pointless(self) -> bool:
        left = self.world.left()
        self.world.reached["suppressed"] += self.watches is not None and self.watches.state == "open"
        shut = self.watches is not None and self.watches.state != "closed"
        return shut or self.world.trials > 0 or (left is not None and left <= 0)


@dataclass
class Fallback:
    world: World
    answers: tuple[type[Exception], ...]

    def __call__(self, inner: Inner) -> str:
        try:
            return inner()
        except self.answers:
            self.world.reached["answered"] += 1
            return "fallback"


@dataclass
class Limiter:
    world: World
    per: int
    burst: int
    tokens: Fraction = Fraction(-1)
    last: Fraction = Fraction(0)

    def __call__(self, inner: Inner) -> str:
        if self.tokens < 0:
            self.tokens = Fraction(self.burst)
        now = self.world.now
        self.tokens = min(Fraction(self.burst), self.tokens + (now - self.last) / self.per)
        self.last = now
        if self.tokens < 1:
            self.world.reached["refused by a limiter"] += 1
            raise Refused((1 - self.tokens) * self.per)
        self.tokens -= 1
        return inner()


@dataclass
class Timeout:
    world: World
    seconds: int

    def __call__(self, inner: Inner) -> str:
        before, own = self.world.deadline, self.world.now + self.seconds
        if before is not None and before <= own:
            if before <= self.world.now:
                self.world.reached["no time left"] += 1
                raise Refused(None)
            return inner()
        self.world.deadline = own
        try:
            return inner()
        finally:
            self.world.deadline = before


@dataclass
class Note:
    world: World
    name: str

    def __call__(self, inner: Inner) -> str:
        self.world.log.append(f"+{self.name}")
        try:
            return inner()
        finally:
            self.world.log.append(f"-{self.name}")


def nested(policies: list[Any], function: Inner) -> Inner:
    """Return *function* with the policies around it, the first one outermost."""
    for policy in reversed(policies):
        function = partial(policy, function)
    return function
