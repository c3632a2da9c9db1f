"""Give every policy a fresh state in a forked child, where the threads that held slots and locks do not exist."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

__all__ = ["Renewable", "renew_after_fork"]


class Renewable(Protocol):
    """What has a state that threads share."""

    def _renew(self) -> None: ...


_policies: WeakSet[Renewable] = WeakSet()


def renew_after_fork(policy: Renewable) -> None:
    """Call ``policy._renew()`` in every child forked from now on."""
    _policies.add(policy)


def _renew_all() -> None:
    for policy in list(_policies):
        policy._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
