"""The very first call of a breaker is judged like every other."""

from __future__ import annotations

from halfopen import CallSucceeded, CircuitBreaker, Failures
from halfopen.testing import record_events


def test_a_result_predicate_judges_the_first_call() -> None:
    breaker = CircuitBreaker("q", classify=Failures(result=lambda answer: answer == "BUSY"))

    breaker.call(lambda: "BUSY")

    look = breaker.snapshot()
    assert (0, 1) == (look.counters.successes, look.counters.failures)


def test_a_new_classifier_judges_the_very_next_call() -> None:
    breaker = CircuitBreaker("q")
    breaker.call(lambda: "BUSY")

    breaker.configure(classify=Failures(result=lambda answer: answer == "BUSY"))
    breaker.call(lambda: "BUSY")

    look = breaker.snapshot()
    assert (1, 1) == (look.counters.successes, look.counters.failures)


def test_a_listener_hears_of_the_very_next_success() -> None:
    breaker = CircuitBreaker("q")
    breaker.call(int)

    with record_events(breaker, CallSucceeded) as events:
        breaker.call(int)

    assert 1 == len(events)


def test_a_refusal_for_want_of_trial_calls_promises_no_time() -> None:
    breaker = CircuitBreaker("q")
    breaker.try_now()
    permits = [breaker.acquire() for _ in range(3)]

    refused = None
    try:
        breaker.acquire()
    except Exception as error:
        refused = error

    assert None is getattr(refused, "retry_after", 0)
    assert 3 == len(permits)
