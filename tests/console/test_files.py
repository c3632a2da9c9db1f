"""What the page is made of: libraries as published, colours that can be read, nothing inline."""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path

import pytest

import halfopen.console

STATIC = Path(halfopen.console.__file__).parent / "static"
VENDOR = STATIC / "vendor"
AXE = Path(__file__).parent / "axe"
OWN = sorted(STATIC.glob("*.js"))
CSS = (STATIC / "console.css").read_text(encoding="utf-8")

TEXTS = ("ink", "ink2", "ink3")
STATES = ("closed", "open", "half", "recovering", "forced", "off")


def listed(folder: Path) -> list[list[str]]:
    lines = (folder / "VENDORED.txt").read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.split("|")] for line in lines if not line.startswith("#")]


@pytest.mark.parametrize("folder", [VENDOR, AXE], ids=["console", "tests"])
def test_every_library_is_the_published_one_and_has_its_licence_beside_it(folder: Path) -> None:
    rows = listed(folder)

    for _, version, file, licence, checksum in rows:
        assert checksum == hashlib.sha256((folder / file).read_bytes()).hexdigest(), file
        assert re.fullmatch(r"\d+\.\d+\.\d+", version)
        assert (folder / licence).read_text(encoding="utf-8").strip()
    code = {path.name for path in folder.iterdir() if path.suffix in (".js", ".mjs", ".css")}
    assert code == {row[2] for row in rows}


def test_nothing_is_inline_and_nothing_comes_from_elsewhere() -> None:
    page = (STATIC / "index.html").read_text(encoding="utf-8")

    assert ["importmap", "module"] == re.findall(r'<script type="(\w+)"', page)
    assert not re.search(r"<style|\son\w+=|style=", page)
    for path in [STATIC / "index.html", STATIC / "console.css", *OWN]:
        foreign = re.findall(r"https?://[^\s\"'`)]+", path.read_text(encoding="utf-8"))
        assert [] == foreign, path.name


def test_no_module_writes_markup() -> None:
    for path in OWN:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text), path


def tokens(dark: bool) -> dict[str, str]:
    blocks = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    light = dict(re.findall(r"--([\w-]+): (#\w+)", blocks[0]))
    return {**light, **dict(re.findall(r"--([\w-]+): (#\w+)", blocks[1]))} if dark else light


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_pair_of_colours_that_carries_text_can_be_read(dark: bool) -> None:
    colour = tokens(dark)
    pairs = [(text, ground) for text in TEXTS for ground in ("card", "bg", "line2")]
    pairs += [(state, f"{state}-bg") for state in STATES] + [(state, "card") for state in STATES]
    # Inside the diagram's boxes stand the quieter inks too.
    pairs += [(text, f"{state}-bg") for text in ("ink", "ink2") for state in STATES]
    pairs += [("accent", "card"), ("accent", "bg"), ("on-accent", "accent"), ("open", "bg"), ("half", "line2")]

    weak = {pair: round(contrast(colour[pair[0]], colour[pair[1]]), 2) for pair in pairs}

    assert {} == {pair: ratio for pair, ratio in weak.items() if ratio < 4.5}


def test_every_file_of_the_page_is_under_version_control_and_so_in_the_wheel() -> None:
    root = Path(__file__).parents[2]
    if not (root / ".git").exists() or root not in STATIC.parents:
        pytest.skip("this is no checkout")
    listed_files = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "src/halfopen/console/static"],
        cwd=root,
        capture_output=True,
        check=True,
    ).stdout.decode()

    there = {path.relative_to(root).as_posix() for path in STATIC.rglob("*") if path.is_file()}

    assert there == {name for name in listed_files.split("\0") if name}
