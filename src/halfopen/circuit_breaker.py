"""CircuitBreaker: the shell around the machine in `_core.circuit`."""

from __future__ import annotations

import functools
import logging
import math
import random
import threading
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from types import AsyncGeneratorType, CoroutineType, GeneratorType, TracebackType
from typing import Any, ParamSpec, TypeVar

from halfopen._core.backoff import Backoff, Exponential
from halfopen._core.checking import Checks
from halfopen._core.circuit import Circuit, HalfOpenRound, Report, StateObject
from halfopen._core.events import CallFailed, CallIgnored, CallRejected, CallSucceeded, CircuitTransitioned, Event
from halfopen._core.explain import explain
from halfopen._core.outcomes import FAILURE, IGNORED, Outcome, SUCCESS
from halfopen._core.settings import Call, HalfOpen, Ramp, Settings
from halfopen._core.snapshots import Snapshot, read_saved, take
from halfopen._core.states import Refusal, State
from halfopen._core.windows import CountWindow, TimeWindow
from halfopen._runtime import trials
from halfopen._runtime.bus import Bus
from halfopen._runtime.clock import SYSTEM_CLOCK, Clock
from halfopen._runtime.wrappers import build, kind_of
from halfopen.classification import Failures, is_cancellation, is_refusal
from halfopen.errors import CircuitOpenError, ConfigError, RejectedError
from halfopen.typing import Classifier

__all__ = ["CircuitBreaker", "Override", "Permit"]

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
E = TypeVar("E", bound=Event)

_LOG = logging.getLogger("halfopen")
# The system's generator keeps no state: it costs no memory for each breaker and does not repeat itself after a fork.
_CHANCE = random.SystemRandom()
_UNFINISHED = frozenset({CoroutineType, GeneratorType, AsyncGeneratorType})
_MAYBE_REFUSAL = (RejectedError, ExceptionGroup)
_REFUSED = {State.OPEN: Refusal.OPEN, State.FORCED_OPEN: Refusal.FORCED_OPEN}


class CircuitBreaker:
    """
    Stop calling a dependency that is ill, try a few calls after a while, and let traffic flow when it is well.

    One breaker serves any number of threads, asyncio loops and trio runs at once. Admission never waits, no lock is
    held during the guarded call, and every way out of it settles its permit exactly once. Breakers can be pickled,
    copied and forked: the other one has the same settings and a fresh state.

    Args:
        name: For errors, events and metrics.
        window: The evidence: `CountWindow` (the last calls) or `TimeWindow` (the last seconds).
        minimum_calls: Calls in the window before a rate is judged, at least 1; default 20, or the size of a smaller
            count window.
        failure_rate_threshold: Share in (0, 1] of failed calls that opens the circuit; None for no such rule.
        slow_call_rate_threshold: Share in (0, 1] of slow calls that opens the circuit; None for no such rule.
        slow_call_duration: Seconds; a call that took longer is slow. None: no call is slow.
        failure_count_threshold: So many failures in the window open the circuit, without a minimum.
        consecutive_failures: So many failures in a row open the circuit, without a minimum.
        wait_in_open: Seconds in OPEN, or a backoff: `constant`, `exponential`, or a callable (step, rng) → seconds.
        forget_after: Seconds in CLOSED after which the backoff begins anew; default the last wait, 0 forgets at once.
        half_open: How the trial round works.
        ramp: How traffic returns after a passed round; default at once.
        classify: Says which calls are failures.
        automatic_half_open: Move OPEN → HALF_OPEN by a timer instead of by the first call after the wait.
        tags: Text to text, for grouping in metrics and consoles.
        clock: The source of time, for tests.
        rng: The source of chance for the jitter, for tests.
        bus: The stream of events to publish on; default one of its own.

    Raises:
        ConfigError: Settings are wrong; every mistake is named.
    """

    __slots__ = (
        "__weakref__", "_abandoned", "_bus", "_circuit", "_classify", "_clock", "_lock", "_logged", "_now", "_timer",
        "_warned", "name", "tags",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        *,
        window: CountWindow | TimeWindow = CountWindow(100),  # noqa: B008  (frozen)
        minimum_calls: int | None = None,
        failure_rate_threshold: float | None = 0.5,
        slow_call_rate_threshold: float | None = 1.0,
        slow_call_duration: float | None = 60.0,
        failure_count_threshold: int | None = None,
        consecutive_failures: int | None = None,
        wait_in_open: float | Backoff = Exponential(),  # noqa: B008  (frozen)
        forget_after: float | None = None,
        half_open: HalfOpen = HalfOpen(),  # noqa: B008  (frozen)
        ramp: Ramp | None = None,
        classify: Classifier = Failures(),  # noqa: B008  (frozen)
        automatic_half_open: bool = False,
        tags: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        bus: Bus | None = None,
    ) -> None:
        checks = Checks()
        checks.text("name", name)
        _check_classifier(checks, classify)
        settings = _settings(
            checks,
            window=window,
            minimum_calls=minimum_calls,
            failure_rate_threshold=failure_rate_threshold,
            slow_call_rate_threshold=slow_call_rate_threshold,
            slow_call_duration=slow_call_duration,
            failure_count_threshold=failure_count_threshold,
            consecutive_failures=consecutive_failures,
            wait_in_open=wait_in_open,
            forget_after=forget_after,
            half_open=half_open,
            ramp=ramp,
            automatic_half_open=automatic_half_open,
        )
        self._build(name, settings, classify, tags or {}, clock or SYSTEM_CLOCK, rng or _CHANCE, bus or Bus())

    @classmethod
    def from_settings(
        cls,
        name: str,
        settings: Settings,
        *,
        classify: Classifier = Failures(),  # noqa: B008  (frozen)
        tags: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        bus: Bus | None = None,
    ) -> CircuitBreaker:
        """Make a breaker from settings that are checked already, and may be shared by many."""
        breaker = cls.__new__(cls)
        breaker._build(name, settings, classify, tags or {}, clock or SYSTEM_CLOCK, rng or _CHANCE, bus or Bus())
        return breaker

    def _build(
        self,
        name: str,
        settings: Settings,
        classify: Classifier,
        tags: Mapping[str, str],
        clock: Clock,
        rng: random.Random,
        bus: Bus,
    ) -> None:
        self.name = name
        self.tags = tags
        self._classify = classify
        self._clock = clock
        self._now = clock.monotonic
        self._bus = bus
        self._lock = threading.RLock()
        self._abandoned: list[int] = []
        self._timer: Any = None
        self._logged = False
        self._warned = False
        self._circuit = Circuit(name, settings, self._now(), rng, bus)
        bus.attach(self)
        self.listeners_changed()

    # Calling

    def __call__(self, fn: F, /) -> F:
        """
        Guard every call of *fn*: a function, a coroutine function, a generator function or an async generator function.

        A generator is one call: it ends when it is exhausted (success), raises, or is closed early (ignored).

        Raises:
            TypeError: *fn* is a class, a property, a coroutine, or cannot be called; it could not be guarded.
        """
        if isinstance(fn, (staticmethod, classmethod)):
            return type(fn)(self(fn.__func__))  # type: ignore[return-value]  # the same kind of descriptor
        _refuse_unguardable(fn)
        kind = kind_of(fn)
        guarded = self._async_generator(fn) if kind == "async_generator" else build(fn, kind, self._names())
        return functools.update_wrapper(guarded, fn)  # type: ignore[return-value]  # same signature, by construction

    def _names(self) -> dict[str, Any]:
        return {
            "_h_circuit": self._circuit,
            "_h_now": self._now,
            "_h_refuse": self._refuse,
            "_h_failed": self._failed,
            "_h_succeeded": self._succeeded,
            "_h_gated_call": self._gated_call,
            "_h_gated_acall": self._gated_acall,
            "_h_gated_generator": self._gated_generator,
        }

    def call(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """
        Make one guarded call.

        Raises:
            CircuitOpenError: The call was refused.
            TypeError: *fn* returned a coroutine, whose work would have been unguarded; use `acall`.
        """
        state = self._circuit.state
        began = self._now()
        if state.gated:
            if began < state.shut_until:
                raise self._refuse(state, began)
            return self._gated_call(fn, args, kwargs)
        try:
            result = fn(*args, **kwargs)
        except BaseException as error:
            self._failed(state, began, error)
            raise
        if type(result) in _UNFINISHED:
            return self._unfinished(fn, result, args, kwargs)
        ended = self._now()
        spent = ended - began
        if ended < state.calm_until and spent <= state.slow_after:
            state.quiet.append(spent)
        else:
            self._succeeded(state, began, ended, result)
        return result

    async def acall(self, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """
        Make one guarded call of a coroutine function, on asyncio or trio.

        Raises:
            CircuitOpenError: The call was refused.
        """
        state = self._circuit.state
        began = self._now()
        if state.gated:
            if began < state.shut_until:
                raise self._refuse(state, began)
            return await self._gated_acall(fn, args, kwargs)
        try:
            result = await fn(*args, **kwargs)
        except BaseException as error:
            self._failed(state, began, error)
            raise
        ended = self._now()
        spent = ended - began
        if ended < state.calm_until and spent <= state.slow_after:
            state.quiet.append(spent)
        else:
            self._succeeded(state, began, ended, result)
        return result

    def acquire(self, call: Call | None = None) -> Permit:
        """
        Ask to make one call; raise CircuitOpenError if it is refused.

        Use it as a block, ``with breaker.acquire() as permit:``, in sync and async code alike, or settle the permit by
        hand from a callback.

        Args:
            call: What `HalfOpen.eligible` is asked about.

        Raises:
            CircuitOpenError: The call was refused.
        """
        circuit = self._circuit
        state = circuit.state
        now = self._now()
        if state.gated:
            if now < state.shut_until:
                raise self._refuse(state, now)
            return self._gated_permit(call)
        # Given before made: whatever interrupts the making ends a permit, which then counts as abandoned.
        circuit.given.append(None)
        return FreePermit(self, state, 0, now)

    # The gated way: a permit for every call

    def _gated_call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self._gated_permit(None, fn, args, kwargs) as permit:
            result = fn(*args, **kwargs)
            if type(result) in _UNFINISHED:
                permit.ignore()
                return self._unfinished(fn, result, args, kwargs)
            permit._returned(result)
            return result

    async def _gated_acall(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self._gated_permit(None, fn, args, kwargs) as permit:
            result = await fn(*args, **kwargs)
            permit._returned(result)
            return result

    def _gated_generator(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Generator[Any, Any, Any]:
        permit = self._gated_permit(None, fn, args, kwargs)
        try:
            result = yield from _driven(permit, fn(*args, **kwargs))
        except BaseException as error:
            permit._raised(error)
            raise
        permit._returned(result)
        return result

    def _async_generator(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        async def guarded(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            permit = self.acquire(Call(fn, args, kwargs))
            items = fn(*args, **kwargs)
            step: Callable[[Any], Awaitable[Any]] = items.asend
            sent: Any = None
            try:
                while True:
                    with trials.inside(permit):
                        item = await step(sent)
                    try:
                        sent, step = (yield item), items.asend
                    except GeneratorExit:
                        await items.aclose()
                        raise
                    except BaseException as thrown:
                        sent, step = thrown, items.athrow
            except StopAsyncIteration:
                permit._returned(None)
            except BaseException as error:
                permit._raised(error)
                raise

        return guarded

    def _gated_permit(
        self,
        call: Call | None,
        fn: Callable[..., Any] | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Permit:
        circuit = self._circuit
        state = circuit.state
        now = self._now()
        enclosing = self._enclosing_trial()
        if enclosing is not None:
            return enclosing
        self._resolve_wait()
        while True:
            kind = circuit.state.kind
            eligible = self._eligible(kind, call if call is not None else Call(fn, args, kwargs or {}))
            permit = GatedPermit(self, state, next(circuit.serials), now)
            with self._lock:
                if circuit.state.kind is not kind and circuit.settings.half_open.eligible is not None:
                    permit._end()
                    continue  # it moved while the user's predicate ran
                self._collect(now)
                refusal = circuit.admit(now, permit._serial, eligible)
                permit._state = state = circuit.state
            self._after()
            if refusal is None:
                return permit
            permit._end()
            raise CircuitOpenError(self.name, state.kind, refusal, state.retry_after(now))

    def _enclosing_trial(self) -> Permit | None:
        for permit in trials.enclosing():
            if permit._breaker is self and permit._state is self._circuit.state and not permit.settled:
                self._circuit.counters.guests += 1
                return GuestPermit(self, permit._state, 0, permit.began)
        return None

    def _eligible(self, kind: State, call: Call) -> bool:
        predicate = self._circuit.settings.half_open.eligible
        if predicate is None or kind not in (State.OPEN, State.HALF_OPEN):
            return True
        try:
            return bool(predicate(call))
        except Exception:
            self._log_once("the predicate `eligible` of %r raised; the call counts as not eligible")
            return False

    def _refuse(self, state: StateObject, now: float) -> CircuitOpenError:
        """Count a refusal that needs no thought, and return what to raise."""
        circuit = self._circuit
        refusal = _REFUSED[state.kind]
        with self._lock:
            circuit.refused(state, refusal, now)
        if self._bus.waiting or circuit.wait_wanted is not None:
            self._after()
        shut_until = state.shut_until
        return CircuitOpenError(self.name, state.kind, refusal, None if shut_until == math.inf else shut_until - now)

    def _unfinished(self, fn: Callable[..., Any], result: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(result, GeneratorType) and kind_of(fn) == "generator":
            return self(fn)(*args, **kwargs)
        if isinstance(result, AsyncGeneratorType) and kind_of(fn) == "async_generator":
            return self(fn)(*args, **kwargs)
        if isinstance(result, CoroutineType):
            result.close()
            raise TypeError(f"call() would not guard the coroutine that {fn!r} returns; use `await acall(...)`")
        return result

    # Settling

    def _failed(self, state: StateObject, began: float, error: BaseException) -> None:
        now = self._now()
        report = self._judge_error(state, error, now - began)
        with self._lock:
            if self._abandoned:
                self._collect(now)
            self._circuit.settle(state, 0, report, now)
        self._after()

    def _succeeded(self, state: StateObject, began: float, ended: float, result: Any) -> None:
        if type(result) is CoroutineType and not self._warned:
            self._warned = True
            message = f"breaker {self.name!r} guards a function that returns a coroutine, whose work is not guarded"
            warnings.warn(message, RuntimeWarning, stacklevel=3)
        report = self._judge_result(result, ended - began)
        with self._lock:
            if self._abandoned:
                self._collect(ended)
            self._circuit.settle(state, 0, report, ended)
        self._after()

    def _judge_error(self, state: StateObject, error: BaseException, spent: float) -> Report:
        kind = type(error).__qualname__
        if isinstance(error, Exception):
            if isinstance(error, _MAYBE_REFUSAL) and is_refusal(error):
                return (IGNORED, spent, None, kind)
            try:
                answer = self._classify.of_exception(error)
            except Exception:
                return self._unjudged(spent, kind)
            # The common answer, without a further call.
            return (answer, spent, None, kind) if type(answer) is Outcome else self._told(answer, spent, kind)
        # Cancelled from outside is no evidence, unless it was slow already: somebody lost patience with a hanging call.
        lost_patience = spent > state.slow_after and is_cancellation(error)
        return (FAILURE if lost_patience else IGNORED, spent, None, kind)

    def _judge_result(self, result: Any, spent: float) -> Report:
        if not self._judges_results():
            return (SUCCESS, spent, None, None)
        return self._judge_value(result, spent)

    def _judge_value(self, value: Any, spent: float) -> Report:
        try:
            answer = self._classify.of_result(value)
        except Exception:
            return self._unjudged(spent, None)
        return self._told(answer, spent, None)

    def _told(self, answer: Any, spent: float, kind: str | None) -> Report:
        try:
            outcome, later = answer if isinstance(answer, tuple) else (answer, None)
            return (Outcome(outcome), spent, _usable(later), kind)
        except Exception:
            return self._unjudged(spent, kind)

    def _unjudged(self, spent: float, kind: str | None) -> Report:
        self._log_once("the classifier of %r raised or gave no outcome; the call counts as ignored")
        return (IGNORED, spent, None, kind)

    def _judges_results(self) -> bool:
        return bool(getattr(self._classify, "judges_results", True))

    def _settle_permit(self, permit: Permit, report: Report, now: float) -> None:
        circuit, state, serial = self._circuit, permit._state, permit._serial
        with self._lock:
            self._collect(now)
            if serial == 0:
                circuit.settle(state, 0, report, now)
                circuit.counters.free_settled += 1
            elif serial in circuit.outstanding or serial in getattr(state, "expired", ()):
                circuit.settle(state, serial, report, now)
                circuit.outstanding.pop(serial, None)
        self._after()

    def _collect(self, now: float) -> None:
        while self._abandoned:
            self._circuit.abandon(self._abandoned.pop(), now)

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
        seconds: float | None = None
        try:
            seconds = _usable(self._circuit.settings.backoff(event.step, self._circuit.rng))
        except Exception:
            _LOG.debug("the backoff of %r raised", self.name, exc_info=True)
        if seconds is None:
            self._log_once("the backoff of %r raised or gave no number of seconds; the default one is used")
            seconds = Exponential()(event.step, self._circuit.rng)
        with self._lock:
            self._circuit.set_wait(opened, seconds)

    def _schedule(self) -> None:
        due = self._circuit.state.due()
        timer = self._timer
        if due == math.inf or (timer is not None and timer[0] <= due and timer[0] > self._now()):
            return
        if timer is not None:
            timer[1].cancel()
        self._timer = (due, self._clock.call_at(due, _weak_tick(self)))

    def _log_once(self, message: str) -> None:
        if not self._logged:
            self._logged = True
            _LOG.exception(message, self.name)

    # Looking

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
    def history(self) -> tuple[CircuitTransitioned, ...]:
        """The last 100 moves, oldest first."""
        with self._lock:
            return tuple(self._circuit.history or ())

    def tick(self) -> None:
        """Make due what time alone decides: leases, the ends of rounds, ramps and orders, and a timer's move."""
        now = self._now()
        with self._lock:
            self._collect(now)
            self._circuit.tick(now)
        self._after()

    def snapshot(self) -> Snapshot:
        """Return a frozen look at everything; see `Snapshot`."""
        self.tick()
        now, wall = self._now(), self._clock.wall()
        with self._lock:
            return take(self._circuit, now, wall, self.tags)

    def explain(self) -> str:
        """Put the last decision and its arithmetic into one sentence, with local times."""
        look = self.snapshot()
        with self._lock:
            last = self._circuit.history[-1] if self._circuit.history else None
        return explain(look, self.settings, last, _local_time)

    def subscribe(self, listener: Callable[[E], object], *kinds: type[E]) -> Callable[[], None]:
        """Call *listener* with the events of this breaker's bus; return what ends the subscription."""
        return self._bus.subscribe(listener, *kinds)

    # Orders

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
            _check_classifier(checks, classify)
        settings = _settings(checks, self.settings, **changes)
        self.adopt(settings, classify)

    def adopt(self, settings: Settings, classify: Classifier | None = None) -> None:
        """Go on under other settings, which are checked already; see `configure`."""
        now = self._now()
        with self._lock:
            if classify is not None:
                self._classify = classify
            self._refresh()
            self._circuit.configure(settings, now)
        self._after()

    # Upkeep

    def listeners_changed(self) -> None:
        """Take note that somebody began, or ceased, to listen."""
        now = self._now()
        with self._lock:
            self._refresh()
            self._circuit.fold(now)

    def _refresh(self) -> None:
        self._circuit.judges_every_success = self._judges_results() or self._bus.wants(CallSucceeded)
        self._circuit.tells_refusals = self._bus.wants(CallRejected)
        self._circuit.tells_outcomes = any(self._bus.wants(kind) for kind in (CallSucceeded, CallFailed, CallIgnored))

    def after_fork(self) -> None:
        """Begin anew in a child process: the parent's calls are not ours, and its lock may be held."""
        self._lock = threading.RLock()
        self._abandoned = []
        self._timer = None
        circuit = self._circuit
        durations = circuit.counters.durations
        circuit.__init__(circuit.name, circuit.settings, self._now(), circuit.rng, self._bus)  # type: ignore[misc]
        circuit.counters.durations = durations
        self._refresh()

    def __reduce__(self) -> tuple[Any, ...]:
        clock = None if self._clock is SYSTEM_CLOCK else self._clock
        return _remake, (type(self), self.name, self.settings, self._classify, dict(self.tags), clock)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {self._circuit.state.kind.value}>"


class Permit:
    """
    Leave to make one call, to be settled once: as a block, or by one of its methods.

    As a block it ends as what the block does: no exception is a success, an exception is classified. Settling twice is
    a no-op. A permit that is garbage-collected unsettled is settled as ignored and counted as abandoned.

    Attributes:
        began: Seconds on the breaker's clock at which it was given.
    """

    __slots__ = ("_breaker", "_live", "_serial", "_state", "began")

    def __init__(self, breaker: CircuitBreaker, state: StateObject, serial: int, began: float) -> None:
        self._breaker = breaker
        self._state = state
        self._serial = serial
        self.began = began
        self._live = True

    @property
    def settled(self) -> bool:
        """Whether the outcome is known, or the lease of a trial call is over."""
        return not hasattr(self, "_live")

    @property
    def trial(self) -> bool:
        """Whether this is leave for a trial call."""
        return self._state.kind is State.HALF_OPEN

    def success(self) -> None:
        """Settle as evidence of health."""
        self._report(_success)

    def failure(self, error: BaseException | None = None, *, retry_after: float | None = None) -> None:
        """
        Settle as evidence of illness, whatever the classifier thinks.

        Args:
            error: What went wrong, for the events.
            retry_after: Seconds for which the dependency asks to be left alone.
        """
        kind = None if error is None else type(error).__qualname__
        self._report(lambda spent: (FAILURE, spent, _usable(retry_after), kind))

    def ignore(self) -> None:
        """Give the permit back: the call says nothing about the dependency."""
        self._report(lambda spent: (IGNORED, spent, None, None))

    def result(self, value: Any) -> None:
        """Settle as what the classifier says of a returned value; by default an HTTP status counts."""
        breaker = self._breaker
        self._report(lambda spent: breaker._judge_value(value, spent))

    def exception(self, error: BaseException) -> None:
        """Settle as what the classifier says of an exception."""
        self._raised(error)

    def _returned(self, value: Any) -> None:
        if self._breaker._judges_results():
            self.result(value)
        else:
            self.success()

    def _raised(self, error: BaseException) -> None:
        self._report(lambda spent: self._breaker._judge_error(self._state, error, spent))

    def _report(self, judge: Callable[[float], Report]) -> None:
        now = self._breaker._now()
        report = judge(now - self.began)
        # Deleting an attribute is one atomic step: only one of two threads that settle gets through.
        try:
            del self._live
        except AttributeError:
            return
        self._breaker._settle_permit(self, report, now)
        self._end()

    def _end(self) -> None:
        """Become a permit whose end means nothing."""

    def __enter__(self) -> Permit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self._report(_success)
        else:
            self._raised(error)

    def __repr__(self) -> str:
        how = "settled" if self.settled else "trial call" if self.trial else "given"
        return f"<{type(self).__name__} of {self._breaker.name!r}: {how}>"


def _success(spent: float) -> Report:
    return (SUCCESS, spent, None, None)


class FreePermit(Permit):
    """A permit of a state that admits everybody."""

    __slots__ = ()

    def success(self) -> None:
        """Settle as evidence of health."""
        self.__exit__(None, None, None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._raised(error)
            return
        breaker, state = self._breaker, self._state
        now = breaker._now()
        spent = now - self.began
        if now < state.calm_until and spent <= state.slow_after:
            try:
                del self._live
            except AttributeError:
                return
            state.quiet_permits.append(spent)
            self.__class__ = SettledFreePermit  # type: ignore[assignment]  # the same, but its end means nothing
        else:
            self._report(_success)

    def _end(self) -> None:
        self.__class__ = SettledFreePermit  # type: ignore[assignment]  # as above

    def __del__(self) -> None:
        # Possibly in the midst of anything, even under the breaker's lock: only leave word.
        self._breaker._abandoned.append(0)


class SettledFreePermit(Permit):
    """A settled permit. Its class has no finalizer, which is cheaper than one that finds nothing to do."""

    __slots__ = ()


class GatedPermit(Permit):
    """A permit of a state that does not admit everybody; as a block, a trial call has an inside."""

    __slots__ = ("_before",)

    @property
    def settled(self) -> bool:
        """Whether the outcome is known, or the lease of a trial call is over."""
        return self._serial not in self._breaker._circuit.outstanding

    def _end(self) -> None:
        self.__class__ = SettledGatedPermit  # type: ignore[assignment]  # as above

    def __enter__(self) -> Permit:
        self._before = trials.enter(self) if self._state.kind is State.HALF_OPEN else None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._before is not None:
            trials.leave(self._before)
        super().__exit__(kind, error, traceback)

    def __del__(self) -> None:
        self._breaker._abandoned.append(self._serial)


class SettledGatedPermit(GatedPermit):
    """A settled permit of a gated state."""

    __slots__ = ()

    def __del__(self) -> None:
        """Mean nothing."""


class GuestPermit(Permit):
    """A call made from inside a trial call of the same breaker: admitted, and part of that trial call."""

    __slots__ = ()

    def success(self) -> None:
        pass

    def _report(self, judge: Callable[[float], Report]) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass


class Override:
    """
    The handle of an order: end it, or use it as a block that ends it.

    Ending is a no-op once the circuit has moved on, by another order or by the end time.
    """

    __slots__ = ("_breaker", "_state")

    def __init__(self, breaker: CircuitBreaker, state: StateObject) -> None:
        self._breaker = breaker
        self._state = state

    def end(self, *, reason: str | None = None, by: str | None = None) -> None:
        """Close the circuit if this order is still in force."""
        breaker = self._breaker
        with breaker._lock:
            if breaker._circuit.state is self._state:
                breaker._circuit.order(State.CLOSED, breaker._now(), note=reason, by=by)
        breaker._after()

    def __enter__(self) -> Override:
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()


Until = float | timedelta | datetime | None
"""The end of an order: seconds from now, a timedelta from now, or a datetime with a time zone."""


def _seconds_until(until: Until, wall: float) -> float | None:
    if isinstance(until, datetime) and until.tzinfo is not None:
        until = until.timestamp() - wall
    elif isinstance(until, timedelta):
        until = until.total_seconds()
    checks = Checks()
    allowed = "seconds from now greater than 0, a timedelta above 0, or a datetime in the future with a time zone"
    if isinstance(until, bool) or not isinstance(until, (int, float, type(None))):
        checks.wrong("until", until, allowed, "wrong_type")
    elif until is not None and not (math.isfinite(until) and until > 0):
        checks.wrong("until", until, allowed)
    checks.done()
    return until  # type: ignore[return-value]  # the other forms are gone


def _check_classifier(checks: Checks, classify: Any) -> None:
    if not isinstance(classify, Classifier) or isinstance(classify, type):
        checks.wrong("classify", classify, "a Failures, or an object with of_exception and of_result", "wrong_type")


def _settings(checks: Checks, base: Settings | None = None, **values: Any) -> Settings:
    """Make settings, or raise one ConfigError for what was wrong before and what is wrong here."""
    known = Settings.__slots__ if base is not None else values
    for name in values:
        if name not in known:
            checks.wrong(name, values[name], "there is no such setting", "unknown_key")
    values = {name: value for name, value in values.items() if name in known}
    try:
        settings = Settings(**values) if base is None else replace(base, **values)
    except ConfigError as wrong:
        checks.mistakes.extend(wrong.mistakes)
        raise ConfigError(checks.mistakes) from None
    checks.done()
    return settings


def _usable(seconds: Any) -> float | None:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return None
    return float(seconds) if math.isfinite(seconds) and seconds >= 0 else None


def _refuse_unguardable(fn: Any) -> None:
    if isinstance(fn, type):
        raise TypeError(f"a class cannot be guarded, only its methods or a function that makes one: {fn!r}")
    if isinstance(fn, property):
        raise TypeError("a property cannot be guarded; decorate its getter below @property")
    if isinstance(fn, (CoroutineType, GeneratorType, AsyncGeneratorType)):
        raise TypeError(f"hand in the function, not what it returned: {fn!r}")
    if not callable(fn):
        raise TypeError(f"only what can be called can be guarded, not {fn!r}")


def _driven(permit: Permit, items: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Run a generator inside a trial call: each step of it, but not its consumer between the steps."""
    step: Callable[[Any], Any] = items.send
    sent: Any = None
    while True:
        try:
            with trials.inside(permit):
                item = step(sent)
        except StopIteration as stop:
            return stop.value
        try:
            sent, step = (yield item), items.send
        except GeneratorExit:
            items.close()
            raise
        except BaseException as thrown:
            sent, step = thrown, items.throw


def _weak_tick(breaker: CircuitBreaker) -> Callable[[], None]:
    import weakref

    reference = weakref.ref(breaker)

    def tick() -> None:
        alive = reference()
        if alive is not None:
            alive._timer = None
            alive.tick()

    return tick


def _remake(
    cls: type[CircuitBreaker],
    name: str,
    settings: Settings,
    classify: Classifier,
    tags: Mapping[str, str],
    clock: Clock | None,
) -> CircuitBreaker:
    return cls.from_settings(name, settings, classify=classify, tags=tags, clock=clock)


def _local_time(unix: float) -> str:
    moment = datetime.fromtimestamp(unix)
    return moment.strftime("%H:%M:%S" if abs(datetime.now() - moment) < timedelta(days=1) else "%Y-%m-%d %H:%M:%S")
