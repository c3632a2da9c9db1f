"""What the processes that share a store tell one another about a lane's breaker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from halfopen._core.states import State

__all__ = ["SharedVerdict", "pack", "round_elsewhere", "unpack"]


@dataclass(frozen=True, slots=True)
class SharedVerdict:
    """
    A breaker's snapshot as the lane's row has it.

    Attributes:
        by: The process that wrote it; empty: one that has died since.
        time: When, Unix seconds.
    """

    by: str
    state: State
    time: float
    snapshot: Mapping[str, Any]

    @property
    def is_round(self) -> bool:
        """Whether that process makes trial calls."""
        return bool(self.by) and self.state is State.HALF_OPEN


def pack(by: str, snapshot: Mapping[str, Any]) -> str:
    """Return the text for the lane's row."""
    return json.dumps({"by": by, "snapshot": snapshot})


def unpack(text: str | None) -> SharedVerdict | None:
    """Read it back; None if there is none or another version wrote it."""
    if text is None:
        return None
    try:
        data = json.loads(text)
        snapshot = data["snapshot"]
        return SharedVerdict(str(data["by"]), State(snapshot["state"]), float(snapshot["time"]), snapshot)
    except (ValueError, KeyError, TypeError):
        return None


def round_elsewhere(text: str | None, process: str, now: float, stale_after: float) -> bool:
    """
    Tell whether another process is making the trial calls of this lane: the budget is its own.

    A round older than *stale_after* seconds is that of a process that died.
    """
    verdict = unpack(text)
    if verdict is None or verdict.by == process or not verdict.is_round:
        return False
    return now - verdict.time < stale_after
