"""What can be set on each kind of policy in a file: its settings, their forms, and how the policy is made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from halfopen._core.settings import HalfOpen, Ramp, Settings
from halfopen._core.states import State
from halfopen._runtime.bus import Bus
from halfopen._runtime.clock import Clock
from halfopen.adaptive_concurrency import AdaptiveConcurrency
from halfopen.bulkhead import Bulkhead
from halfopen.cache_fallback import CacheFallback
from halfopen.circuit_breaker import CircuitBreaker
from halfopen.classification import Failures
from halfopen.config.forms import (
    Form,
    anything,
    duration,
    flag,
    number,
    one_of,
    optional,
    share,
    table,
    texts,
    whole,
)  # fmt: skip
from halfopen.config.names import called, errors, thing
from halfopen.config.notations import (
    REFERENCES,
    Reference,
    algorithm,
    backoff,
    delay,
    links,
    reference,
    references,
    wait,
    window,
)  # fmt: skip
from halfopen.errors import ConfigError, Mistake
from halfopen.fallback import Fallback
from halfopen.hedge import Hedge
from halfopen.rate_limiter import RateLimiter
from halfopen.retry import Retry, RetryBudget
from halfopen.timeout import Timeout
from halfopen.typing import Classifier

__all__ = ["KINDS", "PolicyKind", "Reference", "Site"]


@dataclass(frozen=True, slots=True)
class Site:
    """Where policies are made: whose clock, whose bus, and how others are found."""

    clock: Clock | None = None
    bus: Bus | None = None
    find: Callable[[Reference], Any] = lambda reference: None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyKind:
    """
    A kind of policy.

    Attributes:
        section: Its table in a file.
        kind: Its name in a registry.
        fields: The form of each setting.
        make: Makes the policy.
        required: What must be given: a stand-in by which the rest can be checked, and what is wanted in words.
        keyed: Whether a name with ``*`` makes a family.
    """

    section: str
    kind: str
    fields: Mapping[str, Form]
    make: Callable[[str, dict[str, Any], Site], Any]
    required: Mapping[str, tuple[Any, str]] = field(default_factory=dict[str, tuple[Any, str]])
    keyed: bool = False


# Making

_CLASSIFYING = ("on", "ignore", "result")


def _breaker(name: str, values: dict[str, Any], site: Site) -> CircuitBreaker:
    given = {key: values[key] for key in _CLASSIFYING if key in values}
    rest = {key: value for key, value in values.items() if key not in (*_CLASSIFYING, "classify", "tags")}
    mistakes: list[Mistake] = []
    classify: Classifier = Failures()
    try:
        classify = _classifier(given, values.get("classify"))
    except ConfigError as error:
        mistakes += error.mistakes
    try:
        settings = Settings(**rest)
    except ConfigError as error:
        raise ConfigError([*mistakes, *error.mistakes]) from None
    if mistakes:
        raise ConfigError(mistakes)
    return CircuitBreaker.from_settings(
        name, settings, classify=classify, tags=values.get("tags"), clock=site.clock, bus=site.bus
    )


def _classifier(given: dict[str, Any], classify: Any) -> Classifier:
    if classify is None:
        return Failures(**given)
    if given:
        allowed = f"{next(iter(given))} says the same in another way: give one of the two"
        raise ConfigError([Mistake("classify", classify, allowed, "conflict")])
    if not isinstance(classify, Classifier):
        raise ConfigError([Mistake("classify", classify, "an object with of_exception and of_result", "wrong_type")])
    return classify


def _retry(name: str, values: dict[str, Any], site: Site) -> Retry:
    found = {key: site.find(value) if isinstance(value, Reference) else value for key, value in values.items()}
    return Retry(name, **found, clock=site.clock, bus=site.bus)


def _fallback(name: str, values: dict[str, Any], site: Site) -> Fallback:
    rest = dict(values)
    given = [key for key in ("value", "call", "links") if key in rest]
    if len(given) > 1:
        allowed = f"{given[0]} says the same in another way: give one of the two"
        raise ConfigError([Mistake(given[1], rest[given[1]], allowed, "conflict")])
    chain = rest.pop("links", [rest.pop(key) for key in given if key != "links"])
    return Fallback(name, *chain, on=rest["on"], clock=site.clock)


def _plain(make: Callable[..., Any], *, bus: bool = False) -> Callable[[str, dict[str, Any], Site], Any]:
    def made(name: str, values: dict[str, Any], site: Site) -> Any:
        more = {"bus": site.bus} if bus else {}
        return make(name, **values, clock=site.clock, **more)

    return made


def _budget(name: str, values: dict[str, Any], site: Site) -> RetryBudget:
    return RetryBudget(**values, clock=site.clock)


def _pipeline(name: str, values: dict[str, Any], site: Site) -> Any:
    from halfopen.pipeline import Pipeline

    return Pipeline(*[site.find(reference) for reference in values["policies"]], name=name)


_ON = ((Exception,), 'needed: the exceptions it is for, such as ["ConnectionError", "TimeoutError"]')
_SECONDS = "needed: a duration greater than 0"
_WHOLE = "needed: a whole number of at least 1"

_HALF_OPEN: dict[str, Form] = {
    "permitted_calls": whole,
    "max_concurrent_calls": optional(whole),
    "failure_rate_threshold": optional(share),
    "slow_call_rate_threshold": optional(share),
    "trial_timeout": duration,
    "max_ignored": optional(whole),
    "max_duration": optional(duration),
    "after_max_duration": one_of(open=State.OPEN, closed=State.CLOSED),
    "eligible": called,
}

_BREAKER: dict[str, Form] = {
    "window": window,
    "minimum_calls": optional(whole),
    "failure_rate_threshold": optional(share),
    "slow_call_rate_threshold": optional(share),
    "slow_call_duration": optional(duration),
    "failure_count_threshold": optional(whole),
    "consecutive_failures": optional(whole),
    "wait_in_open": wait,
    "forget_after": optional(duration),
    "half_open": table(HalfOpen, _HALF_OPEN, '{ permitted_calls = 3, trial_timeout = "60s" }'),
    "ramp": optional(
        table(Ramp, {"duration": duration, "start": share, "aggression": number}, '{ duration = "60s", start = "10%" }')
    ),
    "automatic_half_open": flag,
    "tags": texts,
    "on": errors,
    "ignore": errors,
    "result": called,
    "classify": thing,
}

_RETRY: dict[str, Form] = {
    "on": errors,
    "ignore": errors,
    "attempts": optional(whole),
    "backoff": backoff,
    "total": optional(duration),
    "budget": reference("retry_budget"),
    "result": called,
    "only_if": called,
    "retry_after_cap": duration,
    "breaker": reference("breaker"),
}

_TIMEOUT: dict[str, Form] = {
    "seconds": duration,
    "trial": optional(duration),
    "worker_thread": flag,
    "max_threads": whole,
}

_LIST = (
    PolicyKind(section="retry_budget", kind="retry_budget", make=_budget, fields={
        "share": share, "burst": number, "per_second": number,
    }),
    PolicyKind(section="breaker", kind="circuit_breaker", make=_breaker, fields=_BREAKER, keyed=True),
    PolicyKind(section="retry", kind="retry", make=_retry, fields=_RETRY, required={"on": _ON}),
    PolicyKind(section="timeout", kind="timeout", make=_plain(Timeout, bus=True), fields=_TIMEOUT, required={
        "seconds": (1.0, _SECONDS),
    }),
    PolicyKind(section="bulkhead", kind="bulkhead", make=_plain(Bulkhead), keyed=True, fields={
        "limit": whole, "max_waiting": whole, "max_wait": optional(duration),
    }, required={"limit": (1, _WHOLE)}),
    PolicyKind(section="rate_limiter", kind="rate_limiter", make=_plain(RateLimiter), keyed=True, fields={
        "rate": number, "per": duration, "burst": optional(whole), "max_wait": duration,
    }, required={"rate": (1.0, "needed: a number greater than 0")}),
    PolicyKind(section="fallback", kind="fallback", make=_fallback, fields={
        "on": errors, "value": anything, "call": called, "links": links,
    }, required={"on": _ON}),
    PolicyKind(section="hedge", kind="hedge", make=_plain(Hedge), fields={
        "delay": delay, "max_hedges": whole, "budget": optional(share), "max_threads": whole,
    }),
    PolicyKind(
        section="adaptive_concurrency", kind="adaptive_concurrency", make=_plain(AdaptiveConcurrency), fields={
            "algorithm": algorithm, "initial_limit": whole, "min_limit": whole, "max_limit": whole, "window": duration,
            "min_samples": whole, "dropped_on": errors,
        },
    ),
    PolicyKind(section="cache_fallback", kind="cache_fallback", make=_plain(CacheFallback), fields={
        "on": errors, "max_age": duration, "max_entries": whole, "key": called, "on_stale": called,
    }, required={"on": _ON, "max_age": (1.0, _SECONDS)}),
    PolicyKind(section="pipeline", kind="pipeline", make=_pipeline, fields={"policies": references}, required={
        "policies": ([], "needed: " + REFERENCES),
    }),
)  # fmt: skip

KINDS: Mapping[str, PolicyKind] = {kind.section: kind for kind in _LIST}
"""Each kind by its table in a file; what others refer to comes first."""

KEYED_FIELDS: Mapping[str, Form] = {"max_keys": whole, "key": called}
"""Further settings of a family."""
