"""Every code block of the README and the documentation runs, and says what the code says."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
import tomllib
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts),
]
RUNNABLE = ("python", "pycon", "toml", "console", "sh")
SHOWN_ONLY = ("text", "yaml", "json", "ini", "xml", "http", "promql", "diff", "mermaid", "")

_FENCE = re.compile(r"^(?P<fence>`{3,}|:{3,})(?P<info>[^\n]*)\n(?P<body>.*?)^(?P=fence)[ ]*$", re.MULTILINE | re.DOTALL)
_HIDDEN = re.compile(r"^<!-- python\n(?P<body>.*?)^-->$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    language: str
    body: str
    line: int


def blocks(text: str) -> list[Block]:
    """Return the code blocks of a page in order; a comment that opens with ``<!-- python`` runs unseen."""
    shown = [Block(_language(found["info"]), found["body"], _line(text, found)) for found in _FENCE.finditer(text)]
    hidden = [Block("python", found["body"], _line(text, found)) for found in _HIDDEN.finditer(text)]
    return sorted(shown + hidden, key=lambda block: block.line)


def _language(info: str) -> str:
    return re.sub(r"^\{(?:code-block|code)\}", "", info.strip()).strip()


def _line(text: str, found: re.Match[str]) -> int:
    return text.count("\n", 0, found.start("body")) + 1


def of(language: str, pages: list[Path] = PAGES) -> Iterator[tuple[Path, Block]]:
    for path in pages:
        for block in blocks(path.read_text(encoding="utf-8")):
            if block.language == language:
                yield path, block


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize(
    "path", [path for path in PAGES if list(of("python", [path])) or list(of("pycon", [path]))], ids=named
)
def test_the_python_blocks_of_a_page_run_in_order(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = types.ModuleType(f"page_{path.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, page.__name__, page)
    monkeypatch.chdir(tmp_path)

    for block in blocks(path.read_text(encoding="utf-8")):
        if block.language == "python":
            # Blank lines in front: a traceback then points at the page's own line.
            exec(compile("\n" * (block.line - 1) + block.body, str(path), "exec", dont_inherit=True), page.__dict__)
        elif block.language == "pycon":
            _check_session(block, page, path)


@pytest.mark.parametrize(
    "path", [path for path in PAGES if any("def test_" in block.body for _, block in of("python", [path]))], ids=named
)
def test_the_tests_that_a_page_shows_pass_with_the_plug_in(path: Path, tmp_path: Path) -> None:
    shown = "\n".join(block.body for _, block in of("python", [path]))
    (tmp_path / "test_page.py").write_text(shown, encoding="utf-8")

    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-W",
            "error",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            tmp_path,
            tmp_path,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == ran.returncode, ran.stdout + ran.stderr


def _check_session(block: Block, page: types.ModuleType, path: Path) -> None:
    session = doctest.DocTestParser().get_doctest(block.body, page.__dict__, path.name, str(path), block.line - 1)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(session, out=said.append, clear_globs=False)
    page.__dict__.update(session.globs)

    assert [] == said, "".join(said)


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_every_block_names_a_language_that_is_run_or_only_shown(path: Path) -> None:
    languages = {block.language for block in blocks(path.read_text(encoding="utf-8"))}

    unknown = {language for language in languages - {*RUNNABLE, *SHOWN_ONLY} if not language.startswith("{")}

    assert set() == unknown


def test_every_toml_block_parses() -> None:
    for path, block in of("toml"):
        try:
            tomllib.loads(block.body)
        except tomllib.TOMLDecodeError as mistake:
            pytest.fail(f"{named(path)}, block at line {block.line}: {mistake}")


def test_every_make_target_the_pages_name_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    text = "\n".join(path.read_text(encoding="utf-8") for path in PAGES)

    wanted = set(re.findall(r"(?:^|`|\$ )make ([a-z][a-z-]*)", text, re.MULTILINE))

    assert set() == wanted - targets


def test_every_command_the_pages_name_exists() -> None:
    import click

    from halfopen.cli import main

    text = "\n".join(block.body for language in ("console", "sh") for _, block in of(language))
    wanted = set(re.findall(r"^(?:\$ )?halfopen ([a-z][a-z-]*)", text, re.MULTILINE))

    assert isinstance(main, click.Group)
    assert set() == wanted - set(main.list_commands(click.Context(main)))


def test_the_diagram_of_the_states_is_the_table_of_moves() -> None:
    printed = subprocess.run(
        [sys.executable, ROOT / "docs" / "print_states.py", "--check"], capture_output=True, text=True, check=False
    )

    assert (0, "") == (printed.returncode, printed.stderr)


def test_every_link_to_a_file_of_the_repository_leads_somewhere() -> None:
    dead = [
        f"{named(path)}: {target}"
        for path in PAGES
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
        if "://" not in target and not target.startswith("mailto:") and not (path.parent / target).exists()
    ]

    assert [] == dead


def test_the_correctness_page_names_only_tests_that_exist() -> None:
    page = (ROOT / "docs" / "correctness.md").read_text(encoding="utf-8")

    missing = [
        f"{file}::{test}"
        for file, test in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)
        if not _defines(ROOT / file, test)
    ]

    assert [] == missing


def _defines(path: Path, test: str) -> bool:
    if not path.exists():
        return False
    return (
        not test
        or re.search(rf"^\s*(?:async )?(?:def|class) {test}\b|^{test}\b.*=", path.read_text("utf-8"), re.M) is not None
    )
