"""The engine for many machines: PostgreSQL 13 or later through psycopg 3."""

from __future__ import annotations

import contextlib
import os
import random
import re
import threading
from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import psycopg

from halfopen._runtime.clock import SYSTEM_CLOCK, Clock

from . import _sql
from ._bodies import Bodies
from ._errors import StoreUnavailableError
from ._group_commit import GroupCommit, Parameters, Ticket, Transaction
from ._inspection import Reader
from ._requests import MESSAGE_COLUMNS, PAYLOAD_COLUMNS, Dialect, NewMessage
from ._store import Store
from ._table_bodies import TABLE, TableBodies

__all__ = ["PostgresStore"]

T = TypeVar("T")
Connection = psycopg.Connection[Any]
_CHANNEL = "halfopen_queue"
# One after the other, or two processes that start together make the same tables.
_SCHEMA_LOCK = 0x68616C66
_OWNER_LOCK = 0x68616C6F
_HELD = f"""
SELECT objid::bigint FROM pg_locks
WHERE locktype = 'advisory' AND classid = {_OWNER_LOCK} AND objsubid = 2 AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND objid::bigint = ANY(:keys)"""


class PostgresStore(Store):
    """
    A store in one schema of a PostgreSQL database.

    Times come from the server's clock, so that machines need not agree. Workers are woken by NOTIFY; polling is the
    safety net.

    Args:
        conninfo: What psycopg connects to.
        schema: Where the tables are; made if it does not exist.
        inline: Bytes up to which a body is kept in its row.
        bodies: Where larger ones go; by default pieces in a table.
        poll: Seconds between looks without a notification.
        owner_grace: Seconds without a session after which a process is taken for dead and its leases for over.
        clock: For tests: replaces the server's clock.

    Raises:
        StoreUnavailableError: The server cannot be reached, or is older than 13.
    """

    def __init__(
        self,
        conninfo: str,
        *,
        schema: str = "halfopen",
        inline: int = 65_536,
        bodies: Bodies | None = None,
        poll: float = 5.0,
        owner_grace: float = 5.0,
        clock: Clock | None = None,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", schema):
            raise ValueError(f"schema is a plain identifier, not {schema!r}")
        self.name = "postgres"
        self.inline = inline
        self.bodies = bodies or TableBodies(self._borrowed)
        self.dialect = Dialect(
            lock_lane=" FOR NO KEY UPDATE SKIP LOCKED",
            lock_rows=" FOR UPDATE SKIP LOCKED",
            lease_over="lease_until <= :now",
            insert=_insert,
            mark=_mark,
            settle=_settle,
            lock_stream=_lock_stream,
        )
        self._conninfo = conninfo
        self._schema = schema
        self._poll = poll
        self._owner_grace = owner_grace
        self._clock = clock
        self._offset = 0.0
        self._open()

    def _open(self) -> None:
        self._pid = os.getpid()
        self._owner = random.SystemRandom().randrange(1, 2**31)
        self._missing: dict[str, float] = {}
        self._idle: list[Connection] = []
        self._idle_lock = threading.Lock()
        try:
            self._create()
        except psycopg.Error as error:
            raise StoreUnavailableError(f"PostgreSQL: {error}") from error
        self._commits = GroupCommit(self._connect_writer, _unavailable, name="postgres-writer")

    def _create(self) -> None:
        with self._connect() as connection, connection.transaction():
            if connection.info.server_version < 130_000:
                raise StoreUnavailableError(
                    f"PostgreSQL 13 is needed, this is {connection.info.server_version // 10_000}"
                )
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
            if connection.execute("SELECT to_regclass('payload_chunks')").fetchone() != (None,):
                _sql.check_version(connection.execute(_sql.WHICH_VERSION).fetchall())
                return
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self._schema}".encode())
            connection.execute(_sql.schema(_sql.POSTGRES_TYPES).encode())
            connection.execute(TABLE)

    def _connect(self) -> Connection:
        return psycopg.connect(
            self._conninfo, autocommit=True, options=f"-c search_path={self._schema}", application_name="halfopen"
        )

    def _connect_writer(self) -> _Writer:
        connection = self._connect()
        # Shared: the session before this one may not have ended yet.
        connection.execute("SELECT pg_advisory_lock_shared(%s, %s)", (_OWNER_LOCK, self._owner))
        return _Writer(connection, self)

    def submit(
        self, operation: Callable[[Transaction], T], callback: Callable[[Ticket[T]], object] | None = None
    ) -> Ticket[T]:
        self._after_fork()
        return self._commits.submit(operation, callback)

    def read(self, operation: Callable[[Reader], T]) -> T:
        self._after_fork()
        try:
            return self._read(operation)
        except psycopg.OperationalError:
            # The server may have been restarted since the last time: once more, on a new connection.
            self._forget_idle()
        try:
            return self._read(operation)
        except psycopg.Error as error:
            raise StoreUnavailableError(f"PostgreSQL: {error}") from error

    def _read(self, operation: Callable[[Reader], T]) -> T:
        with self._borrowed() as connection:
            return operation(_Cursor(connection, self.now()))

    def _forget_idle(self) -> None:
        with self._idle_lock:
            while self._idle:
                self._idle.pop().close()

    @contextlib.contextmanager
    def _borrowed(self) -> Generator[Connection]:
        with self._idle_lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None or connection.closed or connection.broken:
            connection = self._connect()
        try:
            yield connection
        except psycopg.OperationalError:
            connection.close()
            raise
        finally:
            if not connection.closed:
                with self._idle_lock:
                    self._idle.append(connection)

    def now(self) -> float:
        """Return the server's time, as far as the last transaction told it."""
        return self._clock.wall() if self._clock is not None else SYSTEM_CLOCK.wall() + self._offset

    def server_time(self, told: float) -> float:
        """Note what the server's clock said; return the time to use."""
        if self._clock is not None:
            return self._clock.wall()
        self._offset = told - SYSTEM_CLOCK.wall()
        return told

    def _after_fork(self) -> None:
        if self._pid != os.getpid():
            # Closing the parent's connections here would end its sessions.
            self._abandoned = (self._idle, self._commits)
            self._open()

    def watch(self, changed: Callable[[set[str] | None], object], stop: Callable[[float], bool]) -> None:
        """Listen for lanes others touched; after so many quiet seconds, or a lost connection, any may have changed."""
        while not stop(0.0):
            try:
                with self._connect() as connection:
                    connection.execute(f"LISTEN {_CHANNEL}")
                    changed(None)
                    self._listen(connection, changed, stop)
            except psycopg.Error:
                if stop(1.0):
                    return

    def _listen(
        self, connection: Connection, changed: Callable[[set[str] | None], object], stop: Callable[[float], bool]
    ) -> None:
        quiet = 0.0
        while not stop(0.0):
            news = {notice.payload for notice in connection.notifies(timeout=0.25, stop_after=1)}
            quiet = 0.0 if news else quiet + 0.25
            if news:
                changed(news)
            elif quiet >= self._poll:
                quiet = 0.0
                changed(None)

    def lease_prefix(self) -> str:
        """Leases run on the server's clock."""
        return "server"

    def owner(self) -> str:
        """Name this process by an advisory lock that its writing session holds."""
        return str(self._owner)

    def gone(self, owners: frozenset[str]) -> frozenset[str]:
        """Return those whose lock nobody has held for some seconds: a session that was only cut off comes back."""
        keys = [int(owner) for owner in owners if owner.isdecimal()]
        if not keys:
            return frozenset()
        held = {str(key) for (key,) in self.read(lambda reader: reader.rows(_HELD, {"keys": keys}))}
        now = SYSTEM_CLOCK.monotonic()
        self._missing = {owner: self._missing.get(owner, now) for owner in owners - held if owner.isdecimal()}
        return frozenset(owner for owner, since in self._missing.items() if now - since >= self._owner_grace)

    def close(self) -> None:
        """Commit what waits and close every connection."""
        if self._pid != os.getpid():
            return
        self._commits.close()
        self._forget_idle()


@lru_cache(maxsize=512)
def _spelled(sql: str) -> bytes:
    """Turn `:name` into `%(name)s`."""
    return re.sub(r"(?<![:\w]):([a-z_]+)", r"%(\1)s", sql).encode()


class _Cursor:
    __slots__ = ("_connection", "lane_lock", "lease_now", "notices", "now", "row_lock")

    def __init__(self, connection: Connection, now: float) -> None:
        self._connection = connection
        self.now = now
        self.lease_now = now
        self.row_lock = " FOR UPDATE"
        self.lane_lock = " FOR NO KEY UPDATE"
        self.notices: set[str] = set()

    def execute(self, sql: str, parameters: Parameters | None = None) -> int:
        return self._connection.execute(_spelled(sql), parameters or {}).rowcount

    def rows(self, sql: str, parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        return self._connection.execute(_spelled(sql), parameters or {}).fetchall()

    def notify(self, lane: str) -> None:
        self.notices.add(lane)


class _Writer:
    def __init__(self, connection: Connection, store: PostgresStore) -> None:
        self._connection = connection
        self._store = store
        self._cursor: _Cursor | None = None

    def begin(self) -> Transaction:
        answers = self._connection.execute("BEGIN; SELECT extract(epoch FROM clock_timestamp())::float8")
        answers.nextset()
        told = answers.fetchone()
        self._cursor = _Cursor(self._connection, self._store.server_time(told[0] if told else 0.0))
        return self._cursor

    def commit(self) -> None:
        if self._cursor is not None and self._cursor.notices:
            self._connection.execute(
                "SELECT pg_notify(%s, lane) FROM unnest(%s::text[]) AS lane", (_CHANNEL, sorted(self._cursor.notices))
            )
        self._connection.execute("COMMIT")

    def rollback(self) -> None:
        with contextlib.suppress(psycopg.Error):
            self._connection.execute("ROLLBACK")

    def close(self) -> None:
        with contextlib.suppress(psycopg.Error):
            self._connection.close()


_GIVEN = (*MESSAGE_COLUMNS, *PAYLOAD_COLUMNS)
_TYPES = {"stream_mode": "bigint", "size": "bigint", "deadline": "float8", "body": "bytea"}


def _place(name: str) -> str:
    # Bodies travel as they are, everything else as text.
    return f"%{'b' if name == 'body' else 's'}::{_TYPES.get(name, 'text')}[]"


# One round trip for any number of messages.
_INSERT = f"""
WITH given AS (
        SELECT * FROM unnest({", ".join(_place(name) for name in _GIVEN)})
        WITH ORDINALITY AS t ({", ".join(_GIVEN)}, n)),
     l AS (INSERT INTO lanes (lane) SELECT DISTINCT lane FROM given ORDER BY lane ON CONFLICT DO NOTHING),
     m AS (INSERT INTO messages ({", ".join(MESSAGE_COLUMNS)}, created, due)
           SELECT {", ".join(MESSAGE_COLUMNS)}, %s, %s FROM given ORDER BY n
           ON CONFLICT (id) DO NOTHING RETURNING id, seq),
     p AS (INSERT INTO payloads (seq, {", ".join(PAYLOAD_COLUMNS)})
           SELECT seq, {", ".join(PAYLOAD_COLUMNS)} FROM m JOIN given USING (id))
SELECT id, seq FROM m"""


def _insert(transaction: Transaction, news: Sequence[NewMessage]) -> dict[str, int]:
    columns = [list(column) for column in zip(*((*new.row, *new.payload) for new in news), strict=True)]
    return dict(transaction.rows(_INSERT, [*columns, transaction.now, transaction.now]))


def _mark(transaction: Transaction, seqs: list[int], marks: dict[str, Any]) -> None:
    transaction.execute(f"{_sql.MARK} WHERE seq = ANY(:seqs)", {**marks, "seqs": seqs})


# One round trip for the row and its history.
_SETTLE = f"""
WITH done AS ({_sql.APPLY_WITH_TOKEN} RETURNING seq)
INSERT INTO history (seq, lane, at, attempt, what, outcome, detail, who)
SELECT seq, :lane, :at, :attempt, :what, :h_outcome, :h_detail, :who FROM done"""


def _settle(transaction: Transaction, row: dict[str, Any], entry: dict[str, Any]) -> bool:
    values = {**entry, **row, "h_outcome": entry["outcome"], "h_detail": entry["detail"]}
    return transaction.execute(_SETTLE, values) > 0


def _lock_stream(transaction: Transaction, lane: str, stream: str) -> None:
    # Numbers are not given in the order of commits: a later message could be seen before an earlier one.
    transaction.rows("SELECT pg_advisory_xact_lock(hashtextextended(:key, 0))", {"key": f"{lane}\x1f{stream}"})


def _unavailable(error: Exception) -> StoreUnavailableError | None:
    if isinstance(error, (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)):
        return None
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.ReadOnlySqlTransaction)):
        return StoreUnavailableError(f"PostgreSQL: {error}")
    return None
