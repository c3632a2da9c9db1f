"""How Sphinx builds these pages."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

_PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = "halfopen"
author = "The halfopen maintainers"
copyright = "The halfopen maintainers, MIT licence"
version = release = _PROJECT["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
suppress_warnings = ["ref.python"]  # several classes have a `name`

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "separated"
autodoc_preserve_defaults = True
napoleon_use_ivar = True
default_role = "code"  # docstrings put names between single backticks

html_theme = "furo"
html_title = "halfopen"
html_static_path = ["_static"]


def _fences(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Turn the Markdown fences of docstrings into what docutils understands."""
    found: list[str] = []
    inside = None
    for line in lines:
        if line.lstrip().startswith("```"):
            indent = line[: len(line) - len(line.lstrip())]
            inside = None if inside is not None else indent
            found += ["", f"{indent}.. code-block:: {line.strip()[3:] or 'text'}", ""] if inside is not None else [""]
        else:
            found.append(line if inside is None else "    " + line)
    lines[:] = found


def setup(app: Sphinx) -> None:
    """Join in before the Google sections are read."""
    app.connect("autodoc-process-docstring", _fences, priority=400)
    app.add_lexer("mermaid", TextLexer)  # Pygments has none; GitHub draws it
