"""What only PostgreSQL can do wrong: lost sessions, clocks of its own, sequences that are not commit order."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator

import psycopg
import pytest

from halfopen.retry_queue import StoreUnavailableError
from halfopen.retry_queue.postgres import PostgresStore
from tests.retry_queue.support import claim, new, put, states

pytestmark = pytest.mark.postgres


@pytest.fixture
def schema() -> str:
    return f"t{uuid.uuid4().hex}"


@pytest.fixture
def store(postgres: str, schema: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(postgres, schema=schema)
    yield opened
    opened.close()


def end_sessions(conninfo: str) -> None:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'halfopen' AND pid <> pg_backend_pid()"
        )


def test_sessions_the_server_ended_are_opened_again(store: PostgresStore, postgres: str) -> None:
    put(store, "before")
    end_sessions(postgres)

    put(store, "after")
    end_sessions(postgres)

    assert {"before": "waiting", "after": "waiting"} == states(store)


def test_an_unreachable_server_is_said_so() -> None:
    with pytest.raises(StoreUnavailableError, match="PostgreSQL"):
        PostgresStore("host=/nowhere user=halfopen dbname=postgres")


def test_times_come_from_the_servers_clock(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfopen._runtime.clock.SystemClock.wall", lambda _=None: 1000.0)

    put(store, "m1")

    assert time.time() - 60 < store.find("m1").created < time.time() + 60
    assert ["m1"] == [message.id for message in claim(store)]


def test_an_enqueue_that_is_not_committed_does_not_hide_its_lane(
    store: PostgresStore, postgres: str, schema: str
) -> None:
    put(store, "m1")
    with psycopg.connect(postgres, options=f"-c search_path={schema}") as other:
        other.execute(
            "INSERT INTO messages (id, lane, size, digest, created, due) VALUES ('open', 'acme', 1, '', 0, 0)"
        )
        claimed = [message.id for message in claim(store)]
        other.rollback()

    assert ["m1"] == claimed


def test_a_lane_that_another_is_claiming_from_is_skipped_not_waited_for(
    store: PostgresStore, postgres: str, schema: str
) -> None:
    from halfopen.retry_queue._requests import ClaimRequest

    put(store, "m1")
    request = ClaimRequest(lane="acme", limit=1, token="t", lease=90.0, cap=1)
    with psycopg.connect(postgres, options=f"-c search_path={schema}") as other:
        other.execute("SELECT * FROM lanes FOR NO KEY UPDATE")
        busy = store.claim(request)
        other.rollback()

    assert busy is None
    assert 1 == len(store.claim(request) or ())


def test_enqueueing_into_an_ordered_stream_waits_for_the_one_before_it(
    store: PostgresStore, postgres: str, schema: str
) -> None:
    put(store, "a1", stream="a")
    done = threading.Event()
    with psycopg.connect(postgres, options=f"-c search_path={schema}") as other:
        other.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", ("acme\x1fa",))
        ticket = store.enqueue(new("a2", stream="a"))
        ticket.then(lambda _: done.set())
        before_the_other_commits = done.wait(0.3)
        other.commit()

    assert not before_the_other_commits
    assert done.wait(60)


def test_several_processes_may_make_the_tables_at_once(postgres: str, schema: str) -> None:
    stores: list[PostgresStore] = []
    threads = [threading.Thread(target=lambda: stores.append(PostgresStore(postgres, schema=schema))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 4 == len(stores)
    for store in stores:
        store.close()


def test_a_schema_is_a_plain_identifier(postgres: str) -> None:
    with pytest.raises(ValueError, match="identifier"):
        PostgresStore(postgres, schema="x; DROP TABLE messages")
