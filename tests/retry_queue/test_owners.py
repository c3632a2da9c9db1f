"""A process that dies gives up its leases and its trial calls at once; one that lives, however slow, keeps them."""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from halfopen.retry_queue import LaneProfile, MessageState, RetryQueue, Store
from halfopen.retry_queue._owners import FileOwner
from tests.retry_queue.children import open_store
from tests.retry_queue.support import Partner, change, claim, put
from tests.retry_queue.test_kill import start

S = MessageState
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no flock: leases run out by themselves")


def profile(_: str) -> LaneProfile:
    return LaneProfile()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "queue.db")
    return f"o{uuid.uuid4().hex}@{request.getfixturevalue('postgres')}"


@pytest.fixture
def holder(where: str, tmp_path: Path) -> Iterator[int]:
    """A process in the middle of sending ``<m1>``; its lease lasts for an hour."""
    seen = tmp_path / "seen"
    with closing(open_store(where)) as store:
        put(store, "<m1>", body=b"abc")
    process = start("hold", where, str(seen))
    until = time.monotonic() + 60
    while not seen.exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert seen.exists()
    yield process.pid
    process.kill()
    process.wait()


def reaped(store: Store, seconds: float = 60.0) -> list[str]:
    """Do upkeep until something comes of it."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := store.reap(profile, frozenset()):
            return [message.id for message, _ in found]
        time.sleep(0.05)
    return []


def test_the_messages_of_a_killed_process_are_free_long_before_their_lease_is_over(where: str, holder: int) -> None:
    with closing(open_store(where)) as store:
        os.kill(holder, signal.SIGKILL)

        found = reaped(store)

        assert ["<m1>"] == found
        assert (S.UNKNOWN_DELIVERY, True) == (store.find("<m1>").state, store.find("<m1>").maybe_delivered)


def test_a_process_that_is_stopped_but_lives_keeps_its_messages(where: str, holder: int) -> None:
    with closing(open_store(where)) as store:
        os.kill(holder, signal.SIGSTOP)

        found = reaped(store, seconds=0.5)

        assert [] == found
        assert S.SENDING is store.find("<m1>").state


def test_what_was_taken_from_a_dead_process_goes_out_again_under_its_id(where: str, holder: int) -> None:
    partner = Partner()
    with RetryQueue(open_store(where), upkeep=0.05) as queue:
        os.kill(holder, signal.SIGKILL)
        queue.lane("acme", sender=partner)
        queue.start()
        until = time.monotonic() + 60
        while not partner.seen and time.monotonic() < until:
            time.sleep(0.01)

    assert [("<m1>", b"abc", False)] == partner.seen


def test_a_result_of_the_dead_process_would_count_no_more(open_store: Callable[..., Store]) -> None:
    dead, store = open_store(), open_store()
    put(store, "m1")
    token = f"{store.lease_prefix()}:{dead.owner()}.queue:1"
    (message,) = claim(dead, token=token)
    store.gone = lambda owners: owners  # type: ignore[method-assign]  # as if it had died
    store.reap(profile, frozenset())

    late = dead.finish(message, token, change(S.WAITING)).result()

    assert not late.valid
    assert S.UNKNOWN_DELIVERY is store.find("m1").state


def test_two_stores_of_one_process_know_that_the_other_lives(open_store: Callable[..., Store]) -> None:
    one, other = open_store(), open_store()
    put(one, "m1")
    claim(one, token=f"{one.lease_prefix()}:{one.owner()}.queue:1", lease=1e6)

    found = other.reap(profile, frozenset())

    assert [] == found
    assert one.owner() != other.owner()


def test_a_store_that_is_closed_over_a_send_in_flight_keeps_its_lease(open_store: Callable[..., Store]) -> None:
    one, other = open_store(), open_store()
    put(one, "m1")
    claim(one, token=f"{one.lease_prefix()}:{one.owner()}.queue:1", lease=1e6)
    if one.name == "sqlite":
        one.close()

    found = other.reap(profile, frozenset())

    assert [] == found


def test_a_store_that_is_closed_in_good_order_leaves_no_file(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "queue.db"))
    store.owner()

    store.close()

    assert [] == list((tmp_path / "queue.db-owners").iterdir())


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_does_not_keep_its_parent_alive(tmp_path: Path) -> None:
    parent = FileOwner(tmp_path)
    name = parent.name
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    try:
        until = time.monotonic() + 60
        os.close(parent._held or -1)  # as its end would
        parent._held = None
        gone: frozenset[str] = frozenset()
        while not gone and time.monotonic() < until:
            gone = FileOwner(tmp_path).gone([name])

        assert {name} == gone
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_without_a_place_for_its_file_a_process_has_no_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    owner = FileOwner(tmp_path / "file")

    assert "" == owner.name
    assert frozenset() == owner.gone(["a1", "../b", ""])


def test_others_make_the_trial_calls_of_a_process_that_died_in_its_round(open_store: Callable[..., Store]) -> None:
    from halfopen.retry_queue._verdicts import pack, round_elsewhere

    dead, store = open_store(), open_store()
    snapshot = {"state": "half_open", "time": store.read(lambda reader: reader.now)}
    store.save_breaker("acme", pack(f"{dead.owner()}.queue", snapshot)).result()
    before = store.look("acme")
    store.gone = lambda owners: owners  # type: ignore[method-assign]  # as if it had died
    store.reap(profile, frozenset())

    after = store.look("acme")

    assert before is not None
    assert after is not None
    assert round_elsewhere(before.breaker, "other", snapshot["time"], 180.0)
    assert not round_elsewhere(after.breaker, "other", snapshot["time"], 180.0)


def test_what_dead_processes_leave_is_swept_up_once_nothing_names_them(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "queue.db"))
    directory = tmp_path / "queue.db-owners"
    living, idle, busy = (FileOwner(directory) for _ in range(3))
    assert "" not in {store.owner(), living.name, idle.name, busy.name}
    put(store, "m1")
    claim(store, token=f"{store.lease_prefix()}:{busy.name}.queue:1")
    for dead in (idle, busy):
        os.close(dead._held or -1)  # as its end would
        dead._held = None

    store.sweep_bodies()
    store.close()

    assert {living.name, busy.name} == {path.stem for path in directory.iterdir()}
    living.close()
