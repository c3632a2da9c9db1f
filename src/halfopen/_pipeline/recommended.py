"""The pipeline we recommend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from halfopen._core.settings import Call
from halfopen._runtime.bus import Bus
from halfopen._runtime.clock import Clock
from halfopen.circuit_breaker import CircuitBreaker
from halfopen.classification import Failures
from halfopen.typing import Classifier, Policy

__all__ = ["NOTHING", "recommended"]

NOTHING: Any = object()


def recommended(
    name: str,
    *,
    on: type[Exception] | tuple[type[Exception], ...],
    timeout: float,
    attempts: int,
    only_if: Callable[[Call], bool] | None,
    total: float | None,
    limit: int | None,
    budget: Any,
    fallback: Any,
    classify: Classifier | None,
    clock: Clock | None,
    bus: Bus | None,
) -> list[Policy]:
    """Make the policies of `Pipeline.standard`, outermost first; its arguments are told there."""
    from halfopen._core.settings import HalfOpen
    from halfopen.bulkhead import Bulkhead
    from halfopen.errors import RejectedError
    from halfopen.fallback import Fallback
    from halfopen.retry import Retry, RetryBudget
    from halfopen.timeout import Timeout

    errors = on if isinstance(on, tuple) else (on,)
    each = Timeout(name, timeout, clock=clock, bus=bus)
    policies: list[Policy] = []
    if fallback is not NOTHING:
        policies.append(Fallback(name, fallback, on=(*errors, RejectedError), clock=clock))
    breaker = CircuitBreaker(
        name,
        slow_call_duration=timeout,
        half_open=HalfOpen(trial_timeout=max(60.0, 2 * timeout)),
        classify=classify or Failures(),
        clock=clock,
        bus=bus,
    )
    policies.append(breaker)
    if attempts != 1:
        retry = Retry(
            name,
            on=errors,
            attempts=attempts,
            only_if=only_if,
            total=total,
            budget=budget or RetryBudget(clock=clock),
            retry_after_cap=timeout,
            clock=clock,
            bus=bus,
        )
        policies.append(retry)
    if limit is not None:
        policies.append(Bulkhead(name, limit, clock=clock))
    return [*policies, each]
