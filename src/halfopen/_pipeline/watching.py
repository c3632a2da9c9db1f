"""Retries and the breakers around them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from halfopen._runtime.wiring import rewire, use, users_of, wire
from halfopen.circuit_breaker import CircuitBreaker
from halfopen.typing import Policy

__all__ = ["breaker_around", "is_retry", "unwire", "users_elsewhere", "watch_anew", "wire_retries"]


def is_retry(policy: object) -> bool:
    """Say whether *policy* is a retry."""
    # By name, so that a pipeline without a retry does not import it.
    return any(kind.__module__ == "halfopen.retry" and kind.__name__ == "Retry" for kind in type(policy).__mro__)


def breaker_around(flat: Sequence[Policy], place: int) -> Policy | None:
    """Return the nearest breaker, or family of breakers, outside *place*."""
    return next((policy for policy in reversed(flat[:place]) if _is_breaker(policy)), None)


def _is_breaker(policy: object) -> bool:
    # A family of breakers is one as well: which of them is around a retry, the call's key says.
    return isinstance(policy, CircuitBreaker) or isinstance(getattr(policy, "_other", None), CircuitBreaker)


def wire_retries(pipeline: Any) -> None:
    """Tell each retry of the breaker around it."""
    for place, policy in enumerate(pipeline.flat):
        if is_retry(policy):
            wire(pipeline, policy, breaker_around(pipeline.flat, place))


def users_elsewhere(pipeline: Any, retry: Any, around: Policy | None) -> list[Any]:
    """Return the pipelines that use the retry under another breaker, but those around and inside this one."""
    own = {*map(id, pipeline.flat)}
    others: list[Any] = []
    for user in users_of(retry):
        parts = {*map(id, user.flat)}
        place = next(number for number, policy in enumerate(user.flat) if policy is retry)
        elsewhere = breaker_around(user.flat, place) is not around
        if elsewhere and not (parts <= own or own <= parts):
            others.append(user)
    return others


def watch_anew(retry: Any, changed: Collection[Any] = ()) -> None:
    """
    Let *retry* watch the breaker around it in a pipeline that has it now.

    Args:
        retry: The retry.
        changed: Pipelines that have other policies than before; their breaker is preferred.
    """
    for pipeline in changed:
        use(pipeline, retry, used=any(policy is retry for policy in pipeline.flat))
    users = users_of(retry)
    found = [_around(user, retry) for user in sorted(users, key=lambda user: user not in changed)]
    breakers = [breaker for breaker in found if breaker is not None]
    stays = retry.breaker in breakers and not changed
    rewire(retry, retry.breaker if stays else next(iter(breakers), None))


def unwire(pipeline: Any) -> None:
    """Let the retries of a pipeline that is given up watch what they would without it."""
    for retry in filter(is_retry, pipeline.flat):
        use(pipeline, retry, used=False)
        watch_anew(retry)


def _around(user: Any, retry: Any) -> Policy | None:
    flat = user.flat
    return next((breaker_around(flat, place) for place, policy in enumerate(flat) if policy is retry), None)
