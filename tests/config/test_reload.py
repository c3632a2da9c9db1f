"""Reload without amnesia: settings change, state stays; and a bad file changes nothing and says why."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halfopen import CircuitBreaker, CircuitOpenError, ConfigError, Failures, Registry, State
from halfopen.config import adopting, applying
from halfopen.testing import FakeClock

Write = Callable[..., Path]

BREAKER = (
    "[breaker.bank]\nwindow = {window}\nminimum_calls = 4\nwait_in_open = {wait}\nhalf_open = {{ permitted_calls = 3 }}"
)


def fail(times: int, breaker: CircuitBreaker) -> None:
    for _ in range(times):
        with pytest.raises(OSError):
            breaker.call(_broken)


def _broken() -> None:
    raise OSError("no route")


def test_a_reload_keeps_window_epoch_and_counters(write: Write) -> None:
    registry = Registry.from_file(write(BREAKER.format(window=10, wait=30)), clock=FakeClock())
    breaker = registry.circuit_breaker("bank")
    fail(3, breaker)
    before = breaker.snapshot()

    write(BREAKER.format(window=20, wait=60))
    changes = registry.reload()

    after = breaker.snapshot()
    assert registry.circuit_breaker("bank") is breaker
    assert ("breaker.bank",) == changes.changed
    assert (20, 3, before.epoch, before.counters.failures) == (
        after.window_size,
        after.failures,
        after.epoch,
        after.counters.failures,
    )
    fail(1, breaker)
    assert State.OPEN is breaker.state


def test_a_reload_keeps_step_remaining_wait_and_trials(write: Write) -> None:
    clock = FakeClock()
    registry = Registry.from_file(write(BREAKER.format(window=10, wait=30)), clock=clock)
    breaker = registry.circuit_breaker("bank")
    fail(4, breaker)
    clock.advance(10)

    write(BREAKER.format(window=10, wait=300))
    registry.reload()

    look = breaker.snapshot()
    assert (State.OPEN, 1, 20.0) == (look.state, look.step, look.remaining_wait)
    clock.advance(20)
    trial = breaker.acquire()
    write(BREAKER.format(window=10, wait=7))
    registry.reload()
    assert 1 == [slot.status for slot in breaker.snapshot().trials].count("running")
    trial.success()
    assert 1 == [slot.status for slot in breaker.snapshot().trials].count("succeeded")
    assert State.HALF_OPEN is breaker.state


@pytest.mark.parametrize(
    "bad",
    [b"[breaker.bank]\nminimum_calls = 0\n[retry.x]", b"\xff", b"[", b"x" * 2_000_000, b"[breaker.bank]\nwindo = 3"],
)
def test_a_bad_file_changes_nothing_and_says_why(write: Write, bad: bytes) -> None:
    path = write('[breaker.bank]\nminimum_calls = 9\n[timeout.t]\nseconds = 5\n[retry.r]\non = ["OSError"]')
    registry = Registry.from_file(path)
    write(bad)

    with pytest.raises(ConfigError) as caught:
        registry.reload()

    assert str(path) in str(caught.value)
    assert 9 == registry.circuit_breaker("bank").settings.minimum_calls
    assert 5 == registry["timeout.t"].settings.seconds
    assert 3 == len(registry)
    write("[breaker.bank]\nminimum_calls = 8")
    assert ("breaker.bank",) == registry.reload().changed


def test_a_file_that_is_gone_changes_nothing(write: Write) -> None:
    path = write("[breaker.bank]\nminimum_calls = 9")
    registry = Registry.from_file(path)
    path.unlink()

    with pytest.raises(ConfigError, match="there is no such file"):
        registry.reload()

    assert 9 == registry.circuit_breaker("bank").settings.minimum_calls


def test_policies_come_and_go_with_the_file(write: Write) -> None:
    registry = Registry.from_file(write("[breaker.a]\n[breaker.b]\n[retry_budget.x]"))
    kept = registry.circuit_breaker("b")

    write("[breaker.b]\n[breaker.c]\nminimum_calls = 3")
    changes = registry.reload()

    assert (("breaker.c",), (), ("retry_budget.x", "breaker.a"), ("breaker.b",)) == (
        changes.added,
        changes.changed,
        changes.removed,
        changes.unchanged,
    )
    assert "1 added, 0 changed, 2 removed, 1 unchanged" == str(changes)
    assert registry.circuit_breaker("b") is kept
    assert ["b", "c"] == sorted(breaker.name for breaker in registry.breakers())


def test_a_breaker_that_was_asked_for_before_the_file_keeps_its_state(write: Write) -> None:
    registry = Registry(clock=FakeClock())
    mine = Failures(on=OSError)
    breaker = registry.circuit_breaker("bank", classify=mine)
    fail(3, breaker)

    changes = registry.load(write("[breaker.bank]\nminimum_calls = 4"))

    assert ("breaker.bank",) == changes.changed
    assert (4, 3, mine) == (breaker.settings.minimum_calls, breaker.snapshot().failures, breaker.classifier)


def test_a_classifier_of_the_file_comes_and_goes_with_it(write: Write) -> None:
    registry = Registry.from_file(write('[breaker.bank]\non = ["OSError"]'))
    breaker = registry.circuit_breaker("bank")
    assert Failures(on=(OSError,)) == breaker.classifier

    write("[breaker.bank]")
    registry.reload()

    assert Failures() == breaker.classifier


def test_a_family_takes_new_settings_and_its_breakers_keep_their_state(write: Write) -> None:
    registry = Registry.from_file(write('[breaker."host:*"]\nminimum_calls = 5'), clock=FakeClock())
    old = registry.circuit_breaker("host:a")
    fail(4, old)

    write('[breaker."host:*"]\nminimum_calls = 4\nmax_keys = 50\ntags = { zone = "x" }')
    registry.reload()

    assert registry.circuit_breaker("host:a") is old
    assert (4, 4, {"zone": "x"}) == (old.settings.minimum_calls, old.snapshot().failures, old.tags)
    assert 4 == registry.circuit_breaker("host:b").settings.minimum_calls
    fail(1, old)
    assert State.OPEN is old.state


ALL = """
[retry_budget.x]
share = {share}
[retry.x]
on = ["OSError"]
attempts = {number}
budget = "x"
[timeout.x]
seconds = {number}
[bulkhead.x]
limit = {number}
[bulkhead."k:*"]
limit = {number}
[rate_limiter.x]
rate = 1
per = 1000
burst = {number}
[fallback.x]
on = ["OSError"]
value = {number}
[hedge.x]
delay = {number}
[adaptive_concurrency.x]
initial_limit = 2
max_limit = {number}
[cache_fallback.x]
on = ["OSError"]
max_age = {number}
[breaker.x]
minimum_calls = {number}
[pipeline.x]
policies = ["fallback.x", "breaker.x", "retry.x", "bulkhead.x"]
"""


def test_every_other_policy_goes_on_as_the_same_object_with_its_counters(write: Write) -> None:
    registry = Registry.from_file(write(ALL.format(number=3, share=0.1)), clock=FakeClock())
    before = {title: registry[title] for title in TITLES}
    registry["bulkhead.x"].call(int)
    registry["bulkhead.k:*"]["a"].call(int)
    registry["rate_limiter.x"].call(int)
    registry["fallback.x"].call(_broken)
    registry["cache_fallback.x"].call(int)
    registry["timeout.x"].call(int)
    registry["hedge.x"].call(int)
    registry["adaptive_concurrency.x"].call(int)
    with pytest.raises(OSError):
        registry["retry.x"].call(_broken)
    spent = registry["retry_budget.x"].snapshot()

    write(ALL.format(number=7, share=0.5))
    changes = registry.reload()

    assert set(TITLES) - {"pipeline.x"} == {*changes.changed}
    assert {"pipeline.x"} == {*changes.unchanged}
    assert before == {title: registry[title] for title in TITLES}
    assert (7, 1) == _of(registry["bulkhead.x"], "limit", "admitted")
    assert (7, 1) == _of(registry["bulkhead.k:*"]["a"], "limit", "admitted")
    assert (7, 1, 6) == _of(registry["rate_limiter.x"], "burst", "admitted", "available")
    assert (1, (1,)) == _of(registry["fallback.x"], "successes", "answers")
    assert 7 == registry["fallback.x"].call(_broken)
    assert (1,) == _of(registry["cache_fallback.x"], "stored")
    assert 7 == registry["timeout.x"].settings.seconds
    assert (7.0, 1) == _of(registry["hedge.x"], "delay", "calls")
    assert 1.1 == pytest.approx(registry["hedge.x"]._budget._tokens)
    assert (2, 7) == _of(registry["adaptive_concurrency.x"], "limit", "max_limit")
    assert 7 == registry["retry.x"].settings.attempts
    after = registry["retry_budget.x"].snapshot()
    assert (spent.granted, spent.tokens) == (after.granted, after.tokens)
    assert 0.5 == registry["retry_budget.x"].share


TITLES = [
    "retry_budget.x", "retry.x", "timeout.x", "bulkhead.x", "bulkhead.k:*", "rate_limiter.x", "fallback.x", "hedge.x",
    "adaptive_concurrency.x", "cache_fallback.x", "breaker.x", "pipeline.x",
]  # fmt: skip


def _of(policy: Any, *names: str) -> tuple[Any, ...]:
    snapshot = policy.snapshot()
    return tuple(getattr(snapshot, name) for name in names)


def test_a_pipeline_of_other_policies_takes_the_place_of_the_old_one(write: Write) -> None:
    both = "[breaker.a]\n[timeout.a]\nseconds = 1\n[pipeline.a]\npolicies = "
    registry = Registry.from_file(write(both + '["breaker.a"]'))

    write(both + '["breaker.a", "timeout.a"]')
    registry.reload()

    assert [registry["breaker.a"], registry["timeout.a"]] == list(registry["pipeline.a"].policies)


def test_a_reload_that_fails_half_way_is_taken_back(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry.from_file(write(ALL.format(number=3, share=0.1)))
    objects = {title: registry[title] for title in TITLES}
    member = registry["bulkhead.k:*"]["a"]
    write(ALL.format(number=7, share=0.5) + "[breaker.new]\n")
    calls = 0

    def broken(policy: Any, other: Any) -> bool:
        nonlocal calls
        calls += 1
        if calls == 8:
            raise MemoryError
        return adopting.adopt(policy, other)

    monkeypatch.setattr(applying, "adopt", broken)
    with pytest.raises(MemoryError):
        registry.reload()

    assert objects == {title: registry[title] for title in TITLES}
    assert 3 == registry["retry.x"].settings.attempts
    assert 3 == registry["bulkhead.x"].snapshot().limit
    assert 3 == registry["bulkhead.k:*"]["later"].snapshot().limit
    assert 3 == member.snapshot().limit
    assert 3 == registry["timeout.x"].settings.seconds
    assert 0.1 == registry["retry_budget.x"].share
    with pytest.raises(KeyError):
        registry["breaker.new"]


def test_calls_under_way_while_settings_change_lose_nothing(write: Write) -> None:
    registry = Registry.from_file(write("[breaker.a]\nwindow = 1000\nminimum_calls = 1000"))
    breaker = registry.circuit_breaker("a")
    ended = threading.Event()

    def calls() -> None:
        for _ in range(2000):
            breaker.call(int)
        ended.set()

    thread = threading.Thread(target=calls)
    thread.start()
    number = 0
    while not ended.is_set():
        number += 1
        write(f"[breaker.a]\nwindow = {1000 + number % 2}\nminimum_calls = 1000")
        registry.reload()
    thread.join()

    assert 2000 == breaker.snapshot().counters.successes


# Occasions


def test_without_a_file_there_is_nothing_to_reload() -> None:
    for reload in (Registry().reload, Registry().reload_on_change, Registry().reload_on_sighup):
        with pytest.raises(LookupError, match="load"):
            reload()


def test_a_changed_file_is_reloaded_and_a_bad_one_logged(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "halfopen")
    registry = Registry.from_file(write("[breaker.a]\nminimum_calls = 3"))
    stop = registry.reload_on_change(every=0.01)
    breaker = registry.circuit_breaker("a")
    try:
        write("[breaker.a]\nminimum_calls = 12")
        _until(lambda: breaker.settings.minimum_calls == 12)
        write("[breaker.a]\nminimum_calls = nonsense")
        _until(lambda: any(record.levelno == logging.ERROR for record in caplog.records))
        threading.Event().wait(0.15)  # it is looked at again, and has not changed
    finally:
        stop()

    assert 12 == breaker.settings.minimum_calls
    assert "stay in force" in caplog.text
    assert "not TOML" in caplog.text
    assert 1 == sum(record.levelno == logging.ERROR for record in caplog.records)


def _until(condition: Callable[[], bool]) -> None:
    moment = threading.Event()
    for _ in range(6000):
        if condition():
            return
        moment.wait(0.01)
    pytest.fail("it never came")


ON_SIGHUP = """
import os, signal, sys, time
from halfopen import Registry
path = sys.argv[1]
registry = Registry.from_file(path)
stop = registry.reload_on_sighup()
breaker = registry.circuit_breaker("a")
open(path, "w").write("[breaker.a]\\nminimum_calls = 7")
with registry._lock:  # the signal comes at the worst moment
    os.kill(os.getpid(), signal.SIGHUP)
deadline = time.monotonic() + 60
while breaker.settings.minimum_calls != 7 and time.monotonic() < deadline:
    time.sleep(0.01)
stop()
print(breaker.settings.minimum_calls, signal.getsignal(signal.SIGHUP) is signal.SIG_DFL)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no such signal there")
def test_sighup_reloads(write: Write) -> None:
    path = write("[breaker.a]\nminimum_calls = 3")

    done = subprocess.run(
        [sys.executable, "-c", ON_SIGHUP, path], capture_output=True, text=True, check=False, env=dict(os.environ)
    )

    assert "7 True\n" == done.stdout, done.stderr


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no such signal there")
def test_however_many_signals_come_the_file_is_read_once_more_at_most_and_none_is_lost(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGHUP)
    registry = Registry.from_file(write("[breaker.a]\nminimum_calls = 3"))
    stop = registry.reload_on_sighup()
    started: list[threading.Thread] = []

    class Counted(threading.Thread):
        def start(self) -> None:
            started.append(self)
            super().start()

    monkeypatch.setattr("halfopen.config.reloading.threading.Thread", Counted)
    try:
        with registry._source._lock:
            for _ in range(50):
                signal.raise_signal(signal.SIGHUP)
            write("[breaker.a]\nminimum_calls = 7")
        for thread in started:
            thread.join(60)
    finally:
        stop()

    assert (1, 7) == (len(started), registry.circuit_breaker("a").settings.minimum_calls)
    assert before is signal.getsignal(signal.SIGHUP)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no such signal there")
def test_a_handler_that_another_registry_put_over_its_own_can_still_be_ended(write: Write) -> None:
    before = signal.getsignal(signal.SIGHUP)
    registries = [Registry.from_file(write("[breaker.a]\nminimum_calls = 3")) for _ in range(2)]
    stops = [registry.reload_on_sighup() for registry in registries]
    try:
        write("[breaker.a]\nminimum_calls = 7")
        stops[0]()
        signal.raise_signal(signal.SIGHUP)
        _until(lambda: registries[1].circuit_breaker("a").settings.minimum_calls == 7)
    finally:
        stops[1]()
        signal.signal(signal.SIGHUP, before)

    assert 3 == registries[0].circuit_breaker("a").settings.minimum_calls


def test_an_open_circuit_stays_open_over_a_reload(write: Write) -> None:
    registry = Registry.from_file(write(BREAKER.format(window=10, wait=30)), clock=FakeClock())
    breaker = registry.circuit_breaker("bank")
    fail(4, breaker)

    write(BREAKER.format(window='"60s"', wait=30))
    registry.reload()

    with pytest.raises(CircuitOpenError):
        breaker.call(int)


def test_a_file_loaded_later_is_the_one_that_is_watched(write: Write, tmp_path: Path) -> None:
    registry = Registry.from_file(write("[breaker.a]\nminimum_calls = 3"))
    stop = registry.reload_on_change(every=0.01)
    try:
        registry.load(write("[breaker.a]\nminimum_calls = 4", "other.toml"))
        write("[breaker.a]\nminimum_calls = 5")
        write("[breaker.a]\nminimum_calls = 66", "other.toml")
        _until(lambda: registry.circuit_breaker("a").settings.minimum_calls == 66)
    finally:
        stop()
