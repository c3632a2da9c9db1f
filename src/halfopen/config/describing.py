"""The policies and pipelines of a configuration: as text, as a Mermaid flowchart, as plain data."""

from __future__ import annotations

import re
from typing import Any

from halfopen._core.plan_steps import step_of
from halfopen.config.applying import apply
from halfopen.config.configuration import Configuration, Entry
from halfopen.config.differences import effective
from halfopen.registry import Registry

__all__ = ["describe_mermaid", "describe_plain", "describe_text", "findings"]


def _made(configuration: Configuration) -> Registry:
    registry = Registry()
    apply(configuration, registry)
    return registry


def _does(entry: Entry, policy: Any) -> str:
    if entry.kind.section == "retry_budget":
        return f"retries at most {policy.share * 100:g} % of calls"
    return step_of(policy).does


def describe_text(configuration: Configuration) -> str:
    """Return one line for each policy, then the pipelines step by step."""
    registry = _made(configuration)
    policies = [entry for entry in configuration.entries if entry.kind.section != "pipeline"]
    width = max((len(entry.title) for entry in policies), default=0)
    lines = [f"{entry.title:<{width}}  {_does(entry, registry[entry.title])}".rstrip() for entry in policies]
    pipelines = [registry[entry.title] for entry in configuration.entries if entry.kind.section == "pipeline"]
    return "\n\n".join(["\n".join(lines), *(pipeline.describe() for pipeline in pipelines)]).strip("\n")


def describe_mermaid(configuration: Configuration) -> str:
    """Return a Mermaid flowchart with a part for each pipeline."""
    registry = _made(configuration)
    lines = ["flowchart TB"]
    number = 0
    for entry in configuration.entries:
        if entry.kind.section == "pipeline":
            number += 1
            chart = registry[entry.title].describe("mermaid").splitlines()[1:]
            lines.append(f'    subgraph s{number}["{_quoted(entry.name)}"]')
            lines += [*(f"    {_own(line, number)}" for line in chart), "    end"]
    if not number:
        loose = [e for e in configuration.entries if e.kind.section != "retry_budget"]
        lines += [f'    n{n}["{_quoted(e.title)}"]' for n, e in enumerate(loose, 1)]
    return "\n".join(lines)


_NODE = re.compile(r"^(\s*)(?=(?:caller|function|p\d+)\b)|(?<= )(?=(?:function|p\d+)$)")


def _own(line: str, number: int) -> str:
    """Give the nodes of a line names of their own, so that several charts fit into one."""
    return _NODE.sub(lambda found: f"{found[0]}s{number}_", line)


def _quoted(text: str) -> str:
    return text.replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")


def describe_plain(configuration: Configuration) -> dict[str, Any]:
    """Return everything as data that JSON can hold."""
    registry = _made(configuration)
    policies: list[dict[str, Any]] = []
    for entry in configuration.entries:
        policy = registry[entry.title]
        known: dict[str, Any] = {"kind": entry.kind.section, "name": entry.name, "line": entry.line}
        if entry.kind.section == "pipeline":
            known["policies"] = [f"{part.section}.{part.name}" for part in entry.references()]
            known["findings"] = [{"code": each.code, "message": each.message} for each in policy.lint()]
        else:
            known["does"] = _does(entry, policy)
            known["settings"] = effective(entry)
        policies.append(known)
    return {"file": configuration.file, "policies": policies}


def findings(configuration: Configuration) -> list[tuple[str, Any]]:
    """Return what `Pipeline.lint` finds, each with the pipeline's title."""
    pipelines = [entry.title for entry in configuration.entries if entry.kind.section == "pipeline"]
    if not pipelines:
        return []
    registry = _made(configuration)
    return [(title, finding) for title in pipelines for finding in registry[title].lint()]
