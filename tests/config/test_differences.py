"""What two files set differently, and what a file looks like to people."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from halfopen.config import Configuration
from halfopen.config.describing import describe_mermaid, describe_plain, describe_text, findings
from halfopen.config.differences import differences

Read = Callable[..., Configuration]
CASE = Path(__file__).parent / "cases" / "application.yml"


def changes(read: Read, old: str, new: str) -> list[str]:
    return [str(each) for each in differences(read(old), read(new))]


def test_a_default_that_is_written_out_is_no_difference(read: Read) -> None:
    old = '[breaker.a]\n[retry.b]\non = ["OSError"]'
    new = '[breaker.a]\nwindow = 100\nfailure_rate_threshold = "50%"\nslow_call_duration = "1m"\n'

    assert [] == changes(read, old, new + '[retry.b]\non = "OSError"\nattempts = 3\n')


def test_each_changed_setting_is_named_with_both_values(read: Read) -> None:
    old = "[breaker.a]\nwindow = 100\nhalf_open = { permitted_calls = 3 }\n[timeout.b]\nseconds = 1\n[retry_budget.c]"
    new = '[breaker.a]\nwindow = "90s"\nhalf_open = { permitted_calls = 5 }\nwait_in_open = 5\n[timeout.d]\nseconds = 1'

    found = changes(read, old, new)

    assert "- timeout.b" in found
    assert "- retry_budget.c" in found
    assert "+ timeout.d" in found
    assert "~ breaker.a.window: CountWindow → TimeWindow" in found
    assert "~ breaker.a.window.seconds: not set → 1m30s" in found
    assert "~ breaker.a.half_open.permitted_calls: 3 → 5" in found
    assert "~ breaker.a.wait_in_open: Exponential → 5s" in found


def test_a_changed_template_shows_in_whoever_inherits_it(read: Read) -> None:
    text = '[template.breaker.t]\nminimum_calls = {}\n[breaker.a]\ntemplate = "t"\n[breaker.b]\ntemplate = "t"'

    found = changes(read, text.format(5), text.format(6))

    assert ["~ breaker.a.minimum_calls: 5 → 6", "~ breaker.b.minimum_calls: 5 → 6"] == found


def test_names_of_the_program_are_compared_by_name(read: Read) -> None:
    text = '[breaker.a]\nresult = "{}"\non = ["OSError"]\n[pipeline.p]\npolicies = ["breaker.a"]'

    assert ["~ breaker.a.result: builtins:bool → builtins:callable"] == changes(
        read, text.format("builtins:bool"), text.format("builtins:callable")
    )


PIPELINES = """
[breaker.a]
[retry.a]
on = ["OSError"]
[timeout.a]
seconds = 90
[pipeline."<p> function"]
policies = ["retry.a", "breaker.a", "timeout.a"]
[pipeline.q]
policies = ["timeout.a"]
"""


def test_policies_and_pipelines_are_described_as_text(read: Read) -> None:
    text = describe_text(read(PIPELINES))

    assert "timeout.a  90 s" in text
    assert "1. Retry 'a'" in text
    assert "pipeline 'q', outermost first" in text


def test_several_pipelines_make_one_flowchart_with_nodes_of_their_own(read: Read) -> None:
    chart = describe_mermaid(read(PIPELINES))

    nodes = re.findall(r"^ +(\w+)[\[(]", chart, re.MULTILINE)
    targets = re.findall(r"(\w+)$", "\n".join(line for line in chart.splitlines() if "-->" in line), re.MULTILINE)
    assert "flowchart TB" == chart.splitlines()[0]
    assert len(nodes) == len(set(nodes))
    assert set(targets) <= set(nodes)
    assert chart.count("subgraph") == chart.count("    end") == 2
    assert '(["the function"])' in chart
    assert "#lt;p#gt; function" in chart


def test_everything_is_described_as_plain_data(read: Read) -> None:
    data = json.loads(json.dumps(describe_plain(read(PIPELINES))))

    by_name = {(each["kind"], each["name"]): each for each in data["policies"]}
    assert "1m30s" == by_name["timeout", "a"]["settings"]["seconds"]
    assert ["timeout.a"] == by_name["pipeline", "q"]["policies"]
    assert 2 == by_name["breaker", "a"]["line"]


def test_what_is_unwise_about_a_pipeline_is_found(read: Read) -> None:
    found = findings(read(PIPELINES))

    assert {"pipeline.<p> function"} == {title for title, _ in found}
    assert len(found) >= 2
