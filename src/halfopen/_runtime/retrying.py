"""One call under a retry, from its first attempt to its end, in either colour and as a block."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Any

from halfopen._core.attempts import (
    NOT_WANTED,
    Again,
    Failure,
    GiveUp,
    RetryFinished,
    RetryOutcome,
    RetryScheduled,
    may_retry,
    schedule,
)
from halfopen._core.retry_backoff import Rng, next_delay
from halfopen._core.retry_settings import RetrySettings
from halfopen._core.settings import Call
from halfopen._runtime.asked_wait import NEVER, asked_wait
from halfopen._runtime.bus import Bus
from halfopen._runtime.clock import Clock
from halfopen._runtime.deadline import AMBIENT, Line, impose, nearest, remaining
from halfopen._runtime.keyed import KeyedPolicy
from halfopen._runtime.notes import write_notes
from halfopen._runtime.policy import innermost
from halfopen._runtime.retry_tally import Tally
from halfopen._runtime.trials import in_trial
from halfopen.errors import RejectedError

__all__ = ["ATTEMPT", "Host", "Run", "attempt"]

ATTEMPT: ContextVar[int] = ContextVar("halfopen_attempt", default=1)
_SUPPRESSING = frozenset({"open", "half_open", "forced_open"})


def attempt() -> int:
    """Return the number of the attempt that the present code belongs to, counted from 1; 1 outside any retry."""
    return ATTEMPT.get()


_Asked = tuple[Callable[..., Any] | None, tuple[Any, ...], dict[str, Any], Any]
"""What is called, with what, and the label of a block."""


class Host:
    """
    What the calls of one retry share.

    Attributes:
        quick: A first attempt that succeeds needs no `Run`: nobody listens, no time is limited, no result judged.
        pay_in: Lets a call pay into the budget, where there is one.
        succeeded: Counts a call that succeeded at its first attempt.
    """

    __slots__ = (
        "__weakref__", "breaker", "bus", "clock", "now", "pay_in", "quick", "rng", "settings", "succeeded", "tally",
    )  # fmt: skip

    def __init__(self, settings: RetrySettings, breaker: Any, clock: Clock, rng: Rng, bus: Bus) -> None:
        self.settings = settings
        self.breaker = breaker
        self.clock = clock
        self.now = clock.monotonic
        self.rng = rng
        self.bus = bus
        self.tally = Tally()
        self.succeeded = self.tally.first_success
        bus.attach(self)
        self.listeners_changed()

    def suppressed(self, call: _Asked) -> str | None:
        """Return why the breaker around this retry wants no further attempts of *call*, if it does not."""
        breaker: Any = self.breaker
        if _is_family(breaker):
            breaker = _of_its_key(breaker, call)
        if breaker is not None and str(breaker.state) in _SUPPRESSING:
            return f"circuit {breaker.name!r} is {str(breaker.state).replace('_', '-')}"
        if in_trial():
            return "it is a trial call, and one attempt is its evidence"
        return None

    def listeners_changed(self) -> None:
        """Decide anew, after a change of settings or listeners, whether first attempts are quick."""
        settings = self.settings
        self.pay_in: Callable[[], object] | None = None if settings.budget is None else settings.budget.pay_in
        self.quick = settings.total is None and settings.result is None and not self.bus.wants(RetryFinished)

    def after_fork(self) -> None:
        """Replace the locks that a thread of the parent may have held."""
        self.tally.after_fork()


class Run:
    """One call: told what each attempt came to, it says how long to sleep before the next, or None to end."""

    __slots__ = (
        "_allowed",
        "_began",
        "_call",
        "_deadline",
        "_ended",
        "_host",
        "_previous",
        "_settings",
        "_token",
        "number",
    )

    def __init__(
        self,
        host: Host,
        call: _Asked,
        began: float | None = None,
    ) -> None:
        self._host = host
        self._settings = host.settings
        self._call = call
        # A call that began already is at its first attempt, and has paid.
        self._began = host.now() if began is None else began
        self.number = 0 if began is None else 1
        self._allowed: bool | None = None
        self._previous: float | None = None
        self._token: Token[int] | None = None
        self._deadline: Token[Line | None] | None = None
        self._ended = False
        if began is None and (pay_in := host.pay_in) is not None:
            pay_in()

    def enter(self) -> None:
        """Begin the next attempt."""
        self.number += 1
        before = ATTEMPT.get()
        try:
            if before != self.number:
                self._token = ATTEMPT.set(self.number)
            total = self._settings.total
            if total is not None:
                line = (self._began + total, self._host.clock, self._settings.name, total)
                if nearest(line) is line:
                    self._deadline = impose(line)
        except BaseException:
            self._withdraw(before)
            raise

    def _withdraw(self, before: int) -> None:
        """Leave as it was what an interrupt hit as the attempt began; it may have lost the token."""
        self.leave()
        if ATTEMPT.get() != before:
            ATTEMPT.set(before)

    def leave(self) -> None:
        """End the attempt; a no-op between attempts."""
        # An interrupt comes at calls: each token is let go of in the step that uses it.
        line, self._deadline = self._deadline, None
        if line is not None:
            try:  # noqa: SIM105  (`suppress` is a call)
                AMBIENT.reset(line)
            except ValueError:  # as in `lift`
                pass
        token, self._token = self._token, None
        if token is not None:
            try:  # noqa: SIM105
                ATTEMPT.reset(token)
            except ValueError:
                pass

    def failed(self, error: Exception) -> float | None:
        """Take the attempt's error; return the seconds to sleep before the next attempt, or None to raise it."""
        self.leave()
        self._host.tally.attempt_failed()
        return self._judge(error, self._failure(error, self._wants(error)), error)

    def returned(self, result: object) -> float | None:
        """Take the attempt's result; return the seconds to sleep before the next attempt, or None to return it."""
        self.leave()
        predicate = self._settings.result
        if predicate is None or not _ask(predicate, result):
            self.succeeded()
            return None
        self._host.tally.attempt_failed()
        return self._judge(result, self._failure(result, True), None)

    def succeeded(self) -> None:
        """Take note of an attempt that nothing is wrong with."""
        self.leave()
        self._finish(RetryOutcome.SUCCESS_FIRST if self.number == 1 else RetryOutcome.SUCCESS_AFTER_RETRY)

    def is_over(self, error: Exception | None) -> bool:
        """Say after a sleep whether the next attempt has become pointless: a breaker has opened, the time is up."""
        failure = Failure(
            attempt=0, elapsed=self._elapsed(), time_left=_ambient(), suppressed=self._host.suppressed(self._call)
        )
        verdict = may_retry(self._settings.limits, failure)
        if verdict is not None:
            self._give_up(verdict, error)
        return verdict is not None

    def end(self) -> None:
        """End the call, whatever happened; one that has come to no outcome was interrupted."""
        self.leave()
        if not self._ended:
            self._ended = True
            self._host.tally.ended(None)

    def _wants(self, error: Exception) -> bool:
        settings = self._settings
        if isinstance(error, settings.ignore):
            return False
        if isinstance(error, RejectedError):
            return True
        on = settings.on
        return isinstance(error, on) if isinstance(on, (type, tuple)) else _ask(on, error)

    def _failure(self, evidence: object, wanted: bool) -> Failure:
        asked = asked_wait(evidence, self._host.clock.wall()) if wanted else None
        return Failure(
            attempt=self.number,
            elapsed=self._elapsed(),
            time_left=_ambient(),
            wanted=wanted,
            allowed=self._may_repeat() if wanted else True,
            refused=isinstance(evidence, RejectedError),
            asked=asked if asked != NEVER else None,
            forbidden=asked == NEVER,
            suppressed=self._host.suppressed(self._call) if wanted else None,
        )

    def _may_repeat(self) -> bool:
        only_if = self._settings.only_if
        if self._allowed is None:
            fn, args, kwargs, label = self._call
            self._allowed = only_if is None or _ask(only_if, Call(*innermost(fn, args, kwargs), label))
        return self._allowed

    def _judge(self, evidence: object, failure: Failure, error: Exception | None) -> float | None:
        verdict = may_retry(self._settings.limits, failure) or self._schedule(failure)
        if isinstance(verdict, GiveUp):
            self._give_up(verdict, error)
            return None
        self._previous = verdict.delay
        self._host.tally.scheduled(verdict.delay)
        self._publish_schedule(verdict.delay, error)
        return verdict.delay

    def _schedule(self, failure: Failure) -> Again | GiveUp:
        settings, backoff = self._settings, self._settings.backoff
        try:
            assert callable(backoff)
            delay = next_delay(backoff, self.number, self._previous, self._host.rng)
        except Exception:
            logging.getLogger("halfopen").exception("the backoff of retry %r failed", settings.name)
            return GiveUp(RetryOutcome.FAILED_NOT_RETRIED, "its backoff failed")
        verdict = schedule(settings.limits, failure, delay)
        if isinstance(verdict, Again) and settings.budget is not None and not settings.budget.take():
            return GiveUp(RetryOutcome.FAILED_BUDGET, "the retry budget is spent")
        return verdict

    def _give_up(self, verdict: GiveUp, error: Exception | None) -> None:
        self._finish(verdict.outcome, verdict.reason)
        if error is not None and not self._is_plain(verdict, error):
            why = "" if verdict.outcome is RetryOutcome.FAILED_EXHAUSTED else f": {verdict.reason}"
            _note(error, self._settings.name, self.number, self._elapsed(), why)

    def _is_plain(self, verdict: GiveUp, error: Exception) -> bool:
        """Say whether a note would only tell what everybody expects of a first attempt."""
        if self.number > 1:
            return False
        exhausted = verdict.outcome is RetryOutcome.FAILED_EXHAUSTED
        return exhausted or verdict.reason == NOT_WANTED or isinstance(error, RejectedError)

    def _finish(self, outcome: RetryOutcome, reason: str = "") -> None:
        self._ended = True
        self._host.tally.ended(outcome, self.number)
        bus = self._host.bus
        if bus.wants(RetryFinished):
            now = self._host.now()
            seconds = now - self._began
            bus.put(
                RetryFinished(
                    name=self._settings.name,
                    at=now,
                    outcome=outcome,
                    attempts=self.number,
                    seconds=seconds,
                    reason=reason,
                )
            )
            bus.flush()

    def _publish_schedule(self, delay: float, error: Exception | None) -> None:
        bus = self._host.bus
        if bus.wants(RetryScheduled):
            now = self._host.now()
            bus.put(RetryScheduled(name=self._settings.name, at=now, attempt=self.number, delay=delay, error=error))
            bus.flush()

    def _elapsed(self) -> float:
        return self._host.now() - self._began


def _is_family(breaker: object) -> bool:
    return isinstance(breaker, KeyedPolicy)


def _of_its_key(family: KeyedPolicy[Any], call: _Asked) -> Any:
    fn, args, kwargs, _ = call
    try:
        return None if fn is None else family._of(fn, args, kwargs)
    except Exception:
        # The family around has been asked the same already; an answer that changes is no reason to lose the error.
        return None


def _ask(question: Callable[[Any], object], subject: object) -> bool:
    try:
        return bool(question(subject))
    except Exception:
        logging.getLogger("halfopen").exception("%r raised; the call is not retried", question)
        return False


def _ambient() -> float | None:
    ambient = AMBIENT.get()
    return None if ambient is None else remaining(ambient)


def _note(error: Exception, name: str, number: int, seconds: float, why: str) -> None:
    took = f"{seconds:.1f}" if seconds >= 1 else f"{seconds:.2g}"
    note = f"gave up after {number} attempt{'s' if number != 1 else ''} in {took} s (retry {name!r}){why}"
    own = f"(retry {name!r})"
    write_notes(error, [note], lambda old: old.startswith("gave up") and own in old)
