"""What a guarded call may raise of our own.

```text
HalfOpenError
├── RejectedError                 the call was never made
│   ├── CircuitOpenError          .name .state .reason .retry_after
│   ├── BulkheadFullError         .name .limit
│   └── RateLimitedError          .name .retry_after
├── CallTimeoutError              also a TimeoutError
└── ConfigError                   also a ValueError; lists every mistake
```

The dependency's own exceptions pass through unwrapped and are not in this tree.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

__all__ = [
    "BulkheadFullError",
    "CallTimeoutError",
    "CircuitOpenError",
    "ConfigError",
    "HalfOpenError",
    "Mistake",
    "RateLimitedError",
    "RejectedError",
]


class HalfOpenError(Exception):
    """
    The root of everything halfopen raises by itself.

    The message is built when somebody reads it, not when the error is raised:
    a refusal costs less than the call it saves.
    """

    def __str__(self) -> str:
        return self._sentence()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._sentence()!r})"

    def _sentence(self) -> str:
        return Exception.__str__(self)


class RejectedError(HalfOpenError):
    """The call was refused by a policy and never made."""

    @property
    def name(self) -> str:
        """The policy that refused."""
        return str(self.args[0])

    @property
    def retry_after(self) -> float | None:
        """Seconds until asking again makes sense; None where nobody can know."""
        return None


class CircuitOpenError(RejectedError):
    """
    The circuit breaker refused the call.

    Attributes:
        name: The breaker.
        state: Its state at the refusal, such as ``"open"``.
        reason: ``open``, ``trial_budget``, ``not_eligible``, ``recovering`` or ``forced_open``.
        retry_after: Seconds until asking again makes sense; None where nobody can know.
    """

    # No __init__: filling `args` in C is half the price, and a refusal has to be cheap.
    args: tuple[str, str, str, float | None]

    if TYPE_CHECKING:

        def __init__(self, name: str, state: str, reason: str, retry_after: float | None, /) -> None: ...

    @property
    def state(self) -> str:
        return self.args[1]

    @property
    def reason(self) -> str:
        return self.args[2]

    @property
    def retry_after(self) -> float | None:
        return self.args[3]

    def _sentence(self) -> str:
        why = _REFUSALS.get(self.reason, self.reason)
        later = "" if self.retry_after is None else f"; try again in {_digits(self.retry_after)} s"
        return f"circuit {self.name!r} refused the call: {why}{later}"


_REFUSALS = {
    "open": "it is open",
    "trial_budget": "it is half-open and every trial call is taken",
    "not_eligible": "it is half-open and this call may not be a trial call",
    "recovering": "it is recovering and admits only a share of the calls",
    "forced_open": "it is forced open by an order",
}


def _digits(seconds: float) -> str:
    return f"{seconds:.3g}" if seconds < 999 else f"{seconds:.0f}"  # from there on the short form would say 1e+03


class BulkheadFullError(RejectedError):
    """
    The bulkhead has no room for the call.

    Attributes:
        name: The bulkhead.
        limit: Calls it lets run at once.
        reason: ``full`` (the waiting line is full too) or ``wait_timeout``.
    """

    def __init__(self, name: str, limit: int, reason: str = "full") -> None:
        super().__init__(name, limit, reason)

    @property
    def limit(self) -> int:
        return int(self.args[1])

    @property
    def reason(self) -> str:
        return str(self.args[2])

    def _sentence(self) -> str:
        if self.reason == "wait_timeout":
            return f"bulkhead {self.name!r} refused the call: no place among {self.limit} became free in time"
        return f"bulkhead {self.name!r} refused the call: {self.limit} calls run already"


class RateLimitedError(RejectedError):
    """
    The rate limiter has no permit for the call yet.

    Attributes:
        name: The rate limiter.
        retry_after: Seconds until a permit will be free.
    """

    def __init__(self, name: str, retry_after: float) -> None:
        super().__init__(name, retry_after)

    @property
    def retry_after(self) -> float:
        return float(self.args[1])

    def _sentence(self) -> str:
        return f"rate limiter {self.name!r} refused the call; try again in {_digits(self.retry_after)} s"


class CallTimeoutError(HalfOpenError, TimeoutError):
    """
    A call ran longer than its `Timeout` or the ambient deadline allows.

    Attributes:
        name: The timeout that fired.
        seconds: Its limit.
    """

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(name, seconds)

    @property
    def name(self) -> str:
        return str(self.args[0])

    @property
    def seconds(self) -> float:
        return float(self.args[1])

    def _sentence(self) -> str:
        return f"timeout {self.name!r}: the call ran longer than {self.seconds:.6g} s"


@dataclass(frozen=True, slots=True)
class Mistake:
    """
    One thing wrong with a configuration.

    Attributes:
        path: Where: `failure_rate_threshold`, or `breaker.payments.window` in a file; empty for the file itself.
        value: What stands there.
        allowed: What may stand there, in words: "a share in (0, 1]".
        kind: ``unknown_key``, ``wrong_type``, ``out_of_range``, ``conflict``, ``missing`` or ``unreadable``.
        suggestion: The key that was probably meant, for an unknown one.
        file: The file it came from, if any.
        line: Its line there, counted from 1, where known.
    """

    path: str
    value: Any
    allowed: str
    kind: str = "out_of_range"
    suggestion: str | None = None
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        if self.kind == "unknown_key":
            hint = f"; did you mean {self.suggestion}?" if self.suggestion else ""
            sentence = f"{self.path}: there is no such setting{hint}"
        elif self.kind in ("conflict", "missing", "unreadable"):
            sentence = f"{self.path}: {self.allowed}" if self.path else self.allowed
        else:
            sentence = f"{self.path} is {self.allowed}, not {_shown(self.value)}"
        if self.file is None:
            return sentence
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {sentence}"


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception as broken:
        text = f"<{type(value).__name__} whose repr raises {type(broken).__name__}>"
    return text if len(text) <= 120 else text[:117] + "..."


class _Shown(str):
    """What a value looked like that cannot travel itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _portable(mistake: Mistake) -> Mistake:
    if mistake.value is None or type(mistake.value) in (bool, int, float, str):
        return mistake
    return replace(mistake, value=_Shown(_shown(mistake.value)))


class ConfigError(HalfOpenError, ValueError):
    """
    One or more settings are wrong; every mistake is listed, none hides another.

    Attributes:
        mistakes: All of them, in the order in which they were found.
    """

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(mistakes)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (tuple(map(_portable, self.mistakes)),)

    def _sentence(self) -> str:
        if len(self.mistakes) == 1:
            return str(self.mistakes[0])
        lines = "".join(f"\n  {mistake}" for mistake in self.mistakes)
        return f"{len(self.mistakes)} mistakes:{lines}"
