"""A configuration: the policies of a file, checked as a whole, before anything is made of it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from halfopen._core.checking import nearest
from halfopen._runtime.keyed import KeyedPolicy
from halfopen.config.forms import Reader, named, place_mistakes
from halfopen.config.items import Findings, Item, is_list, plain
from halfopen.config.notations import Reference
from halfopen.config.resilience4j import is_resilience4j, translated
from halfopen.config.settings import KEYED_FIELDS, KINDS, PolicyKind, Site
from halfopen.config.sources import is_yaml, read_text, read_toml, substituted
from halfopen.config.templates import Templates
from halfopen.config.yaml_source import read_yaml
from halfopen.errors import ConfigError
from halfopen.retry import RetryBudget

__all__ = ["Configuration", "Entry", "Note", "document", "load"]


@dataclass(frozen=True, slots=True)
class Note:
    """
    Something a reader of the file should know although it is no mistake.

    Attributes:
        path: Where.
        text: What.
        line: Its line, where known.
    """

    path: str
    text: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """
    One policy of a file.

    Attributes:
        kind: What it is.
        name: Its name; with a ``*`` it is a family.
        values: Its settings as the constructor takes them, those of its templates included.
        given: The same as they stand in the file.
        line: Where it begins, if known.
    """

    kind: PolicyKind
    name: str
    values: Mapping[str, Any]
    given: Mapping[str, Any]
    line: int | None = None
    place: Item = field(repr=False, compare=False)

    @property
    def keyed(self) -> bool:
        """Whether it is a family with one policy for each key."""
        return self.kind.keyed and "*" in self.name

    @property
    def title(self) -> str:
        """Kind and name, as a pipeline refers to it: ``breaker.payments``."""
        return f"{self.kind.section}.{self.name}"

    def make(self, site: Site) -> Any:
        """Make the policy; of a family, the one that serves as its template."""
        return self.kind.make(self.name, {k: v for k, v in self.values.items() if k not in self.family}, site)

    @property
    def family(self) -> dict[str, Any]:
        """What is set on the family rather than on its members."""
        return {key: self.values[key] for key in KEYED_FIELDS if self.keyed and key in self.values}

    def references(self) -> Iterator[Reference]:
        """Yield the other policies it names."""
        for value in self.values.values():
            for part in value if is_list(value) else [value]:
                if isinstance(part, Reference):
                    yield part


@dataclass(frozen=True, slots=True)
class Configuration:
    """
    The policies of a file.

    Attributes:
        file: Its name.
        entries: The policies; what others refer to comes first.
        notes: What has no exact twin here, for a file of resilience4j.
    """

    file: str
    entries: tuple[Entry, ...]
    notes: tuple[Note, ...] = ()

    def find(self, section: str, name: str) -> Entry | None:
        """Return one entry; None if there is none."""
        return next((e for e in self.entries if e.kind.section == section and e.name == name), None)


def load(
    path: str | os.PathLike[str],
    *,
    names: Mapping[str, Any] | None = None,
    imports: bool = True,
    environment: Mapping[str, str] | None = None,
) -> Configuration:
    """
    Read and check a file: `halfopen.toml`, the same as YAML, or the YAML of resilience4j.

    Args:
        path: The file; its name says what it is: ``.yml`` and ``.yaml`` are YAML, all else TOML.
        names: Objects that the file may name, such as classifiers.
        imports: Whether modules that the file names (``"module:attribute"``) are imported. Without, the result is for
            looking at, not for use.
        environment: For ``${NAME}``; default that of the process.

    Raises:
        ConfigError: Something is wrong; every mistake is named, in the order of the file, with path and line.
    """
    findings = Findings(os.fspath(path))
    root, notes = document(path, findings, environment)
    if root is None:
        findings.done()
        return Configuration(findings.file, ())
    entries = _entries(root, Reader(findings, names or {}, imports))
    _check_references(entries, _declared(root), findings)
    findings.done()
    return Configuration(findings.file, tuple(entries), tuple(notes))


def document(
    path: str | os.PathLike[str], findings: Findings, environment: Mapping[str, str] | None = None
) -> tuple[Item | None, list[Note]]:
    """Return the document of a file in our own notation, whatever it was written in, and what got lost."""
    text = read_text(path, findings)
    if text is None:
        return None, []
    variables = os.environ if environment is None else environment
    if not is_yaml(findings.file):
        root = read_toml(text, findings)
        return (None if root is None else substituted(root, variables, findings)), []
    documents = read_yaml(text, findings)
    if documents is None:
        return None, []
    if is_resilience4j(documents):
        filled = [substituted(each, variables, findings, spring=True) for each in documents]
        root, lost = translated(filled, findings)
        return root, sorted((Note(*each) for each in lost), key=lambda note: note.line or 0)
    if len(documents) > 1:
        findings.unreadable("it holds more than one YAML document; a configuration is one", documents[1].line)
        return None, []
    return (substituted(documents[0], variables, findings) if documents else Item({}, ())), []


# Entries

_NO_POLICIES = ("template", "gateway", "partner")  # the gateway reads its own two, by `document`


def _entries(root: Item, reader: Reader) -> list[Entry]:
    findings = reader.findings
    if not root.is_table:
        if root.value is not None:
            findings.wrong(root, "a table of policies by kind and name, such as [breaker.payments]")
        return []
    for section, item in root.value.items():
        if section not in KINDS and section not in _NO_POLICIES:
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
        if key not in items:
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


def _check_references(entries: list[Entry], declared: set[str], findings: Findings) -> None:
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
    if not given:
        words = "there are none: a pipeline needs at least one policy"
        findings.wrong(pipeline.place, words, "missing", below="policies")


def _note_missing(to: Reference, title: str, pipeline: bool, known: set[str], findings: Findings) -> None:
    if to.section not in KINDS:
        near = nearest(to.section, KINDS)
        suggestion = f"{near}.{to.name}" if near else None
        what = f"there is no kind of policy {to.section!r}"
    else:
        suggestion = nearest(title, known)
        what = f"there is no {title}"
    if suggestion is not None and not pipeline:
        suggestion = suggestion.partition(".")[2]
    hint = f"; did you mean {suggestion}?" if suggestion else ""
    findings.wrong(to.item, f"{what} in this file{hint}", "missing", suggestion=suggestion)
