"""Messages that wait for the writer together are written together; each is answered as if it had come alone."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from halfopen.retry_queue import DuplicateMessageError, RetryQueue, Selection, SqliteStore, Store
from tests.retry_queue.support import new, put

MANY = 240


@contextmanager
def one_batch(store: Store) -> Generator[None, None, None]:
    """Keep the writer busy until everything inside was handed in."""
    busy, go_on = threading.Event(), threading.Event()

    def wait(transaction: object) -> None:
        busy.set()
        go_on.wait(60)

    store.submit(wait)
    assert busy.wait(60)
    yield
    go_on.set()


def test_a_batch_keeps_the_order_of_arrival(store: Store) -> None:
    with one_batch(store):
        tickets = [store.enqueue(new(f"m{number}", lane=f"lane{number % 7}")) for number in range(MANY)]

    seqs = [ticket.result().seq for ticket in tickets]

    assert sorted(seqs) == seqs
    assert [f"m{number}" for number in range(MANY)] == [one.id for one in store.select(Selection(), limit=MANY)]


def test_every_message_of_a_batch_keeps_its_own_bytes(store: Store) -> None:
    with one_batch(store):
        tickets = [
            store.enqueue(new(f"m{number}", body=b"%d\x00\xff" % number, headers=f'[["N", "{number} ä\\""]]', mic=None))
            for number in range(MANY)
        ]

    kept = [store.payload(ticket.result().seq)[:2] for ticket in tickets]

    assert [([("N", f'{number} ä"')], b"%d\x00\xff" % number) for number in range(MANY)] == kept


def test_equal_ids_in_one_batch_are_accepted_once(store: Store) -> None:
    with one_batch(store):
        first, again, other = (store.enqueue(new("m1", body=body)) for body in (b"abc", b"abc", b"other"))

    accepted = [first.result(), again.result()]

    assert [False, True] == [one.duplicate for one in accepted]
    assert 1 == len({one.seq for one in accepted})
    with pytest.raises(DuplicateMessageError):
        other.result()
    assert 1 == store.count(Selection())


def test_a_batch_with_messages_that_are_there_already_answers_each_for_itself(store: Store) -> None:
    (present,) = put(store, "m3")

    with one_batch(store):
        tickets = [store.enqueue(new(f"m{number}")) for number in range(6)]

    assert [number == 3 for number in range(6)] == [ticket.result().duplicate for ticket in tickets]
    assert present == tickets[3].result().seq
    assert 6 == store.count(Selection())


def test_other_operations_keep_their_place_between_messages(store: Store) -> None:
    with one_batch(store):
        before = store.enqueue(new("m1"))
        counted = store.submit(lambda transaction: transaction.rows("SELECT count(*) FROM messages")[0][0])
        after = store.enqueue(new("m2"))

    assert 1 == counted.result()
    assert before.result().seq < after.result().seq


def test_one_message_that_the_database_refuses_takes_no_other_along(store: Store) -> None:
    with one_batch(store):
        good = store.enqueue(new("m1"))
        bad = store.enqueue(new("m2", deadline="soon"))
        last = store.enqueue(new("m3"))

    assert (False, False) == (good.result().duplicate, last.result().duplicate)
    with pytest.raises(Exception, match=r"(?i)deadline|float|double"):
        bad.result()
    assert 2 == store.count(Selection())


def test_a_batch_costs_sqlite_a_few_statements_not_some_per_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def traced(*arguments: object, **options: object) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    store = SqliteStore(tmp_path / "queue.db")
    with RetryQueue(store) as queue:
        queue.enqueue("acme", b"so that the lane is there")
        with one_batch(store):
            statements.clear()
            tickets = [queue.submit("acme", b"ISA") for _ in range(MANY)]
        for ticket in tickets:
            ticket.result()

    assert MANY / 4 > sum("INSERT" in one for one in statements)
