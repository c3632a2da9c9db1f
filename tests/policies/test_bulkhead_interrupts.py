"""Signals at random instants; in a process of its own, because the alarm clock is pytest's while tests run here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = str(Path(__file__).parents[2] / "src")
STORM = str(Path(__file__).with_name("interrupt_storm.py"))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers here")
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "kind", ["call", "block", "busy", "busy_block", "adaptive", "adaptive_block", "rate", "rate_block"]
)
def test_a_signal_at_any_moment_leaves_no_place_taken_and_nobody_waiting(kind: str) -> None:
    seconds = os.environ.get("HALFOPEN_INTERRUPT_SECONDS", "1.0")
    seed = os.environ.get("HALFOPEN_INTERRUPT_SEED", "1")

    run = subprocess.run(
        [sys.executable, STORM, kind, seed, seconds],
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        timeout=90 + float(seconds),
        check=False,
    )

    # A signal that hits a finalizer is reported there and goes no further.
    unexpected = [line for line in run.stderr.splitlines() if "Error" in line]
    assert (0, []) == (run.returncode, unexpected), run.stderr
    assert int(run.stdout) > 100
