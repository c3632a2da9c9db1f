"""Turn the YAML of resilience4j, or any configuration, into a `halfopen.toml`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path as FilePath

from halfopen.config.configuration import Note
from halfopen.config.items import Findings
from halfopen.config.loading import document, load
from halfopen.config.toml_text import to_toml

__all__ = ["convert"]


def convert(
    path: str | os.PathLike[str], *, environment: Mapping[str, str] | None = None
) -> tuple[str, tuple[Note, ...]]:
    """
    Return a file as the text of a `halfopen.toml`, and a note for each setting that has no exact twin.

    The notes stand in the text as well, as comments before what they are about.

    Args:
        path: The YAML of resilience4j, or a configuration of ours in YAML or TOML.
        environment: For ``${NAME}``, whose present values are written out.

    Raises:
        ConfigError: Something is wrong; every mistake is named.
    """
    known = load(path, imports=False, environment=environment)
    findings = Findings(os.fspath(path))
    root, notes = document(path, findings, environment)
    findings.done()
    assert root is not None
    head = [f"Converted from {FilePath(path).name}."]
    if notes:
        head += ["", "What has no exact twin:"]
        head += [f"- {note.path}{_line(note)}: {note.text}" for note in notes]
    return to_toml(root, head), known.notes


def _line(note: Note) -> str:
    return "" if note.line is None else f" (line {note.line})"
