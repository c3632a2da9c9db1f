"""
Run the core's tests against each small error that mutmut knows to make in it, and name those that live.

``python -m tests.planted.mutation`` takes them all, and with names of modules, such as ``windows gcra``, or of single
mutants, such as ``windows.CountedCalls.add:3``, only those.

The tests are collected once, in one process. It then forks a child for each mutant, which runs the tests that reach
the mutated function until one fails: first those that failed for another mutant of it, then the quick ones. A child
that needs far more processor time than the test needs without the error hangs: it is ended and counted as killed.
Chance is seeded, so a run can be repeated. The exit code is 1 unless docs/correctness.md names exactly what lives.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.planted.mutant_report import ALIVE, HUNG, KILLED, NO_TEST, report
from tests.planted.mutants import Mutant, modules, plant_all, watch

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

MEMORY = 4 << 30
"""Bytes of address space for a mutant."""


@dataclass(frozen=True)
class Reach:
    """How long a test takes, in seconds of processor time, and which mutated functions it calls."""

    seconds: float
    functions: frozenset[str]


@dataclass(frozen=True)
class Trial:
    """A child that runs tests against a mutant, and the pipe on which it tells of each that it begins."""

    mutant: Mutant
    tests: list[pytest.Item]
    told: int


class Campaign:
    """A pytest plugin that runs the collected tests once for each mutant, in forked children."""

    def __init__(self, mutants: list[Mutant], workers: int) -> None:
        self._mutants = mutants
        self._workers = workers
        self._reach: dict[str, Reach] = {}
        # By function, the tests that have ended a mutant of it, the latest last: likely to end the next one.
        self._killers: dict[str, list[str]] = {}
        self._failed = False
        self.verdicts: dict[Mutant, str] = {}
        self.sound = False

    def pytest_configure(self) -> None:
        """Let Hypothesis neither shrink nor remember what fails: that it fails is all that counts here."""
        from hypothesis import Phase, settings

        settings.register_profile("mutants", phases=[Phase.explicit, Phase.generate], database=None)
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Take the place of the one run through all tests."""
        if not session.testsfailed:
            say(f"{len(session.items)} tests against {len(self._mutants)} mutants")
            self._measure(session.items)
            self._run_all(session.items)
            # What kills without an error, such as a source that was changed meanwhile, has proved nothing.
            _, status = os.waitpid(_child(lambda: self._control(session.items)), 0)
            self.sound = status == 0
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember that something failed."""
        self._failed = self._failed or report.failed

    # What a child does

    def _write_reach(self, items: list[pytest.Item], file: Path) -> int:
        functions = {mutant.where: mutant.function for mutant in self._mutants}
        seen: set[str] = set()
        for where, function in functions.items():
            watch(function, where, seen)
        reach: dict[str, tuple[float, list[str]]] = {}
        for item, following in zip(items, [*items[1:], None], strict=True):
            seen.clear()
            began = time.process_time()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            # A test that looks at the code itself may fail when it is watched; it is taken to reach everything.
            reached = functions.keys() if self._failed else seen
            self._failed = False
            reach[item.nodeid] = (time.process_time() - began, sorted(reached))
        file.write_text(json.dumps(reach), encoding="utf-8")
        return 0

    def _control(self, items: list[pytest.Item]) -> int:
        """Run the tests without any error; return 1 if one fails all the same."""
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                say(f"fails without any error planted: {item.nodeid}")
                return 1
        return 0

    def _try(self, mutant: Mutant, tests: list[pytest.Item], tells: int) -> int:
        """Run the tests of one mutant, telling of each when it begins; return the exit code."""
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        mutant.begin()
        for test, following in zip(tests, [*tests[1:], None], strict=True):
            os.write(tells, b".")
            signal.setitimer(signal.ITIMER_PROF, 3 + 10 * self._reach[test.nodeid].seconds)
            test.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
            if self._failed:
                return 1
        return 0

    # What the parent does

    def _measure(self, items: list[pytest.Item]) -> None:
        """Run every test once without an error, in a child, to learn what it reaches."""
        with tempfile.NamedTemporaryFile() as file:
            os.waitpid(_child(lambda: self._write_reach(items, Path(file.name))), 0)
            measured = json.loads(Path(file.name).read_text(encoding="utf-8"))
        self._reach = {test: Reach(seconds, frozenset(seen)) for test, (seconds, seen) in measured.items()}

    def _run_all(self, items: list[pytest.Item]) -> None:
        gc.freeze()  # or each collection in a child would copy the whole parent
        running: dict[int, Trial] = {}
        for mutant in self._mutants:
            tests = self._tests_of(mutant, items)
            if not tests:
                self._note(mutant, NO_TEST)
                continue
            told, tells = os.pipe()
            running[_child(lambda m=mutant, t=tests, p=tells: self._try(m, t, p))] = Trial(mutant, tests, told)
            os.close(tells)
            if len(running) >= self._workers:
                self._wait_for_one(running)
        while running:
            self._wait_for_one(running)

    def _tests_of(self, mutant: Mutant, items: list[pytest.Item]) -> list[pytest.Item]:
        killers = self._killers.get(mutant.where, [])

        def turn(item: pytest.Item) -> tuple[int, float]:
            return -killers.index(item.nodeid) - 1 if item.nodeid in killers else 0, self._reach[item.nodeid].seconds

        return sorted((item for item in items if mutant.where in self._reach[item.nodeid].functions), key=turn)

    def _wait_for_one(self, running: dict[int, Trial]) -> None:
        pid, status = os.wait()
        trial, code = running.pop(pid), os.waitstatus_to_exitcode(status)
        with open(trial.told, "rb") as told:
            begun = len(told.read())
        if code and begun:
            killers = self._killers.setdefault(trial.mutant.where, [])
            killer = trial.tests[begun - 1].nodeid
            killers[:] = [*(test for test in killers if test != killer), killer]
        self._note(trial.mutant, HUNG if code == -signal.SIGPROF else KILLED if code else ALIVE)

    def _note(self, mutant: Mutant, verdict: str) -> None:
        self.verdicts[mutant] = verdict
        if verdict in (ALIVE, NO_TEST):
            say(f"{verdict}: {mutant.name}\n{mutant.difference}")
        done, planted = len(self.verdicts), len(self._mutants)
        if done % 50 == 0 or done == planted:
            tally = Counter(self.verdicts.values())
            say(f"[{done}/{planted}] " + ", ".join(f"{count} {kind}" for kind, count in tally.items()))


def _child(work: Callable[[], int]) -> int:
    """Fork a child that works in silence and exits with what *work* returns; return its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = work()
    finally:
        os._exit(code)


def say(text: str) -> None:
    """Print to standard error, past pytest's own report."""
    print(text, file=sys.stderr, flush=True)


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
