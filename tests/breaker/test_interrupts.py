"""A signal at any instruction leaves no lock held and no permit lost; in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SOURCE = str(HERE.parents[1] / "src")

STYLES = [
    "decorator",
    "function",
    "call",
    "coroutine",
    "acall",
    "generator",
    "async_generator",
    "block",
    "result_block",
    "two_step",
    "abandoning",
    "listening",
    "backoff",
    "timer",
    "among_threads",
]
INTERRUPTS = int(os.environ.get("HALFOPEN_INTERRUPTS", "600"))

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers here")


@pytest.mark.parametrize("style", STYLES)
def test_interrupts_at_random_instants_do_no_harm(style: str) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / "interrupt_storm.py"), style, "1", str(INTERRUPTS)],
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert 0 == run.returncode, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    assert found["interrupts"] >= INTERRUPTS
    assert ("closed", False, None) == (found["state"], found["stuck"], found["error"]), found["look"]
    assert (0, True) == (found["in_flight"], found["balanced"])
    assert (found["heard"] > 0) == (style == "listening")
    # An interrupted trial call has no inside in which others would be guests.
    assert found["guests"] < 20
    if style != "abandoning":
        assert min(found["seen"].get(state, 0) for state in ("closed", "open", "half_open")) > 20, found["seen"]
