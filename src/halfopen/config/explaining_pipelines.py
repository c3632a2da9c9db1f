"""What a pipeline comes to: the worst case of a call, an outage, and the load on a sick dependency."""

from __future__ import annotations

import math
from typing import Any

from halfopen._core.plan_pictures import worst_case
from halfopen._core.plans import Step
from halfopen.circuit_breaker import CircuitBreaker
from halfopen.config.arithmetic import load_of, openings
from halfopen.config.values import format_duration

__all__ = ["Explained", "explain_pipeline", "span"]

Explained = tuple[list[str], dict[str, float]]
"""Sentences, and the figures in them by name."""


def span(seconds: float) -> str:
    """Return a time for people: rounded, with units; "without end" for infinity."""
    return "without end" if seconds == math.inf else format_duration(float(f"{seconds:.4g}"))


def explain_pipeline(policy: Any, traffic: float) -> Explained:
    """Explain a pipeline at *traffic* calls a second."""
    steps = list(policy._plan())
    attempts, seconds = worst_case(steps)
    sentences = [" → ".join(str(step) for step in steps) + " → the function."]
    often = "any number of attempts" if attempts == math.inf else f"{attempts:g} attempt{'s' if attempts > 1 else ''}"
    sentences.append(f"One call: at most {often}, and {_in_time(steps, seconds)}.")
    figures = {"worst_case_seconds": seconds, "attempts": attempts}
    return sentences + _pipeline_sick(policy, steps, traffic, figures), figures


def _in_time(steps: list[Step], seconds: float) -> str:
    if seconds == math.inf:
        return "no limit in time, because nothing in it bounds one"
    return f"at most {span(seconds)}: {_sum(steps)}"


def _sum(steps: list[Step]) -> str:
    """Return the arithmetic of `worst_case`, from the inside out."""
    text, single = "the function", True
    for step in reversed(steps):
        bounds = [limit for limit in (step.seconds, step.total) if limit is not None]
        if step.kind == "Retry" and step.attempts < math.inf and text != "the function":
            inner = text if single else f"({text})"
            text, single = f"{step.attempts:g} × {inner} + {span(step.sleeps)} of waiting", False
        if step.waits:
            text, single = f"{text} + {span(step.waits)} to get in", False
        inside = worst_case(steps[steps.index(step) + 1 :])[1]
        if bounds and (text == "the function" or min(bounds) < inside):
            text, single = span(min(bounds)), True
    return text


def _pipeline_sick(policy: Any, steps: list[Step], traffic: float, figures: dict[str, float]) -> list[str]:
    places = [n for n, each in enumerate(policy.flat) if isinstance(each, CircuitBreaker)]
    if not places:
        return []
    inside = steps[places[0] + 1 :]
    attempts, seconds = worst_case(inside)
    settings = policy.flat[places[0]].settings
    found = min(openings(settings, traffic), key=lambda opening: opening.seconds, default=None)
    sentences: list[str] = []
    if found is not None and found.seconds < math.inf:
        longest = found.seconds + seconds
        figures["opens_after_seconds"] = longest
        hang = f"{span(found.seconds)} + {span(seconds)} for a call to fail = {span(longest)}"
        unbounded = "not bounded, because nothing inside the breaker bounds how long a call takes to fail"
        sentences.append(f"An outage before it opens, if calls hang: {hang if seconds < math.inf else unbounded}.")
    load = load_of(settings, traffic)
    if load is not None and attempts < math.inf and load.before < math.inf:
        # A retry inside does not try a trial call again; a hedge may.
        hedged = worst_case([step for step in inside if step.kind != "Retry"])[0]
        later = hedged * load.later_hour
        trials = hedged * load.trials * load.rounds_first
        # While the last of them take their time to fail, others begin.
        before = load.before + (math.ceil(traffic * seconds) if seconds < math.inf else 0)
        first = attempts * before + trials
        figures.update(calls_first_hour=first, calls_later_hour=later)
        sentences.append(
            f"Load on a sick dependency: in the first hour at most {attempts:g} × {before:,.0f} attempts before it is "
            f"open + {trials:,.0f} trial calls = {first:,.0f}; in an hour later on {later:,.0f}."
        )
    return sentences
