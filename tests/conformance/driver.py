"""Drives a breaker through a recorded scenario; a recorded millisecond is one second here: every time is exact."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from halfopen import CircuitBreaker, CircuitOpenError, CountWindow, Failures, HalfOpen, Permit, State, TimeWindow
from halfopen.testing import FakeClock

TRACES = Path(__file__).with_name("reference-traces.json")
OUT_OF_REACH = 1e12

Json = dict[str, Any]


class Root(Exception): ...


class A(Root): ...


class B(Root): ...


class C(Root): ...


class B1(B): ...


class C1(C): ...


KINDS: dict[str, type[Root]] = {"Root": Root, "A": A, "B": B, "C": C, "B1": B1, "C1": C1}


def scenarios() -> list[Json]:
    """Read all recorded scenarios."""
    return json.loads(TRACES.read_text())["scenarios"]  # type: ignore[no-any-return]


class Disagreement(AssertionError):
    """A step at which the breaker and the recording differ."""


class Driver:
    """One breaker under one scenario."""

    def __init__(self, scenario: Json) -> None:
        self.scenario = scenario
        self.config: Json = scenario["config"]
        self.clock = FakeClock(start=float(self.config["clock_start_ms"] % 1000))
        self.lazy = not self.config["automatic_transition_from_open_to_half_open_enabled"]
        self.breaker = CircuitBreaker(scenario["id"], clock=self.clock, **self.settings())
        self.permits: dict[int, Permit] = {}  # kept to the end: one that is collected goes back
        self.seen = 0
        self._initial()
        self.breaker.history  # noqa: B018
        self.seen = len(self.moves())

    def settings(self) -> Json:
        config = self.config
        count = config["sliding_window_type"] == "COUNT_BASED"
        size, minimum = config["sliding_window_size"], config["minimum_number_of_calls"]
        longest = config["max_wait_duration_in_half_open_state_ms"]
        return {
            "window": CountWindow(size) if count else TimeWindow(seconds=1000.0 * size, buckets=size),
            "minimum_calls": min(minimum, size) if count else minimum,
            "failure_rate_threshold": config["failure_rate_threshold"] / 100,
            "slow_call_rate_threshold": config["slow_call_rate_threshold"] / 100,
            "slow_call_duration": float(config["slow_call_duration_threshold_ms"]),
            "wait_in_open": self.wait(),
            "forget_after": 0.0,
            "half_open": HalfOpen(
                permitted_calls=config["permitted_number_of_calls_in_half_open_state"],
                failure_rate_threshold=config["failure_rate_threshold"] / 100,
                slow_call_rate_threshold=config["slow_call_rate_threshold"] / 100,
                trial_timeout=OUT_OF_REACH,
                max_ignored=10**9,
                max_duration=float(longest) if longest else None,
                after_max_duration=State[config["transition_to_state_after_wait_duration"]],
            ),
            "classify": self.classifier(),
            "automatic_half_open": not self.lazy,
        }

    def wait(self) -> float | Callable[[int, Any], float]:
        late = 1.0 if self.lazy else 0.0
        exponential = self.config.get("wait_exponential")
        if exponential is None:
            return float(self.config["wait_duration_in_open_state_ms"]) + late

        def seconds(step: int, rng: object) -> float:
            x = exponential["initial_ms"]
            for _ in range(step - 1):
                x = math.trunc(x * exponential["multiplier"])
            return float(min(x, exponential.get("max_ms", x))) + late

        return seconds

    def classifier(self) -> Failures:
        on = self._matchers("record_exceptions", "record_exception_predicate_kinds")
        ignore = self._matchers("ignore_exceptions", "ignore_exception_predicate_kinds")
        bad = self.config.get("record_result_predicate_values")
        return Failures(
            on=Exception if on is None else on,
            ignore=ignore or (),
            result=None if bad is None else lambda value: value in bad,
        )

    def _matchers(self, classes: str, predicate: str) -> tuple[Any, ...] | None:
        if self.config.get(classes) is None and self.config.get(predicate) is None:
            return None
        exact = {KINDS[kind] for kind in self.config.get(predicate) or ()}
        return (*(KINDS[kind] for kind in self.config.get(classes) or ()), lambda error: type(error) in exact)

    def _initial(self) -> None:
        orders: dict[str, tuple[Callable[[], object], ...]] = {
            "OPEN": (self.breaker.trip,),
            "HALF_OPEN": (self.breaker.trip, self.breaker.try_now),
            "DISABLED": (self.breaker.disable,),
            "METRICS_ONLY": (self.breaker.observe,),
            "FORCED_OPEN": (self.breaker.force_open,),
        }
        for order in orders.get(self.config.get("initial_state") or "CLOSED", ()):
            order()

    def moves(self) -> list[str]:
        return [f"{move.old.name}>{move.new.name}" for move in self.breaker.history]

    def run(self) -> int:
        """Run all steps; return how many. Raise Disagreement at the first difference."""
        self._compare(-1, None, None, self.scenario["initial"])
        for number, (operation, expected) in enumerate(self.scenario["steps"]):
            before = len(self.breaker.history)
            last = self.breaker.history[-1] if before else None
            result = self._do(*operation)
            self._settle_timers()
            self._compare(number, operation, result, expected, self._new_moves(last))
        return len(self.scenario["steps"])

    def _new_moves(self, last: Any) -> list[str]:
        history = self.breaker.history
        fresh = history if last is None else [move for move in history if move.epoch > last.epoch]
        return [f"{move.old.name}>{move.new.name}" for move in fresh if move.old is not move.new]

    def _do(self, operation: str, *args: Any) -> bool | None:
        breaker = self.breaker
        if operation == "advance":
            self._advance(float(args[0]))
        elif operation in ("acquire", "try_acquire"):
            return self._acquire(args[0])
        elif operation in ("success", "result", "error", "release"):
            self._report(operation, *args)
        elif operation in ("to_open_for", "to_open_until"):
            breaker.trip(wait=float(args[0]) + (1.0 if self.lazy else 0.0))
        else:
            orders: dict[str, Callable[[], object]] = {
                "to_closed": breaker.reset,
                "reset": breaker.reset,
                "to_open": breaker.trip,
                "to_half_open": breaker.try_now,
                "to_disabled": breaker.disable,
                "to_metrics_only": breaker.observe,
                "to_forced_open": breaker.force_open,
            }
            orders[operation]()
        return None

    def _acquire(self, call: int) -> bool:
        try:
            self.permits[call] = self.breaker.acquire()
        except CircuitOpenError:
            return False
        return True

    def _report(self, operation: str, call: int, duration: float = 0.0, what: Any = None) -> None:
        permit = self.permits[call]
        permit.began = self.clock.monotonic() - duration
        if operation == "success":
            permit.success()
        elif operation == "result":
            permit.result(what)
        elif operation == "error":
            permit.exception(KINDS[what]())
        else:
            permit.ignore()

    def _advance(self, seconds: float) -> None:
        target = self.clock.monotonic() + seconds
        while (due := self._due()) <= target:
            self.clock.advance_to(due)
            self.breaker.tick()
        self.clock.advance_to(target)
        self.breaker.tick()

    def _settle_timers(self) -> None:
        while self._due() <= self.clock.monotonic():
            self.breaker.tick()

    def _due(self) -> float:
        return self.breaker._circuit.state.due()

    def _compare(
        self, number: int, operation: Any, result: bool | None, expected: list[Any], moves: list[str] | None = None
    ) -> None:
        state, admitted, failure_rate, slow_rate, buffered, failed, slow = expected[:7]
        look = self.breaker.snapshot()
        wrong = dict(self._differences(look, state, (failure_rate, slow_rate, buffered, failed, slow)))
        if result != admitted and operation is not None:
            wrong["admitted"] = (admitted, result)
        wanted = [event for event in expected[9] if ">" in event]
        if moves is not None and moves != wanted:
            wrong["moves"] = (wanted, moves)
        if wrong:
            raise Disagreement(f"{self.scenario['id']} step {number} {operation}: (recorded, ours) {wrong}")

    def _differences(self, look: Any, state: str, numbers: tuple[float, ...]) -> Iterator[tuple[str, Any]]:
        if look.state.name != state:
            yield "state", (state, look.state.name)
        if state not in ("CLOSED", "HALF_OPEN"):
            return
        needed = self._needed(state)
        judged = look.calls >= needed and look.calls > 0
        ours = (
            100 * look.failures / look.calls if judged else -1.0,
            100 * look.slow / look.calls if judged else -1.0,
            look.calls,
            look.failures,
            look.slow,
        )
        for name, theirs, mine in zip(
            ("failure_rate", "slow_rate", "buffered", "failed", "slow"), numbers, ours, strict=True
        ):
            if abs(theirs - mine) > 1e-4:
                yield name, (theirs, mine)

    def _needed(self, state: str) -> int:
        minimum, size = self.config["minimum_number_of_calls"], self.config["sliding_window_size"]
        if state == "HALF_OPEN":
            return min(minimum, self.config["permitted_number_of_calls_in_half_open_state"])
        return min(minimum, size) if self.config["sliding_window_type"] == "COUNT_BASED" else minimum
