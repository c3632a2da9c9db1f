"""From what the processes tell to the picture: members, sums over them, rates, the past, and what happened."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

from halfopen.console._picture import Picture
from halfopen.console._rates import Rate, Timeline, rounded

__all__ = ["WORST_FIRST", "Collector"]

WORST_FIRST = ("open", "half_open", "recovering", "forced_open", "disabled", "metrics_only", "closed")
_ADMITTING = frozenset({"closed", "recovering", "metrics_only"})
_HIDDEN = frozenset({"sums"})

Moves = list[list[Any]]


class Collector:
    """
    Keeps the picture true.

    Args:
        picture: What the pages show.
        ordered: Told of each move that an order made and this console did not give: breaker, process, move.
    """

    def __init__(self, picture: Picture, ordered: Callable[[str, str, list[Any]], object]) -> None:
        self.picture = picture
        self.timelines: dict[str, Timeline] = {}
        self.ours: set[tuple[str, str, int]] = set()
        self.moved_at = -1e9
        self._ordered = ordered
        self._rates: dict[tuple[str, str], Rate] = {}
        self._looks: dict[str, dict[str, dict[str, Any]]] = {}
        self._gone: set[str] = set()
        self._epochs: dict[tuple[str, str], int] = {}

    def process(self, name: str, age: float, gone: bool, channel: str | None) -> None:
        """Take note of a process."""
        known = self.picture.get(("process", name))
        was_gone = gone if known is None else known["gone"]  # read before the object is changed in its place
        (self._gone.add if gone else self._gone.discard)(name)
        self.picture.put(("process", name), {"data_age": round(age, 1), "gone": gone, "channel": channel})
        if was_gone != gone:
            self.happened("process", text=f"{name} {'is gone: nothing was heard of it' if gone else 'is back'}")

    def member(self, name: str, process: str, told: dict[str, Any], moves: Callable[[], Moves] | None) -> None:
        """Take note of a breaker in one process; *moves* fetches its last moves."""
        look = told["look"]
        sums = look["sums"]
        rate = self._rates.setdefault((name, process), Rate())
        moved = self._epochs.get((name, process), look["epoch"]) != look["epoch"]
        asked, refused = rate.add(time.monotonic(), (sums[0] + sums[1], sums[1]), anew=moved)
        gone = process in self._gone
        fields = {key: value for key, value in look.items() if key not in _HIDDEN}
        fields |= {"asked_rate": None if gone else asked, "refused_rate": None if gone else refused, "gone": gone}
        self._looks.setdefault(name, {})[process] = {**look, "asked": asked, "refused": refused, "told": told}
        if self._epochs.get((name, process)) != look["epoch"] and moves is not None:
            self._moved(name, process, look["epoch"], moves())
        self.picture.put(("member", name, process), fields)

    def _moved(self, name: str, process: str, epoch: int, moves: Moves) -> None:
        before = self._epochs.get((name, process))
        self._epochs[name, process] = epoch
        if before is None:
            return
        self.moved_at = time.monotonic()
        for move in moves:
            if move[9] > before or epoch < before:
                self.happened(
                    "move", at=move[0], breaker=name, process=process, move=move[1:6], note=move[7], by=move[8]
                )
                if move[3] == "manual" and (name, process, move[9]) not in self.ours:
                    self._ordered(name, process, move)
        self.ours = {one for one in self.ours if one[:2] != (name, process) or one[2] > epoch}

    def happened(self, kind: str, *, at: float | None = None, **facts: Any) -> None:
        """Add to the list of what happened."""
        moment = round(time.time(), 3) if at is None else at
        self.picture.event({"id": uuid.uuid4().hex[:12], "at": moment, "kind": kind, **facts})

    def breaker(self, name: str, *, remember: bool = False) -> None:
        """Sum the members of a breaker up; with *remember*, add a point to its past."""
        looks = self._looks.get(name, {})
        here = {process: look for process, look in looks.items() if process not in self._gone}
        if not looks:
            return
        worst = min(here or looks, key=lambda process: _rank((here or looks)[process]["state"]))
        told = looks[worst]["told"]
        asked = sum(look["asked"] for look in here.values())
        refused = sum(look["refused"] for look in here.values())
        failed = _failed_share(list(here.values()))
        self.picture.put(
            ("breaker", name),
            {
                "tags": told["tags"],
                "settings": told["settings"],
                "state": looks[worst]["state"] if here else "gone",
                "worst": worst,
                "why": looks[worst]["sentence"],
                "asked_rate": rounded(asked),
                "let_rate": rounded(max(asked - refused, 0.0)),
                "refused_rate": rounded(refused),
                "failed": None if failed is None else rounded(failed),
                "totals": [sum(look["sums"][each] for look in looks.values()) for each in range(4)],
                "estimate": rounded(sum(look["sums"][4] for look in looks.values())),
            },
        )
        if remember:
            self.timelines.setdefault(name, Timeline()).add(time.time(), asked, refused, failed)

    def forget(self, name: str, process: str) -> None:
        """Drop a breaker that its process no longer has."""
        looks = self._looks.get(name, {})
        looks.pop(process, None)
        self._rates.pop((name, process), None)
        self._epochs.pop((name, process), None)
        self.picture.drop(("member", name, process))
        if not looks:
            self._looks.pop(name, None)
            self.timelines.pop(name, None)
            self.picture.drop(("breaker", name))

    def names(self, process: str) -> set[str]:
        """Return the breakers known of a process."""
        return {name for name, looks in self._looks.items() if process in looks}

    def told(self, name: str, process: str, what: str) -> Any:
        """Return the ``window`` or the ``moves`` that another process has published."""
        look = self._looks.get(name, {}).get(process)
        return None if look is None else look["told"].get(what)

    def states(self, name: str) -> dict[str, dict[str, Any]]:
        """Return state and epoch of a breaker in each process."""
        return {
            process: {"state": look["state"], "epoch": look["epoch"], "gone": process in self._gone}
            for process, look in self._looks.get(name, {}).items()
        }


def _rank(state: str) -> int:
    return WORST_FIRST.index(state)


def _failed_share(looks: list[dict[str, Any]]) -> float | None:
    held = [look["window"] for look in looks if look["state"] in _ADMITTING]
    calls = sum(window[0] for window in held)
    return sum(window[1] for window in held) / calls if calls else None
