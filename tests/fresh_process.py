"""Run a function of a test in a process that does nothing else: memory there is its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["in_fresh_process"]

ROOT = Path(__file__).parents[1]
PROGRAM = """
import importlib, json, sys
module, name, arguments = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
print(json.dumps(getattr(importlib.import_module(module), name)(*arguments)))
"""


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a module's *function*; arguments and result go through JSON."""
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, function.__module__, function.__name__, json.dumps(arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == ran.returncode, ran.stderr
    return json.loads(ran.stdout)
