"""A forked child has working policies, whatever the parent's threads held."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from halfopen.retry import Retry, RetryBudget
from halfopen.timeout import Timeout

budget = RetryBudget()
retry = Retry("r", on=OSError, backoff=0, budget=budget)
timeout = Timeout("t", 5, worker_thread=True)
timeout.call(int)
answers = [OSError(), None]

def flaky():
    answer = answers.pop(0)
    if answer is not None:
        raise answer
    return "fine"

held = [retry._host.tally._lock, budget._lock, timeout._lock, timeout._threads._lock]
for lock in held:
    lock.acquire()
child = os.fork()
if child == 0:
    ok = timeout.call(retry.call, flaky) == "fine" and retry.snapshot().retries == 1
    os._exit(0 if ok else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_locks_and_threads_of_the_parent_do_not_hang_the_child() -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, timeout=240, check=False
    )

    assert (0, "") == (ended.returncode, ended.stderr)
