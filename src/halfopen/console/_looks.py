"""From a breaker to what the console shows of it: plain data, the same from every process."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from halfopen._core.explain import decision
from halfopen._core.settings import Settings
from halfopen._core.states import Reason, State
from halfopen._core.windows import CountWindow
from halfopen.circuit_breaker import CircuitBreaker

__all__ = ["Looker", "from_published", "settings_of", "window_cells"]

MOST_CELLS = 200
"""Calls of a window that are shown one by one, the newest ones."""

_BECAUSE: dict[str, str] = {
    Reason.FAILURE_RATE: "too many calls failed",
    Reason.SLOW_CALL_RATE: "too many calls were slow",
    Reason.FAILURE_COUNT: "too many calls failed",
    Reason.CONSECUTIVE: "too many calls failed in a row",
    Reason.WAIT_ELAPSED: "the wait was over",
    Reason.TRIAL_SUCCEEDED: "enough trial calls succeeded",
    Reason.TRIAL_FAILED: "a trial call failed or was slow",
    Reason.TRIAL_EXPIRED: "a trial call did not report in time",
    Reason.RAMP_FINISHED: "the ramp was finished",
    Reason.OVERRIDE_ENDED: "the end of an order had come",
    Reason.MANUAL: "of an order",
}
"""What a worker that only publishes says of its last move, in words; as in the page's log."""

_TRIPS = frozenset({Reason.FAILURE_RATE, Reason.SLOW_CALL_RATE, Reason.FAILURE_COUNT, Reason.CONSECUTIVE})


def settings_of(settings: Settings) -> dict[str, Any]:
    """Return the rules in force, so that a page can draw each limit."""
    window, trials, ramp = settings.window, settings.half_open, settings.ramp
    counted = isinstance(window, CountWindow)
    return {
        "window_calls": window.size if isinstance(window, CountWindow) else None,
        "window_seconds": None if isinstance(window, CountWindow) else window.seconds,
        "minimum_calls": settings.minimum,
        "failure_rate_threshold": settings.failure_rate_threshold,
        "slow_call_rate_threshold": settings.slow_call_rate_threshold,
        "slow_call_duration": settings.slow_call_duration,
        "failure_count_threshold": settings.failure_count_threshold,
        "consecutive_failures": settings.consecutive_failures,
        "wait": _backoff(settings),
        "trial_calls": trials.permitted_calls,
        "trials_by_rate": trials.judged_by_rate,
        "trial_failure_rate_threshold": trials.failure_rate_threshold or settings.failure_rate_threshold,
        "trial_timeout": trials.trial_timeout,
        "ramp_seconds": None if ramp is None else ramp.duration,
        "cells": counted,
    }


def _backoff(settings: Settings) -> str:
    backoff = settings.backoff
    return str(backoff) if type(backoff).__module__.startswith("halfopen.") else "of its own"


class Looker:
    """Looks at the breakers of this process; what only a move can change is kept until the next one."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[int, Settings, dict[str, Any]]] = {}
        self._frozen: dict[str, dict[str, Any]] = {}

    def look(self, breaker: CircuitBreaker) -> dict[str, Any]:
        """Return the present of one breaker."""
        now = breaker.snapshot()
        return {**_present(now), **self._past(breaker, now)}

    def forget(self, names: set[str]) -> None:
        """Drop what is kept of breakers that are no longer there."""
        for name in names & self._kept.keys():
            del self._kept[name]
            self._frozen.pop(name, None)

    def _past(self, breaker: CircuitBreaker, now: Any) -> dict[str, Any]:
        kept = self._kept.get(breaker.name)
        if kept is not None and kept[0] == now.epoch and kept[1] is breaker.settings:
            return kept[2]
        moves = breaker.history
        left = next((move for move in reversed(moves) if move.old is State.CLOSED), None)
        tripped = next((move for move in reversed(moves) if move.reason in _TRIPS), None)
        past = {
            "sentence": decision(now, moves[-1] if moves else None, _clock_time),
            "born": _born(now.time, now.counters.time_in_state),
            "left_closed": None if now.state is State.CLOSED or left is None else round(breaker.unix_time(left.at), 3),
            "opened": None if tripped is None else [round(breaker.unix_time(tripped.at), 3), *tripped.totals],
        }
        self._kept[breaker.name] = (now.epoch, breaker.settings, past)
        self._freeze(breaker, now.state)
        return past

    def _freeze(self, breaker: CircuitBreaker, state: State) -> None:
        if state is State.CLOSED:
            self._frozen.pop(breaker.name, None)
        elif (window := window_cells(breaker)) is not None and not window["live"]:
            self._frozen[breaker.name] = window

    def window(self, breaker: CircuitBreaker) -> dict[str, Any] | None:
        """Return the window call by call; while the circuit is not closed, as it was when it opened."""
        present = window_cells(breaker)
        return present if present is not None and present["live"] else self._frozen.get(breaker.name, present)


def _born(now: float, seconds: Mapping[str, float]) -> float:
    """Return the Unix time from which on the breaker's states are known."""
    return round(now - sum(seconds.values()), 1)


def _clock_time(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).strftime("%H:%M:%S")


def _present(look: Any) -> dict[str, Any]:
    counters = look.counters
    refused = counters.rejected
    return {
        "epoch": look.epoch,
        "state": str(look.state),
        "entered": round(look.since, 3),
        "reason": None if look.why is None else str(look.why),
        "note": look.note,
        "by": look.by,
        "step": look.step,
        "wait": look.wait,
        "next_trial": None if look.next_trial_at is None else round(look.next_trial_at, 2),
        "ends_at": None if look.ends_at is None else round(look.ends_at, 2),
        "admitted_share": None if look.admitted_share is None else round(look.admitted_share, 2),
        "window": [look.calls, look.failures, look.slow, look.slow_failures],
        "trials": [f"{slot.status}_slow" if slot.slow else slot.status for slot in look.trials],
        "last_error": look.last_error,
        "sums": [
            counters.successes + counters.failures + counters.ignored,
            sum(refused.values()),
            counters.trial_successes,
            counters.trial_failures,
            round(counters.estimated_false_rejections, 1),
        ],
    }


class _Plain:
    """The plain data of a snapshot, asked as the snapshot is."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data

    def __getattr__(self, name: str) -> Any:
        value = self._data[name]
        if name == "trials":
            return [_Plain(slot) for slot in value]
        return _Plain(value) if name == "counters" else value


def from_published(data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the console shows of a snapshot that a worker published, and the rules that are known of it."""
    present = _present(_Plain(data))
    word = str(data["state"]).replace("_", "-")
    why = data["why"]
    because = f" because {_BECAUSE.get(why, 'of ' + why.replace('_', ' '))}" if why else ""
    present |= {
        "sentence": f"{word} since {_clock_time(data['since'])}{because}",
        "born": _born(data["time"], data["counters"]["time_in_state"]),
        "left_closed": None if data["state"] == "closed" else round(data["since"], 3),
        "opened": None,
    }
    names = (
        "window_seconds", "minimum_calls", "failure_rate_threshold", "slow_call_rate_threshold",
        "slow_call_duration", "failure_count_threshold", "consecutive_failures",
    )  # fmt: skip
    rules = {name: data[name] for name in names}
    rules |= {"window_calls": data["window_size"], "trial_calls": data["trial_limit"], "wait": None}
    rules |= {"trials_by_rate": None, "trial_failure_rate_threshold": None, "trial_timeout": None}
    return present, {**rules, "ramp_seconds": None, "cells": False}


def moves_of(breaker: CircuitBreaker) -> list[list[Any]]:
    """Return the last moves: time, from, to, reason, step, wait, what was held, note, by, epoch."""
    return [
        [
            round(breaker.unix_time(move.at), 2), str(move.old), str(move.new), str(move.reason), move.step, move.wait,
            list(move.totals), move.note, move.by, move.epoch,
        ]
        for move in breaker.history
    ]  # fmt: skip


def window_cells(breaker: CircuitBreaker) -> dict[str, Any] | None:
    """Return the window call by call, or bucket by bucket; of the last state that had one, if the present has none."""
    look = breaker.recent_calls(MOST_CELLS)
    if look is None:
        return None
    if look.calls is not None:
        return {"live": look.live, "cells": look.calls}
    return {"live": look.live, "buckets": [list(bucket) for bucket in look.buckets]}
