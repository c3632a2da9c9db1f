"""Read a file, check it as a whole, and name every mistake at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from halfopen.config.configuration import Configuration, Note
from halfopen.config.entries import check_references, read_entries
from halfopen.config.forms import Reader
from halfopen.config.items import Findings, Item
from halfopen.config.resilience4j import is_resilience4j, translated
from halfopen.config.sources import is_yaml, read_text, read_toml, substituted
from halfopen.config.yaml_source import read_yaml

__all__ = ["checked", "document", "load"]


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
    return checked(root, notes, findings, names=names, imports=imports)


def checked(
    root: Item | None,
    notes: list[Note],
    findings: Findings,
    *,
    names: Mapping[str, Any] | None = None,
    imports: bool = True,
) -> Configuration:
    """Check what `document` returned; the rest as `load`."""
    if root is None:
        findings.done()
        return Configuration(findings.file, ())
    entries = read_entries(root, Reader(findings, names or {}, imports))
    check_references(entries, root, findings)
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
