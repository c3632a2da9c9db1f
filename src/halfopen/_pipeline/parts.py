"""What a pipeline may be made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from halfopen._core.checking import Checks
from halfopen.typing import Policy

__all__ = ["check", "refuse_what_is_no_policy"]


def refuse_what_is_no_policy(policy: Any) -> None:
    """Raise TypeError for what cannot be a part of a pipeline."""
    if isinstance(policy, type):
        raise TypeError(f"a pipeline is made of policies, not of the class {policy.__name__}: make one of it")
    asked = getattr(policy, "_need_key", None)
    if asked is not None:
        asked()
    missing = [part for part in ("call", "acall") if not callable(getattr(policy, part, None))]
    missing += [] if callable(policy) else ["__call__"]
    missing += [] if hasattr(policy, "name") else ["name"]
    if missing:
        lacks = ", ".join(missing)
        raise TypeError(f"a pipeline is made of policies; {policy!r} is none: it lacks {lacks}")


def check(name: str, flat: Sequence[Policy]) -> None:
    """Raise ConfigError for a name that is none, for no policies, and for one that is there twice."""
    checks = Checks()
    checks.text("name", name)
    if not flat:
        checks.wrong("policies", flat, "there are none: a pipeline needs at least one policy", "missing")
    for number, policy in enumerate(flat):
        if any(policy is earlier for earlier in flat[:number]):
            again = f"{type(policy).__name__} {policy.name!r} is there twice; make a second one, or leave it out"
            checks.wrong(f"policies[{number + 1}]", policy, again, "conflict")
    checks.done()
