from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from halfopen.retry_queue import SqliteStore, Store
from halfopen.testing import FakeClock
from tests.retry_queue.support import postgres_bin, private_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    binaries = postgres_bin()
    if binaries is None:
        pytest.fail("PostgreSQL is missing: no initdb under /usr/lib/postgresql or on PATH (Debian: `postgresql`)")
    with private_postgres(binaries) as conninfo:
        yield conninfo


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def open_store(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Callable[..., Store]]:
    """Open one and the same store, as often as a test wants."""
    opened: list[Store] = []
    schema = f"t{uuid.uuid4().hex}"

    def open_one(**options: Any) -> Store:
        store: Store
        if request.param == "sqlite":
            store = SqliteStore(tmp_path / "queue.db", **{"clock": clock, **options})
        else:
            from halfopen.retry_queue.postgres import PostgresStore

            conninfo = request.getfixturevalue("postgres")
            store = PostgresStore(conninfo, schema=schema, **{"clock": clock, **options})
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[..., Store]) -> Store:
    return open_store()

    return None
