"""The page's JavaScript is checked for types, and the check would find a mistake."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STATIC = Path("src/halfopen/console/static")
TYPES = Path("tools/console-types")
COMMAND = [
    "check",
    "--no-remote",
    "--no-lock",
    "--quiet",
    "--config",
    str(TYPES / "deno.json"),
    str(STATIC / "page.js"),
]


def check(root: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    deno = shutil.which("deno", path=str(Path(sys.executable).parent)) or shutil.which("deno")
    if deno is None:
        pytest.fail("deno is missing: pip install deno", pytrace=False)
    environment = {**os.environ, "DENO_DIR": str(cache), "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}
    return subprocess.run([deno, *COMMAND], cwd=root, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_types_of_the_page_are_right_and_a_planted_mistake_is_found(tmp_path: Path) -> None:
    for folder in (STATIC, TYPES):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    right = check(tmp_path, tmp_path / "cache")
    module = tmp_path / STATIC / "page.js"
    planted = module.read_text(encoding="utf-8").replace("rate(b.asked_rate)", 'rate("many")')
    module.write_text(planted, encoding="utf-8")

    wrong = check(tmp_path, tmp_path / "cache")

    assert (0, "") == (right.returncode, right.stderr)
    assert 1 == wrong.returncode
    assert "Argument of type 'string' is not assignable to parameter of type 'number'" in wrong.stderr
