"""Each policy of a configuration in plain sentences, with its arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from halfopen._core.plan_steps import step_of
from halfopen._core.settings import Settings
from halfopen.circuit_breaker import CircuitBreaker
from halfopen.config.applying import apply
from halfopen.config.arithmetic import load_of, openings, slow_opening
from halfopen.config.configuration import Configuration, Entry
from halfopen.config.explaining_pipelines import Explained, explain_pipeline, span
from halfopen.registry import Registry

__all__ = ["Explanation", "explain"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """
    A policy in plain sentences.

    Attributes:
        title: Kind and name.
        sentences: What it does and what that comes to.
        figures: The numbers in them, by name; infinity where nothing bounds them.
    """

    title: str
    sentences: tuple[str, ...]
    figures: Mapping[str, float] = field(default_factory=dict[str, float])


def explain(configuration: Configuration, traffic: float = 10.0) -> list[Explanation]:
    """
    Explain every policy of a configuration.

    Args:
        configuration: What `load` returned.
        traffic: Calls a second that each policy gets.
    """
    registry = Registry()
    apply(configuration, registry)
    return [_explained(entry, registry[entry.title], traffic) for entry in configuration.entries]


def _explained(entry: Entry, policy: Any, traffic: float) -> Explanation:
    explained = _BY_KIND[entry.kind.section](getattr(policy, "_other", policy), traffic)
    sentences, figures = explained
    if entry.keyed:
        sentences = ["One for each key; all that follows is for one key.", *sentences]
    return Explanation(entry.title, tuple(sentences), figures)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# The breaker


def _breaker(policy: CircuitBreaker, traffic: float) -> Explained:
    settings = policy.settings
    found = openings(settings, traffic)
    sentences = ["Opens when " + " or ".join(opening.rule for opening in found) + "."] if found else []
    figures: dict[str, float] = {"traffic": traffic}
    if found:
        first = min(found, key=lambda opening: opening.seconds)
        figures["opens_after_seconds"] = first.seconds
        sentences.append(_outage(first.seconds, first.why, traffic))
    slow = slow_opening(settings, traffic)
    if slow is not None and settings.slow_call_duration is not None:
        after = slow.seconds + settings.slow_call_duration
        figures["opens_after_seconds_if_slow"] = after
        until = f"{slow.why}, + {settings.slow_call_duration:g} s for the first" if after < math.inf else slow.why
        sentences.append(
            f"A call is slow above {span(settings.slow_call_duration)}; opens when {slow.rule}: "
            f"if all become slow, after {span(after)} ({until})."
        )
    sentences += [_waiting(settings), _trials(settings), *_sick(settings, traffic, figures)]
    return sentences, figures


def _outage(seconds: float, why: str, traffic: float) -> str:
    if seconds == math.inf:
        return f"At {traffic:g} calls per second it never opens by that: {why}."
    return (
        f"At {traffic:g} calls per second an outage lasts at most {span(seconds)} before it opens: {why}, "
        "plus the time a call takes to fail."
    )


def _waiting(settings: Settings) -> str:
    backoff = settings.backoff
    jitter = getattr(backoff, "jitter", 0.0)
    spread = f", each ±{jitter * 100:g} %" if jitter else ""
    return f"Then it stays open: {backoff}{spread}."


def _trials(settings: Settings) -> str:
    trials = settings.half_open
    number = f"{trials.permitted_calls} trial call{'s' if trials.permitted_calls > 1 else ''}"
    lease = f"a trial call that has not reported after {span(trials.trial_timeout)} counts as failed"
    if trials.judged_by_rate:
        needed = min(settings.minimum, trials.permitted_calls)
        return f"Then up to {number}, judged by their rates once {needed} have reported; {lease}."
    return (
        f"Then {number}, at most {trials.concurrent} at once: if all succeed it closes, one failure re-opens; {lease}."
    )


def _sick(settings: Settings, traffic: float, figures: dict[str, float]) -> list[str]:
    load = load_of(settings, traffic)
    unguarded = traffic * 3600
    if load is None:
        return ["How often it tries again depends on a function; the load on a sick dependency is not known."]
    first, later = min(load.first_hour, unguarded), min(load.later_hour, unguarded)
    figures.update(calls_first_hour=first, calls_later_hour=later, calls_unguarded_hour=unguarded)
    if load.before == math.inf:
        return [f"A sick dependency gets all {unguarded:,.0f} calls an hour: failures alone do not open it here."]
    return [
        "Load on a sick dependency, without the calls under way when it opens: "
        f"in the first hour at most {load.before:,.0f} calls before + "
        f"{load.rounds_first:,} rounds × {load.trials:,} trial calls = {first:,.0f}; in an hour later on at most "
        f"{load.rounds_later:,} × {load.trials:,} = {later:,.0f}; without it {unguarded:,.0f}."
    ]


# The others


def _retry(policy: Any, traffic: float) -> Explained:
    step, budget = step_of(policy), policy.settings.budget
    sentences = [f"{_capital(step.does)}."]
    factor = step.attempts if budget is None else min(step.attempts, 1 + budget.share)
    sentences.append(
        f"It sleeps {span(step.sleeps)} at most; a call takes at most {step.attempts:g} × the time of an attempt + "
        f"{span(step.sleeps)}" + (f", cut at {span(step.total)}." if step.total is not None else ".")
        if step.sleeps < math.inf
        else "How long it sleeps is not bounded by its settings."
        if step.total is None
        else f"A call takes at most {span(step.total)}."
    )
    sentences.append(
        f"On a sick dependency it makes up to {factor:g} × the calls: "
        f"{factor * traffic * 3600:,.0f} an hour instead of {traffic * 3600:,.0f}."
    )
    return sentences, {"sleeps_seconds": step.sleeps, "attempts": step.attempts, "load_factor": factor}


def _timeout(policy: Any, traffic: float) -> Explained:
    settings = policy.settings
    how = "a worker thread is left behind" if settings.worker_thread else "the code has to obey the deadline"
    trial = "" if settings.trial is None else f", a trial call at most {span(settings.trial)}"
    held = traffic * settings.seconds
    return [
        f"A call takes at most {span(settings.seconds)}{trial} (async: cancelled; sync: {how}).",
        f"If all hang, {traffic:g} per second × {settings.seconds:g} s = {held:,.4g} calls hang at the same time.",
    ], {"worst_case_seconds": settings.seconds, "calls_in_flight": held}


def _bulkhead(policy: Any, traffic: float) -> Explained:
    step, limit = step_of(policy), policy._pool.limit
    full = limit / traffic
    return [
        f"{_capital(step.does)}, the others are refused.",
        f"A call waits at most {span(step.waits)} for a place.",
        f"At {traffic:g} calls per second it is full once calls take {limit} / {traffic:g} = {span(full)}.",
    ], {"waits_seconds": step.waits, "full_at_seconds": full}


def _rate_limiter(policy: Any, traffic: float) -> Explained:
    settings, step = policy._settings, step_of(policy)
    burst, hourly = settings.whole_burst, settings.whole_burst + 3600 * settings.rate / settings.per
    refused = max(0.0, traffic - settings.rate / settings.per)
    return [
        f"{_capital(step.does)}, {burst:,} at once after a quiet time.",
        f"In an hour at most {burst:,} + 3600 × {settings.rate:g} / {settings.per:g} = {hourly:,.0f} calls.",
        f"At {traffic:g} calls per second {refused:,.4g} of them are refused; one waits at most {span(step.waits)}.",
    ], {"calls_hour": hourly, "waits_seconds": step.waits}


def _hedge(policy: Any, traffic: float) -> Explained:
    step, share = step_of(policy), policy._share
    factor = step.attempts if share is None else 1 + share
    return [
        f"{_capital(step.does)}.",
        f"The dependency gets at most {factor:g} × the calls: {factor * traffic * 3600:,.0f} an hour.",
    ], {"attempts": step.attempts, "load_factor": factor}


def _step_only(policy: Any, traffic: float) -> Explained:
    return [f"{_capital(step_of(policy).does)}."], {}


def _retry_budget(policy: Any, traffic: float) -> Explained:
    share, burst, per_second = policy._settings
    hourly = burst + (share * traffic + per_second) * 3600
    return [
        f"Retries are at most {share * 100:g} % of calls, with {burst:g} saved up"
        + (f" and {per_second:g} more per second." if per_second else "."),
        f"In an hour at most {burst:g} + {share:g} × {traffic * 3600:,.0f} calls"
        + (f" + {per_second:g} × 3600" if per_second else "")
        + f" = {hourly:,.0f} retries.",
    ], {"retries_hour": hourly}


_BY_KIND: Mapping[str, Callable[[Any, float], Explained]] = {
    "retry_budget": _retry_budget,
    "breaker": _breaker,
    "retry": _retry,
    "timeout": _timeout,
    "bulkhead": _bulkhead,
    "rate_limiter": _rate_limiter,
    "fallback": _step_only,
    "hedge": _hedge,
    "adaptive_concurrency": _step_only,
    "cache_fallback": _step_only,
    "pipeline": explain_pipeline,
}
