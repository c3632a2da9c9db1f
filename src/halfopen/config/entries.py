"""The policies of a document: each with its templates, and made once for a trial, so that constructors judge it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from halfopen._pipeline.parts import MOST_POLICIES
from halfopen._runtime.keyed import KeyedPolicy
from halfopen.config.configuration import Entry
from halfopen.config.forms import Reader, named, place_mistakes
from halfopen.config.items import Findings, Item, dotted, plain
from halfopen.config.notations import Reference
from halfopen.config.settings import KEYED_FIELDS, KINDS, PolicyKind, Site
from halfopen.config.templates import Templates
from halfopen.errors import ConfigError
from halfopen.retry import RetryBudget

__all__ = ["check_references", "read_entries"]


# Entries

_NO_POLICIES = ("template", "gateway", "partner")  # the gateway reads its own two, by `document`


def read_entries(root: Item, reader: Reader) -> list[Entry]:
    """Return the policies of a document that are right; note what is wrong with the others."""
    findings = reader.findings
    if not root.is_table:
        if root.value is not None:
            words = "the whole file has to be a table of policies by kind and name, such as [breaker.payments]"
            findings.wrong(root, words, "conflict")
        return []
    for section, item in root.value.items():
        # x- is for what only YAML anchors need.
        if section not in KINDS and section not in _NO_POLICIES and not section.startswith("x-"):
            findings.unknown(item, [*KINDS, *_NO_POLICIES])
    templates = Templates(root.value.get("template"), findings)
    _check_templates(templates, reader)
    found: list[Entry] = []
    for kind in KINDS.values():
        for name, item in _of_kind(root, kind, findings):
            entry = _entry(kind, name, item, templates.inherited(kind.section, item), reader)
            found += [entry] if entry is not None else []
    return found


def _of_kind(root: Item, kind: PolicyKind, findings: Findings) -> Iterator[tuple[str, Item]]:
    item = root.value.get(kind.section)
    if item is None:
        return
    if not item.is_table:
        findings.wrong(item, f"a table of policies by name: [{kind.section}.NAME]")
        return
    for name, below in item.table.items():
        if below.is_table:
            yield name, below
        else:
            findings.wrong(below, f"a table of settings: [{kind.section}.NAME]")


def _check_templates(templates: Templates, reader: Reader) -> None:
    for section, of_kind in templates.tables.items():
        kind = KINDS.get(section)
        for name, item in of_kind.items():
            if kind is None:
                reader.findings.unknown(Item(None, item.path[:2], item.line), KINDS)
            elif not item.is_table:
                reader.findings.wrong(item, f"a table of settings: [template.{section}.NAME]")
            else:
                _entry(kind, name, item, templates.inherited(section, item, (name,)), reader, template=True)


def _entry(
    kind: PolicyKind, name: str, where: Item, items: Mapping[str, Item], reader: Reader, *, template: bool = False
) -> Entry | None:
    before = len(reader.findings.mistakes)
    keyed = kind.keyed and ("*" in name or template)
    if kind.keyed and not keyed:
        # A template may serve families and single policies alike.
        items = {key: item for key, item in items.items() if key not in KEYED_FIELDS or item.path[0] != "template"}
    values = named(reader, items, {**kind.fields, **KEYED_FIELDS} if keyed else kind.fields)
    if not template:
        _check_name(kind, name, where, reader.findings)
        _check_required(kind, where, items, reader.findings)
    partial = template or len(reader.findings.mistakes) > before
    entry = Entry(
        kind=kind, name=name, values=values, given={k: plain(v) for k, v in items.items()}, line=where.line, place=where
    )
    stand_ins = {key: stand_in for key, (stand_in, _) in kind.required.items() if key not in values}
    try:
        _try_to_make(dataclasses.replace(entry, values={**values, **stand_ins}))
    except ConfigError as error:
        place_mistakes(reader, where, items, error.mistakes, partial=partial)
    return entry if len(reader.findings.mistakes) == before else None


def _check_name(kind: PolicyKind, name: str, where: Item, findings: Findings) -> None:
    if "*" in name and not kind.keyed:
        able = " and ".join(f"{each.section}s" for each in KINDS.values() if each.keyed)
        findings.wrong(where, f"a name with * makes one for each key, which only {able} can do", "conflict")
    elif name.count("*") > 1:
        findings.wrong(where, "a name has at most one * for the key, as in host:*", "conflict")
    elif not name:
        findings.wrong(where, "a policy needs a name that is not empty", "missing")


def _check_required(kind: PolicyKind, where: Item, items: Mapping[str, Item], findings: Findings) -> None:
    for key, (_, words) in kind.required.items():
        # Told already of a variable that is not set.
        if key not in items and dotted((*where.path, key)) not in findings.told:
            findings.wrong(where, words, "missing", below=key)


def _try_to_make(entry: Entry) -> None:
    if entry.kind.section == "pipeline":
        return  # made of policies, which must all be right first
    made = entry.make(Site(find=lambda reference: RetryBudget() if reference.section == "retry_budget" else None))
    if entry.keyed and entry.name.count("*") == 1:
        KeyedPolicy(entry.name, lambda _: made, **entry.family)


# References


def _declared(root: Item) -> set[str]:
    """Return the titles of all policies of the file, of those with mistakes too."""
    tables = {kind: root.value.get(kind) for kind in KINDS} if root.is_table else {}
    return {
        f"{kind}.{name}"
        for kind, table in tables.items()
        if table is not None and table.is_table
        for name in table.value
    }


def check_references(entries: list[Entry], root: Item, findings: Findings) -> None:
    """Note what names a policy that is not there, or cannot be there."""
    declared = _declared(root)
    made = {entry.title: entry for entry in entries}
    for entry in entries:
        pipeline = entry.kind.section == "pipeline"
        if pipeline:
            _check_parts(entry, findings)
        for to in entry.references():
            title = f"{to.section}.{to.name}"
            target = made.get(title)
            if pipeline and to.section in ("pipeline", "retry_budget"):
                findings.wrong(to.item, f"a pipeline is made of policies, and {title} is none", "conflict")
            elif title not in declared:
                _note_missing(to, title, pipeline, declared, findings)
            elif target is not None and target.keyed and "key" not in target.values:
                allowed = f"{title} is a family: say with its setting key which key a call has, or name one without *"
                findings.wrong(to.item, allowed, "conflict")


def _check_parts(pipeline: Entry, findings: Findings) -> None:
    given: set[str] = set()
    for part in pipeline.references():
        title = f"{part.section}.{part.name}"
        if title in given:
            findings.wrong(part.item, f"{title} is there twice; make a second one, or leave it out", "conflict")
        given.add(title)
    if len(given) > MOST_POLICIES:
        words = f"there are {len(given):,}: a pipeline has at most {MOST_POLICIES} policies"
        findings.wrong(pipeline.place, words, "conflict", below="policies", value=len(given))
    if not given:
        words = "there are none: a pipeline needs at least one policy"
        findings.wrong(pipeline.place, words, "missing", below="policies")


def _note_missing(to: Reference, title: str, pipeline: bool, known: set[str], findings: Findings) -> None:
    if to.section not in KINDS:
        near = findings.nearest(to.section, KINDS)
        suggestion = f"{near}.{to.name}" if near else None
        what = f"there is no kind of policy {to.section!r}"
    else:
        suggestion = findings.nearest(title, known)
        what = f"there is no {title}"
    if suggestion is not None and not pipeline:
        suggestion = suggestion.partition(".")[2]
    hint = f"; did you mean {suggestion}?" if suggestion else ""
    findings.wrong(to.item, f"{what} in this file{hint}", "missing", suggestion=suggestion)
