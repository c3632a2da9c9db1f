"""CircuitBreaker: stop calling what is ill, find out by a few calls whether it is well, and let traffic flow again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import CoroutineType, MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from halfopen._breaker.built import note_built
from halfopen._breaker.guarding import UNFINISHED, Guarding, refuse_unguardable
from halfopen._breaker.judge import check_classifier
from halfopen._breaker.looking import Looking
from halfopen._breaker.orders import Orders, Override, make_settings
from halfopen._breaker.permits import Permit
from halfopen._core.backoff import Backoff, Exponential
from halfopen._core.checking import Checks
from halfopen._core.settings import HalfOpen, Ramp, Settings
from halfopen._core.stays import StateObject
from halfopen._core.windows import CountWindow, TimeWindow
from halfopen._runtime.bus import Bus
from halfopen._runtime.clock import SYSTEM_CLOCK, Clock
from halfopen._runtime.late import CHANCE
from halfopen._runtime.policy import mark
from halfopen._runtime.wrappers import build, kind_of
from halfopen.classification import Failures
from halfopen.typing import Classifier

if TYPE_CHECKING:
    from random import Random

__all__ = ["CircuitBreaker", "Override", "Permit"]

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_NO_TAGS: Mapping[str, str] = MappingProxyType({})


class CircuitBreaker(Guarding, Orders, Looking):
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

    __slots__ = ()

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
        rng: Random | None = None,
        bus: Bus | None = None,
    ) -> None:
        checks = Checks()
        checks.text("name", name)
        check_classifier(checks, classify)
        _check_surroundings(checks, tags, clock, rng, bus)
        settings = make_settings(
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
        note_built(name)
        own_tags = dict(tags) if tags else _NO_TAGS
        self._build(name, settings, classify, own_tags, clock or SYSTEM_CLOCK, rng or CHANCE, bus or Bus())

    @classmethod
    def from_settings(
        cls,
        name: str,
        settings: Settings,
        *,
        classify: Classifier = Failures(),  # noqa: B008  (frozen)
        tags: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        rng: Random | None = None,
        bus: Bus | None = None,
    ) -> CircuitBreaker:
        """Make a breaker from settings that are checked already, and may be shared by many."""
        breaker = cls.__new__(cls)
        breaker._build(name, settings, classify, tags or _NO_TAGS, clock or SYSTEM_CLOCK, rng or CHANCE, bus or Bus())
        return breaker

    # Calling

    def __call__(self, fn: F, /) -> F:
        """
        Guard every call of *fn*: a function, a coroutine function, a generator function or an async generator function.

        A generator is one call: it ends when it is exhausted (success), raises, or is closed early (ignored).

        Raises:
            TypeError: *fn* is a class, a property, a coroutine, or cannot be called; it could not be guarded.
        """
        if _is_descriptor(fn):
            descriptor: Any = fn
            return cast("F", type(descriptor)(self(descriptor.__func__)))
        refuse_unguardable(fn)
        kind = kind_of(fn)
        guarded = self._async_generator(fn) if kind == "async_generator" else build(fn, kind, self._names())
        return mark(fn, guarded)

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
            gated: T = self._gated_any_call(fn, args, kwargs)
            return gated
        try:
            result = fn(*args, **kwargs) if kwargs else fn(*args)  # type: ignore[call-arg]  # what was given
        except BaseException as error:
            self._failed(state, began, error)
            raise
        if type(result) in UNFINISHED:
            guarded: T = self._unfinished(fn, result, args, kwargs)
            return guarded
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
            gated: T = await self._gated_acall(fn, args, kwargs)
            return gated
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

    # Settling

    def _failed(self, state: StateObject, began: float, error: BaseException) -> None:
        now = self._now()
        spent = now - began
        room = state.room
        if now < state.calm_until and spent <= state.slow_after:
            cls = type(error)
            try:
                quiet = cls in self._judge.plain and not error.__dict__ and next(room, False)
            except Exception:  # it may be a stranger's and resist being looked at
                quiet = False
            if quiet:
                state.quiet_failures.append((len(state.quiet) + len(state.quiet_permits), spent, cls))
                if state.room is not room:
                    self._crowded(state, now)
                return
        report = self._judge.of_error(error, spent, state.slow_after)
        with self._lock:
            if self._abandoned:
                self._collect(now)
            self._circuit.settle(state, 0, report, now)
        self._after()

    def _crowded(self, state: StateObject, now: float) -> None:
        with self._lock:
            self._circuit.crowded(state, now)
        self._after()

    def _succeeded(self, state: StateObject, began: float, ended: float, result: Any) -> None:
        if type(result) is CoroutineType:
            self._warn_once()
        report = self._judge.of_return(result, ended - began)
        with self._lock:
            if self._abandoned:
                self._collect(ended)
            self._circuit.settle(state, 0, report, ended)
        self._after()

    def __reduce__(self) -> tuple[Any, ...]:
        clock = None if self._clock is SYSTEM_CLOCK else self._clock
        return _remake, (type(self), self.name, self.settings, self._judge.classifier, dict(self.tags), clock)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {self._circuit.state.kind.value}>"


def _check_surroundings(checks: Checks, tags: Any, clock: Any, rng: Any, bus: Any) -> None:
    if tags is not None and not _are_texts(tags):
        checks.wrong("tags", tags, "a mapping of text to text", "wrong_type")
    if clock is not None and not all(callable(getattr(clock, name, None)) for name in ("monotonic", "wall")):
        checks.wrong("clock", clock, "a Clock, such as halfopen.testing.FakeClock()", "wrong_type")
    if rng is not None and not callable(getattr(rng, "uniform", None)):
        checks.wrong("rng", rng, "a random.Random", "wrong_type")
    if bus is not None and not isinstance(bus, Bus):
        checks.wrong("bus", bus, "a Bus, such as that of a Registry", "wrong_type")


def _are_texts(tags: Any) -> bool:
    return _is_mapping(tags) and all(isinstance(text, str) for pair in tags.items() for text in pair)


def _is_mapping(tags: object) -> bool:
    return isinstance(tags, Mapping)


def _is_descriptor(fn: object) -> bool:
    return isinstance(fn, (staticmethod, classmethod))


def _remake(
    cls: type[CircuitBreaker],
    name: str,
    settings: Settings,
    classify: Classifier,
    tags: Mapping[str, str],
    clock: Clock | None,
) -> CircuitBreaker:
    return cls.from_settings(name, settings, classify=classify, tags=tags, clock=clock)
