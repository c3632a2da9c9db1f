"""One policy for each key, a bounded number of them, and never a busy one thrown out."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Generic, ParamSpec, Protocol, TypeVar
from weakref import WeakValueDictionary

from halfopen._core.checking import Checks
from halfopen._runtime.forking import renew_after_fork
from halfopen._runtime.policy import CallPolicy, decorate, innermost

__all__ = ["LARGEST_FAMILY", "KeyedPolicy"]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

OTHER = "__other__"
LARGEST_FAMILY = 1_000_000
_LOOKS = 16


class _Keyable(CallPolicy, Protocol):
    def snapshot(self) -> Any: ...

    def _idle(self) -> bool: ...


K = TypeVar("K", bound=_Keyable)


class KeyedPolicy(Generic[K]):
    """
    A family of equal policies, one for each key.

    ``family["example.com"]`` makes the policy of a key when it is first asked for. At most *max_keys* are kept: the
    one that was not asked for longest and is idle makes room. Where none is idle, further keys share one policy named
    ``__other__``; so neither a stranger's keys nor a stuck dependency can make the family grow.

    With *key*, the family is a policy itself: the function is handed a call's arguments and says which key it has.

    Attributes:
        name: The family's name; ``*`` in it stands for the key: ``host:*``.
        overflows: How often ``__other__`` was handed out.
    """

    def __init__(
        self, name: str, make: Callable[[str], K], *, max_keys: int = 200, key: Callable[..., Hashable] | None = None
    ) -> None:
        checks = Checks()
        checks.text("name", name)
        checks.whole("max_keys", max_keys, 1, LARGEST_FAMILY)
        checks.callable("key", key, optional=True)
        checks.done()
        self.name = name
        self.overflows = 0
        self._make = make
        self._max_keys: int = max_keys
        self._key: Callable[..., Hashable] | None = key
        self._renew()
        renew_after_fork(self)

    def _renew(self) -> None:
        # Reentrant, because a signal handler or a finalizer may ask for a key in the midst of it.
        self._lock = threading.RLock()
        self._kept: OrderedDict[Hashable, K] = OrderedDict()
        # One that made room but is still held by a caller: asked for again, it has to be the same one.
        self._alive: WeakValueDictionary[Hashable, K] = WeakValueDictionary()
        self._other = self._make(self._name_of(OTHER))

    def __getitem__(self, key: Hashable) -> K:
        """Return the policy of *key*."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                try:  # noqa: SIM105  (`suppress` costs 200 ns)
                    self._kept.move_to_end(key)
                except KeyError:
                    pass  # made room, in a handler that came between
                return kept
        while True:
            make = self._make
            fresh = make(self._name_of(key))
            with self._lock:
                if make == self._make:  # not replaced meanwhile by other settings
                    return self._add(key, fresh)

    def _add(self, key: Hashable, fresh: K) -> K:
        policy = self._kept.get(key)
        if policy is not None:
            return policy
        while len(self._kept) >= self._max_keys:
            if not self._make_room():
                self.overflows += 1
                if self.overflows == 1:
                    self._take_in(self._other)
                return self._other
        policy = self._alive.get(key, fresh)
        self._kept[key] = self._alive[key] = policy
        self._take_in(policy)
        return policy

    def _make_room(self) -> bool:
        for _ in range(min(_LOOKS, len(self._kept))):
            key, policy = self._oldest()
            if policy._idle():
                if self._kept.pop(key, None) is not None:
                    self._let_go(key, policy)
                return True
            with suppress(KeyError):
                self._kept.move_to_end(key)
        return False

    def _oldest(self) -> tuple[Hashable, K]:
        while True:
            with suppress(RuntimeError):  # changed, by a handler that came between
                return next(iter(self._kept.items()))

    def _take_in(self, policy: K) -> None:
        """Take note that a policy is about to be handed out for the first time; called under the lock."""

    def _let_go(self, key: Hashable, policy: K) -> None:
        """Take note that a policy made room; called under the lock."""

    def _name_of(self, key: Hashable) -> str:
        return self.name.replace("*", str(key)) if "*" in self.name else f"{self.name}:{key}"

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Hashable]:
        with self._lock:
            return iter(list(self._kept))

    def call(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call *fn* under the policy of the call's key."""
        return self._of(fn, args, kwargs).call(fn, *args, **kwargs)

    async def acall(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Await *fn* under the policy of the call's key."""
        return await self._of(fn, args, kwargs).acall(fn, *args, **kwargs)

    def __call__(self, fn: F) -> F:
        """Guard *fn*: each call under the policy of its key."""
        self._need_key()
        return decorate(self, fn, no_generators="its key is known only when it is called; use call()")

    def _of(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> K:
        key = self._need_key()
        _, own, named = innermost(fn, args, kwargs)
        return self[key(*own, **named)]

    def _need_key(self) -> Callable[..., Hashable]:
        if self._key is None:
            raise TypeError(f"{self.name!r} is used as a policy: say with key= which key a call has")
        return self._key

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(KeyedPolicy, max_keys=self._max_keys, key=self._key), (self.name, self._make)

    def snapshot(self) -> dict[Hashable, Any]:
        """Return the snapshot of each policy by its key; ``__other__`` is there once it was needed."""
        with self._lock:
            policies: dict[Hashable, K] = dict(self._kept)
        if self.overflows:
            policies[OTHER] = self._other
        return {key: policy.snapshot() for key, policy in policies.items()}
