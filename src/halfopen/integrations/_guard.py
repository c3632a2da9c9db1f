"""Lead a client's call through the policies of its host, and hold a breaker's permit until the answer has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal

from halfopen._runtime.keyed import KeyedPolicy
from halfopen.circuit_breaker import CircuitBreaker
from halfopen.integrations._settling import Settling, Stay
from halfopen.registry import Registry
from halfopen.retry import Retry
from halfopen.typing import Classifier

__all__ = ["Guard"]

Send = Callable[[Any], Any]
Hold = Callable[[Any, Any, Any], None]
Discard = Callable[[Any], Any]


class Guard:
    """
    Leads calls through the policies of their key.

    Args:
        given: None for a breaker per key; or a family (`Registry.keyed`), a breaker, any policy, several of them,
            outermost first; or a function from the key to one of these, which has to bound what it keeps.
        evidence: Judges for breakers that have no classifier of their own.
        hold: Ties the permit to the body of a request's response.
        discard: Closes a response in whose place a retry wants another one.
        stays: Which method of a policy with places, such as a bulkhead, gives one that is kept until the answer has
            ended; None: it is free once the answer has begun.

    Raises:
        TypeError: *given* is something else.

    Attributes:
        policies: What was given, or the family of breakers that was made instead.
    """

    def __init__(
        self,
        given: Any,
        evidence: Classifier,
        hold: Hold,
        discard: Discard,
        stays: Literal["acquire", "hold"] | None = None,
    ) -> None:
        if given is not None:
            _refuse_what_cannot_guard(given)
        self.policies: Any = Registry().keyed("*", classify=evidence) if given is None else given
        self._evidence = evidence
        self._hold = hold
        self._discard = discard
        self._stays = stays

    def call(self, key: str, send: Send, request: Any) -> Any:
        """Make one call; errors are still halfopen's own."""
        for policy in reversed(list(_of(self.policies, key, request))):
            if isinstance(policy, CircuitBreaker):
                send = partial(self._through, policy, send)
            elif isinstance(policy, Retry):
                send = partial(self._retried, policy, send)
            elif self._stays is not None and hasattr(policy, self._stays):
                send = partial(self._staying, getattr(policy, self._stays), send)
            else:
                send = partial(policy.call, send)
        return send(request)

    async def acall(self, key: str, send: Send, request: Any) -> Any:
        """Make one call of a coroutine function."""
        for policy in reversed(list(_of(self.policies, key, request))):
            if isinstance(policy, CircuitBreaker):
                send = partial(self._athrough, policy, send)
            elif isinstance(policy, Retry):
                send = partial(self._aretried, policy, send)
            elif self._stays is not None and hasattr(policy, self._stays):
                send = partial(self._astaying, getattr(policy, self._stays), send)
            else:
                send = partial(policy.acall, send)
        return await send(request)

    def _followed(self, end: Settling | Stay, send: Send, request: Any) -> Any:
        try:
            with end.inside():
                response = send(request)
            self._hold(request, response, end)
        except BaseException as error:
            end.raised(error)
            raise
        return response

    async def _afollowed(self, end: Settling | Stay, send: Send, request: Any) -> Any:
        try:
            with end.inside():
                response = await send(request)
            self._hold(request, response, end)
        except BaseException as error:
            end.raised(error)
            raise
        return response

    def _through(self, breaker: CircuitBreaker, send: Send, request: Any) -> Any:
        return self._followed(Settling(breaker, self._evidence, request), send, request)

    async def _athrough(self, breaker: CircuitBreaker, send: Send, request: Any) -> Any:
        return await self._afollowed(Settling(breaker, self._evidence, request), send, request)

    def _staying(self, take: Callable[[], Any], send: Send, request: Any) -> Any:
        return self._followed(Stay(take().__enter__()), send, request)

    async def _astaying(self, take: Callable[[], Any], send: Send, request: Any) -> Any:
        return await self._afollowed(Stay(await take().__aenter__()), send, request)

    def _retried(self, retry: Retry, send: Send, request: Any) -> Any:
        last: list[Any] = []

        def again(request: Any) -> Any:
            if last:
                self._discard(last.pop())
            last.append(send(request))
            return last[0]

        return retry.call(again, request)

    async def _aretried(self, retry: Retry, send: Send, request: Any) -> Any:
        last: list[Any] = []

        async def again(request: Any) -> Any:
            if last:
                await self._discard(last.pop())
            last.append(await send(request))
            return last[0]

        return await retry.acall(again, request)


def _of(given: Any, key: str, request: Any) -> Iterable[Any]:
    """Return the policies of *key*, outermost first."""
    if isinstance(given, KeyedPolicy):
        own = given._key
        return [given[key if own is None else own(request)]]
    several = _several(given)
    if several is not None:
        return [policy for each in several for policy in _of(each, key, request)]
    return [given] if hasattr(given, "acall") else _of(given(key), key, request)


def _refuse_what_cannot_guard(given: Any) -> None:
    several = _several(given)
    for each in () if several is None else several:
        _refuse_what_cannot_guard(each)
    if several is None and (isinstance(given, type) or not callable(given)):
        raise TypeError(f"guard is a policy, a family of them, a list of such, or a function of the key, not {given!r}")


def _several(given: Any) -> Any:
    return given if type(given) in (list, tuple) else getattr(given, "policies", None)
