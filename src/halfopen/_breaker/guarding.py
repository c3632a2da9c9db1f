"""How functions of every kind are guarded while the state does not admit everybody, and what cannot be."""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, TypeVar, cast

from halfopen._breaker.permits import FreePermit, GatedPermit, GuestPermit, Permit, Watch
from halfopen._breaker.shell import Shell
from halfopen._core.settings import Call
from halfopen._core.states import Refusal, State
from halfopen._core.stays import StateObject
from halfopen._runtime import trials
from halfopen._runtime.policy import innermost
from halfopen._runtime.wrappers import kind_of
from halfopen.errors import CircuitOpenError

__all__ = ["UNFINISHED", "Guarding", "refuse_unguardable"]

F = TypeVar("F", bound=Callable[..., Any])

_UNFINISHED_BY: dict[type, str] = {
    CoroutineType: "coroutine",
    GeneratorType: "generator",
    AsyncGeneratorType: "async_generator",
}
UNFINISHED: frozenset[type] = frozenset(_UNFINISHED_BY)
"""Types of results whose work has not been done when the function returns."""


_TRIAL_BUDGET = Refusal.TRIAL_BUDGET  # a member fetched from its enumeration costs 50 ns on Python 3.11


class Guarding(Shell):
    """The part that gives permits, and runs calls that hold one."""

    __slots__ = ()

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
        return FreePermit(self, state, now)

    def _gated_call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self._gated_permit(None, fn, args, kwargs) as permit:
            result = fn(*args, **kwargs)
            cls = type(cast("object", result))
            if cls is CoroutineType:
                self._warn_once()
            permit._returned(result)
            return result

    def _gated_any_call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call of whatever kind: a generator must not take a permit before it runs."""
        if kind_of(fn) != "function":
            return self._unfinished(fn, fn(*args, **kwargs), args, kwargs)
        with self._gated_permit(None, fn, args, kwargs) as permit:
            result = fn(*args, **kwargs)
            if type(result) in UNFINISHED:
                permit.ignore()
                return self._unfinished(fn, result, args, kwargs)
            permit._returned(result)
            return result

    def _warn_once(self) -> None:
        if not self._warned:
            self._warned = True
            message = f"breaker {self.name!r} guards a function that returns a coroutine, whose work is not guarded"
            warnings.warn(message, RuntimeWarning, stacklevel=4)

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
            items = fn(*args, **kwargs)  # runs nothing yet, but refuses wrong arguments
            permit = self.acquire(Call(*innermost(fn, args, kwargs)))
            step: Callable[[Any], Awaitable[Any]] = items.asend
            sent: Any = None
            try:
                while True:
                    with trials.inside(permit._state, permit._serial):
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
        enclosing = self._enclosing_trial(now)
        if enclosing is not None:
            return enclosing
        if now < state.full_until and not self._abandoned and circuit.settings.half_open.eligible is None:
            raise self._refuse_trial(state, now)
        if circuit.wait_wanted is not None or circuit.state.due() <= now:
            self.tick()  # a wait that user code has to compute may be over already
        while True:
            kind = circuit.state.kind
            eligible = self._eligible(kind, call, fn, args, kwargs)
            permit = GatedPermit(self, state, next(circuit.serials), now)
            watch = Watch(permit, self._abandoned.append)
            with self._lock:
                if circuit.state.kind is not kind and circuit.settings.half_open.eligible is not None:
                    continue  # it moved while the user's predicate ran
                self._collect(now)
                refusal = circuit.admit(now, watch.serial, eligible, watch)
                permit._state = state = circuit.state
            del watch  # the end of a refused permit is no news
            self._after()
            if refusal is None:
                return permit
            raise CircuitOpenError(self.name, state.kind, refusal, state.retry_after(now))

    def _refuse_trial(self, state: StateObject, now: float) -> CircuitOpenError:
        with self._lock:
            self._circuit.refused(state, _TRIAL_BUDGET, now)
        if self._bus.waiting:
            self._after()
        return CircuitOpenError(self.name, state.kind, _TRIAL_BUDGET, None)

    def _enclosing_trial(self, now: float) -> Permit | None:
        present = self._circuit.state
        for state, _ in trials.enclosing():
            if state is present:
                self._circuit.counters.guests += 1
                return GuestPermit(self, state, 0, now)
        return None

    def _eligible(
        self,
        kind: State,
        call: Call | None,
        fn: Callable[..., Any] | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
    ) -> bool:
        predicate = self._circuit.settings.half_open.eligible
        if predicate is None or kind not in (State.OPEN, State.HALF_OPEN):
            return True
        if call is None:
            call = Call(*innermost(fn, args, kwargs or {}))
        try:
            return bool(predicate(call))
        except Exception:
            self._judge.log_once("the predicate `eligible` of %r raised; the call counts as not eligible")
            return False

    def __call__(self, fn: F, /) -> F:
        """Guard every call of *fn*."""
        raise NotImplementedError

    def _unfinished(self, fn: Callable[..., Any], result: Any, args: Any, kwargs: Any) -> Any:
        cls = type(cast("object", result))
        made = _UNFINISHED_BY.get(cls)
        if made == kind_of(fn) != "coroutine":
            return self(fn)(*args, **kwargs)
        if made == "coroutine":
            result.close()
            raise TypeError(f"call() would not guard the coroutine that {fn!r} returns; use `await acall(...)`")
        return result


def refuse_unguardable(fn: Any) -> None:
    """Raise TypeError for what would silently stay unguarded."""
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
            with trials.inside(permit._state, permit._serial):
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
