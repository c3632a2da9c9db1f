"""The repository keeps its own promises: names, layers, what is packed, and nothing of anybody's machine."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import halfopen

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "halfopen"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def tracked() -> list[Path]:
    """Return the files under version control, or all that would be where git or the repository is absent."""
    try:
        listed = subprocess.run(
            ["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        skip = {".git", "build", "dist", "_build", "mutants", "__pycache__", "node_modules"}
        found = (path for path in ROOT.rglob("*") if path.is_file())
        return [path for path in found if not skip & {*path.parts} and ".venv" not in str(path)]
    paths = (ROOT / name for name in listed.stdout.decode().split("\0") if name)
    return [path for path in paths if path.is_file()]


def lines_with(pattern: str, *, but_not: tuple[str, ...] = ()) -> list[str]:
    """Return every line of the tracked text files that matches, as ``file:line: text``."""
    wanted = re.compile(pattern)
    found = []
    for path in tracked():
        if path == Path(__file__) or path.name in but_not:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if wanted.search(text):
            shown = [(number, line) for number, line in enumerate(text.splitlines(), 1) if wanted.search(line)]
            found += [f"{path.relative_to(ROOT)}:{number}: {line[:200]}" for number, line in shown]
    return found


# Public names


def test_the_public_names_are_listed_by_hand_and_sorted() -> None:
    names = [name for name in halfopen.__all__ if not name.startswith("__")]

    assert sorted(names) == names
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", sorted(halfopen.__all__))
def test_a_public_name_exists_and_is_documented(name: str) -> None:
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("policies/*.md")]

    assert hasattr(halfopen, name)
    assert any(re.search(rf"\b{re.escape(name)}\b", page.read_text(encoding="utf-8")) for page in pages)


def test_what_has_a_body_among_the_public_names_has_a_docstring() -> None:
    def bare(thing: object) -> bool:
        return (isinstance(thing, type) or callable(thing)) and not (thing.__doc__ or "").strip()

    assert [] == [name for name in halfopen.__all__ if bare(getattr(halfopen, name))]


# Layers


def lint_imports(src: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts of pyproject.toml over the package under *src*."""
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from importlinter.cli import lint_imports_command as run; run()",
            "--no-cache",
        ],
        cwd=src.parent,
        env={**os.environ, "PYTHONPATH": str(src)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Give a copy of the sources to plant forbidden imports in."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path / "src"


def test_the_layers_hold(copy: Path) -> None:
    checked = lint_imports(copy)

    assert 0 == checked.returncode, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("module", "planted", "broken"),
    [
        ("_core/states.py", "import time", "The core has no clock"),
        ("_core/circuit.py", "import random", "The core has no clock"),
        ("_core/states.py", "import halfopen._runtime.clock", "Each module imports only"),
        ("errors.py", "import halfopen._core.states", "Each module imports only"),
        ("circuit_breaker.py", "import httpx", "Optional libraries"),
    ],
)
def test_a_planted_forbidden_import_is_caught(copy: Path, module: str, planted: str, broken: str) -> None:
    victim = copy / "halfopen" / module
    victim.write_text(victim.read_text(encoding="utf-8") + f"\n{planted}\n", encoding="utf-8")

    checked = lint_imports(copy)

    assert 1 == checked.returncode, checked.stdout + checked.stderr
    assert re.search(rf"{broken}.* BROKEN", checked.stdout)


def test_a_module_without_a_layer_is_caught(copy: Path) -> None:
    (copy / "halfopen" / "stray.py").write_text("", encoding="utf-8")

    assert 1 == lint_imports(copy).returncode


def test_importing_halfopen_loads_nothing_from_outside_the_standard_library() -> None:
    program = (
        "import sys; before = set(sys.modules); import halfopen; "
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert ["halfopen"] == [name for name in loaded if name not in sys.stdlib_module_names]


def test_every_module_opens_with_its_purpose() -> None:
    silent = [
        path.relative_to(ROOT).as_posix()
        for path in SRC.rglob("*.py")
        if path.read_text(encoding="utf-8").strip()
        and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]

    assert [] == silent


def test_every_folder_of_modules_is_a_package_that_the_layers_see() -> None:
    folders = {path.parent for path in SRC.rglob("*.py")}

    assert [] == [folder.relative_to(ROOT).as_posix() for folder in folders if not (folder / "__init__.py").exists()]


# Packing


def test_the_package_knows_its_own_version() -> None:
    assert PROJECT["project"]["version"] == halfopen.__version__


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of what it needs."""
    where = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, where)
    shutil.copytree(ROOT / "src", where / "src", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--wheel-dir",
            "dist",
            ".",
        ],
        cwd=where,
        check=True,
        capture_output=True,
    )
    return next((where / "dist").glob("halfopen-*.whl"))


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    wanted = {
        path.relative_to(ROOT / "src").as_posix()
        for path in SRC.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert wanted == packed
    assert "halfopen/py.typed" in packed


def test_the_wheel_declares_licence_python_extras_and_entry_points(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    read = {
        name.rpartition("/")[2]: archive.read(name).decode() for name in archive.namelist() if ".dist-info/" in name
    }

    assert "License-Expression: MIT" in read["METADATA"]
    assert "Requires-Python: >=3.11" in read["METADATA"]
    assert not re.search(r"^Requires-Dist: (?!.*extra ==)", read["METADATA"], re.MULTILINE)
    assert set(PROJECT["project"]["optional-dependencies"]) == set(
        re.findall(r"Provides-Extra: (\S+)", read["METADATA"])
    )
    assert "halfopen = halfopen.cli:main" in read["entry_points.txt"]
    assert "halfopen = halfopen.pytest_plugin" in read["entry_points.txt"]
    assert "MIT License" in read["LICENSE"]


def test_the_wheel_alone_gives_a_working_breaker(wheel: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(wheel)!r}); import halfopen; "
        "breaker = halfopen.CircuitBreaker('db'); print(breaker.call(str.upper, 'ok'), halfopen.__file__)"
    )

    said = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True).stdout

    assert said.startswith(f"OK {wheel}")


def test_the_entry_points_lead_to_modules_that_exist() -> None:
    for target in ("cli", "pytest_plugin"):
        assert (SRC / f"{target}.py").exists() or (SRC / target / "__init__.py").exists()


def test_only_lower_bounds_stand_in_the_extras() -> None:
    extras = PROJECT["project"]["optional-dependencies"]

    assert [] == [
        line for lines in extras.values() for line in lines if not re.fullmatch(r"[\w\[\]-]+>=[\d.]+(?: ; .+)?", line)
    ]


# Nothing of anybody's machine


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    assert [] == lines_with(r"/(?:home|Users)/\w+/|/root/|/work/(?:main|shared)|C:\\Users")


def test_no_file_names_a_package_index_or_a_download_address() -> None:
    assert [] == lines_with(r"(?i)pythonhosted|pypi\.org/simple|--(?:extra-)?index-url|--find-links|registry\.npmjs")


def test_there_are_no_lock_files() -> None:
    locks = {"uv.lock", "poetry.lock", "Pipfile.lock", "pdm.lock", "package-lock.json", "yarn.lock", "pnpm-lock.yaml"}

    assert [] == [path.name for path in tracked() if path.name in locks]


@pytest.mark.parametrize("name", ["dev", "mutants", "rivals", "niquests"])
def test_the_pinned_requirements_hold_versions_and_hashes_and_no_address(name: str) -> None:
    text = (ROOT / f"requirements-{name}.txt").read_text(encoding="utf-8")
    entries = [line for line in text.splitlines() if re.match(r"[a-z0-9]", line)]

    assert entries
    assert [] == [line for line in entries if not re.match(r"[\w.-]+==\S+ (?:;.* )?\\$", line)]
    assert [] == re.findall(r"://.*", text)
    assert [] == re.findall(r"^(?:-i|--).*", text, re.MULTILINE)


def test_the_pinned_requirements_cover_every_extra_and_group() -> None:
    pinned = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements-dev.txt").read_text(encoding="utf-8"), re.MULTILINE))
    extras = [line for lines in PROJECT["project"]["optional-dependencies"].values() for line in lines]
    groups = PROJECT["dependency-groups"]
    grouped = [line for name in ("test", "check", "docs", "build") for line in groups[name]]

    wanted = {re.match(r"[\w.-]+", line)[0].lower() for line in extras + grouped}  # type: ignore[index]  # always matches

    assert set() == wanted - pinned


def test_each_changelog_fragment_is_of_a_known_kind() -> None:
    kinds = {kind["directory"] for kind in PROJECT["tool"]["towncrier"]["type"]}
    fragments = [path for path in (ROOT / "changelog.d").iterdir() if path.name not in ("README.md", ".gitignore")]

    assert [] == [
        path.name
        for path in fragments
        if not re.fullmatch(rf"\+?[\w-]+\.(?:{'|'.join(kinds)})(?:\.\d+)?\.md", path.name)
    ]


# Commands


def test_every_make_target_explains_itself() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^\.PHONY: (\S+)", makefile, re.MULTILINE))

    explained = set(re.findall(r"^([a-z-]+):.*## \S", makefile, re.MULTILINE))

    assert targets == explained
    assert {"help", "demo", "test", "check", "bench", "rivals", "docs"} <= explained


def test_the_scripts_are_executable_and_parse() -> None:
    for name, shell in ((".ci/run", "bash"), ("tools/find-python", "sh")):
        parsed = subprocess.run([shell, "-n", ROOT / name], capture_output=True, text=True, check=False)

        assert (0, "") == (parsed.returncode, parsed.stderr)
        assert os.access(ROOT / name, os.X_OK)
