"""Permits: leave to make one call, settled exactly once on every way out."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from operator import attrgetter
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from halfopen._core.checking import usable_seconds
from halfopen._core.circuit import Report
from halfopen._core.outcomes import FAILURE, IGNORED, SUCCESS
from halfopen._core.states import State
from halfopen._core.stays import StateObject
from halfopen._runtime import trials

if TYPE_CHECKING:
    from halfopen._breaker.shell import Shell

__all__ = ["FreePermit", "GatedPermit", "GuestPermit", "Permit"]


class Permit:
    """
    Leave to make one call, to be settled once: as a block, or by one of its methods.

    As a block it ends as what the block does: no exception is a success, an exception is classified. Settling twice is
    a no-op. A permit that is garbage-collected unsettled is settled as ignored and counted as abandoned.

    Attributes:
        began: Seconds on the breaker's clock at which it was given.
    """

    __slots__ = ("_breaker", "_live", "_serial", "_state", "began")

    def __init__(self, breaker: Shell, state: StateObject, serial: int, began: float) -> None:
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
        later = usable_seconds(retry_after)
        self._report(lambda spent: (FAILURE, spent, later, kind))

    def ignore(self) -> None:
        """Give the permit back: the call says nothing about the dependency."""
        self._report(lambda spent: (IGNORED, spent, None, None))

    def result(self, value: Any) -> None:
        """Settle as what the classifier says of a returned value; by default an HTTP status counts."""
        breaker = self._breaker
        self._report(lambda spent: breaker._judge.of_value(value, spent))

    def exception(self, error: BaseException) -> None:
        """Settle as what the classifier says of an exception."""
        self._raised(error)

    def _returned(self, value: Any) -> None:
        if self._breaker._judge.judges_results:
            self.result(value)
        else:
            self.success()

    def _raised(self, error: BaseException) -> None:
        self._report(lambda spent: self._breaker._judge.of_error(error, spent, self._state.slow_after))

    def _report(self, judge: Callable[[float], Report]) -> None:
        now = self._breaker._now()
        try:
            report = judge(now - self.began)
        except BaseException:
            self._settle((IGNORED, now - self.began, None, None), now)
            raise
        self._settle(report, now)

    def _settle(self, report: Report, now: float) -> None:
        # Deleting an attribute is one atomic step: only one of two threads that settle gets through.
        try:
            del self._live
        except AttributeError:
            return
        self._breaker._settle_permit(self, report, now)

    def __enter__(self) -> Permit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self._report(_success)
        else:
            self._raised(error)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a permit cannot be copied or pickled: it is leave for one call")

    def __repr__(self) -> str:
        how = "settled" if self.settled else "trial call" if self.trial else "given"
        return f"<{type(self).__name__} of {self._breaker.name!r}: {how}>"


def _success(spent: float) -> Report:
    return (SUCCESS, spent, None, None)


# The end of an unsettled permit is told by C code alone: a finalizer in Python could itself be interrupted, and the
# permit would be lost. Settling a free permit swaps its class for one without finalizer, which is the cheapest way.
# An interrupt comes only after a call or at a jump backwards; so what must not be split stands side by side.


class FreePermit(Permit):
    """A permit of a state that admits everybody."""

    __slots__ = ()
    _serial = 0  # none: its state admits everybody and knows no permit by number

    def __init__(self, breaker: Shell, state: StateObject, began: float) -> None:
        self._breaker = breaker
        self.began = began
        self._live = True
        self._state = state  # from here on its end counts, and so must its being given
        next(breaker._circuit.given)

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
            self.__class__ = SettledFreePermit  # type: ignore[assignment]  # the same, but its end means nothing
            state.quiet_permits.append(spent)
        else:
            self._report(_success)

    __del__ = property(attrgetter("_state.lost.__next__"))


class SettledFreePermit(Permit):
    """A settled permit of a state that admits everybody."""

    __slots__ = ()
    _serial = 0


class Watch(weakref.ref["GatedPermit"]):
    """Tells the end of an unsettled permit of a gated state; the settled are watched no more."""

    __slots__ = ("serial",)

    def __init__(self, permit: GatedPermit, tell: Callable[[Watch], object], /) -> None:  # pyright: ignore[reportInconsistentConstructor]
        super().__init__(permit, tell)  # type: ignore[call-arg]  # typeshed knows __new__ only
        self.serial = permit._serial


class GatedPermit(Permit):
    """A permit of a state that does not admit everybody; as a block, the call may have an inside."""

    __slots__ = ("__weakref__", "_before")

    @property
    def settled(self) -> bool:
        """Whether the outcome is known, or the lease of a trial call is over."""
        return self._serial not in self._breaker._circuit.outstanding

    def __enter__(self) -> Permit:
        self._before = trials.enter(self._state, self._serial)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        trials.leave(getattr(self, "_before", None))  # an ExitStack may end a block that never began
        super().__exit__(kind, error, traceback)


class GuestPermit(Permit):
    """A call made from inside an admitted call of the same breaker, or a trial call: admitted, and part of it."""

    __slots__ = ()

    def success(self) -> None:
        pass

    def _report(self, judge: Callable[[float], Report]) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass
