"""Every finding about a plan is told whole: which, about whom, why, and what to do instead."""

from __future__ import annotations

import math
from typing import Any

import pytest

from halfopen._core.plan_pictures import describe_mermaid, describe_text, worst_case
from halfopen._core.plans import Step, lint


def retry(name: str = "r", **facts: Any) -> Step:
    return Step(kind="Retry", name=name, **{"attempts": 3, "sleeps": 1.5, **facts})


def breaker(name: str = "cb", **facts: Any) -> Step:
    return Step(kind="CircuitBreaker", name=name, **{"lease": 5.0, **facts})


def timeout(seconds: float, name: str = "t", **facts: Any) -> Step:
    return Step(kind="Timeout", name=name, seconds=seconds, **{"trial_seconds": seconds, **facts})


def bulkhead(name: str = "b", **facts: Any) -> Step:
    return Step(kind="Bulkhead", name=name, holds=True, **facts)


def fallback(name: str = "f", **facts: Any) -> Step:
    return Step(kind="Fallback", name=name, **{"answers": True, **facts})


def hedge(name: str = "h", **facts: Any) -> Step:
    return Step(kind="Hedge", name=name, **{"attempts": 2, **facts})


@pytest.mark.parametrize(
    ("plan", "code", "policies", "message"),
    [
        (
            [retry(), breaker()],
            "retry_outside_breaker",
            ("r", "cb"),
            "Retry 'r' is outside CircuitBreaker 'cb': one call counts up to 3 times against the dependency, "
            "and when the circuit opens between two attempts the caller gets the refusal in place of the "
            "error. Put the retry inside the breaker; or give it total= to wait for the circuit, or "
            "ignore=CircuitOpenError",
        ),
        (
            [retry(attempts=math.inf, sleeps=math.inf), breaker()],
            "retry_outside_breaker",
            ("r", "cb"),
            "Retry 'r' is outside CircuitBreaker 'cb': one call counts once for each attempt against the "
            "dependency, and when the circuit opens between two attempts the caller gets the refusal in place"
            " of the error. Put the retry inside the breaker; or give it total= to wait for the circuit, or "
            "ignore=CircuitOpenError",
        ),
        (
            [breaker(), timeout(8.5)],
            "timeout_beyond_lease",
            ("cb", "t"),
            "Timeout 't' lets a trial call run 8.5 s, but CircuitBreaker 'cb' counts it as failed after 5 s: "
            "a slow recovery is taken for an outage. Give the timeout trial=5 or less, or the breaker a "
            "longer HalfOpen(trial_timeout=…)",
        ),
        (
            [breaker(lease=2.0), timeout(9, trial_seconds=3)],
            "timeout_beyond_lease",
            ("cb", "t"),
            "Timeout 't' lets a trial call run 3 s, but CircuitBreaker 'cb' counts it as failed after 2 s: a "
            "slow recovery is taken for an outage. Give the timeout trial=2 or less, or the breaker a longer "
            "HalfOpen(trial_timeout=…)",
        ),
        (
            [timeout(6.0, "total", trial_seconds=9), breaker(), timeout(7.0, "each")],
            "timeout_beyond_lease",
            ("cb", "total"),
            "Timeout 'total' lets a trial call run 6 s, but CircuitBreaker 'cb' counts it as failed after 5 "
            "s: a slow recovery is taken for an outage. Give the timeout trial=5 or less, or the breaker a "
            "longer HalfOpen(trial_timeout=…)",
        ),
        (
            [timeout(20, "total"), retry(), timeout(10, "each")],
            "attempts_beyond_total",
            ("total", "r", "each"),
            "3 attempts × 10 s (Timeout 'each') are 30 s, more than the 20 s that Timeout 'total' leaves for "
            "all of them: the last are cut short or never made. Allow 6.67 s for each, or fewer attempts",
        ),
        (
            [timeout(50, "total"), retry(total=10), timeout(5, "each"), timeout(4, "inner")],
            "attempts_beyond_total",
            ("r", "inner"),
            "3 attempts × 4 s (Timeout 'inner') are 12 s, more than the 10 s that Retry 'r' leaves for all of"
            " them: the last are cut short or never made. Allow 3.33 s for each, or fewer attempts",
        ),
        (
            [timeout(11, "total"), retry(total=50), timeout(4, "each")],
            "attempts_beyond_total",
            ("total", "r", "each"),
            "3 attempts × 4 s (Timeout 'each') are 12 s, more than the 11 s that Timeout 'total' leaves for "
            "all of them: the last are cut short or never made. Allow 3.67 s for each, or fewer attempts",
        ),
        (
            [bulkhead(), retry()],
            "bulkhead_outside_retry",
            ("b", "r"),
            "Bulkhead 'b' is outside Retry 'r': a call keeps its place while the retry sleeps, up to 1.5 s a "
            "call, and does nothing. Put it inside the retry, so that each attempt takes a place",
        ),
        (
            [bulkhead(), retry(sleeps=0.0)],
            "bulkhead_outside_retry",
            ("b", "r"),
            "Bulkhead 'b' is outside Retry 'r': a call keeps its place while the retry sleeps and does "
            "nothing. Put it inside the retry, so that each attempt takes a place",
        ),
        (
            [bulkhead(), retry(sleeps=math.inf)],
            "bulkhead_outside_retry",
            ("b", "r"),
            "Bulkhead 'b' is outside Retry 'r': a call keeps its place while the retry sleeps and does "
            "nothing. Put it inside the retry, so that each attempt takes a place",
        ),
        (
            [retry("a"), retry("b", attempts=2)],
            "nested_retries",
            ("a", "b"),
            "retries multiply: 3 × 2 = 6 attempts for one call, most of them in an outage. Keep one",
        ),
        (
            [retry("a", attempts=math.inf), retry("b")],
            "nested_retries",
            ("a", "b"),
            "retries multiply: any number × 3, without limit attempts for one call, most of them in an "
            "outage. Keep one",
        ),
        (
            [hedge(), retry()],
            "hedge_outside_retry",
            ("h", "r"),
            "Hedge 'h' is outside Retry 'r': 2 × 3 attempts for one call. Put it inside the retry, or keep one of them",
        ),
        (
            [hedge(), retry(attempts=math.inf)],
            "hedge_outside_retry",
            ("h", "r"),
            "Hedge 'h' is outside Retry 'r': 2 × any number attempts for one call. Put it inside the retry, "
            "or keep one of them",
        ),
        (
            [breaker(made=20)],
            "breaker_per_request",
            ("cb",),
            "20 breakers named 'cb' were made in this process: one that is made for each request never sees "
            "enough calls to open. Make it once, or ask a Registry for it",
        ),
        (
            [fallback(answers_refusals="swept"), timeout(1), breaker()],
            "fallback_hides_refusals",
            ("f", "cb"),
            "Fallback 'f' answers every error, so also the refusals of CircuitBreaker 'cb', and mistakes in "
            "the code: nobody who counts errors around this pipeline sees an open circuit. Name the errors, "
            "RejectedError among them if that is meant, and watch the rejections of the policies themselves",
        ),
        (
            [timeout(3, "o"), fallback("g"), fallback(answers_refusals="named"), breaker()],
            "fallback_hides_refusals",
            ("o", "f", "cb"),
            "Fallback 'f' answers the refusals of CircuitBreaker 'cb', and Timeout 'o' around it takes these "
            "answers for calls that were made. Put the fallback outside",
        ),
        (
            [breaker(), fallback()],
            "fallback_blinds",
            ("cb", "f"),
            "Fallback 'f' is inside CircuitBreaker 'cb', which sees good answers only and never opens. Put "
            "the fallback outside",
        ),
        (
            [retry(), fallback()],
            "fallback_blinds",
            ("r", "f"),
            "Fallback 'f' is inside Retry 'r', which sees good answers only and never tries again. Put the "
            "fallback outside",
        ),
        (
            [retry(shared_with=("p", "q"))],
            "shared_retry",
            ("r",),
            "Retry 'r' is used by pipeline 'p', 'q' as well, under another breaker, and it can watch only one"
            " of them. Make one Retry for each pipeline; what they may share is the RetryBudget",
        ),
        (
            [retry(watches="other")],
            "retry_watches_another_breaker",
            ("r",),
            "Retry 'r' was told to watch the breaker 'other', which is not the one around it here",
        ),
        (
            [bulkhead(), breaker("b"), bulkhead()],
            "same_name",
            ("b", "b"),
            "2 policies are Bulkhead 'b': errors, metrics and logs cannot tell them apart",
        ),
    ],
)
def test_a_finding_is_told_whole(plan: list[Step], code: str, policies: tuple[str, ...], message: str) -> None:
    [finding] = lint(plan)

    assert (code, policies, message) == (finding.code, finding.policies, finding.message)
    assert f"{code}: {message}" == str(finding)


@pytest.mark.parametrize(
    "plan",
    [
        [breaker(), retry()],
        [retry(attempts=1), breaker()],
        [retry(total=9), breaker()],
        [retry(heeds_refusals=True), breaker()],
        [timeout(3), retry(), breaker()],
        [breaker(), timeout(5)],
        [breaker(), timeout(9, trial_seconds=5)],
        [breaker(), timeout(9), timeout(4, "short")],
        [timeout(5), breaker()],
        [Step(kind="Mine", name="m"), timeout(99)],
        [timeout(30, "total"), retry(), timeout(10, "each")],
        [timeout(1, "total"), retry(attempts=math.inf), timeout(10, "each")],
        [timeout(1, "total"), retry(attempts=1), timeout(10, "each")],
        [retry(), timeout(10)],
        [timeout(1), retry()],
        [retry(), bulkhead()],
        [retry("a"), retry("b", attempts=1)],
        [hedge(), Step(kind="Mine", name="m", attempts=3)],
        [Step(kind="Mine", name="m", attempts=2), retry()],
        [breaker(made=19)],
        [Step(kind="Bulkhead", name="b", made=99)],
        [fallback(answers_refusals="swept"), timeout(1)],
        [breaker("inner"), timeout(1), fallback("f", answers=False, answers_refusals="swept")],
        [fallback("g"), fallback(answers_refusals="named"), breaker()],
        [fallback(answers_refusals="named"), breaker()],
        [timeout(1), fallback(), breaker()],
        [timeout(1), fallback()],
        [fallback(), breaker()],
        [bulkhead("x"), bulkhead("y"), breaker("x")],
    ],
)
def test_a_plan_without_a_mistake_has_no_finding(plan: list[Step]) -> None:
    assert () == lint(plan)


def test_findings_come_in_the_order_of_the_rules_and_each_pair_has_its_own() -> None:
    findings = lint([retry("a"), bulkhead(), fallback(answers_refusals="named"), retry("b"), breaker(), bulkhead("c")])

    assert [
        ("retry_outside_breaker", ("a", "cb")),
        ("retry_outside_breaker", ("b", "cb")),
        ("bulkhead_outside_retry", ("b", "b")),
        ("nested_retries", ("a", "b")),
        ("fallback_hides_refusals", ("b", "f", "cb")),
        ("fallback_blinds", ("a", "f")),
    ] == [(finding.code, finding.policies) for finding in findings]


@pytest.mark.parametrize(
    ("plan", "policies"),
    [
        ([timeout(6.0, "total", trial_seconds=1.0), breaker()], ("cb", "total")),
        ([breaker(), timeout(9.0), bulkhead()], ("cb", "t")),
        ([breaker(), timeout(8.0, "x"), timeout(8.0, "y")], ("cb", "x")),
        ([Step(kind="Mine", name="m"), breaker(), timeout(9.0)], ("cb", "t")),
    ],
)
def test_the_tightest_limit_around_or_inside_a_breaker_counts(plan: list[Step], policies: tuple[str, ...]) -> None:
    assert [("timeout_beyond_lease", policies)] == [(finding.code, finding.policies) for finding in lint(plan)]


@pytest.mark.parametrize(
    ("plan", "policies"),
    [
        ([timeout(20.0, "x"), timeout(20.0, "y"), retry(), timeout(10.0, "each")], ("x", "r", "each")),
        ([timeout(20.0, "x"), retry(), timeout(10.0, "each"), timeout(10.0, "same")], ("x", "r", "each")),
        ([Step(kind="Mine", name="m"), timeout(20.0, "x"), retry(), timeout(10.0, "each")], ("x", "r", "each")),
    ],
)
def test_the_first_of_two_equal_limits_of_all_attempts_is_named(plan: list[Step], policies: tuple[str, ...]) -> None:
    assert [("attempts_beyond_total", policies)] == [(finding.code, finding.policies) for finding in lint(plan)]


def test_each_policy_is_looked_at_though_one_before_has_nothing_to_tell() -> None:
    plan = [
        retry("a"),
        retry("b", total=10.0),
        fallback("c"),
        fallback("d", answers_refusals="swept"),
        breaker(),
        timeout(5),
    ]

    findings = {finding.code: finding.policies for finding in lint(plan)}

    assert ("b", "t") == findings["attempts_beyond_total"]
    assert ("d", "cb") == findings["fallback_hides_refusals"]


def test_each_fallback_that_hides_refusals_is_told() -> None:
    plan = [fallback("a", answers_refusals="swept"), fallback("b", answers_refusals="swept"), breaker()]

    assert [("a", "cb"), ("b", "cb")] == [finding.policies for finding in lint(plan)]


def test_a_step_that_may_refuse_is_known_by_its_lease_or_its_kind() -> None:
    assert [True, True, True, True, False, False] == [
        step.refuses
        for step in (
            breaker(), bulkhead(), Step(kind="RateLimiter", name="l"), Step(kind="AdaptiveConcurrency", name="a"),
            retry(), timeout(1),
        )
    ]  # fmt: skip


# What one call may come to


@pytest.mark.parametrize(
    ("plan", "attempts", "seconds"),
    [
        ([breaker()], 1, math.inf),
        ([timeout(3)], 1, 3.0),
        ([retry(), timeout(3)], 3, 10.5),
        ([retry()], 3, math.inf),
        ([retry(total=20.0), timeout(9)], 3, 20.0),
        ([retry(total=60.0), timeout(9)], 3, 28.5),
        ([retry(attempts=math.inf, sleeps=math.inf), timeout(9)], math.inf, math.inf),
        ([retry(attempts=math.inf, sleeps=math.inf, total=7.0), timeout(9)], math.inf, 7.0),
        ([timeout(8, "total"), retry(), timeout(3)], 3, 8.0),
        ([bulkhead(waits=2.0), timeout(3)], 1, 5.0),
        ([bulkhead(waits=math.inf), timeout(3)], 1, math.inf),
        ([hedge(), timeout(3)], 2, 3.0),
        ([retry(), hedge(), timeout(3)], 6, 10.5),
    ],
)
def test_the_worst_case_is_the_sum_of_what_each_policy_adds(plan: list[Step], attempts: float, seconds: float) -> None:
    assert (attempts, seconds) == worst_case(plan)


def test_the_text_lists_the_policies_and_the_worst_case() -> None:
    plan = [timeout(8.0, "total", does="8 s"), retry(does="up to 3 attempts"), breaker(), timeout(3.0, does="3 s")]

    assert describe_text("bank", plan) == (
        "pipeline 'bank', outermost first\n"
        "  1. Timeout 'total'      8 s\n"
        "  2. Retry 'r'            up to 3 attempts\n"
        "  3. CircuitBreaker 'cb'\n"
        "  4. Timeout 't'          3 s\n"
        "  5. the function\n"
        "one call: at most 3 attempts, 8 s"
    )


@pytest.mark.parametrize(
    ("plan", "most"),
    [
        ([breaker()], "1 attempt, without a limit in time"),
        ([timeout(3)], "1 attempt, 3 s"),
        ([hedge(), timeout(3)], "2 attempts, 3 s"),
        ([retry(), timeout(10 / 3)], "3 attempts, 11.5 s"),
        ([retry(sleeps=0.0), timeout(10 / 9)], "3 attempts, 3.333 s"),
        ([retry(attempts=math.inf, sleeps=math.inf)], "any number of attempts, without a limit in time"),
    ],
)
def test_the_text_ends_with_the_most_that_one_call_comes_to(plan: list[Step], most: str) -> None:
    assert f"one call: at most {most}" == describe_text("bank", plan).splitlines()[-1]


def test_the_numbers_of_ten_lines_stand_below_each_other() -> None:
    plan = [Step(kind="Mine", name=str(number)) for number in range(9)]

    lines = describe_text("bank", plan).splitlines()

    assert ["   1. Mine '0'", "   9. Mine '8'", "  10. the function"] == [lines[1], lines[9], lines[10]]


def test_the_chart_has_a_node_for_each_policy_and_an_arrow_for_each_way() -> None:
    plan = [retry('a "b" <c>', does="up to 3 attempts"), breaker("x#y\nz"), hedge(attempts=math.inf), hedge("i")]

    assert describe_mermaid("the <bank>", plan) == (
        "flowchart TB\n"
        '    caller(["the #lt;bank#gt;"]) --> p1\n'
        '    p1["<b>Retry</b> a #quot;b#quot; #lt;c#gt;<br/>up to 3 attempts"] -->|"up to 3 times"| p2\n'
        '    p2["<b>CircuitBreaker</b> x#35;y z"] --> p3\n'
        '    p3["<b>Hedge</b> h"] -->|"up to any number times"| p4\n'
        '    p4["<b>Hedge</b> i"] -->|"up to 2 times"| function\n'
        '    function(["the function"])'
    )
