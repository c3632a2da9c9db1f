"""
A second circuit breaker, written from the design alone and as plainly as possible: it keeps a list of every outcome and
looks through it whenever something has to be judged. Slow, but easy to believe.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from halfopen import CountWindow, State
from halfopen._core.backoff import Exponential
from halfopen._core.settings import Settings

CLOSED, OPEN, HALF_OPEN, RECOVERING = State.CLOSED, State.OPEN, State.HALF_OPEN, State.RECOVERING
ORDERED = {"force_open": State.FORCED_OPEN, "disable": State.DISABLED, "observe": State.METRICS_ONLY}


@dataclass(eq=False)
class Call:
    """An admitted call."""

    epoch: int
    began: float
    permit: bool


@dataclass(frozen=True)
class Refused:
    """A refused call."""

    reason: str
    retry_after: float | None


@dataclass(frozen=True)
class Move:
    """What a transition has to tell."""

    old: State
    new: State
    reason: str
    epoch: int
    step: int
    totals: tuple[int, int, int, int]
    wait: float | None
    at: float


class Model:
    """What the breaker ought to do."""

    def __init__(self, settings: Settings, now: float) -> None:
        self.settings = settings
        self.now = now
        self.epoch = 1
        self.step = 0
        self.last_wait = 0.0
        self.moves: list[Move] = []
        self.counts: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.in_flight: set[Call] = set()
        self.exceeded = 0
        self.set_at = -math.inf
        self._enter(CLOSED, now)

    def _enter(self, state: State, at: float) -> None:
        self.state = state
        self.entered = at
        self.until = math.inf
        self.ends_at = math.inf
        self.outcomes: list[tuple[float, bool, bool]] = []  # when, failed, slow
        self.streak = 0
        self.trials: dict[Call, float] = {}
        self.ignored = 0
        self.hint = 0.0
        self.said = False
        self.shares: list[Fraction] = []
        self.admitted = 0

    # Evidence

    def held(self, at: float) -> list[tuple[float, bool, bool]]:
        """Return the outcomes in the window, or of the round."""
        window = self.settings.window
        if self.state is HALF_OPEN:
            return self.outcomes
        if isinstance(window, CountWindow):
            return self.outcomes[-window.size :]
        width = window.seconds / window.buckets
        oldest = math.floor(at / width) - window.buckets + 1
        return [outcome for outcome in self.outcomes if math.floor(outcome[0] / width) >= oldest]

    def totals(self, at: float) -> tuple[int, int, int, int]:
        """Return calls, failures, slow calls, slow failures."""
        held = self.held(at)
        return (
            len(held),
            sum(failed for _, failed, _ in held),
            sum(slow for _, _, slow in held),
            sum(failed and slow for _, failed, slow in held),
        )

    def _broken_rule(self, at: float) -> str | None:
        rules = self.settings
        calls, failures, slow, _ = self.totals(at)
        if calls >= rules.minimum:
            if _reached(failures, calls, rules.failure_rate_threshold):
                return "failure_rate"
            if _reached(slow, calls, rules.slow_call_rate_threshold):
                return "slow_call_rate"
        if rules.failure_count_threshold is not None and failures >= rules.failure_count_threshold:
            return "failure_count"
        if rules.consecutive_failures is not None and self.streak >= rules.consecutive_failures:
            return "consecutive"
        return None

    def _verdict(self) -> bool | None:
        trials = self.settings.half_open
        calls, failures, slow, _ = self.totals(self.now)
        if trials.failure_rate_threshold is None and trials.slow_call_rate_threshold is None:
            if failures or slow:
                return False
            return True if calls >= trials.permitted_calls else None
        if calls < min(self.settings.minimum, trials.permitted_calls):
            return None
        failure_rate = trials.failure_rate_threshold or self.settings.failure_rate_threshold
        slow_rate = trials.slow_call_rate_threshold or self.settings.slow_call_rate_threshold
        return not (_reached(failures, calls, failure_rate) or _reached(slow, calls, slow_rate))

    # Time

    def due(self) -> float:
        """Return when time will decide something."""
        trials, ramp = self.settings.half_open, self.settings.ramp
        if self.state is OPEN:
            return self.until if self.settings.automatic_half_open else math.inf
        if self.state is RECOVERING:
            return self.entered + (ramp.duration if ramp else 0.0)
        if self.state is not HALF_OPEN:
            return self.ends_at
        leases = [began + trials.trial_timeout for began in self.trials.values()]
        end = math.inf if trials.max_duration is None else self.entered + trials.max_duration
        return min([end, *leases])

    def tick(self) -> None:
        """Let everything happen that is due, at the time it was due."""
        while (due := self.due()) <= self.now:
            self._happen(max(due, self.set_at))
        if self.state is HALF_OPEN:
            self._judge_round(self.now, "trial_failed")

    def _happen(self, at: float) -> None:
        if self.state is OPEN:
            self._half_open(at, "wait_elapsed")
        elif self.state is RECOVERING:
            self._move(CLOSED, "ramp_finished", at)
        elif self.state is not HALF_OPEN:
            self._move(CLOSED, "override_ended", at)
        elif not self._expire_one(at) and self.state is HALF_OPEN:
            self._judge_round(at, "trial_failed")
            if self.state is HALF_OPEN:
                self._end_round(at)

    def _expire_one(self, at: float) -> bool:
        for call, began in self.trials.items():
            if at >= began + self.settings.half_open.trial_timeout:
                del self.trials[call]
                self.in_flight.discard(call)
                self.counts["expired"] += 1
                self.counts["trial_failures"] += 1
                self.outcomes.append((at, True, False))
                self._judge_round(at, "trial_expired")
                return True
        return False

    def _end_round(self, at: float) -> None:
        if self.settings.half_open.after_max_duration is CLOSED:
            self._move(CLOSED, "max_duration", at)
        else:
            self._open("max_duration", at, self.hint)

    def advance(self, seconds: float) -> None:
        """Pass time; a breaker with a timer notices what is due by itself."""
        self.now += seconds
        if self.settings.automatic_half_open:
            self.tick()

    # Calls

    @property
    def gated(self) -> bool:
        """Whether calls need a permit that the state keeps account of."""
        if self.state in (State.DISABLED, State.METRICS_ONLY):
            return self.ends_at < math.inf
        return self.state is not CLOSED

    def begin(self, permit: bool) -> Call | Refused:
        """Ask to make a call."""
        permit = permit or self.gated
        if self.gated:
            self.tick()
        if self.state is OPEN and self.now >= self.until:
            self._half_open(self.now, "wait_elapsed")
        refused = self._refusal()
        if refused is not None:
            self.rejected[refused.reason] += 1
            return refused
        call = Call(self.epoch, self.now, permit)
        if self.state is HALF_OPEN:
            self.trials[call] = self.now
        if call.permit:
            self.counts["issued"] += 1
            self.in_flight.add(call)
        return call

    def _refusal(self) -> Refused | None:
        if self.state is OPEN:
            return Refused("open", self.until - self.now)
        if self.state is State.FORCED_OPEN:
            return Refused("forced_open", None if self.ends_at == math.inf else self.ends_at - self.now)
        if self.state is RECOVERING and not self._has_a_share():
            return Refused("recovering", None)
        if self.state is HALF_OPEN:
            trials, running = self.settings.half_open, len(self.trials)
            most = trials.max_concurrent_calls or trials.permitted_calls
            if running >= most or len(self.outcomes) + running >= trials.permitted_calls:
                return Refused("trial_budget", None)
        return None

    def _has_a_share(self) -> bool:
        """Admit the first call, and each call with which the sum of the shares reaches the next whole number."""
        self.shares.append(Fraction(self._share()))
        admitted = 1 + sum(self.shares[1:]) >= self.admitted + 1
        self.admitted += admitted
        return admitted

    def _share(self) -> float:
        ramp = self.settings.ramp
        if ramp is None:
            return 1.0
        return min(max(ramp.start, (self.now - self.entered) / ramp.duration), 1.0)

    def end(self, call: Call, outcome: str, spent: float, retry_after: float | None = None) -> None:
        """Report how a call ended."""
        if self.gated:
            self.tick()
        if call in self.in_flight:
            self.in_flight.discard(call)
            self.counts["settled"] += 1
        if call.epoch != self.epoch or (self.state is HALF_OPEN and call not in self.trials):
            self.counts["late_results"] += 1
            return
        if self.state is State.DISABLED:
            return
        slow = self.settings.slow_call_duration is not None and spent > self.settings.slow_call_duration
        self.counts[outcome] += 1
        if outcome != "ignored" and slow:
            self.counts["slow_" + outcome] += 1
        if self.state is HALF_OPEN:
            self._end_trial(call, outcome, slow, retry_after)
        elif outcome != "ignored":
            self._record(outcome == "failure", slow, retry_after)

    def _end_trial(self, call: Call, outcome: str, slow: bool, retry_after: float | None) -> None:
        del self.trials[call]
        if outcome == "ignored":
            self.ignored += 1
        else:
            failed = outcome == "failure"
            self.outcomes.append((self.now, failed, slow))
            self.counts["trial_failures" if failed else "trial_successes"] += 1
            if failed:
                self.hint = max(self.hint, retry_after or 0.0)
        self._judge_round(self.now, "trial_failed")

    def _judge_round(self, at: float, why_failed: str) -> None:
        passed = self._verdict()
        if passed:
            self._move(RECOVERING if self.settings.ramp else CLOSED, "trial_succeeded", at)
        elif passed is False:
            self._open(why_failed, at, self.hint)
        elif self.ignored >= (self.settings.half_open.max_ignored or 10 * self.settings.half_open.permitted_calls):
            self._open("inconclusive", at, self.hint)

    def _record(self, failed: bool, slow: bool, retry_after: float | None) -> None:
        self.outcomes.append((self.now, failed, slow))
        self.streak = self.streak + 1 if failed else 0
        rule = self._broken_rule(self.now)
        if rule is None:
            return
        if self.state is State.METRICS_ONLY:
            self.exceeded += not self.said
            self.said = True
        else:
            self._open(rule, self.now, retry_after or 0.0)

    def leak(self, call: Call) -> None:
        """Lose a permit."""
        self.tick()
        if call in self.in_flight:
            self.in_flight.discard(call)
            self.counts["abandoned"] += 1
        if self.state is HALF_OPEN and call in self.trials:
            del self.trials[call]
            self.counts["ignored"] += 1
            self.ignored += 1
            self._judge_round(self.now, "trial_failed")

    # Orders

    def order(self, name: str, lasts: float | None = None) -> None:
        """Obey an order that lasts, or waits, so many seconds."""
        self.tick()
        if name == "reset":
            self.step = 0
            self._move(CLOSED, "manual", self.now)
        elif name == "trip":
            self._open("manual", self.now, 0.0, lasts)
        elif name == "try_now":
            self._half_open(self.now, "manual")
        else:
            self._forget(self.now)
            self._move(ORDERED[name], "manual", self.now)
            self.ends_at = math.inf if lasts is None else self.now + lasts

    def configure(self, settings: Settings) -> None:
        """Change the settings; everything else stays. What they make due is due from now on."""
        self.tick()
        self.set_at = self.now
        old, held, streak = self.settings.window, self.held(self.now), self.streak
        self.settings = settings
        if self.state is HALF_OPEN:
            return
        if settings.window != old and not (isinstance(old, CountWindow) and isinstance(settings.window, CountWindow)):
            # Another kind of window: the order of the calls is unknown, so the bad ones are taken for the oldest.
            held = [(self.now, failed, slow) for _, failed, slow in sorted(held, key=_badness)]
        self.outcomes, self.streak = held, streak
        self.outcomes = self.held(self.now)

    def restarted(self, settings: Settings, now: float, slept: float) -> Model:
        """Return the model of a breaker that was restored from what this one saved, *slept* seconds later."""
        new = Model(settings, now)
        new.epoch, new.last_wait = self.epoch, self.last_wait
        age = self.now + slept - self.entered
        until, ends_at = self.until, self.ends_at
        new._move(self.state, "restored", now, step=self.step)
        if self.state is OPEN:
            new.until = now + min(max(until - self.now - slept, 0.0), self.last_wait)
        if ends_at < math.inf:
            new.ends_at = now + max(ends_at - self.now - slept, 0.0)
        if self.state is RECOVERING and settings.ramp:
            age = min(age, settings.ramp.duration)
        new.entered = now if self.state is HALF_OPEN else now - age
        return new

    # Moves

    def _half_open(self, at: float, why: str) -> None:
        self._forget(at)
        self._move(HALF_OPEN, why, at)

    def _open(self, why: str, at: float, at_least: float, wait: float | None = None) -> None:
        self._forget(at)
        step = self.step
        if wait is None:
            again = why == "inconclusive" or (why == "manual" and self.state is OPEN)
            step = max(self.step, 1) if again else self.step + 1
            wait = self._wait(step, at_least)
        self._move(OPEN, why, at, step=step, wait=wait)
        self.until = at + wait
        self.last_wait = wait

    def _wait(self, step: int, at_least: float) -> float:
        backoff = self.settings.wait_in_open
        if isinstance(backoff, Exponential):
            wait = min(backoff.first * backoff.factor ** (step - 1), backoff.cap)
            return max(wait, min(at_least, backoff.cap))
        assert isinstance(backoff, float)
        return max(backoff, min(at_least, 600.0))

    def _forget(self, at: float) -> None:
        keep = self.settings.forget_after
        if self.state is CLOSED and at - self.entered >= (self.last_wait if keep is None else keep):
            self.step = 0

    def _move(self, new: State, why: str, at: float, step: int | None = None, wait: float | None = None) -> None:
        old, totals = self.state, self.totals(at)
        self.step = self.step if step is None else step
        self.epoch += 1
        self._enter(new, at)
        self.moves.append(Move(old, new, why, self.epoch, self.step, totals, wait, at))

    def trial_slots(self) -> Counter[str]:
        """Return how many slots of the round are in which state."""
        if self.state is not HALF_OPEN:
            return Counter()
        calls, failures, _, _ = self.totals(self.now)
        slots = Counter({"succeeded": calls - failures, "failed": failures, "running": len(self.trials)})
        slots["free"] = max(self.settings.half_open.permitted_calls - slots.total(), 0)
        return +slots


def _reached(part: int, whole: int, threshold: float | None) -> bool:
    return threshold is not None and part >= Fraction(repr(threshold)) * whole


def _badness(outcome: tuple[float, bool, bool]) -> int:
    _, failed, slow = outcome
    return 0 if failed and slow else 1 if failed else 2 if slow else 3


def observed(event: Any) -> Move:
    """Return a transition of the breaker in the model's words."""
    return Move(
        event.old, event.new, event.reason.value, event.epoch, event.step, tuple(event.totals), event.wait, event.at
    )
