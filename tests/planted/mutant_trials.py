"""Forked workers that try mutants on tests which were collected once, and who gives them their work."""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import pytest

from tests.planted.mutant_report import ALIVE, HUNG, KILLED, NO_TEST
from tests.planted.mutants import Mutant, watch

__all__ = ["Campaign"]

MEMORY = 4 << 30
"""Bytes of address space for a worker."""

AGAIN = "again"
"""No verdict: the test that failed fails without the error as well, so an earlier mutant has left something behind."""


class Tests:
    """A pytest plugin that runs the collected tests as it is told, and takes the place of the one run through all."""

    def __init__(self) -> None:
        self._failed = False
        self.items: list[pytest.Item] = []

    def pytest_configure(self) -> None:
        """Let Hypothesis neither shrink nor remember what fails: that it fails is all that counts here."""
        from hypothesis import Phase, settings

        settings.register_profile("mutants", phases=[Phase.explicit, Phase.generate], database=None)
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run what there is to run."""
        self.items = session.items
        if not session.testsfailed:
            self.run_all()
        return True

    def run_all(self) -> None:
        """Do the work, once the tests are collected."""
        raise NotImplementedError

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember that something failed."""
        self._failed = self._failed or report.failed

    def passes(self, item: pytest.Item) -> bool:
        """Run one test."""
        self._failed = False
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return not self._failed


class Worker:
    """A forked process that gets jobs on one pipe and answers on another."""

    def __init__(self, work: Callable[[TextIO, TextIO], None]) -> None:
        asked, asks = os.pipe()
        told, tells = os.pipe()
        self.pid = _child(lambda: _serve(work, asked, tells), close=(asks, told))
        os.close(asked)
        os.close(tells)
        self._asks = open(asks, "w", encoding="utf-8")  # noqa: SIM115
        self.answers = open(told, encoding="utf-8")  # noqa: SIM115
        self.jobs = 0
        self.job: Any = None

    def give(self, job: Any, *facts: Any) -> None:
        """Hand in a job; *facts* are sent."""
        self.job = job
        self.jobs += 1
        self._asks.write(json.dumps(facts) + "\n")
        self._asks.flush()

    def end(self) -> int:
        """End it if it has not ended; return its exit code."""
        os.kill(self.pid, signal.SIGKILL)  # a worker that was forked later keeps the pipe of its jobs open
        self._asks.close()
        self.answers.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Campaign(Tests):
    """Tries each mutant, and keeps the verdicts."""

    def __init__(self, mutants: list[Mutant], workers: int) -> None:
        super().__init__()
        self._mutants = mutants
        self._workers = workers
        # By test: seconds of processor time, and the functions with mutants that it calls.
        self._reach: list[tuple[float, frozenset[str]]] = []
        # By function, the tests that have ended a mutant of it, the latest last: likely to end the next one.
        self._killers: dict[str, list[int]] = {}
        self.verdicts: dict[Mutant, str] = {}
        self.sound = False

    def run_all(self) -> None:
        say(f"{len(self.items)} tests against {len(self._mutants)} mutants")
        self._measure()
        gc.freeze()  # or each collection in a worker would copy the whole parent
        self._try_all()
        # What kills without an error, such as a source that was changed meanwhile, has proved nothing.
        _, status = os.waitpid(_child(self._control), 0)
        self.sound = status == 0

    # In a child

    def _write_reach(self, file: Path) -> int:
        functions = {mutant.where: mutant.function for mutant in self._mutants}
        seen: set[str] = set()
        for where, function in functions.items():
            watch(function, where, seen)
        reach: list[tuple[float, list[str]]] = []
        for item in self.items:
            seen.clear()
            began = time.process_time()
            # A test that looks at the code itself may fail when it is watched; it is taken to reach everything.
            reached = sorted(seen) if self.passes(item) else sorted(functions)
            reach.append((time.process_time() - began, reached))
        file.write_text(json.dumps(reach), encoding="utf-8")
        return 0

    def _control(self) -> int:
        for item in self.items:
            if not self.passes(item):
                say(f"fails without any error planted: {item.nodeid}")
                return 1
        return 0

    def _work(self, jobs: TextIO, answers: TextIO) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        for count, line in enumerate(jobs):
            number, tests = json.loads(line)
            with self._mutants[number].planted():
                killer = next((test for test in tests if not self._passes_in_time(test)), None)
            spoiled = killer is not None and not self._passes_in_time(killer)
            signal.setitimer(signal.ITIMER_PROF, 0)
            verdict = ALIVE if killer is None else AGAIN if spoiled and count else KILLED
            answers.write(json.dumps([verdict, killer, spoiled]) + "\n")
            answers.flush()
            if spoiled:
                return

    def _passes_in_time(self, test: int) -> bool:
        signal.setitimer(signal.ITIMER_PROF, 3 + 10 * self._reach[test][0])
        return self.passes(self.items[test])

    # In the parent

    def _measure(self) -> None:
        """Run every test once without an error, in a child, to learn what it reaches."""
        with tempfile.NamedTemporaryFile() as file:
            os.waitpid(_child(lambda: self._write_reach(Path(file.name))), 0)
            measured = json.loads(Path(file.name).read_text(encoding="utf-8"))
        self._reach = [(seconds, frozenset(seen)) for seconds, seen in measured]

    def _try_all(self) -> None:
        todo = deque(range(len(self._mutants)))
        workers = [Worker(self._work) for _ in range(self._workers)]
        busy = [worker for worker in workers if self._employ(worker, todo)]
        while busy:
            ready, _, _ = select.select([worker.answers for worker in busy], [], [])
            for worker in [worker for worker in busy if worker.answers in ready]:
                busy.remove(worker)
                following = self._hear(worker, todo)
                if self._employ(following, todo):
                    busy.append(following)
                else:
                    following.end()

    def _employ(self, worker: Worker, todo: deque[int]) -> bool:
        while todo:
            number = todo.popleft()
            tests = self._tests_of(self._mutants[number])
            if tests:
                worker.give(number, number, tests)
                return True
            self._note(number, NO_TEST)
        return False

    def _hear(self, worker: Worker, todo: deque[int]) -> Worker:
        """Take an answer, or the end of a worker; return who goes on."""
        line = worker.answers.readline()
        if not line:
            code = worker.end()
            if worker.jobs > 1:  # an earlier mutant may be to blame
                todo.appendleft(worker.job)
            else:
                self._note(worker.job, HUNG if code == -signal.SIGPROF else KILLED)
            return Worker(self._work)
        verdict, killer, spoiled = json.loads(line)
        if verdict == AGAIN:
            todo.appendleft(worker.job)
        else:
            self._note(worker.job, verdict, killer)
        if not spoiled:
            return worker
        worker.end()
        return Worker(self._work)

    def _tests_of(self, mutant: Mutant) -> list[int]:
        killers = self._killers.get(mutant.where, [])

        def turn(test: int) -> tuple[int, float]:
            return -killers.index(test) - 1 if test in killers else 0, self._reach[test][0]

        reaching = (test for test, (_, functions) in enumerate(self._reach) if mutant.where in functions)
        return sorted(reaching, key=turn)

    def _note(self, number: int, verdict: str, killer: int | None = None) -> None:
        mutant = self._mutants[number]
        self.verdicts[mutant] = verdict
        if killer is not None:
            killers = self._killers.setdefault(mutant.where, [])
            killers[:] = [*(test for test in killers if test != killer), killer]
        if verdict in (ALIVE, NO_TEST):
            say(f"{verdict}: {mutant.name}\n{mutant.difference}")
        done, planted = len(self.verdicts), len(self._mutants)
        if done % 50 == 0 or done == planted:
            tally = Counter(self.verdicts.values())
            say(f"[{done}/{planted}] " + ", ".join(f"{count} {kind}" for kind, count in tally.items()))


def _serve(work: Callable[[TextIO, TextIO], None], asked: int, tells: int) -> int:
    with open(asked, encoding="utf-8") as jobs, open(tells, "w", encoding="utf-8") as answers:
        work(jobs, answers)
    return 0


def _child(work: Callable[[], int], close: tuple[int, ...] = ()) -> int:
    """Fork a child that works in silence and exits with what *work* returns; return its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        for end in close:
            os.close(end)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = work()
    finally:
        os._exit(code)


def say(text: str) -> None:
    """Print to standard error, past pytest's own report."""
    print(text, file=sys.stderr, flush=True)
