"""What runs all the time uses an index: its cost does not grow with what waits or what is finished."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from halfopen.retry_queue import LaneProfile, SqliteStore, StoreUnavailableError, sqlite
from halfopen.retry_queue._requests import Pace
from halfopen.testing import FakeClock
from tests.retry_queue.support import change, claim, put


def test_nothing_that_runs_all_the_time_scans_a_table(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "q.db", clock=clock)
    seen: dict[str, dict[str, Any]] = {}
    for name in ("rows", "execute"):
        original = getattr(sqlite._Cursor, name)

        def recorded(cursor: Any, sql: str, values: Any = None, original: Any = original) -> Any:
            seen[sql] = values or {}
            return original(cursor, sql, values)

        monkeypatch.setattr(sqlite._Cursor, name, recorded)

    put(store, "m1", "m2", stream="a", deadline=clock.wall() + 50)
    put(store, "m3")
    message = claim(store)[0]
    store.renew([(message.seq, "token", 1.0)]).result()
    store.finish(message, "token", change(), Pace("success", 8)).result()
    claim(store, trial=True)
    store.reap(lambda _: LaneProfile(), frozenset())
    store.expire()
    store.overdue(lambda _: LaneProfile())
    store.make_due("acme").result()
    store.clamp_due(3600.0)
    store.look("acme")
    store.ready("acme", 5, any_due=False)
    store.expiring(60.0)
    store.oldest_live()
    store.oldest_per_lane()
    store.find("m1")
    store.history(1)
    store.payload(1)
    store.close()

    connection = sqlite3.connect(tmp_path / "q.db")
    scans = {
        sql: detail
        for sql, values in seen.items()
        for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)
        if re.match(r"SCAN (m|messages|e|h|history|p|payloads)$", detail)
    }
    connection.close()
    assert 20 < len(seen)
    assert {} == scans


def test_tables_of_another_version_are_not_touched(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "q.db").close()
    connection = sqlite3.connect(tmp_path / "q.db")
    connection.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")
    connection.commit()
    connection.close()

    with pytest.raises(StoreUnavailableError, match="version 99"):
        SqliteStore(tmp_path / "q.db")
