"""A plan for people: as lines of text with the arithmetic of one call, and as a Mermaid flowchart."""

from __future__ import annotations

import math

from halfopen._core.plans import Plan, Step, some

__all__ = ["describe_mermaid", "describe_text", "worst_case"]


def worst_case(plan: Plan) -> tuple[float, float]:
    """
    Return how many attempts and how many seconds one call may come to; infinite where nothing bounds it.

    Seconds hold where something interrupts the call or it obeys the deadline, without waits that the dependency asks
    for (Retry-After).
    """
    attempts, seconds = 1.0, math.inf
    for step in reversed(plan):
        attempts *= step.attempts
        if step.kind == "Retry" and step.attempts < math.inf:
            seconds = step.attempts * seconds + step.sleeps
        elif step.kind == "Retry":
            seconds = math.inf
        seconds = min(
            seconds + step.waits, *(limit for limit in (step.seconds, step.total) if limit is not None), math.inf
        )
    return attempts, seconds


def describe_text(name: str, plan: Plan) -> str:
    """Return a plan as lines, the outermost policy first, with what one call may come to at most."""
    labels = [str(step) for step in plan]
    width, digits = max(map(len, labels)), len(str(len(plan) + 1))
    lines = [f"pipeline {name!r}, outermost first"]
    for number, (label, step) in enumerate(zip(labels, plan, strict=True), 1):
        lines.append(f"{number:>{digits + 2}}. {label:<{width}}  {step.does}".rstrip())
    lines.append(f"{len(plan) + 1:>{digits + 2}}. the function")
    attempts, seconds = worst_case(plan)
    most = "any number of attempts" if attempts == math.inf else f"{attempts:g} attempt{'s' if attempts > 1 else ''}"
    until = "without a limit in time" if seconds == math.inf else f"{seconds:.4g} s"
    lines.append(f"one call: at most {most}, {until}")
    return "\n".join(lines)


def describe_mermaid(name: str, plan: Plan) -> str:
    """Return a plan as a Mermaid flowchart: the way in, what may be refused or answered early, the function."""
    lines = ["flowchart TB", f'    caller(["{_quoted(name)}"]) --> p1']
    for number, step in enumerate(plan, 1):
        label = f"<b>{_quoted(step.kind)}</b> {_quoted(step.name)}"
        if step.does:
            label += f"<br/>{_quoted(step.does)}"
        after = f"p{number + 1}" if number < len(plan) else "function"
        lines.append(f'    p{number}["{label}"] {_arrow(step)} {after}')
    lines.append('    function(["the function"])')
    return "\n".join(lines)


def _arrow(step: Step) -> str:
    return f'-->|"up to {some(step.attempts)} times"|' if step.attempts > 1 else "-->"


def _quoted(text: str) -> str:
    # Mermaid's own entities; a backslash escapes nothing there.
    for plain, entity in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;"), ("\n", " ")):
        text = text.replace(plain, entity)
    return text
