"""A frozen look at a breaker: everything a console needs, in plain data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

from halfopen._core.checking import Checks
from halfopen._core.circuit import Circuit
from halfopen._core.counters import read
from halfopen._core.counting import Recovering
from halfopen._core.outcomes import Outcome
from halfopen._core.rounds import HalfOpenRound
from halfopen._core.states import Reason, Refusal, State
from halfopen._core.stays import Open
from halfopen._core.windows import CountWindow

__all__ = ["PermitCounts", "Saved", "Snapshot", "TrialSlot", "read_saved", "take"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSlot:
    """
    One trial call of the present round.

    Attributes:
        status: ``free``, ``running``, ``succeeded`` or ``failed``.
        since: Unix time at which its trial call began; None while free.
        slow: Whether it was slow.
    """

    status: str
    since: float | None = None
    slow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitCounts:
    """
    Where the permits of `acquire` and of gated calls went: issued = settled + in_flight + expired + abandoned.

    Wrapped calls in CLOSED need no permit and are not among them.
    """

    issued: int
    settled: int
    in_flight: int
    expired: int
    abandoned: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """
    Sums since the breaker was made; they only grow.

    Attributes:
        successes, failures, ignored: Calls by outcome.
        slow_successes, slow_failures: Those that were slow.
        rejected: Refusals by reason.
        trial_successes, trial_failures: Finished trial calls; an expired one has failed.
        late_results: Outcomes of an earlier epoch, or of an expired trial call.
        transitions: Moves by (from, to, reason).
        time_in_state: Seconds by state, the present one included.
        estimated_false_rejections: About how many refused calls would have succeeded.
        guests: Calls made from inside a trial call, or one that a ramp admitted, which belong to it.
        permits: The balance of permits.
    """

    successes: int
    failures: int
    ignored: int
    slow_successes: int
    slow_failures: int
    rejected: Mapping[str, int]
    trial_successes: int
    trial_failures: int
    late_results: int
    transitions: Mapping[tuple[str, str, str], int]
    time_in_state: Mapping[str, float]
    estimated_false_rejections: float
    guests: int
    permits: PermitCounts

    @property
    def abandoned(self) -> int:
        """Permits that were garbage-collected unsettled."""
        return self.permits.abandoned

    @property
    def expired(self) -> int:
        """Trial calls that did not report within their lease."""
        return self.permits.expired


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """
    A breaker at one instant.

    Times are Unix seconds, computed at that instant from the monotonic clock; shares lie in 0–1; what is unknown is
    None.

    Attributes:
        name, tags: The breaker.
        time: The instant.
        state, epoch, since, why: The state, its number, since when, and the reason of the last move.
        note, by: What an order said.
        step: The backoff step; 0 before the first trip.
        remaining_wait, next_trial_at: Seconds until, and Unix time of, the next trial call; None unless OPEN.
        wait: Seconds of the present or the last wait in OPEN.
        closed_for: Seconds in CLOSED, for the flap memory; None in other states.
        ends_at: Unix time at which an order ends, if it does.
        admitted_share: Share that a ramp admits; None unless RECOVERING.
        calls, failures, slow, slow_failures: What the window, or the round of trial calls, holds.
        failure_rate, slow_call_rate: None below *minimum_calls*.
        window_size, window_seconds: Which of them is set.
        minimum_calls … consecutive_failures: The rules in force.
        streak: Failures in a row.
        trial_limit: Trial calls of a round.
        trials: The slots of the present round, empty unless HALF_OPEN.
        ignored_trials: Ignored trial calls in this round.
        last_error: Class of the last exception that counted as failure.
        counters: Sums since the breaker was made.
    """

    name: str
    tags: Mapping[str, str]
    time: float
    state: State
    epoch: int
    since: float
    why: Reason | None
    note: str | None
    by: str | None
    step: int
    remaining_wait: float | None
    next_trial_at: float | None
    wait: float
    closed_for: float | None
    ends_at: float | None
    admitted_share: float | None
    calls: int
    failures: int
    slow: int
    slow_failures: int
    failure_rate: float | None
    slow_call_rate: float | None
    window_size: int | None
    window_seconds: float | None
    minimum_calls: int
    failure_rate_threshold: float | None
    slow_call_rate_threshold: float | None
    slow_call_duration: float | None
    failure_count_threshold: int | None
    consecutive_failures: int | None
    streak: int
    trial_limit: int
    trials: tuple[TrialSlot, ...]
    ignored_trials: int
    last_error: str | None
    counters: Counted

    def plain(self) -> dict[str, Any]:
        """Return the snapshot as data that JSON can hold; `CircuitBreaker.restore` takes it back."""
        data = asdict(self)
        counters = data["counters"]
        counters["transitions"] = [[*key, count] for key, count in counters["transitions"].items()]
        return {key: _plain(value) for key, value in data.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, (State, Reason, Refusal)):
        return value.value
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in cast("Iterable[Any]", value)]
    if _is_mapping(value):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def take(circuit: Circuit, now: float, wall: float, tags: Mapping[str, str]) -> Snapshot:
    """Look at a circuit at *now*, which is the Unix time *wall*."""
    circuit.fold(now)
    state, settings = circuit.state, circuit.settings
    shift = wall - now
    held = state.held()
    judged = held.calls > 0 and held.calls >= settings.minimum
    last = circuit.history[-1] if circuit.history else None
    until = state.until if isinstance(state, Open) and state.until < math.inf else None
    return Snapshot(
        name=circuit.name,
        tags=dict(tags),
        time=wall,
        state=state.kind,
        epoch=state.epoch,
        since=state.entered + shift,
        why=state.why,
        note=last.note if last is not None else None,
        by=last.by if last is not None else None,
        step=circuit.step,
        remaining_wait=None if until is None else max(until - now, 0.0),
        next_trial_at=None if until is None else until + shift,
        wait=circuit.last_wait,
        closed_for=now - state.entered if state.kind is State.CLOSED else None,
        ends_at=None if state.ends_at == math.inf else state.ends_at + shift,
        admitted_share=state.share(now) if isinstance(state, Recovering) else None,
        calls=held.calls,
        failures=held.failures,
        slow=held.slow,
        slow_failures=held.slow_failures,
        failure_rate=held.failures / held.calls if judged else None,
        slow_call_rate=held.slow / held.calls if judged else None,
        window_size=settings.window.size if isinstance(settings.window, CountWindow) else None,
        window_seconds=None if isinstance(settings.window, CountWindow) else settings.window.seconds,
        minimum_calls=settings.minimum,
        failure_rate_threshold=settings.failure_rate_threshold,
        slow_call_rate_threshold=settings.slow_call_rate_threshold,
        slow_call_duration=settings.slow_call_duration,
        failure_count_threshold=settings.failure_count_threshold,
        consecutive_failures=settings.consecutive_failures,
        streak=getattr(state, "streak", 0),
        trial_limit=settings.half_open.permitted_calls,
        trials=_slots(state, shift, settings.half_open.permitted_calls) if isinstance(state, HalfOpenRound) else (),
        ignored_trials=state.ignored if isinstance(state, HalfOpenRound) else 0,
        last_error=circuit.counters.last_error,
        counters=_counted(circuit, now),
    )


def _slots(state: HalfOpenRound, shift: float, limit: int) -> tuple[TrialSlot, ...]:
    status = {Outcome.SUCCESS: "succeeded", Outcome.FAILURE: "failed"}
    slots = [TrialSlot(status=status[how], since=began + shift, slow=slow) for began, how, slow in state.finished]
    slots += [TrialSlot(status="running", since=began + shift) for began in state.trials.values()]
    free = [TrialSlot(status="free")] * (limit - len(slots))
    return tuple(slots + free)


def _counted(circuit: Circuit, now: float) -> Counted:
    sums = circuit.counters
    seconds = {state.value: spent for state, spent in sums.seconds.items()}
    present = circuit.state.kind.value
    seconds[present] = seconds.get(present, 0.0) + (now - sums.since)
    abandoned = sums.abandoned + read(circuit.lost)
    issued = sums.gated_permits + read(circuit.given)
    in_flight = circuit.in_flight()
    return Counted(
        successes=sums.successes,
        failures=sums.failures,
        ignored=sums.ignored,
        slow_successes=sums.slow_successes,
        slow_failures=sums.slow_failures,
        rejected={refusal.value: count for refusal, count in sums.refusals().items()},
        trial_successes=sums.trial_successes,
        trial_failures=sums.trial_failures,
        late_results=sums.late_results,
        transitions={(old.value, new.value, why.value): count for (old, new, why), count in sums.moves.items()},
        time_in_state=seconds,
        estimated_false_rejections=sums.estimate,
        guests=sums.guests,
        permits=PermitCounts(
            issued=issued,
            settled=issued - in_flight - sums.expired - abandoned,
            in_flight=in_flight,
            expired=sums.expired,
            abandoned=abandoned,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What a restart takes over from a snapshot."""

    time: float
    state: State
    since: float
    step: int
    wait: float
    next_trial_at: float | None
    ends_at: float | None
    epoch: int
    note: str | None
    by: str | None


def read_saved(data: Mapping[str, Any]) -> Saved:
    """
    Check the plain data of a snapshot.

    Raises:
        ConfigError: A field is missing or wrong; all of them are named.
    """
    if not isinstance(data, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  (read from who knows where)
        checks = Checks()
        checks.wrong("saved", data, "a Snapshot, or the data of its plain()", "wrong_type")
        checks.done()
    checks = Checks("saved.")
    state = data.get("state")
    if not isinstance(state, str) or state not in set(State):
        checks.wrong("state", state, "one of " + ", ".join(State), "wrong_type")
    for name in ("time", "since"):
        checks.number(name, data.get(name), zero=True)
    checks.number("wait", data.get("wait"), "a number of seconds", zero=True)
    for name in ("next_trial_at", "ends_at"):
        checks.number(name, data.get(name), optional=True, zero=True)
    checks.whole("step", data.get("step"), 0)
    checks.whole("epoch", data.get("epoch"), 0)
    for name in ("note", "by"):
        if not isinstance(data.get(name), (str, type(None))):
            checks.wrong(name, data.get(name), "a text or None", "wrong_type")
    checks.done()
    names = ("time", "since", "step", "wait", "next_trial_at", "ends_at", "epoch", "note", "by")
    checked: dict[str, Any] = {name: data.get(name) for name in names}
    return Saved(state=State(str(state)), **checked)
