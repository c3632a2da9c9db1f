"""
Run the core's tests against each small error that mutmut knows to make in it, and name those that live.

``python -m tests.planted.mutation`` takes them all, and with names of modules, such as ``windows gcra``, or of single
mutants, such as ``windows.CountedCalls.add:3``, only those.

The tests are collected once. Forked workers then take one mutant after the other and run the tests that reach the
mutated function until one fails: first those that failed for another mutant of it, then the quick ones. That test must
pass again at once without the error; where it does not, a fresh worker tries the mutant anew. A worker that needs far
more processor time than a test needs without the error hangs: it is ended, and the mutant counts as killed. Chance is
seeded, so a run can be repeated. The exit code is 1 unless docs/correctness.md names exactly what lives.
"""

from __future__ import annotations

import argparse
import os
import sys

import pytest

from tests.planted.mutant_report import report
from tests.planted.mutant_trials import Campaign
from tests.planted.mutants import Mutant, modules, plant_all

TESTS = (
    "tests/core",
    "tests/conformance",
    *(f"tests/breaker/test_{name}.py" for name in ("quiet_failures", "settling")),
    "tests/instrumentation/test_estimate.py",
)
"""What decides about the breaker and takes seconds; tests of sockets, processes and files would run in vain."""

OF_POLICIES = (
    *(f"tests/core/test_{name}.py" for name in ("checking", "plans", "policies")),
    *(f"tests/policies/test_adaptive_concurrency{name}.py" for name in ("", "_limits")),
    *(f"tests/policies/test_{name}.py" for name in ("bulkhead_slots", "hedge", "hedge_core", "timeout")),
    *(f"tests/policies/test_rate_limiter{name}.py" for name in ("", "_gcra")),
    *(f"tests/policies/test_retry{name}.py" for name in ("", "_after", "_backoff", "_budget", "_decisions")),
    *(f"tests/pipeline/test_{name}.py" for name in ("lint", "pipeline")),
)
"""The same of the other policies, and of pipelines."""

POLICIES = frozenset({
    "attempts", "concurrency_limits", "gcra", "hedging", "histogram", "plan_pictures", "plan_steps", "plans",
    "retry_backoff", "retry_budget", "retry_settings", "slots", "time_limits",
})  # fmt: skip
"""The modules of the core that are theirs."""

ARGUMENTS = (
    "-q", "-s", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0",
    "-m", "not slow and not redis and not postgres and not browser", "-o", "timeout=30",
    "-W", "ignore::pytest.PytestAssertRewriteWarning",
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Run a campaign; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted.mutation", description=__doc__)
    parser.add_argument("wanted", nargs="*", help="modules of halfopen._core, or single mutants; default all modules")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--tests", nargs="*", help="in place of those chosen for the modules")
    options = parser.parse_args(arguments)
    wanted = options.wanted or modules()
    names = [*dict.fromkeys(name.partition(".")[0] for name in wanted)]
    planted = plant_all(names)
    tests = [*(OF_POLICIES if POLICIES & {*names} else ()), *(TESTS if {*names} - POLICIES else ())]
    campaign = Campaign([mutant for mutant in planted if _is_wanted(mutant, wanted)], options.workers)
    ended = pytest.main([*ARGUMENTS, *(options.tests or tests)], plugins=[campaign])
    if not campaign.sound:
        return int(ended) or 1
    return report(campaign.verdicts)


def _is_wanted(mutant: Mutant, wanted: list[str]) -> bool:
    return mutant.module in wanted or mutant.name.replace(" ", ":") in wanted


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
