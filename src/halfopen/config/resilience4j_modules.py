"""The modules of resilience4j and their settings, each with its twin here, or why it has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from halfopen.config.items import Item
from halfopen.config.resilience4j_properties import Properties, canonical
from halfopen.config.resilience4j_waits import delays, wait_in_open
from halfopen.config.values import format_duration

__all__ = ["MODULES", "Module"]

MANY = 1_000_000


@dataclass(frozen=True, slots=True)
class Module:
    """A module: its name, its section here, its settings with a twin, those without, and the translation."""

    name: str
    section: str
    known: tuple[str, ...]
    lost: Mapping[str, str]
    translate: Callable[[Properties], dict[str, Item]]

    @property
    def twins(self) -> set[str]:
        """The settings that have a twin, as Spring compares them."""
        return {canonical(name) for name in self.known}

    @property
    def without_twin(self) -> dict[str, str]:
        """The others, with the reason."""
        return {canonical(name): why for name, why in {**_EVERYWHERE, **self.lost}.items()}


_EVERYWHERE = {
    "registerHealthIndicator": "has no twin: halfopen has no Spring health indicator; left out",
    "allowHealthIndicatorToFail": "has no twin: halfopen has no Spring health indicator; left out",
    "eventConsumerBufferSize": "has no twin: the last 100 moves are always kept; left out",
    "subscribeForEvents": "has no twin: events reach whoever subscribes; left out",
    "writableStackTraceEnabled": "has no twin: a refusal is cheap as it is; left out",
    "ignoreClassBindingExceptions": "has no twin; left out",
}
_PREDICATE = 'a Java class has no twin: write the function in Python and name it as {twin} = "module:function"'


def _time(seconds: float) -> str:
    return format_duration(seconds)


# Circuit breaker


def _breaker(given: Properties) -> dict[str, Item]:
    size = given.whole("slidingWindowSize", 100)
    timed = given.word("slidingWindowType", "COUNT_BASED", "COUNT_BASED", "TIME_BASED") == "TIME_BASED"
    minimum = given.whole("minimumNumberOfCalls", 100)
    if not timed and minimum > size:
        given.note("minimumNumberOfCalls", f"cut to the {size} calls of the window, as resilience4j does")
        minimum = size
    window = {
        "seconds": given.made("slidingWindowSize", size, shown=False),
        "buckets": given.made("", min(size, 100_000)),
    }
    failures, slow = given.share("failureRateThreshold", 50), given.share("slowCallRateThreshold", 100)
    slow_after = given.seconds("slowCallDurationThreshold", 60.0)
    result = {
        "window": given.made("slidingWindowSize", window if timed else size, shown=not timed),
        "minimum_calls": given.made("minimumNumberOfCalls", minimum),
        "failure_rate_threshold": given.made("failureRateThreshold", failures),
        "slow_call_rate_threshold": given.made("slowCallRateThreshold", slow),
        "slow_call_duration": given.made("slowCallDurationThreshold", _time(slow_after)),
        "wait_in_open": wait_in_open(given),
        "forget_after": given.made("", 0),
        "half_open": given.made("", _half_open(given, failures, slow, slow_after)),
        "automatic_half_open": given.made(
            "automaticTransitionFromOpenToHalfOpenEnabled", given.flag("automaticTransitionFromOpenToHalfOpenEnabled")
        ),
    }
    for java, ours in (("recordExceptions", "on"), ("ignoreExceptions", "ignore")):
        classes = given.classes(java)
        if classes:
            result[ours] = given.made(java, [given.made(java, name) for name in classes])
    return result


def _half_open(given: Properties, failures: float, slow: float, slow_after: float) -> dict[str, Item]:
    permitted = given.whole("permittedNumberOfCallsInHalfOpenState", 10)
    longest = given.seconds("maxWaitDurationInHalfOpenState", 0.0, zero=True)
    after = given.word("transitionToStateAfterWaitDuration", "OPEN", "OPEN", "CLOSED")
    given.note(
        "",
        "resilience4j waits for a hung trial call for ever; here it counts as failed after half_open.trial_timeout",
    )
    given.note("", "an exception with an HTTP status is judged by it here: a 404 is an answer of a healthy service")
    given.note("", "a Retry-After of the dependency lengthens the wait here, up to 10 minutes or the backoff's own cap")
    result = {
        "permitted_calls": given.made("permittedNumberOfCallsInHalfOpenState", permitted),
        "failure_rate_threshold": given.made("failureRateThreshold", failures),
        "slow_call_rate_threshold": given.made("slowCallRateThreshold", slow),
        "trial_timeout": given.made("", _time(max(60.0, 2 * slow_after if slow_after > 60 else 60.0))),
    }
    if longest:
        result["max_duration"] = given.made("maxWaitDurationInHalfOpenState", _time(longest))
        if after == "CLOSED":
            result["after_max_duration"] = given.made("transitionToStateAfterWaitDuration", "closed")
    return result


# The others


def _retry(given: Properties) -> dict[str, Item]:
    legacy = "maxRetryAttempts" if given.has("maxRetryAttempts") and not given.has("maxAttempts") else "maxAttempts"
    result = {
        "on": _retried(given),
        "attempts": given.made(legacy, given.whole(legacy, 3, 0) or 3),
        "backoff": delays(given),
        "retry_after_cap": given.made("", 0),  # resilience4j does not look at Retry-After
    }
    given.note("", "a refusal by an open circuit is retried here only if it says when, and a total has room for that")
    ignored = given.classes("ignoreExceptions")
    if ignored:
        result["ignore"] = given.made("ignoreExceptions", [given.made("ignoreExceptions", name) for name in ignored])
    return result


def _retried(given: Properties) -> Item:
    classes = given.classes("retryExceptions")
    if classes is not None and not classes:
        given.note("retryExceptions", "OSError stands in for them")
        classes = ["OSError"]
    if classes is None:
        given.note("", "resilience4j retries every exception unless it is told which; name yours in on")
        classes = ["Exception"]
    return given.made("retryExceptions", [given.made("retryExceptions", name) for name in classes])


def _bulkhead(given: Properties) -> dict[str, Item]:
    wait = given.seconds("maxWaitDuration", 0.0, zero=True)
    result = {"limit": given.made("maxConcurrentCalls", given.whole("maxConcurrentCalls", 25))}
    if wait:
        result["max_waiting"] = given.made("", MANY)
        result["max_wait"] = given.made("maxWaitDuration", _time(wait))
    return result


def _thread_pool(given: Properties) -> dict[str, Item]:
    given.note("", "there is no thread pool here: the caller's own thread or task makes the call, as many at once")
    if not given.has("maxThreadPoolSize"):
        given.note(
            "", "without maxThreadPoolSize resilience4j has a thread for each processor; here it is 4, set your own"
        )
    return {
        "limit": given.made("maxThreadPoolSize", given.whole("maxThreadPoolSize", 4)),
        "max_waiting": given.made("queueCapacity", given.whole("queueCapacity", 100, 0)),
    }


def _rate_limiter(given: Properties) -> dict[str, Item]:
    rate = given.whole("limitForPeriod", 50)
    per = given.seconds("limitRefreshPeriod", 5e-7)
    given.note(
        "",
        "resilience4j gives all permits back at the start of each period; here they come back one by one, "
        "so that never more than the burst and what has come back since begin at once",
    )
    return {
        "rate": given.made("limitForPeriod", rate),
        "per": given.made("limitRefreshPeriod", _time(per)),
        "burst": given.made("limitForPeriod", rate),
        "max_wait": given.made("timeoutDuration", _time(given.seconds("timeoutDuration", 5.0, zero=True))),
    }


def _time_limiter(given: Properties) -> dict[str, Item]:
    if given.has("cancelRunningFuture") and not given.flag("cancelRunningFuture"):
        given.note("cancelRunningFuture", "false has no twin: an async call is cancelled when its time is up")
    given.note("", "a synchronous call is not interrupted here unless worker_thread = true; async calls are cancelled")
    return {"seconds": given.made("timeoutDuration", _time(given.seconds("timeoutDuration", 1.0)))}


_BACKOFF = ("enableExponentialBackoff", "exponentialBackoffMultiplier", "enableRandomizedWait", "randomizedWaitFactor")

_LIST = (
    Module("circuitbreaker", "breaker", (
        "failureRateThreshold", "slowCallRateThreshold", "slowCallDurationThreshold", "slidingWindowType",
        "slidingWindowSize", "minimumNumberOfCalls", "permittedNumberOfCallsInHalfOpenState",
        "maxWaitDurationInHalfOpenState", "transitionToStateAfterWaitDuration", "waitDurationInOpenState",
        "automaticTransitionFromOpenToHalfOpenEnabled", "recordExceptions", "ignoreExceptions",
        "exponentialMaxWaitDurationInOpenState", *_BACKOFF,
    ), {
        "recordFailurePredicate": _PREDICATE.format(twin="classify"),
        "recordResultPredicate": _PREDICATE.format(twin="result"),
        "ignoreExceptionPredicate": _PREDICATE.format(twin="classify"),
        "initialState": "has no twin: a breaker begins CLOSED; give an order at start, such as breaker.disable()",
        "slidingWindowSynchronizationStrategy": "has no twin: there is one window, without a lock on its fast path",
    }, _breaker),
    Module("retry", "retry", (
        "maxAttempts", "maxRetryAttempts", "waitDuration", "retryExceptions", "ignoreExceptions",
        "exponentialMaxWaitDuration", *_BACKOFF,
    ), {
        "retryExceptionPredicate": "a Java class has no twin: name the exceptions in on",
        "resultPredicate": _PREDICATE.format(twin="result"),
        "intervalBiFunction": _PREDICATE.format(twin="backoff"),
        "consumeResultBeforeRetryAttempt": "has no twin; subscribe to RetryScheduled instead",
        "failAfterMaxAttempts": "has no twin: the last result is returned, the last error raised",
    }, _retry),
    Module("bulkhead", "bulkhead", ("maxConcurrentCalls", "maxWaitDuration"), {}, _bulkhead),
    Module("thread-pool-bulkhead", "bulkhead", ("maxThreadPoolSize", "queueCapacity"), {
        "coreThreadPoolSize": "has no twin: there is no thread pool; left out",
        "keepAliveDuration": "has no twin: there is no thread pool; left out",
        "contextPropagators": "has no twin: the call runs in the caller's own context; left out",
        "rejectedExecutionHandler": "has no twin: there is no thread pool; left out",
    }, _thread_pool),
    Module("ratelimiter", "rate_limiter", ("limitForPeriod", "limitRefreshPeriod", "timeoutDuration"), {
        "drainPermissionsOnResult": "has no twin; left out",
    }, _rate_limiter),
    Module("timelimiter", "timeout", ("timeoutDuration", "cancelRunningFuture"), {}, _time_limiter),
)  # fmt: skip

MODULES: Mapping[str, Module] = {canonical(module.name): module for module in _LIST}
"""By name, as Spring compares names."""
