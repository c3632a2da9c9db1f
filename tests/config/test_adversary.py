"""Files that real programs have, and files that nobody should."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from halfopen import Mistake, Registry
from halfopen.config import Configuration, convert, load

Read = Callable[..., Configuration]
Mistakes = Callable[..., list[Mistake]]

BOTH_BULKHEADS = """\
resilience4j:
  bulkhead:
    configs:
      default: {maxConcurrentCalls: 100}
    instances:
      backendA: {maxConcurrentCalls: 10}
      plain: {}
  thread-pool-bulkhead:
    configs:
      default: {maxThreadPoolSize: 4, queueCapacity: 2}
    instances:
      backendA: {baseConfig: default}
      pooled: {}
"""


def limits(configuration: Configuration) -> dict[str, Any]:
    return {entry.name: entry.values["limit"] for entry in configuration.entries if entry.kind.section == "bulkhead"}


@pytest.mark.parametrize("swapped", [False, True])
def test_both_kinds_of_bulkheads_keep_their_own_defaults(read: Read, swapped: bool) -> None:
    text = BOTH_BULKHEADS
    if swapped:
        head, first, second = text.partition("  bulkhead:\n")
        plain, mark, pooled = second.partition("  thread-pool-bulkhead:\n")
        text = head + mark + pooled + first + plain

    found = limits(read(text, "application.yml"))

    assert {"backendA": 10, "plain": 100, "backendA-threads": 4, "pooled": 4} == found


def test_they_keep_them_when_converted(write: Callable[..., Any]) -> None:
    source = write(BOTH_BULKHEADS, "application.yml")

    target = write(convert(source)[0], "halfopen.toml")

    assert limits(load(source)) == limits(load(target))


def test_names_that_collide_twice_overwrite_nothing(read: Read) -> None:
    text = BOTH_BULKHEADS.replace("      plain: {}", "      backendA-threads: {maxConcurrentCalls: 7}")

    found = limits(read(text, "application.yml"))

    assert {"backendA": 10, "backendA-threads": 7, "backendA-threads-threads": 4, "pooled": 4} == found


@pytest.mark.parametrize("depth", [101, 400, 3000])
def test_tables_without_end_are_a_mistake(mistakes: Mistakes, depth: int) -> None:
    found = mistakes("breaker" + ".a" * depth + " = 1\n")

    assert ["not a configuration: nested too deeply"] == [mistake.allowed for mistake in found]


def test_a_variable_that_is_not_set_is_told_once(mistakes: Mistakes) -> None:
    found = mistakes('[timeout.payments]\nseconds = "${NO_SUCH_VARIABLE}"\n', environment={})

    assert ["timeout.payments.seconds"] == [mistake.path for mistake in found]


def test_a_list_is_no_configuration(mistakes: Mistakes) -> None:
    (found,) = mistakes("- breaker\n", "list.yaml")

    assert str(found).endswith(
        "list.yaml:1: the whole file has to be a table of policies by kind and name, such as [breaker.payments]"
    )


def test_a_name_with_control_characters_is_shown_in_one_line(mistakes: Mistakes) -> None:
    (found,) = mistakes('[breaker."a\\n\\u001b[31mb"]\nwindov = 3\n')

    assert 'breaker."a\\n\\u001b[31mb".windov' == found.path


def test_numbers_and_flags_in_quotation_marks_are_read_as_spring_reads_them(read: Read) -> None:
    # As templates of deployments write them: slidingWindowSize: "{{ .Values.window }}"
    instance = """\
resilience4j.circuitbreaker.instances.partner:
  slidingWindowSize: {q}20{q}
  minimumNumberOfCalls: {q}5{q}
  failureRateThreshold: {q}62.5{q}
  waitDurationInOpenState: {q}1500{q}
  automaticTransitionFromOpenToHalfOpenEnabled: {q}true{q}
"""

    bare, quoted = (read(instance.format(q=quote), "application.yml").find("breaker", "partner") for quote in ("", '"'))

    assert bare is not None
    assert quoted is not None
    assert bare.values == quoted.values
    assert (1.5, 0.625) == (quoted.values["wait_in_open"], quoted.values["failure_rate_threshold"])


def test_a_text_that_is_no_number_is_still_a_mistake(mistakes: Mistakes) -> None:
    (found,) = mistakes(
        'resilience4j.circuitbreaker.instances.partner: {slidingWindowSize: "twenty"}\n', "application.yml"
    )

    assert ("resilience4j.circuitbreaker.instances.partner.slidingWindowSize", "twenty") == (found.path, found.value)


def test_a_key_without_a_value_sets_nothing(read: Read) -> None:
    text = """\
resilience4j.circuitbreaker:
  configs:
    default: {slidingWindowSize: 20, minimumNumberOfCalls: 7}
  instances:
    partner:
      minimumNumberOfCalls:
      ignoreExceptions:
"""

    configuration = read(text, "application.yml")

    partner = configuration.find("breaker", "partner")
    assert partner is not None
    assert 7 == partner.values["minimum_calls"]
    assert not [note for note in configuration.notes if "None" in note.text]


def test_a_list_may_be_written_by_its_indices(read: Read) -> None:
    text = """\
resilience4j.circuitbreaker.instances.partner:
  recordExceptions[0]: java.io.IOException
  recordExceptions[1]: java.util.concurrent.TimeoutException
"""

    partner = read(text, "application.yml").find("breaker", "partner")

    assert partner is not None
    assert (OSError, TimeoutError) == partner.values["on"]


def chained(numbers: Iterable[int], bases: int = 1) -> str:
    tables = "".join(
        f"[template.breaker.t{n}]\ntemplate = {[f't{n - 1}'] * bases}\n".replace("'", '"') for n in numbers
    )
    return "[template.breaker.t0]\nminimum_calls = 7\n" + tables


@pytest.mark.parametrize("numbers", [range(1, 3000), range(2999, 0, -1)], ids=["forwards", "backwards"])
def test_templates_of_templates_without_end_are_a_mistake(mistakes: Mistakes, numbers: Iterable[int]) -> None:
    found = mistakes(chained(numbers))

    assert {"templates inherit through at most 100 others"} == {mistake.allowed for mistake in found}


def test_a_template_that_is_inherited_along_many_ways_is_worked_out_once(read: Read) -> None:
    text = chained(range(1, 60), bases=2) + '[breaker.payments]\ntemplate = "t59"\n'

    payments = read(text).find("breaker", "payments")

    assert payments is not None
    assert 7 == payments.values["minimum_calls"]


def test_a_file_of_repetitions_is_read_in_one_go(mistakes: Mistakes) -> None:
    began = time.thread_time()

    (found,) = mistakes("[breaker.a]\n" * 40_000)

    assert time.thread_time() - began < 20
    assert "the table is given twice; the first time in line 1" == found.allowed


def test_a_retry_watches_the_breaker_around_it_again_when_the_file_names_none(write: Callable[..., Any]) -> None:
    named = """\
[breaker.around]
[breaker.other]
[retry.payments]
on = "ConnectionError"
breaker = "other"
[pipeline.payments]
policies = ["breaker.around", "retry.payments"]
"""
    registry = Registry.from_file(write(named))
    retry, around = registry["retry.payments"], registry["breaker.around"]

    write(named.replace('breaker = "other"\n', ""))
    registry.reload()

    assert around is retry.breaker
    assert () == registry["pipeline.payments"].lint()
