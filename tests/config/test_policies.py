"""What a file makes: each kind of policy, templates, families, pipelines, and names of the program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halfopen import (
    CircuitBreaker,
    ConfigError,
    CountWindow,
    Failures,
    HalfOpen,
    Mistake,
    Outcome,
    Ramp,
    Registry,
    State,
    TimeWindow,
    constant,
    exponential,
)
from halfopen.config import Configuration
from halfopen.testing import FakeClock

Read = Callable[..., Configuration]
Mistakes = Callable[..., list[Mistake]]

EVERY_KIND = """
[retry_budget.shared]
share = "10%"
burst = 5
[breaker.payments]
window = { seconds = "1m", buckets = 6 }
minimum_calls = 10
failure_rate_threshold = "40%"
slow_call_rate_threshold = 0.8
slow_call_duration = "2s"
failure_count_threshold = 30
consecutive_failures = 7
wait_in_open = { first = "10s", factor = 3, cap = "5m", jitter = "20%" }
forget_after = 0
automatic_half_open = true
on = ["OSError", "halfopen:CallTimeoutError"]
ignore = "KeyError"
tags = { team = "billing" }
[breaker.payments.half_open]
permitted_calls = 4
max_concurrent_calls = 2
failure_rate_threshold = "50%"
trial_timeout = "20s"
max_duration = "2m"
after_max_duration = "closed"
[breaker.payments.ramp]
duration = "30s"
start = "5%"
[retry.payments]
on = ["ConnectionError"]
attempts = 5
backoff = { first = "50ms", factor = 2, cap = "1s", jitter = "equal" }
total = "10s"
budget = "shared"
breaker = "payments"
[timeout.payments]
seconds = "1m30s"
trial = 5
[bulkhead.payments]
limit = 8
max_waiting = 4
max_wait = "250ms"
[rate_limiter.payments]
rate = 100
per = "1m"
burst = 10
[fallback.payments]
on = ["OSError"]
links = [{ call = "builtins:repr" }, { value = { price = 0 } }]
[hedge.payments]
delay = { share = "99%", minimum = 30 }
budget = "5%"
[adaptive_concurrency.payments]
algorithm = { kind = "aimd", slow_after = "1s" }
max_limit = 50
[cache_fallback.payments]
on = ["OSError"]
max_age = "1h"
[pipeline.payments]
policies = [
  "fallback.payments", "breaker.payments", "retry.payments", "bulkhead.payments", "rate_limiter.payments",
  "timeout.payments",
]
"""


def test_every_kind_of_policy_is_made_as_it_is_set(write: Callable[..., Path]) -> None:
    registry = Registry.from_file(write(EVERY_KIND))

    breaker: CircuitBreaker = registry["breaker.payments"]
    settings = breaker.settings
    assert registry.circuit_breaker("payments") is breaker
    assert (TimeWindow(60, 6), 10, 0.4, 0.8, 2.0, 30, 7, 0, True) == (
        settings.window,
        settings.minimum_calls,
        settings.failure_rate_threshold,
        settings.slow_call_rate_threshold,
        settings.slow_call_duration,
        settings.failure_count_threshold,
        settings.consecutive_failures,
        settings.forget_after,
        settings.automatic_half_open,
    )
    assert exponential(10, 3, 300, 0.2) == settings.wait_in_open
    assert (
        HalfOpen(
            permitted_calls=4,
            max_concurrent_calls=2,
            failure_rate_threshold=0.5,
            trial_timeout=20,
            max_duration=120,
            after_max_duration=State.CLOSED,
        )
        == settings.half_open
    )
    assert Ramp(duration=30, start=0.05) == settings.ramp
    assert {"team": "billing"} == breaker.tags
    assert Outcome.IGNORED == breaker.classifier.of_exception(KeyError())
    assert Outcome.SUCCESS == breaker.classifier.of_exception(ValueError())
    assert Outcome.FAILURE == breaker.classifier.of_exception(ConnectionError())


def test_the_other_kinds_have_their_settings(write: Callable[..., Path]) -> None:
    registry = Registry.from_file(write(EVERY_KIND))

    retry = registry["retry.payments"]
    assert (5, 10.0, "0.05 s × 2 up to 1 s, equal jitter") == (
        retry.settings.attempts,
        retry.settings.total,
        str(retry.settings.backoff),
    )
    assert registry["retry_budget.shared"] is retry.settings.budget
    assert registry["breaker.payments"] is retry.breaker
    assert (90.0, 5) == (registry["timeout.payments"].settings.seconds, registry["timeout.payments"].settings.trial)
    assert 8 == registry["bulkhead.payments"].snapshot().limit
    assert (100, 60.0, 10) == _of(registry["rate_limiter.payments"].snapshot(), "rate", "per", "burst")
    assert {"price": 0} == registry["fallback.payments"]._links[1]
    assert 50 == registry["adaptive_concurrency.payments"]._settings["max_limit"]
    pipeline = registry["pipeline.payments"]
    assert [registry["fallback.payments"], registry["breaker.payments"], retry] == list(pipeline.policies[:3])
    assert "ok" == pipeline.call(lambda: "ok")


def _of(thing: Any, *names: str) -> tuple[Any, ...]:
    return tuple(getattr(thing, name) for name in names)


def test_yaml_says_the_same(read: Read) -> None:
    toml = read('[breaker.a]\nwindow = "60s"\nhalf_open = { max_duration = "none" }\n[retry.b]\non = ["OSError"]')
    yaml = read(
        "breaker:\n  a: {window: 60s, half_open: {max_duration: null}}\nretry:\n  b:\n    on: [OSError]\n",
        "halfopen.yml",
    )

    assert [dict(entry.values) for entry in toml.entries] == [dict(entry.values) for entry in yaml.entries]
    assert [1, 4] == [entry.line for entry in toml.entries]
    assert [2, 4] == [entry.line for entry in yaml.entries]


@pytest.mark.parametrize(
    ("value", "window"),
    [
        ("50", CountWindow(50)),
        ('"50s"', TimeWindow(50)),
        ("{ size = 7 }", CountWindow(7)),
        ("{ seconds = 30, buckets = 3 }", TimeWindow(30, 3)),
    ],
)
def test_a_bare_window_counts_calls_and_one_with_a_unit_is_time(read: Read, value: str, window: object) -> None:
    (entry,) = read(f"[breaker.a]\nwindow = {value}").entries

    assert window == entry.values["window"]


def test_a_wait_may_be_a_number_a_series_or_a_callable_of_the_program(read: Read) -> None:
    text = '[breaker.a]\nwait_in_open = "45s"\n[breaker.b]\nwait_in_open = "waits"'

    a, b = read(text, names={"waits": constant(3)}).entries

    assert (45.0, constant(3)) == (a.values["wait_in_open"], b.values["wait_in_open"])


def test_none_switches_a_rule_off(read: Read) -> None:
    (entry,) = read('[breaker.a]\nfailure_rate_threshold = "none"\nconsecutive_failures = 3').entries

    assert entry.values["failure_rate_threshold"] is None


def test_a_classifier_of_the_program_is_named(write: Callable[..., Path]) -> None:
    mine = Failures(on=KeyError)

    registry = Registry.from_file(write('[breaker.a]\nclassify = "mine"'), names={"mine": mine})

    assert registry.circuit_breaker("a").classifier is mine


def test_a_classifier_and_on_contradict_each_other(mistakes: Mistakes) -> None:
    (found,) = mistakes('[breaker.a]\non = ["OSError"]\nclassify = "mine"', names={"mine": Failures()})

    assert ("breaker.a.classify", "conflict") == (found.path, found.kind)


def test_the_program_brings_the_classifier_for_a_breaker_of_a_file(write: Callable[..., Path]) -> None:
    registry = Registry.from_file(write("[breaker.a]\nminimum_calls = 7"))
    mine = Failures(on=KeyError)

    breaker = registry.circuit_breaker("a", classify=mine)

    assert (7, mine) == (breaker.settings.minimum_calls, breaker.classifier)


def test_a_misspelt_exception_has_the_nearest_one(mistakes: Mistakes) -> None:
    (found,) = mistakes('[retry.a]\non = ["OSError", "ConectionError"]')

    assert ("retry.a.on.1", "ConnectionError", 2) == (found.path, found.suggestion, found.line)


def test_what_a_file_names_is_not_imported_where_that_is_not_wanted(read: Read) -> None:
    text = '[breaker.a]\non = ["nowhere:Error"]\nresult = "nowhere:function"\n[breaker.b]\nclassify = "nowhere:C"'

    configuration = read(text, imports=False)

    assert 2 == len(configuration.entries)
    with pytest.raises(ConfigError):
        read(text)


# Templates


def test_templates_are_inherited_and_tables_merged(read: Read) -> None:
    text = """
    [template.breaker.base]
    minimum_calls = 5
    half_open = { permitted_calls = 2, trial_timeout = "9s" }
    [template.breaker.slow]
    template = "base"
    slow_call_duration = "3s"
    [template.breaker.strict]
    minimum_calls = 8
    [breaker.a]
    template = ["slow", "strict"]
    half_open = { permitted_calls = 3 }
    """

    (entry,) = read(text).entries

    assert (8, 3.0, HalfOpen(permitted_calls=3, trial_timeout=9)) == (
        entry.values["minimum_calls"],
        entry.values["slow_call_duration"],
        entry.values["half_open"],
    )


def test_a_mistake_in_a_template_is_reported_once_where_it_stands(mistakes: Mistakes) -> None:
    found = mistakes(
        "[template.breaker.base]\nminimum_calls = 0\nwindo = 1\n"
        '[breaker.a]\ntemplate = "base"\n[breaker.b]\ntemplate = "base"\n'
    )

    assert [("template.breaker.base.minimum_calls", 2), ("template.breaker.base.windo", 3)] == [
        (m.path, m.line) for m in found
    ]


def test_a_template_nobody_uses_is_checked_too_but_need_not_be_complete(mistakes: Mistakes) -> None:
    (found,) = mistakes("[template.timeout.base]\ntrial = 0")

    assert "template.timeout.base.trial" == found.path


def test_a_circle_of_templates_is_reported_once(mistakes: Mistakes) -> None:
    (found,) = mistakes(
        '[template.breaker.a]\ntemplate = "b"\n[template.breaker.b]\ntemplate = "c"\n'
        '[template.breaker.c]\ntemplate = "a"\n[breaker.x]\ntemplate = "a"'
    )

    assert "conflict" == found.kind
    assert "a → b → c → a" in str(found)


def test_an_unknown_template_has_the_nearest_one(mistakes: Mistakes) -> None:
    (found,) = mistakes('[template.breaker.standard]\n[breaker.a]\ntemplate = "standart"')

    assert ("breaker.a.template", "missing", "standard", 3) == (found.path, found.kind, found.suggestion, found.line)


# Families


def test_a_name_with_a_star_makes_a_family(write: Callable[..., Path]) -> None:
    registry = Registry.from_file(
        write('[breaker."host:*"]\nminimum_calls = 4\nmax_keys = 9\n[bulkhead."host:*"]\nlimit = 2\n')
    )

    breaker = registry.circuit_breaker("host:example.com")

    assert ("host:example.com", 4) == (breaker.name, breaker.settings.minimum_calls)
    assert registry["breaker.host:*"]["example.com"] is breaker
    assert 2 == registry["bulkhead.host:*"]["example.com"].snapshot().limit


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[timeout."a*"]\nseconds = 1', "only breakers and bulkheads and rate_limiters"),
        ('[breaker."a*b*"]', "at most one *"),
        ('[breaker.""]', "not empty"),
        ('[breaker."a*"]\nmax_keys = 0', "from 1 to 1000000"),
        ("[breaker.a]\nmax_keys = 5", "no such setting"),
    ],
)
def test_a_name_that_cannot_be_is_a_mistake(mistakes: Mistakes, text: str, words: str) -> None:
    (found,) = mistakes(text)

    assert words in str(found)


def test_a_template_may_serve_families_and_single_breakers(read: Read) -> None:
    template = "[template.breaker.t]\nmax_keys = 7\n"

    family, single = read(template + '[breaker."a:*"]\ntemplate = "t"\n[breaker.b]\ntemplate = "t"').entries

    assert ({"max_keys": 7}, {}) == (family.family, single.family)


# Pipelines


@pytest.mark.parametrize(
    ("policies", "words", "suggestion"),
    [
        ('["breaker.paymets"]', "there is no breaker.paymets in this file", "breaker.payments"),
        ('["braker.payments"]', "there is no kind of policy 'braker'", "breaker.payments"),
        ('["payments"]', "a policy with its kind", None),
        ('["pipeline.a"]', "pipeline.a is none", None),
        ('["breaker.payments", "breaker.payments"]', "is there twice", None),
        ("[]", "at least one policy", None),
        ('"breaker.payments"', "a list of policies", None),
        ('["breaker.host:*"]', "say with its setting key", None),
    ],
)
def test_a_pipeline_is_made_of_policies_of_the_file(
    mistakes: Mistakes, policies: str, words: str, suggestion: str | None
) -> None:
    (found,) = mistakes(f'[breaker.payments]\n[breaker."host:*"]\n[pipeline.a]\npolicies = {policies}')

    assert words in str(found)
    assert suggestion == found.suggestion


def test_a_pipeline_may_name_a_policy_that_has_a_mistake_of_its_own(mistakes: Mistakes) -> None:
    (found,) = mistakes('[breaker.a]\nminimum_calls = 0\n[pipeline.a]\npolicies = ["breaker.a"]')

    assert "breaker.a.minimum_calls" == found.path


def test_a_family_with_a_key_is_a_part_of_a_pipeline(write: Callable[..., Path]) -> None:
    text = '[breaker."host:*"]\nkey = "host"\n[pipeline.a]\npolicies = ["breaker.host:*"]'
    registry = Registry.from_file(write(text), names={"host": lambda host: host})

    assert "example.com" == registry["pipeline.a"].call(str, "example.com")
    assert ["host:example.com"] == [breaker.name for breaker in registry.breakers()]


def test_a_registry_names_the_nearest_title(write: Callable[..., Path]) -> None:
    registry = Registry.from_file(write("[breaker.payments]"), clock=FakeClock())

    with pytest.raises(KeyError, match=r"no breaker.paiments; did you mean breaker\.payments"):
        registry["breaker.paiments"]
