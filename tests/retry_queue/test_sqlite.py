"""What only the embedded engine promises: syncs, leases that end with a boot, other processes' transactions."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from halfopen.retry_queue import LaneProfile, RetryQueue, SqliteStore, StoreUnavailableError
from halfopen.testing import FakeClock
from tests.retry_queue.support import claim, put, states


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "q.db", clock=clock)
    yield opened
    opened.close()


@pytest.mark.parametrize(("asked", "level"), [("FULL", 2), ("NORMAL", 1)])
def test_every_commit_is_synced_unless_the_user_chose_otherwise(tmp_path: Path, asked: str, level: int) -> None:
    store = SqliteStore(tmp_path / "q.db", synchronous=asked)  # type: ignore[arg-type]  # by parameter

    def synchronous(transaction: object) -> int:
        return int(transaction.rows("PRAGMA synchronous")[0][0])  # type: ignore[attr-defined]  # a Transaction

    assert level == store.submit(synchronous).result()
    store.close()


def test_a_payload_is_on_disk_with_its_name_before_its_row_is_written(
    store: SqliteStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, int]] = []

    def fsync(descriptor: int) -> None:
        synced.append((Path(os.readlink(f"/proc/self/fd/{descriptor}")).suffix, store.count_all()))

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(SqliteStore, "count_all", lambda self: sum(self.books().values()), raising=False)
    queue = RetryQueue(store, clock=clock)

    queue.enqueue("acme", b"x" * 100_000)

    assert [(".part", 0), (".db-payloads", 0)] == synced


def test_leases_of_an_earlier_boot_are_over(store: SqliteStore) -> None:
    put(store, "m1", "m2")
    claim(store, limit=1, token="another-boot:process:1", lease=1e9)
    claim(store, limit=1, token=f"{store.lease_prefix()}:process:1", lease=1e9)

    reaped = store.reap(lambda _: LaneProfile(), frozenset())

    assert ["m1"] == [message.id for message, _ in reaped]


def test_another_processs_transaction_is_waited_for_and_then_given_up(tmp_path: Path) -> None:
    store, patient = SqliteStore(tmp_path / "q.db", busy_timeout=0.3), SqliteStore(tmp_path / "q.db", busy_timeout=60.0)
    other = sqlite3.connect(tmp_path / "q.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreUnavailableError, match="locked"):
        put(store, "m1")
    commits = threading.Timer(0.1, lambda: other.execute("COMMIT"))
    commits.start()
    put(patient, "m2")
    commits.join(60)

    assert {"m2": "waiting"} == states(store)
    other.close()
    store.close()
    patient.close()


def test_readers_do_not_wait_for_a_writer(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "q.db", busy_timeout=100.0)
    put(store, "m1")
    other = sqlite3.connect(tmp_path / "q.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()

    seen = states(store)

    assert {"m1": "waiting"} == seen
    assert time.monotonic() - began < 50
    other.execute("ROLLBACK")
    other.close()
    store.close()


def test_operations_share_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from halfopen.retry_queue import sqlite

    store = SqliteStore(tmp_path / "q.db")
    commits: list[int] = []
    original = sqlite._Writer.commit
    monkeypatch.setattr(sqlite._Writer, "commit", lambda writer: (commits.append(1), original(writer))[1])
    queue = RetryQueue(store)

    tickets = [queue.submit("acme", b"x") for _ in range(2000)]
    for ticket in tickets:
        ticket.result()

    assert 2000 == sum(store.books().values())
    assert len(commits) < 400
    store.close()
