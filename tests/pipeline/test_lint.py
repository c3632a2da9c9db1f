"""Each mistake in an order is named with its reason, and nothing else is."""

from __future__ import annotations

import gc
import re
from pathlib import Path
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
    Finding,
    HalfOpen,
    Hedge,
    Pipeline,
    RateLimiter,
    RejectedError,
    Retry,
    RetryBudget,
    Timeout,
    TimeWindow,
)
from halfopen._core import plans
from halfopen.retry import decorrelated_jitter, exponential


def a_breaker(name: str = "cb", **settings: Any) -> CircuitBreaker:
    # Not by its constructor, which remembers how many of a name were made in this process.
    template = CircuitBreaker(f"template {name} {sorted(settings)}", **settings)
    return CircuitBreaker.from_settings(name, template.settings)


def a_retry(name: str = "r", **settings: Any) -> Retry:
    return Retry(name, **{"on": ConnectionError, **settings})


def found(*policies: Any) -> list[tuple[str, tuple[str, ...]]]:
    return [(finding.code, finding.policies) for finding in Pipeline(*policies).lint()]


def only(*policies: Any) -> Finding:
    [finding] = Pipeline(*policies).lint()
    return finding


def test_the_recommended_order_has_no_findings() -> None:
    policies = (
        Fallback("f", None, on=(ConnectionError, RejectedError)),
        Timeout("total", 30),
        a_breaker(),
        a_retry(attempts=3),
        RateLimiter("l", 100),
        Bulkhead("b", 10),
        Timeout("each", 5),
    )

    assert [] == found(*policies)


def test_a_retry_outside_a_breaker() -> None:
    finding = only(a_retry(attempts=4), a_breaker())

    assert ("retry_outside_breaker", ("r", "cb")) == (finding.code, finding.policies)
    assert "counts up to 4 times against the dependency" in finding.message
    assert str(finding).startswith("retry_outside_breaker: Retry 'r' is outside CircuitBreaker 'cb': ")


@pytest.mark.parametrize(
    "policies",
    [
        (a_retry(total=60), a_breaker()),
        (Timeout("t", 40), a_retry(), a_breaker()),
        (a_retry(ignore=CircuitOpenError), a_breaker()),
        (a_retry(ignore=(KeyError, RejectedError)), a_breaker()),
        (a_breaker(), a_retry()),
        (a_retry(attempts=1), a_breaker()),
    ],
)
def test_a_retry_that_was_told_what_to_do_with_refusals_is_none(policies: Any) -> None:
    assert [] == found(*policies)


def test_a_timeout_longer_than_the_lease_of_a_trial_call() -> None:
    finding = only(a_breaker(half_open=HalfOpen(trial_timeout=5)), Timeout("t", 8))

    assert ("timeout_beyond_lease", ("cb", "t")) == (finding.code, finding.policies)
    assert "lets a trial call run 8 s, but CircuitBreaker 'cb' counts it as failed after 5 s" in finding.message


@pytest.mark.parametrize(
    "timeouts",
    [
        (Timeout("t", 5),),
        (Timeout("t", 8, trial=5),),
        (Timeout("long", 8), Timeout("short", 3)),
    ],
)
def test_a_timeout_within_the_lease_is_none(timeouts: Any) -> None:
    assert [] == found(a_breaker(half_open=HalfOpen(trial_timeout=5)), *timeouts)


def test_a_total_outside_the_breaker_bounds_a_trial_call_too() -> None:
    breaker = a_breaker(half_open=HalfOpen(trial_timeout=5))

    assert [] == found(Timeout("total", 5), breaker, Timeout("each", 8))
    assert ["timeout_beyond_lease"] == [code for code, _ in found(Timeout("total2", 6, trial=1), breaker)]


def test_attempts_times_timeout_beyond_the_total() -> None:
    finding = only(Timeout("total", 20), a_retry(attempts=3), Timeout("each", 10))

    assert ("attempts_beyond_total", ("total", "r", "each")) == (finding.code, finding.policies)
    assert "3 attempts × 10 s (Timeout 'each') are 30 s, more than the 20 s" in finding.message
    assert "Allow 6.67 s for each" in finding.message


def test_attempts_times_timeout_beyond_the_retrys_own_total() -> None:
    assert [("attempts_beyond_total", ("r", "each"))] == found(a_retry(total=29), Timeout("each", 10))
    assert [] == found(a_retry(total=30), Timeout("each", 10))
    assert [] == found(a_retry(total=5, attempts=None), Timeout("each", 10))


@pytest.mark.parametrize("holder", [Bulkhead("h", 3), AdaptiveConcurrency("h")])
def test_a_bulkhead_outside_a_retry(holder: Any) -> None:
    finding = only(holder, a_retry(attempts=3, backoff=2))

    assert ("bulkhead_outside_retry", ("h", "r")) == (finding.code, finding.policies)
    assert "while the retry sleeps, up to 4 s a call," in finding.message


def test_a_keyed_bulkhead_outside_a_retry() -> None:
    assert ["bulkhead_outside_retry"] == [
        code for code, _ in found(Bulkhead.per_key("h:*", 3, key=lambda host: host), a_retry())
    ]


def test_nested_retries_multiply() -> None:
    finding = only(a_retry("outer"), a_retry("inner"))

    assert ("nested_retries", ("outer", "inner")) == (finding.code, finding.policies)
    assert "3 × 3 = 9 attempts" in finding.message


def test_nested_retries_are_found_in_nested_pipelines() -> None:
    finding = only(a_retry("a", attempts=2), Pipeline(a_retry("b", attempts=None, total=3), name="inner"))

    assert "2 × any number, without limit attempts" in finding.message


def test_a_hedge_outside_a_retry() -> None:
    assert [("hedge_outside_retry", ("h", "r"))] == found(Hedge("h", 0.1), a_retry())
    assert [] == found(a_retry(), Hedge("h", 0.1))


def test_a_breaker_made_for_each_request() -> None:
    for _ in range(20):
        pipeline = Pipeline(CircuitBreaker("made for each request"), Timeout("t", 5))

    [finding] = pipeline.lint()

    assert ("breaker_per_request", ("made for each request",)) == (finding.code, finding.policies)
    assert "20 breakers named 'made for each request' were made" in finding.message


@pytest.mark.parametrize(
    "fallback", [Fallback("f", 1, on=Exception), CacheFallback("f", on=(KeyError, Exception), max_age=9)]
)
def test_a_fallback_that_sweeps_up_refusals(fallback: Any) -> None:
    finding = only(fallback, a_breaker())

    assert ("fallback_hides_refusals", ("f", "cb")) == (finding.code, finding.policies)
    assert "answers every error, so also the refusals of CircuitBreaker 'cb'" in finding.message


def test_a_fallback_whose_answers_another_policy_takes_for_calls() -> None:
    policies = (AdaptiveConcurrency("a"), Fallback("f", 1, on=(OSError, CircuitOpenError)), a_breaker())

    finding = only(*policies)

    assert ("fallback_hides_refusals", ("a", "f", "cb")) == (finding.code, finding.policies)
    assert "AdaptiveConcurrency 'a' around it takes these answers for calls that were made" in finding.message


def test_a_fallback_that_names_refusals_or_does_not_answer_them_hides_none() -> None:
    assert [] == found(Fallback("f", 1, on=(OSError, RejectedError)), a_breaker())
    assert [] == found(RateLimiter("l", 5), Fallback("f", 1, on=OSError), a_breaker())
    assert [] == found(Fallback("f", 1, on=Exception), Timeout("t", 5))


@pytest.mark.parametrize("judge", [a_breaker("j"), a_retry("j")])
def test_a_fallback_inside_what_looks_for_failures(judge: Any) -> None:
    assert [("fallback_blinds", ("j", "f"))] == found(judge, Fallback("f", 1, on=OSError))


def test_one_retry_under_two_breakers() -> None:
    retry = a_retry()
    first = Pipeline(a_breaker("a"), retry, name="first")
    second = Pipeline(a_breaker("b"), retry, name="second")

    findings = [*first.lint(), *second.lint()]

    assert [("shared_retry", ("r",))] * 2 == [(finding.code, finding.policies) for finding in findings]
    assert "used by pipeline 'second' as well, under another breaker" in findings[0].message
    assert "used by pipeline 'first' as well" in findings[1].message


def test_a_retry_shared_where_the_same_breaker_is_around_it_is_none() -> None:
    retry, breaker = a_retry(), a_breaker()
    first, second = Pipeline(breaker, retry), Pipeline(breaker, retry, Timeout("t", 5))

    assert ((), ()) == (first.lint(), second.lint())


def test_a_pipeline_and_its_part_do_not_share() -> None:
    inner = Pipeline(a_retry(), Timeout("t", 5), name="inner")
    outer = Pipeline(a_breaker(), inner, name="outer")

    assert ((), ()) == (inner.lint(), outer.lint())


def test_a_pipeline_that_is_gone_shares_nothing() -> None:
    retry = a_retry()
    Pipeline(a_breaker("a"), retry)
    gc.collect()

    assert [] == found(a_breaker("b"), retry)


def test_a_retry_that_was_told_another_breaker() -> None:
    told = a_breaker("told")

    assert [("retry_watches_another_breaker", ("r",))] == found(a_breaker("around"), a_retry(breaker=told))
    assert [] == found(told, a_retry(breaker=told))


def test_two_policies_of_one_kind_and_name() -> None:
    assert [("same_name", ("t", "t"))] == found(Timeout("t", 9), a_breaker(), Timeout("t", 5))


def test_settings_changed_later_are_seen() -> None:
    each = Timeout("each", 10)
    pipeline = Pipeline(a_retry(total=40), each)
    before = pipeline.lint()

    each.configure(seconds=20)

    assert ((), "attempts_beyond_total") == (before, pipeline.lint()[0].code)


def test_a_policy_of_the_users_own_means_no_finding() -> None:
    class Own:
        name = "own"

        def call(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

        async def acall(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            return await fn(*args, **kwargs)

        def __call__(self, fn: Any) -> Any:
            return fn

    pipeline = Pipeline(Own(), a_breaker())

    assert () == pipeline.lint()
    assert "1. Own 'own'" in pipeline.describe()


# Describing


def test_the_text_names_each_policy_and_the_most_that_a_call_may_come_to() -> None:
    pipeline = Pipeline(
        Fallback("prices", None, on=(ConnectionError, RejectedError)),
        a_breaker("prices"),
        a_retry("prices", attempts=3, backoff=exponential(0.1), budget=RetryBudget(0.2)),
        Bulkhead("prices", 10, max_waiting=5, max_wait=0.5),
        Timeout("prices", 2, trial=1),
        name="prices",
    )

    assert [
        "pipeline 'prices', outermost first",
        "  1. Fallback 'prices'        another answer on ConnectionError, RejectedError",
        "  2. CircuitBreaker 'prices'  opens when 50 % of the last 100 calls failed, then 3 trial calls",
        "  3. Retry 'prices'           up to 3 attempts on ConnectionError, 0.1 s × 2 up to 10 s, full jitter apart, "
        "retries at most 20 % of calls",
        "  4. Bulkhead 'prices'        10 at once, 5 more wait up to 0.5 s",
        "  5. Timeout 'prices'         2 s, 1 s for a trial call",
        "  6. the function",
        "one call: at most 3 attempts, 7.8 s",
    ] == pipeline.describe().splitlines()


@pytest.mark.parametrize(
    ("policies", "most"),
    [
        ((a_breaker(),), "1 attempt, without a limit in time"),
        ((a_retry(),), "3 attempts, without a limit in time"),
        ((Timeout("t", 3), a_retry()), "3 attempts, 3 s"),
        ((a_retry(attempts=None, total=9), Timeout("t", 2)), "any number of attempts, 9 s"),
        ((a_retry(attempts=4, backoff=1), Timeout("t", 2)), "4 attempts, 11 s"),
        ((a_retry(backoff=decorrelated_jitter(1, 5)), Timeout("t", 2)), "3 attempts, 16 s"),
        ((a_retry(attempts=2, backoff=halfopen.exponential(10, jitter=0.5)), Timeout("t", 2)), "2 attempts, 19 s"),
        ((a_retry(attempts=2, backoff=halfopen.constant(3)), Timeout("t", 2)), "2 attempts, 7 s"),
        ((a_retry(attempts=10**9, backoff=1), Timeout("t", 1)), "1e+09 attempts, 2e+09 s"),
        ((a_retry(backoff=lambda step, rng: 1), Timeout("t", 2)), "3 attempts, without a limit in time"),
        ((a_retry(), Hedge("h", 0.1), Timeout("t", 2)), "6 attempts, 6.3 s"),
        ((Bulkhead("b", 2, max_waiting=9), Timeout("t", 2)), "1 attempt, without a limit in time"),
    ],
)
def test_the_most_that_a_call_may_come_to(policies: Any, most: str) -> None:
    assert f"one call: at most {most}" == Pipeline(*policies).describe().splitlines()[-1]


@pytest.mark.parametrize(
    ("policy", "does"),
    [
        (a_breaker("x", window=TimeWindow(60), minimum_calls=9), "50 % of the last 60 s failed, then"),
        (
            a_breaker("x", failure_rate_threshold=None, failure_count_threshold=5, consecutive_failures=3),
            "5 of the last 100 calls failed or 3 failed in a row",
        ),
        (
            a_breaker("x", failure_rate_threshold=None, slow_call_rate_threshold=0.8),
            "80 % of the last 100 calls were slow",
        ),
        (a_breaker("x", half_open=HalfOpen(permitted_calls=1)), "of the last 100 calls failed, then 1 trial call\n"),
        (RateLimiter("x", 10, 60, max_wait=2), "10 in 60 s, waits up to 2 s"),
        (AdaptiveConcurrency("x", max_limit=90), "1 to 90 at once, by latency"),
        (CacheFallback("x", on=OSError, max_age=60), "the last good answer on OSError, at most 60 s old"),
        (Fallback("x", 1, 2, on=OSError), "one of 2 answers in turn on OSError"),
        (Hedge("x"), "up to 2 attempts at once, the next after what 95 % of calls take"),
        (Timeout("x", 2, worker_thread=True), "2 s, on one of 16 threads"),
        (Bulkhead.per_key("x", 2, key=str), "for each key: 2 at once"),
        (Retry("x", on=(), result=bool, attempts=None, total=5), "any number of attempts on results, "),
    ],
)
def test_what_each_policy_does(policy: Any, does: str) -> None:
    assert does in Pipeline(policy).describe()


def test_the_mermaid_chart_has_a_node_for_each_policy_and_escapes_names() -> None:
    pipeline = Pipeline(a_breaker('a "b" <c>'), a_retry(), Timeout("t", 2), name="#1")

    lines = pipeline.describe("mermaid").splitlines()

    assert ["flowchart TB", '    caller(["#35;1"]) --> p1'] == lines[:2]
    assert "a #quot;b#quot; #lt;c#gt;<br/>" in lines[2]
    assert lines[3].endswith('-->|"up to 3 times"| p3')
    assert '    p3["<b>Timeout</b> t<br/>2 s"] --> function' == lines[4]
    assert '    function(["the function"])' == lines[5]


def test_another_form_is_refused() -> None:
    with pytest.raises(ConfigError, match='form is "text" or "mermaid"'):
        Pipeline(a_breaker()).describe("svg")  # type: ignore[arg-type]


def test_the_chart_on_the_page_is_the_one_that_the_page_describes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text(encoding="utf-8")
    first = re.search(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert first is not None
    names: dict[str, Any] = {}

    exec(first[1], names)

    assert f"```mermaid\n{names['prices'].describe('mermaid')}\n```" in page


def test_the_page_explains_every_finding() -> None:
    page = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text(encoding="utf-8")
    rules = Path(plans.__file__).read_text(encoding="utf-8")

    codes = set(re.findall(r'^ {12,20}"([a-z_]+)",$|_finding\(\n\s+"([a-z_]+)"', rules, re.MULTILINE))

    assert set() == {code for pair in codes for code in pair if code} - set(
        re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE)
    )
