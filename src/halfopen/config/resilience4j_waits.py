"""The waits of resilience4j: how they grow and spread, and what of them an instance inherits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from halfopen.config.items import Item
from halfopen.config.resilience4j_properties import Properties, canonical
from halfopen.config.values import format_duration

__all__ = ["delays", "inherited_waits", "wait_in_open"]

A_YEAR = 365 * 86400.0

_FLAGS = ("enableExponentialBackoff", "enableRandomizedWait")
_SHAPE = (*_FLAGS, "exponentialBackoffMultiplier", "randomizedWaitFactor")
_GROUPS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    # Section: the wait, its maximum, and what the level that sets the wait takes from the one below it.
    "breaker": ("waitDurationInOpenState", "exponentialMaxWaitDurationInOpenState", ()),
    "retry": (
        "waitDuration",
        "exponentialMaxWaitDuration",
        (*_FLAGS, "exponentialBackoffMultiplier", "exponentialMaxWaitDuration"),
    ),
}


def inherited_waits(section: str, levels: Sequence[Mapping[str, Item]]) -> tuple[dict[str, Item | None], list[Item]]:
    """
    Return what of the wait counts, None for what does not, and the settings that have no effect where they stand.

    resilience4j makes the wait whole at each level: the level that sets its duration sets its growth and spread, too.
    Growth without a duration beside it changes nothing, and is not inherited by a level with one; but for a retry,
    which takes it from the level it is based on. That is `mergePropertiesIfAny` of resilience4j 2.

    Args:
        section: Ours: ``breaker`` or ``retry``; all others have no such wait.
        levels: The settings of the instance, of its base config, of the base of that and so on; names as compared.
    """
    if section not in _GROUPS:
        return {}, []
    wait, maximum, taken = _GROUPS[section]
    names = {canonical(name) for name in (*_SHAPE, maximum)}
    number = next((n for n, level in enumerate(levels) if canonical(wait) in level), None)
    if number is None:
        return {}, []
    below: Mapping[str, Item] = levels[number + 1] if number + 1 < len(levels) else {}
    counts: dict[str, Item] = {canonical(name): below[canonical(name)] for name in taken if canonical(name) in below}
    counts |= {name: item for name, item in levels[number].items() if name in names}
    lost = [item for level in levels[:number] for name, item in level.items() if name in names]
    return {**dict.fromkeys(names), **counts}, lost


def wait_in_open(given: Properties) -> Item:
    """Return the wait of a circuit breaker in OPEN."""
    first = given.seconds("waitDurationInOpenState", 60.0)
    exponential, randomized = given.flag("enableExponentialBackoff"), given.flag("enableRandomizedWait")
    maximum = "exponentialMaxWaitDurationInOpenState"
    if exponential and randomized:
        allowed = "enableExponentialBackoff and enableRandomizedWait cannot both be on for a circuit breaker"
        given.findings.wrong(given.items["enablerandomizedwait"], allowed, "conflict")
    if not given.has("waitDurationInOpenState") and (exponential or randomized):
        given.note("", "without waitDurationInOpenState resilience4j ignores the backoff and waits 60 s; so do we")
        return given.made("", "1m")
    series = _series(given, first, exponential, randomized and not exponential, maximum)
    return given.made("waitDurationInOpenState", _time(first) if series is None else series, shown=series is None)


def _series(
    given: Properties, first: float, exponential: bool, randomized: bool, maximum: str
) -> dict[str, Item] | None:
    if not (exponential or randomized):
        return None
    # Of a growing wait with a spread, resilience4j takes the factor only beside a multiplier, the maximum beside both.
    needed = ["exponentialBackoffMultiplier", *(["randomizedWaitFactor"] if randomized else [])]
    missing = " and ".join(name for name in needed if not given.has(name))
    spread = given.number("randomizedWaitFactor", 0.5, 0, 1) if randomized else 0.0
    if exponential and randomized and given.has("randomizedWaitFactor") and missing:
        given.note("randomizedWaitFactor", f"resilience4j ignores it without {missing}, and takes 0.5; so do we")
        spread = 0.5
    factor = given.number("exponentialBackoffMultiplier", 1.5, 1) if exponential else 1.0
    cap = round(first * (1 + spread), 9) if not exponential else A_YEAR
    if exponential and given.has(maximum) and not missing:
        cap = max(given.seconds(maximum, A_YEAR), first)
    elif exponential and given.has(maximum):
        given.note(maximum, f"resilience4j ignores it without {missing}; so do we")
    elif exponential:
        given.note("enableExponentialBackoff", "there is no maximum wait in resilience4j; here it is a year")
    return {
        "first": given.made("", _time(first)),
        "factor": given.made("exponentialBackoffMultiplier", factor),
        "cap": given.made(maximum, _time(cap)),
        "jitter": given.made("randomizedWaitFactor", spread),
    }


def delays(given: Properties) -> Item:
    """Return the waits between the attempts of a retry."""
    first = given.seconds("waitDuration", 0.5, zero=True)
    exponential, randomized = given.flag("enableExponentialBackoff"), given.flag("enableRandomizedWait")
    if (exponential or randomized) and not (given.has("waitDuration") and first):
        given.note("", "without waitDuration resilience4j ignores the backoff and waits 500 ms; so do we")
        exponential = randomized = False
    series = _series(given, first, exponential, randomized, "exponentialMaxWaitDuration")
    if series is not None and not randomized:
        series["jitter"] = given.made("", "none")
    return given.made("waitDuration", _time(first) if series is None else series, shown=series is None)


def _time(seconds: float) -> str:
    return format_duration(seconds)
