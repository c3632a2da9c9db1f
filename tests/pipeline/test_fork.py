"""A forked child has a pipeline, and a registry, of its own: no lock, timer or place of a thread that is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork there")

COMMON = """
import asyncio, faulthandler, gc, os, sys, threading, types, warnings
warnings.simplefilter("ignore")  # that a process with threads forks is the point
from halfopen import *
from halfopen.retry import exponential
from halfopen._runtime.keyed import KeyedPolicy

LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition)

def locks_of(*roots):
    '''Find every lock that can be reached from some objects through halfopen's own.'''
    found, seen, todo = {}, set(), list(roots)
    while todo:
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, LOCKS):
            found[id(thing)] = thing
        elif isinstance(thing, (dict, list, tuple, set, frozenset)) or type(thing).__module__.startswith("halfopen"):
            todo += [each for each in gc.get_referents(thing) if not isinstance(each, (type, types.ModuleType))]
    return list(found.values())

def modules():
    return [vars(module) for name, module in sys.modules.items() if name.startswith("halfopen")]

def fork_while_all_are_held(locks, child):
    '''Fork while another thread holds every lock; exit with 0 if what the child does ends.'''
    taken, done = threading.Event(), threading.Event()
    def hold():
        for lock in locks:
            lock.acquire()
        taken.set()
        done.wait()
        for lock in reversed(locks):
            lock.release()
    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    pid = os.fork()
    if pid == 0:
        status = 3
        try:
            faulthandler.dump_traceback_later(50, exit=True)
            child()
            status = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    status = os.waitpid(pid, 0)[1]
    done.set()
    thread.join()
    return os.waitstatus_to_exitcode(status)
"""

PIPELINE = """
budget = RetryBudget()
registry = Registry()
def first(*args, **kwargs): return "k"
policies = [
    Fallback("f", "saved", on=(OSError, RejectedError)),
    CacheFallback("c", on=RejectedError, max_age=60),
    CircuitBreaker("b", bus=registry.bus),
    registry.keyed("host:*", key=first),
    Retry("r", on=OSError, attempts=3, backoff=exponential(0.001, cap=0.002), budget=budget, bus=registry.bus),
    Hedge("h", 5.0),
    AdaptiveConcurrency("a"),
    RateLimiter("l", 1000, burst=1000),
    Bulkhead("k", 2, max_waiting=2),
    Bulkhead.per_key("k:*", 2, key=first),
    Timeout("t", 30, bus=registry.bus),
]
pipeline = Pipeline(*policies)
outer = Pipeline(pipeline, name="outer")
events = []
registry.subscribe(events.append)
failures = [0]
def fine(x, *, y): return x + y
def flaky(x, *, y):
    failures[0] += 1
    if failures[0] % 2:
        raise OSError("again")
    return x + y
async def afine(x, *, y): return x + y
fine_decorated, afine_decorated = outer(fine), outer(afine)
"""

CALLS = """
def use():
    assert 3 == pipeline.call(fine, 1, y=2) == fine_decorated(1, y=2) == pipeline.call(flaky, 1, y=2)
    assert 3 == asyncio.run(pipeline.acall(afine, 1, y=2)) == asyncio.run(afine_decorated(1, y=2))
    def down(): raise OSError("down")
    assert "saved" == pipeline.call(down)
    assert "saved" == Pipeline(Timeout("w", 30, worker_thread=True), *policies[:1]).call(down)
    for policy in policies:
        policy.snapshot()
    budget.take(), budget.snapshot(), registry.snapshots(), registry.circuit_breaker("new"), registry.tick()
    pipeline.configure(*policies[1:])
    pipeline.configure(*policies)
    list(pipeline.lint()), pipeline.describe(), repr(pipeline), Pipeline(*policies, name="late")
"""

CHILD = """
use()
held = threading.Event()
leave = threading.Event()
def stays(x, *, y):
    held.set()
    leave.wait()
    return x
busy = [threading.Thread(target=pipeline.call, args=(stays, 1), kwargs={"y": 2})]
busy[0].start()
held.wait()
locks = [lock for lock in locks_of(pipeline, outer, budget, registry, *modules()) if lock not in (held, leave)]
assert len(locks) >= len(policies), locks
def child():
    # The parent's call is not here.
    assert 0 == policies[8].snapshot().in_use and 0 == policies[9]["k"].snapshot().in_use
    use()
    assert events
status = fork_while_all_are_held(locks, child)
leave.set()
busy[0].join()
use()  # the parent goes on
print("status", status)
"""

FILE = """
path = sys.argv[1]
registry = Registry.from_file(path)
pipeline = registry["pipeline.shop"]
@pipeline
def shop(): return "sold"
assert "sold" == shop()
def child():
    assert "sold" == shop()
    text = open(path).read().replace("limit = 1", "limit = 2")
    open(path, "w").write(text)
    assert ("bulkhead.a",) == registry.reload().changed
    assert 2 == registry["bulkhead.a"].snapshot().limit
    assert "sold" == shop()
status = fork_while_all_are_held(locks_of(registry, pipeline, *modules()), child)
assert 1 == registry["bulkhead.a"].snapshot().limit
print("status", status)
"""

CHANCE = """
retry = Retry("r", on=OSError, attempts=2, backoff=lambda step, rng: rng.random() * 1e-6)
breaker = CircuitBreaker("b")
def chances():
    return [retry._host.rng.random(), breaker._circuit.rng.random()]
chances()
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, repr(chances()).encode())
    os._exit(0)
os.wait()
theirs = eval(os.read(read, 1000))
print("same" if set(theirs) & set(chances()) else "different")
"""


def run(*parts: str, arguments: tuple[str, ...] = ()) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(parts), *arguments], capture_output=True, text=True, check=False, timeout=110
    )
    assert "" == done.stderr
    return done.stdout


def test_every_policy_of_a_pipeline_works_in_a_child_forked_while_all_locks_are_held() -> None:
    assert "status 0\n" == run(COMMON, PIPELINE, CALLS, CHILD)


def test_a_registry_from_a_file_can_be_used_and_reloaded_in_a_child(tmp_path: Path) -> None:
    path = tmp_path / "halfopen.toml"
    path.write_text(
        '[breaker.a]\n[bulkhead.a]\nlimit = 1\n[breaker."host:*"]\n[retry.a]\non = "OSError"\nbudget = "a"\n'
        '[retry_budget.a]\n[timeout.a]\nseconds = 30\n[rate_limiter."k:*"]\nrate = 1\n'
        '[pipeline.shop]\npolicies = ["breaker.a", "retry.a", "bulkhead.a", "timeout.a"]\n'
    )

    assert "status 0\n" == run(COMMON, FILE, arguments=(str(path),))


def test_a_child_and_its_parent_do_not_draw_the_same_jitter() -> None:
    assert "different\n" == run(COMMON, CHANCE)
