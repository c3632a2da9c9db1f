"""What the other policies decide, count and refuse, to the last word."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

import halfopen
from halfopen import (
    AdaptiveConcurrency,
    Bulkhead,
    CacheFallback,
    CircuitBreaker,
    CircuitOpenError,
    ConfigError,
    Fallback,
    HalfOpen,
    Hedge,
    RateLimiter,
    RejectedError,
    Retry,
    RetryBudget,
    Timeout,
    TimeWindow,
)
from halfopen._core.attempts import Again, Failure, GiveUp, Limits, RetryOutcome, may_retry, schedule
from halfopen._core.concurrency_limits import AdaptiveLimit, Aimd, Gradient2, Sample
from halfopen._core.gcra import Gcra, seconds_until
from halfopen._core.hedging import HedgeBudget, Latencies, Quantile, Race, Verdict
from halfopen._core.histogram import Histogram
from halfopen._core.plan_steps import step_of
from halfopen._core.plans import Step
from halfopen._core.retry_backoff import (
    Delays,
    Jitter,
    constant,
    decorrelated_jitter,
    exponential,
    full_jitter,
    next_delay,
)
from halfopen._core.retry_budget import TokenBucket
from halfopen._core.retry_settings import RetrySettings
from halfopen._core.slots import Line, Slots, Ticket
from halfopen._core.time_limits import TimeoutSettings
from halfopen.errors import Mistake


def mistakes(what: Any, **values: Any) -> tuple[Mistake, ...]:
    with pytest.raises(ConfigError) as wrong:
        what(**values)
    return tuple(wrong.value.mistakes)


def a_retry(**values: Any) -> RetrySettings:
    return RetrySettings(**{"name": "r", "on": OSError, **values})


def a_timeout(**values: Any) -> TimeoutSettings:
    return TimeoutSettings(**{"name": "t", "seconds": 5.0, **values})


ERRORS = "an exception class (below Exception), a tuple of them, or a function of the exception"


@pytest.mark.parametrize(
    ("what", "values", "mistake"),
    [
        (a_retry, {"name": ""}, ("name", "", "a text that is not empty", "out_of_range")),
        (a_retry, {"on": 5}, ("on", 5, ERRORS, "wrong_type")),
        (a_retry, {"on": KeyboardInterrupt}, ("on", KeyboardInterrupt, ERRORS, "wrong_type")),
        (a_retry, {"on": (OSError, 5)}, ("on", (OSError, 5), ERRORS, "wrong_type")),
        (
            a_retry,
            {"on": ()},
            ("on", (), "on names no error and result is not set: nothing would ever be retried", "conflict"),
        ),
        (
            a_retry,
            {"ignore": 5},
            ("ignore", 5, "an exception class (below Exception) or a tuple of them", "wrong_type"),
        ),
        (a_retry, {"attempts": 0}, ("attempts", 0, "a whole number of at least 1", "out_of_range")),
        (
            a_retry,
            {"attempts": None},
            ("attempts", None, "attempts=None needs total: something must end the attempts", "conflict"),
        ),
        (a_retry, {"backoff": -1}, ("backoff", -1, "a number of seconds of at least 0", "out_of_range")),
        (a_retry, {"total": 0}, ("total", 0, "a number of seconds greater than 0", "out_of_range")),
        (a_retry, {"budget": 5}, ("budget", 5, "a RetryBudget", "wrong_type")),
        (a_retry, {"result": 5}, ("result", 5, "something that can be called", "wrong_type")),
        (a_retry, {"only_if": 5}, ("only_if", 5, "something that can be called", "wrong_type")),
        (
            a_retry,
            {"retry_after_cap": -1},
            ("retry_after_cap", -1, "a number of seconds of at least 0", "out_of_range"),
        ),
        (exponential, {"first": -1}, ("first", -1, "a number of seconds of at least 0", "out_of_range")),
        (exponential, {"factor": 0.5}, ("factor", 0.5, "a number of at least 1", "out_of_range")),
        (exponential, {"factor": 0}, ("factor", 0, "a number greater than 0", "out_of_range")),
        (exponential, {"cap": -1}, ("cap", -1, "a number of seconds of at least 0", "out_of_range")),
        (exponential, {"jitter": "x"}, ("jitter", "x", "one of none, full, equal, decorrelated", "out_of_range")),
        (exponential, {"first": 5, "cap": 1}, ("cap", 1, "cap must be at least first (5 s)", "conflict")),
        (a_timeout, {"name": 5}, ("name", 5, "a text", "wrong_type")),
        (a_timeout, {"seconds": 0}, ("seconds", 0, "a number of seconds greater than 0", "out_of_range")),
        (a_timeout, {"trial": 0}, ("trial", 0, "a number of seconds greater than 0", "out_of_range")),
        (a_timeout, {"worker_thread": 1}, ("worker_thread", 1, "True or False", "wrong_type")),
        (a_timeout, {"max_threads": 0}, ("max_threads", 0, "a whole number of at least 1", "out_of_range")),
        (
            a_timeout,
            {"trial": 6},
            ("trial", 6, "trial (6 s) is meant to be tighter than seconds (5 s)", "conflict"),
        ),
        (Quantile, {"share": 0}, ("share", 0, "a share in (0, 1]", "out_of_range")),
        (Quantile, {"share": 1}, ("share", 1, "a share in (0, 1)", "out_of_range")),
        (Quantile, {"window": 9}, ("window", 9, "a whole number from 10 to 10000", "out_of_range")),
        (Quantile, {"window": 10_001}, ("window", 10_001, "a whole number from 10 to 10000", "out_of_range")),
        (Quantile, {"minimum": 0}, ("minimum", 0, "a whole number from 1 to 10000", "out_of_range")),
        (Quantile, {"minimum": 10_001}, ("minimum", 10_001, "a whole number from 1 to 10000", "out_of_range")),
        (Quantile, {"minimum": 201}, ("minimum", 201, "at most window (200)", "conflict")),
        (Quantile, {"at_least": -1}, ("at_least", -1, "a number of seconds of at least 0", "out_of_range")),
        (Gradient2, {"tolerance": 0.9}, ("tolerance", 0.9, "a number of at least 1", "out_of_range")),
        (Gradient2, {"tolerance": 0}, ("tolerance", 0, "a number greater than 0", "out_of_range")),
        (Gradient2, {"queue_size": 0}, ("queue_size", 0, "a whole number from 1 to 1000000", "out_of_range")),
        (Gradient2, {"queue_size": 10**7}, ("queue_size", 10**7, "a whole number from 1 to 1000000", "out_of_range")),
        (Gradient2, {"smoothing": 0}, ("smoothing", 0, "a share in (0, 1]", "out_of_range")),
        (Gradient2, {"long_window": 9}, ("long_window", 9, "a whole number from 10 to 100000", "out_of_range")),
        (
            Gradient2,
            {"long_window": 100_001},
            ("long_window", 100_001, "a whole number from 10 to 100000", "out_of_range"),
        ),
        (Gradient2, {"backoff": 0}, ("backoff", 0, "a share in (0, 1]", "out_of_range")),
        (Gradient2, {"backoff": 1}, ("backoff", 1, "a share in (0, 1)", "out_of_range")),
        (Aimd, {"slow_after": 0}, ("slow_after", 0, "a number of seconds greater than 0", "out_of_range")),
        (Aimd, {"slow_after": 1, "increase": 0}, ("increase", 0, "a number greater than 0", "out_of_range")),
        (Aimd, {"slow_after": 1, "backoff": 1.0}, ("backoff", 1.0, "a share in (0, 1)", "out_of_range")),
    ],
)
def test_a_mistake_is_named_whole(what: Any, values: dict[str, Any], mistake: tuple[str, Any, str, str]) -> None:
    assert (Mistake(*mistake),) == mistakes(what, **values)


@pytest.mark.parametrize(
    ("what", "values", "paths"),
    [
        (a_retry, {"name": "", "on": 5, "ignore": 5, "attempts": 0, "backoff": "x", "total": 0, "budget": 5,
                   "result": 5, "only_if": 5, "retry_after_cap": -1},
         ["name", "on", "ignore", "attempts", "backoff", "total", "budget", "result", "only_if", "retry_after_cap"]),
        (exponential, {"first": -1, "factor": 0.5, "cap": -5}, ["first", "cap"]),
        (exponential, {"first": 5, "factor": 0.5, "cap": 1}, ["factor"]),
        (a_timeout, {"trial": 6, "max_threads": 0}, ["max_threads"]),
        (Quantile, {"share": 2, "window": 9, "minimum": 0, "at_least": -1},
         ["share", "window", "minimum", "at_least"]),
        (Quantile, {"share": 1, "minimum": 201}, ["share"]),
        (Gradient2, {"tolerance": 0, "queue_size": 0, "smoothing": 0, "long_window": 0, "backoff": 5},
         ["tolerance", "queue_size", "smoothing", "long_window", "backoff"]),
        (Aimd, {"slow_after": 0, "increase": 0, "backoff": 1}, ["slow_after", "increase", "backoff"]),
    ],
)  # fmt: skip
def test_all_mistakes_are_named_at_once_and_conflicts_only_between_right_values(
    what: Any, values: dict[str, Any], paths: list[str]
) -> None:
    assert paths == [mistake.path for mistake in mistakes(what, **values)]


@pytest.mark.parametrize(
    ("what", "values"),
    [
        (a_retry, {"attempts": 1}), (a_retry, {"attempts": None, "total": 1}), (a_retry, {"backoff": 0}),
        (a_retry, {"on": (), "result": bool}), (a_retry, {"on": len}), (a_retry, {"retry_after_cap": 0}),
        (a_retry, {"ignore": (OSError,)}), (a_retry, {"ignore": OSError}), (a_retry, {"budget": RetryBudget(0.1)}),
        (exponential, {"first": 0, "cap": 0}), (exponential, {"factor": 1}), (exponential, {"first": 1, "cap": 1}),
        (a_timeout, {"trial": 5}), (a_timeout, {"max_threads": 1}), (Quantile, {"share": 0.99, "at_least": 0}),
        (Quantile, {"window": 10, "minimum": 10}), (Quantile, {"window": 10_000, "minimum": 1}),
        (Quantile, {"window": 10_000, "minimum": 10_000}), (Gradient2, {"tolerance": 1, "smoothing": 1}),
        (Gradient2, {"queue_size": 1, "long_window": 10}), (Gradient2, {"queue_size": 10**6, "long_window": 100_000}),
    ],
)  # fmt: skip
def test_the_edges_of_the_ranges_are_allowed(what: Any, values: dict[str, Any]) -> None:
    what(**values)


# Retries


def test_settings_of_a_retry_take_lists_for_tuples_and_a_number_for_a_backoff() -> None:
    settings = a_retry(on=[OSError, KeyError], ignore={ValueError}, backoff=2)

    assert ((OSError, KeyError), (ValueError,), constant(2)) == (settings.on, settings.ignore, settings.backoff)
    assert a_retry(on=frozenset([OSError])).on == (OSError,)
    assert Limits(attempts=3, total=None, retry_after_cap=60.0) == a_retry().limits
    assert (
        Limits(attempts=5, total=9.0, retry_after_cap=1.0) == a_retry(attempts=5, total=9.0, retry_after_cap=1.0).limits
    )
    assert Limits() == a_retry().limits


def failed(attempt: int = 1, elapsed: float = 0.0, **facts: Any) -> Failure:
    return Failure(attempt=attempt, elapsed=elapsed, **facts)


NOT, DEADLINE, EXHAUSTED = (
    RetryOutcome.FAILED_NOT_RETRIED, RetryOutcome.FAILED_DEADLINE, RetryOutcome.FAILED_EXHAUSTED
)  # fmt: skip


@pytest.mark.parametrize(
    ("failure", "verdict"),
    [
        (failed(), None),
        (failed(elapsed=9.9), None),
        (failed(elapsed=10.0), GiveUp(DEADLINE, "no time is left")),
        (failed(elapsed=11.0), GiveUp(DEADLINE, "no time is left")),
        (failed(time_left=0.0), GiveUp(DEADLINE, "no time is left")),
        (failed(time_left=0.5), None),
        (failed(elapsed=10.0, time_left=5.0), GiveUp(DEADLINE, "no time is left")),
        (failed(wanted=False, suppressed="x"), GiveUp(NOT, "the error is not one to retry")),
        (failed(suppressed="circuit 'x' is open", forbidden=True), GiveUp(NOT, "circuit 'x' is open")),
        (failed(forbidden=True, allowed=False), GiveUp(NOT, "the dependency asks not to be tried again")),
        (failed(allowed=False, refused=True), GiveUp(NOT, "the call must not be repeated")),
        (failed(refused=True), GiveUp(NOT, "the call was refused")),
        (failed(refused=True, asked=1.0), None),
        (failed(asked=1.0), None),
        (failed(attempt=2), None),
        (failed(attempt=3), GiveUp(EXHAUSTED, "3 attempts are allowed")),
        (failed(attempt=4), GiveUp(EXHAUSTED, "3 attempts are allowed")),
        (failed(attempt=3, wanted=False), GiveUp(NOT, "the error is not one to retry")),
    ],
)
def test_a_retry_gives_up_for_the_first_reason_there_is(failure: Failure, verdict: GiveUp | None) -> None:
    assert verdict == may_retry(Limits(attempts=3, total=10.0), failure)


def test_a_retry_without_a_time_budget_waits_for_no_refusal_and_one_without_a_number_goes_on() -> None:
    vain = "the call was refused, and no time budget says how long to wait for it"

    assert GiveUp(NOT, vain) == may_retry(Limits(), failed(refused=True, asked=1.0))
    assert None is may_retry(Limits(), failed(refused=True, asked=1.0, time_left=5.0))
    assert None is may_retry(Limits(attempts=None), failed(attempt=10**6))


@pytest.mark.parametrize(
    ("failure", "delay", "verdict"),
    [
        (failed(), 2.0, Again(2.0)),
        (failed(asked=3.0), 2.0, Again(3.0)),
        (failed(asked=1.0), 2.0, Again(2.0)),
        (failed(asked=99.0), 2.0, Again(4.0)),
        (failed(asked=99.0), 5.0, Again(5.0)),
        (failed(asked=4.0, refused=True), 2.0, Again(4.0)),
        (failed(asked=4.5, refused=True), 2.0, GiveUp(NOT, "the refusal lasts 4.5 s, the cap is 4 s")),
        (failed(elapsed=7.0), 2.9, Again(2.9)),
        (failed(elapsed=7.0), 3.0, GiveUp(DEADLINE, "a delay of 3 s does not fit into the 3 s left")),
        (failed(elapsed=7.0, time_left=1.0), 2.0, GiveUp(DEADLINE, "a delay of 2 s does not fit into the 1 s left")),
        (failed(elapsed=9.5, time_left=5.0), 2.0, GiveUp(DEADLINE, "a delay of 2 s does not fit into the 0.5 s left")),
        (failed(refused=True, time_left=99.0), 2.0, Again(2.0)),
    ],
)
def test_a_delay_is_what_all_ask_for_if_it_fits(failure: Failure, delay: float, verdict: Again | GiveUp) -> None:
    assert verdict == schedule(Limits(total=10.0, retry_after_cap=4.0), failure, delay)


class Chance:
    """A source of chance that answers the lower or the upper end, and remembers what it was asked."""

    def __init__(self, upper: bool) -> None:
        self.upper = upper
        self.asked: list[tuple[float, float]] = []

    def uniform(self, a: float, b: float, /) -> float:
        self.asked.append((a, b))
        return b + 1 if self.upper else a - 1


@pytest.mark.parametrize(
    ("jitter", "low", "high"), [("none", 2.0, 2.0), ("full", 0.0, 2.0), ("equal", 1.0, 2.0), ("decorrelated", 1.0, 5.0)]
)
def test_a_delay_lies_between_these_ends_however_chance_rounds(jitter: str, low: float, high: float) -> None:
    backoff = Delays(1.0, 2.0, 5.0, Jitter(jitter))

    assert (low, high) == (backoff(2, Chance(upper=False)), backoff(2, Chance(upper=True)))


def test_a_decorrelated_delay_follows_from_the_one_before() -> None:
    backoff = decorrelated_jitter(1.0, 20.0)

    chance = Chance(upper=True)
    delays = [backoff.after(before, 1, chance) for before in (None, 0.5, 2.0, 10.0)]

    assert [(1.0, 3.0), (1.0, 3.0), (1.0, 6.0), (1.0, 20.0)] == chance.asked
    assert [3.0, 3.0, 6.0, 20.0] == delays
    assert [(1.0, 3.0), (1.0, 9.0)] == asked_without_one_before(decorrelated_jitter(1.0, 20.0))
    assert Delays(1.0, 3.0, 20.0, Jitter.DECORRELATED) == backoff


def asked_without_one_before(backoff: Delays) -> list[tuple[float, float]]:
    chance = Chance(upper=False)
    for step in (1, 2):
        backoff(step, chance)
    return chance.asked


def test_a_series_grows_by_its_factor_up_to_its_cap_and_stays_there() -> None:
    backoff = exponential(1, 3, 20, jitter="none")

    assert [1.0, 3.0, 9.0, 20.0, 20.0, 20.0] == [backoff.base(step) for step in (1, 2, 3, 4, 5, 10**6)]
    assert [float] * 3 == [
        type(backoff.base(step)) for backoff in (constant(2), constant(0), exponential(0, 2, 5)) for step in (3,)
    ]
    assert [0.0, 2.0] == [exponential(0, 2, 5).base(9), exponential(2, 1, 5).base(9)]


def test_a_series_that_begins_below_a_second_is_cut_at_its_cap_only() -> None:
    backoff = exponential(0.25, 2, 7, jitter="none")

    assert [0.25, 0.5, 1.0, 2.0, 4.0, 7.0] == [backoff.base(step) for step in range(1, 7)]


def test_only_a_decorrelated_delay_looks_at_the_one_before() -> None:
    equal, decorrelated = exponential(1, 2, 20, "equal"), decorrelated_jitter(1, 20)

    assert (4.0, 6.0, 20.0) == (
        next_delay(equal, 3, 9.0, Chance(upper=True)),
        next_delay(decorrelated, 3, 2.0, Chance(upper=True)),
        next_delay(decorrelated, 3, 9.0, Chance(upper=True)),
    )


def test_a_backoff_in_user_code_is_told_the_step_and_the_chance_and_must_answer_seconds() -> None:
    chance = Chance(upper=True)
    told: list[Any] = []

    def backoff(step: int, rng: Any) -> Any:
        told.append((step, rng))
        return answers.pop()

    answers: list[Any] = [5, 0, 0.5]
    delays = [next_delay(backoff, step, 9.0, chance) for step in (1, 2, 3)]

    assert [0.5, 0.0, 5.0] == delays
    assert [float] * 3 == [type(delay) for delay in delays]
    assert [(1, chance), (2, chance), (3, chance)] == told


@pytest.mark.parametrize("answer", [-0.1, math.inf, math.nan, True, None, "5"])
def test_a_backoff_in_user_code_that_answers_no_seconds_is_found_out(answer: Any) -> None:
    with pytest.raises(ValueError) as wrong:
        next_delay(lambda step, rng: answer, 1, None, Chance(upper=True))

    assert f"a backoff returns seconds of at least 0, not {answer!r}" == str(wrong.value)


def test_a_backoff_describes_itself() -> None:
    assert [
        "2 s", "2 s, full jitter", "0.5 s × 3 up to 8 s", "0.1 s × 2 up to 10 s, equal jitter",
        "0.1 s up to 10 s, decorrelated jitter",
    ] == [
        str(backoff)
        for backoff in (
            constant(2), constant(2, "full"), exponential(0.5, 3, 8, "none"), exponential(jitter="equal"),
            decorrelated_jitter(),
        )
    ]  # fmt: skip


def test_the_short_ways_to_a_backoff_have_the_same_defaults() -> None:
    assert Delays(0.1, 2.0, 10.0, Jitter.FULL) == exponential() == full_jitter()
    assert Delays(0.1, 2.0, 10.0, Jitter.EQUAL) == halfopen.retry.equal_jitter()
    assert Delays(0.1, 3.0, 10.0, Jitter.DECORRELATED) == decorrelated_jitter()
    assert Delays(3, 1.0, 3, Jitter.NONE) == constant(3)
    assert Jitter.FULL is exponential(jitter="full").jitter


def test_a_budget_pays_for_a_share_of_calls_and_saves_no_more_than_its_burst() -> None:
    bucket = TokenBucket(share=0.5, burst=2, per_second=0.0, now=0.0)

    started = [bucket.take(99.0) for _ in range(3)]
    bucket.pay_in()
    half = (bucket.tokens, bucket.take(99.0))
    for _ in range(9):
        bucket.pay_in()

    assert [True, True, False] == started
    assert (0.5, False) == half
    assert 2.0 == bucket.tokens


def test_a_budget_gains_by_itself_only_what_time_brings() -> None:
    bucket = TokenBucket(share=0.0, burst=2, per_second=0.5, now=10.0)
    for _ in range(2):
        bucket.take(10.0)

    answers = [bucket.take(now) for now in (11.0, 11.5, 12.0, 12.0, 13.0, 14.0)]
    bucket.refill(1000.0)

    assert [False, False, True, False, False, True] == answers
    assert 2.0 == bucket.tokens


def test_a_budget_gains_from_the_first_millionth_of_a_token_on() -> None:
    bucket = TokenBucket(share=0.0, burst=1, per_second=1.0, now=0.0)
    bucket.take(0.0)

    bucket.refill(0.9e-6)
    before = bucket.tokens
    bucket.refill(1.5e-6)

    assert (0.0, 1e-6) == (before, bucket.tokens)


def test_frequent_questions_do_not_starve_a_budget() -> None:
    bucket = TokenBucket(share=0.0, burst=1, per_second=0.1, now=0.0)
    bucket.take(0.0)

    for tick in range(1, 10_001):
        bucket.refill(tick * 1e-6)
    bucket.refill(10.0)

    assert 1.0 == bucket.tokens


# Rate limiter and bulkhead


def test_a_meter_tells_when_and_how_many() -> None:
    meter = Gcra(2, 1.0, 3)
    fresh = (meter.interval, meter.tolerance, meter.available(7.0), meter.due(7.0) <= 7.0)
    for _ in range(3):
        meter.take(10.0)

    assert (0.5, 1.0, 3, True) == fresh
    assert [10.5, 11.0, 11.5] == [meter.due(10.0, ahead) for ahead in range(3)]
    assert [19.5, 20.0] == [meter.due(20.0, ahead) for ahead in (1, 2)]
    assert [0, 1, 1, 2, 3, 3] == [meter.available(now) for now in (10.4, 10.5, 10.9, 11.0, 11.5, 99.0)]


def test_a_meter_gives_what_it_has_and_no_more() -> None:
    meter = Gcra(2, 1.0, 2)

    assert [True, True, False] == [meter.take(5.0) for _ in range(3)]
    assert (5.5, 6.0, [False, True]) == (meter.due(5.0), meter.tat, [meter.take(5.4), meter.take(5.5)])


@pytest.mark.parametrize(
    ("due", "now", "wait"),
    [(5.0, 3.0, 2.0), (3.0, 3.0, 0.0), (3.0, 5.0, 0.0), (0.35135135135135137, 0.1, 0.25135135135135140)],
)
def test_a_wait_is_the_shortest_that_reaches_its_end(due: float, now: float, wait: float) -> None:
    assert wait == seconds_until(due, now)


def test_a_changed_rate_keeps_what_was_used_and_gives_it_back_at_the_new_one() -> None:
    used, idle = Gcra(1, 2.0, 3), Gcra(1, 1.0, 1)
    for _ in range(3):
        used.take(10.0)
    idle.take(0.0)

    used.change(11.0, 4, 2.0, 2)
    idle.change(99.0, 4, 2.0, 3)

    assert (0.5, 0.5, 2, 12.25) == (used.interval, used.tolerance, used.burst, used.tat)
    assert (0.5, 1.0, 3, 1.0) == (idle.interval, idle.tolerance, idle.burst, idle.tat)
    assert ([0, 1], 3) == ([used.available(now) for now in (11.7, 11.75)], idle.available(99.0))


def entered(slots: Slots, count: int) -> list[Ticket]:
    tickets = [Ticket(number) for number in range(count)]
    for ticket in tickets:
        slots.enter(ticket)
    return tickets


def test_a_slot_goes_to_the_first_in_line_and_is_free_after_the_last() -> None:
    slots = Slots(limit=1, max_waiting=2)
    running, first, second = entered(slots, 3)

    free = Slots(limit=1, max_waiting=1)
    let_in = [free.enter(Ticket()), free.enter(Ticket())]
    refused = slots.enter(Ticket())
    slots.leave(running)
    slots.leave(running)
    slots.give_up(second)
    slots.leave(first)
    slots.leave(first)

    assert [True, True] == let_in
    assert (False, [first], 0, 0) == (refused, [*slots.called], slots.in_use, slots.line.waiting)
    assert [False] * 3 == [ticket.granted for ticket in (running, first, second)]
    assert [0, 1, 2] == [ticket.waker for ticket in (running, first, second)]


def test_a_slot_that_cannot_be_used_goes_to_the_next() -> None:
    slots = Slots(limit=1, max_waiting=5)
    running, first, second, third = entered(slots, 4)

    slots.leave(running)
    slots.revoke(first)
    second.taken = True
    slots.revoke(second)
    kept = second.granted
    slots.give_up(second)

    assert (True, [first, second, third]) == (kept, [*slots.called])
    assert (False, False, True) == (first.granted, second.granted, third.granted)
    assert (1, 0) == (slots.in_use, slots.line.waiting)


def test_other_limits_let_in_who_waits_and_throw_nobody_out() -> None:
    slots = Slots(limit=2, max_waiting=5)
    tickets = entered(slots, 5)

    slots.resize(1, 5)
    over = slots.in_use
    slots.leave(tickets[0])
    fewer = slots.in_use
    slots.resize(3, 0)

    assert (2, 1, 3, 1) == (over, fewer, slots.in_use, slots.line.waiting)
    assert (tickets[2:4], True, False) == (
        [*slots.called],
        all(ticket.granted for ticket in tickets[1:4]),
        tickets[4].granted,
    )
    assert not slots.enter(Ticket())


def test_a_ticket_tells_who_waits_and_whether_it_was_granted() -> None:
    plain, known = Ticket(), Ticket("waker", 7, granted=True)

    assert (None, 0, False, False) == (plain.waker, plain.thread, plain.granted, plain.taken)
    assert ("waker", 7, True, False) == (known.waker, known.thread, known.granted, known.taken)


def test_a_line_is_left_from_wherever_one_stands() -> None:
    line = Line()
    tickets = [Ticket() for _ in range(3)]
    empty = line.first()
    for ticket in tickets:
        line.join(ticket)

    line.leave(tickets[1])
    line.leave(tickets[1])
    before = (line.waiting, line.first())
    line.leave(tickets[0])

    assert (None, (2, tickets[0]), (1, tickets[2])) == (empty, before, (line.waiting, line.first()))


# Hedging


def test_the_quantile_is_known_from_enough_calls_on_and_never_below_its_least() -> None:
    latencies = Latencies(Quantile(share=0.9, window=10, minimum=5, at_least=0.5))

    values: list[float | None] = []
    for seconds in (0.1, 0.2, 0.3, 0.4, 0.45, 3.0, 2.0, 1.0, 5.0, 4.0, 0.0, 0.0, 0.0):
        latencies.add(seconds)
        values.append(latencies.value())

    assert [None] * 4 + [0.5, 3.0, 3.0, 3.0, 5.0, 4.0, 4.0, 4.0, 4.0] == values


def test_the_lowest_rank_is_the_least_duration() -> None:
    latencies = Latencies(Quantile(share=0.01, window=10, minimum=1, at_least=0))

    values: list[float | None] = []
    for seconds in (0.3, 0.2, 0.4):
        latencies.add(seconds)
        values.append(latencies.value())

    assert [0.3, 0.2, 0.2] == values


def test_durations_are_put_in_order_again_after_an_interrupt_between_two_steps() -> None:
    latencies = Latencies(Quantile(share=0.5, window=10, minimum=1, at_least=0))
    for seconds in range(9):
        latencies.add(float(seconds))
    latencies._latest.append(100.0)  # an interrupt came before it was sorted in

    latencies.add(9.0)

    assert [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 100.0] == latencies._sorted
    assert 5.0 == latencies.value()


def test_a_race_begins_with_nothing_known_and_a_dropped_attempt_only_leaves() -> None:
    race = Race()
    fresh = (race.started, race.running, race.verdict, race.winner, race.value, race.errors)
    for _ in range(3):
        race.start()

    race.drop()

    assert (0, 0, None, None, None, []) == fresh
    assert (3, 2, None) == (race.started, race.running, race.verdict)


def test_a_budget_of_hedges_earns_with_calls_and_is_capped() -> None:
    budget, free = HedgeBudget(0.25, cap=2.0), HedgeBudget(None)

    first = [budget.spend(), budget.spend()]
    for _ in range(4):
        budget.earn()
    second = [budget.spend(), budget.spend()]
    for _ in range(100):
        budget.earn()
    third = [budget.spend() for _ in range(3)]

    assert ([True, False], [True, False], [True, True, False]) == (first, second, third)
    assert [True] * 5 == [free.spend() for _ in range(5)]


def test_ten_tenths_pay_for_one_hedge() -> None:
    budget = HedgeBudget(0.1)
    budget.spend()

    for _ in range(10):
        budget.earn()

    assert [True, False] == [budget.spend(), budget.spend()]


def test_a_budget_of_hedges_saves_ten_at_most() -> None:
    budget = HedgeBudget(1.0)
    for _ in range(50):
        budget.earn()

    assert 10 == sum(budget.spend() for _ in range(50))


def test_the_first_success_wins_a_race() -> None:
    race = Race()
    began = [race.start(), race.start(), race.start()]
    error = ValueError()

    race.fail(error)
    race.succeed(2, "yes")
    race.succeed(0, "no")

    assert ([0, 1, 2], 3, 0) == (began, race.started, race.running)
    assert (Verdict.ANSWERED, 2, "yes", [error]) == (race.verdict, race.winner, race.value, race.errors)


def test_a_race_fails_with_its_last_attempt_and_an_interrupt_comes_first() -> None:
    slow, fast = Race(), Race()
    first, second = ValueError(), KeyboardInterrupt()
    for race in (slow, fast):
        race.start()
        race.start()
        race.start()
        race.fail(first)

    slow.drop()
    open_still = slow.verdict
    slow.fail(second)
    fast.fail(second, at_once=True)
    fast.fail(ValueError())

    assert (None, Verdict.FAILED, [first, second], 0) == (open_still, slow.verdict, slow.errors, slow.running)
    assert (Verdict.FAILED, [second, first], 0, None) == (fast.verdict, fast.errors, fast.running, fast.winner)


# Adaptive concurrency


def test_the_additive_increase_and_the_multiplicative_decrease() -> None:
    aimd = Aimd(slow_after=1.0, increase=2.0, backoff=0.5)

    def after(limit: float, latency: float | None, peak: int, dropped: bool = False) -> float:
        return aimd.next_limit(aimd.start(), limit, Sample(latency, peak, dropped))

    assert [12.0, 12.0, 10.0, 10.0] == [
        after(10.0, 1.0, 10),
        after(10.0, None, 5),
        after(10.0, 0.1, 4),
        after(10.0, None, 4),
    ]
    assert [5.0, 5.0, 5.0] == [after(10.0, 1.1, 0), after(10.0, 0.1, 10, True), after(10.0, None, 10, True)]
    assert 0.5 == Aimd(slow_after=1.0).next_limit(None, 1.5, Sample(2.0, 1, False))
    assert 90.0 == Aimd(slow_after=1.0).next_limit(None, 100.0, Sample(2.0, 1, False))
    assert 101.0 == Aimd(slow_after=1.0).next_limit(None, 100.0, Sample(0.5, 50, False))


def gradient(limits: list[tuple[float, Sample]], **settings: Any) -> list[float]:
    algorithm = Gradient2(**settings)
    memory = algorithm.start()
    return [round(algorithm.next_limit(memory, limit, sample), 9) for limit, sample in limits]


def test_the_gradient_follows_its_formula() -> None:
    good, slow, slower = Sample(0.1, 5, False), Sample(0.2, 5, False), Sample(0.5, 5, False)

    assert [10.8] == gradient([(10.0, good)])
    # The mean of the first two windows is 0.15, and 1.2 × 0.15 / 0.2 is 0.9.
    assert [10.8, 10.6] == gradient([(10.0, good), (10.0, slow)])
    assert [10.8, 11.0 - 0.2 * 10 * 0.28 - 0.2] == gradient([(10.0, good), (10.0, slower)])
    assert [9.8] == gradient([(10.0, good), (10.0, Sample(9.9, 10, False))])[1:]
    assert [14.0] == gradient([(10.0, good)], smoothing=1.0)
    assert [10.4] == gradient([(10.0, good)], queue_size=2)


def test_the_gradient_needs_load_to_raise_the_limit_and_backs_off_from_drops() -> None:
    assert [10.0, 10.8] == gradient([(10.0, Sample(0.1, 4, False)), (10.0, Sample(0.1, 5, False))])
    assert [9.0, 9.0, 9.0] == gradient(
        [(10.0, Sample(None, 10, True)), (10.0, Sample(0.1, 4, True)), (10.0, Sample(0.1, 10, True))]
    )
    assert [10.0, 5.0] == gradient([(10.0, Sample(None, 10, False)), (10.0, Sample(0.1, 9, True))], backoff=0.5)
    assert [10.8] == gradient([(10.0, Sample(0.0, 9, False))])


def baseline(latencies: list[tuple[float, int]], windows: int = 10) -> list[float]:
    """Return what counts as normal after each window, given as latency and peak of a limit of 10."""
    algorithm = Gradient2(long_window=windows)
    memory: Any = algorithm.start()
    values: list[float] = []
    for latency, peak in latencies:
        algorithm.next_limit(memory, 10.0, Sample(latency, peak, False))
        values.append(round(memory.value, 9))
    return values


def test_what_is_normal_is_a_mean_first_and_an_exponential_average_then() -> None:
    values = baseline([(1.0, 5)] + [(2.0, 5)] * 9 + [(3.0, 5)])

    assert [1.0, 1.5, round(5 / 3, 9), 1.75] == values[:4]
    assert [1.9, 2.1] == values[9:]
    longer = baseline([(1.0, 5)] + [(2.0, 5)] * 9 + [(3.0, 5)], windows=20)
    assert [1.9, round(1.9 + 1.1 * 2 / 21, 9)] == longer[9:]


def test_what_is_normal_rises_slowly_while_the_limit_is_reached_and_falls_as_ever() -> None:
    assert [1.0, 1.1] == baseline([(1.0, 10), (2.0, 10)])
    assert [1.0, 1.5] == baseline([(1.0, 10), (2.0, 9)])
    assert [1.0, 0.75] == baseline([(1.0, 10), (0.5, 10)])


def test_what_is_normal_falls_faster_after_an_overload() -> None:
    assert [1.0, round(0.55 * 0.95, 9)] == baseline([(1.0, 5), (0.1, 5)])
    assert [3.0, 2.0] == baseline([(3.0, 5), (1.0, 5)])
    assert [5.0, 2.85] == baseline([(5.0, 5), (1.0, 5)])


def adaptive(**settings: Any) -> AdaptiveLimit:
    chosen: dict[str, Any] = {"initial": 10, "minimum": 8, "maximum": 12, "window": 1.0, "min_samples": 2}
    return AdaptiveLimit(Aimd(slow_after=1.0, increase=1.5, backoff=0.5), **{**chosen, **settings})


def test_a_window_ends_when_it_is_old_and_full_enough() -> None:
    limit = adaptive()
    limit.peak = limit.in_use = 10

    seen: list[tuple[float, int, int]] = []
    for now in (5.0, 5.9, 6.0, 6.5, 7.0, 7.1):
        limit.record(now, 0.1)
        seen.append((limit.exact, limit.limit, limit.updates))

    assert [(10.0, 10, 0), (10.0, 10, 0), (11.5, 11, 1), (11.5, 11, 1), (12.0, 12, 2), (12.0, 12, 2)] == seen
    assert 10 == limit.peak


def test_a_window_without_enough_calls_goes_on() -> None:
    limit = adaptive(min_samples=3)
    limit.peak = limit.in_use = 10
    updates: list[int] = []
    for now in (0.0, 5.0, 6.0, 6.5, 7.0):
        limit.record(now, 0.1)
        updates.append(limit.updates)

    assert [0, 0, 1, 1, 1] == updates


def test_a_fresh_limit_has_nobody_inside_and_remembers_for_its_algorithm() -> None:
    limit = AdaptiveLimit(Gradient2(), initial=10, minimum=1, maximum=99, window=1.0, min_samples=1)
    fresh = (limit.in_use, limit.peak, limit.exact, limit.limit, limit.updates)
    limit.peak = 5

    limit.record(0.0, 0.1)
    limit.record(1.0, 0.1)

    assert (0, 0, 10.0, 10, 0) == fresh
    assert (10.8, 10, 1) == (limit.exact, limit.limit, limit.updates)


def test_a_window_is_judged_by_its_mean_and_lasts_its_whole_time() -> None:
    limit = adaptive(min_samples=1)
    limit.in_use = limit.peak = 10
    updates: list[tuple[float, int]] = []
    for now in (0.0, 1.0, 1.5, 1.9, 2.0):
        limit.record(now, 0.6)
        updates.append((limit.exact, limit.updates))

    assert [(10.0, 0), (11.5, 1), (11.5, 1), (11.5, 1), (12.0, 2)] == updates


def test_drops_are_counted_one_by_one() -> None:
    limit = adaptive(min_samples=3)
    updates: list[int] = []
    for now in (0.0, 1.0, 1.1):
        limit.drop(now)
        updates.append(limit.updates)

    assert [0, 0, 1] == updates


def test_the_mean_of_a_window_leaves_drops_out_and_a_drop_backs_off() -> None:
    mean, dropped, only_drops = adaptive(minimum=1), adaptive(minimum=1), adaptive()
    for limit in (mean, dropped, only_drops):
        limit.peak = 10

    mean.record(0.0, 0.5)
    mean.record(1.0, 1.6)
    dropped.record(0.0, 0.1)
    dropped.drop(1.0)
    only_drops.drop(0.0)
    only_drops.drop(0.5)
    only_drops.drop(1.0)

    assert [(5.0, 5, 1), (5.0, 5, 1), (8.0, 8, 1)] == [
        (limit.exact, limit.limit, limit.updates) for limit in (mean, dropped, only_drops)
    ]


def test_each_window_begins_with_nothing_but_the_calls_in_flight() -> None:
    limit = adaptive()
    limit.in_use = 3
    limit.peak = 10
    limit.drop(0.0)
    limit.record(1.0, 5.0)
    after = (limit.exact, limit.peak)
    limit.record(1.5, 0.1)
    limit.record(2.0, 0.1)

    assert ((8.0, 3), 8.0, 2) == (after, limit.exact, limit.updates)


def test_a_histogram_counts_into_the_bucket_whose_bound_is_not_exceeded() -> None:
    histogram = Histogram((1.0, 2.0))
    for seconds in (0.5, 1.0, 1.5, 2.5):
        histogram.add(seconds)

    plain, padded = histogram.snapshot(), histogram.snapshot(zeros=3)

    assert ((1.0, 2.0), (2, 1, 1), 5.5, 4) == (plain.bounds, plain.counts, plain.sum, plain.count)
    assert ((5, 1, 1), 5.5, 7) == (padded.counts, padded.sum, padded.count)


# What a plan knows of a policy


def facts(step: Step) -> dict[str, Any]:
    """Return what differs from a step of which nothing is known."""
    unknown = Step(kind="", name="")
    return {
        field.name: getattr(step, field.name)
        for field in dataclasses.fields(step)
        if getattr(step, field.name) != getattr(unknown, field.name)
    }


def own(error: Exception) -> bool:
    return True


class Asked:
    def __call__(self, error: Exception) -> bool:
        return True


class Mine:
    name = "m"


class MyTimeout(Timeout):
    pass


SERIES = "0.1 s × 2 up to 10 s, full jitter apart"


@pytest.mark.parametrize(
    ("policy", "known"),
    [
        (
            Retry("r", on=OSError),
            {"kind": "Retry", "does": f"up to 3 attempts on OSError, {SERIES}", "attempts": 3, "sleeps": 0.1 + 0.2},
        ),
        (
            Retry("r", on=(OSError, KeyError), attempts=None, total=5.5, backoff=1, ignore=CircuitOpenError),
            {"kind": "Retry", "does": "any number of attempts on OSError, KeyError, 1 s apart, all within 5.5 s",
             "attempts": math.inf, "sleeps": math.inf, "total": 5.5, "heeds_refusals": True},
        ),
        (
            Retry("r", on=OSError, attempts=4, backoff=1.5, budget=RetryBudget(0.2)),
            {"kind": "Retry", "does": "up to 4 attempts on OSError, 1.5 s apart, retries at most 20 % of calls",
             "attempts": 4, "sleeps": 4.5},
        ),
        (
            Retry("r", on=Asked(), attempts=1),
            {"kind": "Retry", "does": f"up to 1 attempts on what a function() says, {SERIES}"},
        ),
        (
            Retry("r", on=OSError, attempts=1, total=5, budget=RetryBudget(0.125)),
            {"kind": "Retry", "total": 5,
             "does": f"up to 1 attempts on OSError, {SERIES}, retries at most 12.5 % of calls, all within 5 s"},
        ),
        (
            Retry("r", on=own, ignore=(KeyError, RejectedError), attempts=2, backoff=halfopen.constant(3)),
            {"kind": "Retry", "does": "up to 2 attempts on what own() says, 3 s apart", "attempts": 2, "sleeps": 3,
             "heeds_refusals": True},
        ),
        (
            Retry("r", on=OSError, backoff=halfopen.exponential(10, 2, 15, jitter=0.25), total=9),
            {"kind": "Retry", "does": "up to 3 attempts on OSError, 10 s × 2 up to 15 s apart, all within 9 s",
             "attempts": 3, "sleeps": 27.5, "total": 9},
        ),
        (
            Retry("r", on=OSError, backoff=decorrelated_jitter(1, 5)),
            {"kind": "Retry", "does": "up to 3 attempts on OSError, 1 s up to 5 s, decorrelated jitter apart",
             "attempts": 3, "sleeps": 10},
        ),
        (
            Retry("r", on=OSError, attempts=2003, backoff=exponential(1, 2, 4)),
            {"kind": "Retry", "does": "up to 2003 attempts on OSError, 1 s × 2 up to 4 s, full jitter apart",
             "attempts": 2003, "sleeps": 8003.0},
        ),
        (Retry("r", on=OSError, attempts=1), {"kind": "Retry", "does": f"up to 1 attempts on OSError, {SERIES}"}),
        (
            Retry("r", on=(), result=bool, attempts=2),
            {"kind": "Retry", "does": f"up to 2 attempts on results, {SERIES}", "attempts": 2, "sleeps": 0.1},
        ),
        (Timeout("t", 2), {"kind": "Timeout", "does": "2 s", "seconds": 2, "trial_seconds": 2}),
        (MyTimeout("t", 2), {"kind": "Timeout", "does": "2 s", "seconds": 2, "trial_seconds": 2}),
        (
            Timeout("t", 2, trial=1.5, worker_thread=True, max_threads=7),
            {"kind": "Timeout", "does": "2 s, 1.5 s for a trial call, on one of 7 threads", "seconds": 2,
             "trial_seconds": 1.5},
        ),
        (
            CircuitBreaker("steps 1"),
            {"kind": "CircuitBreaker", "does": "opens when 50 % of the last 100 calls failed, then 3 trial calls",
             "lease": 60.0},
        ),
        (
            CircuitBreaker(
                "steps 2", window=TimeWindow(60), failure_count_threshold=5, consecutive_failures=3,
                half_open=HalfOpen(permitted_calls=1, trial_timeout=7),
            ),
            {"kind": "CircuitBreaker", "lease": 7,
             "does": "opens when 50 % of the last 60 s failed or 5 of the last 60 s failed or 3 failed in a row, then "
                     "1 trial call"},
        ),
        (
            CircuitBreaker("steps 3", failure_rate_threshold=None, slow_call_rate_threshold=0.8),
            {"kind": "CircuitBreaker", "does": "opens when 80 % of the last 100 calls were slow, then 3 trial calls",
             "lease": 60.0},
        ),
        (
            CircuitBreaker("steps 4", failure_rate_threshold=0.07, half_open=HalfOpen(permitted_calls=2)),
            {"kind": "CircuitBreaker", "does": "opens when 7 % of the last 100 calls failed, then 2 trial calls",
             "lease": 60.0},
        ),
        (Bulkhead("b", 3), {"kind": "Bulkhead", "does": "3 at once", "holds": True}),
        (
            Bulkhead("b", 3, max_waiting=2),
            {"kind": "Bulkhead", "does": "3 at once, 2 more wait", "waits": math.inf, "holds": True},
        ),
        (
            Bulkhead("b", 3, max_waiting=2, max_wait=0.5),
            {"kind": "Bulkhead", "does": "3 at once, 2 more wait up to 0.5 s", "waits": 0.5, "holds": True},
        ),
        (RateLimiter("l", 10, 60), {"kind": "RateLimiter", "does": "10 in 60 s"}),
        (
            RateLimiter("l", 10.5, 60, max_wait=2),
            {"kind": "RateLimiter", "does": "10.5 in 60 s, waits up to 2 s", "waits": 2},
        ),
        (
            AdaptiveConcurrency("a", min_limit=2, max_limit=90),
            {"kind": "AdaptiveConcurrency", "does": "2 to 90 at once, by latency", "holds": True},
        ),
        (Fallback("f", 1, on=OSError), {"kind": "Fallback", "does": "another answer on OSError", "answers": True}),
        (
            Fallback("f", 1, 2, on=(OSError, RejectedError)),
            {"kind": "Fallback", "does": "one of 2 answers in turn on OSError, RejectedError", "answers": True,
             "answers_refusals": "named"},
        ),
        (
            Fallback("f", 1, on=Exception),
            {"kind": "Fallback", "does": "another answer on Exception", "answers": True, "answers_refusals": "swept"},
        ),
        (
            Fallback("f", 1, on=CircuitOpenError),
            {"kind": "Fallback", "does": "another answer on CircuitOpenError", "answers": True,
             "answers_refusals": "named"},
        ),
        (
            CacheFallback("c", on=OSError, max_age=60),
            {"kind": "CacheFallback", "does": "the last good answer on OSError, at most 60 s old", "answers": True},
        ),
        (
            Hedge("h", 0.25),
            {"kind": "Hedge", "does": "up to 2 attempts at once, the next after 0.25 s", "attempts": 2},
        ),
        (
            Hedge("h", Quantile(0.9), max_hedges=2),
            {"kind": "Hedge", "does": "up to 3 attempts at once, the next after what 90 % of calls take",
             "attempts": 3},
        ),
        (
            Bulkhead.per_key("k", 2, key=str, max_waiting=1, max_wait=3),
            {"kind": "KeyedPolicy", "does": "for each key: 2 at once, 1 more wait up to 3 s", "waits": 3,
             "holds": True},
        ),
        (Mine(), {"kind": "Mine"}),
        (type("Retry", (), {"name": "of my own"})(), {"kind": "Retry"}),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else None,
)  # fmt: skip
def test_what_a_plan_knows_of_a_policy(policy: Any, known: dict[str, Any]) -> None:
    assert {"name": policy.name, **known} == facts(step_of(policy))


def test_what_a_pipeline_knows_is_added() -> None:
    assert 7 == step_of(Timeout("t", 2), made=7).made
    assert ("p",) == step_of(Mine(), shared_with=("p",)).shared_with


def test_a_long_series_is_added_up_step_by_step() -> None:
    series = Retry("r", on=OSError, attempts=1001, backoff=exponential(1, 1.001, 1e9))

    assert (1.001**1000 - 1) / 0.001 == pytest.approx(step_of(series).sleeps)


def soon(step: int, rng: Any) -> float:
    return 1.0


class Soon:
    def __call__(self, step: int, rng: Any) -> float:
        return 1.0


class ASecond(Soon):
    def __str__(self) -> str:
        return "a second"


@pytest.mark.parametrize(
    ("backoff", "apart"),
    [(soon, "as far apart as soon() says"), (Soon(), "as far apart as Soon() says"), (ASecond(), "a second apart")],
)
def test_a_backoff_of_the_users_is_named_and_nobody_knows_how_long_it_waits(backoff: Any, apart: str) -> None:
    step = step_of(Retry("r", on=OSError, backoff=backoff))

    assert (f"up to 3 attempts on OSError, {apart}", math.inf) == (step.does, step.sleeps)
