"""The embedded engine: one SQLite file, shared by the processes of one machine."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeVar

from halfopen._runtime.clock import SYSTEM_CLOCK, Clock

from . import _inspection, _sql
from ._bodies import FileBodies
from ._errors import StoreUnavailableError
from ._group_commit import GroupCommit, Parameters, Ticket, Transaction
from ._inspection import Reader
from ._owners import FileOwner, owner_of
from ._requests import MESSAGE_COLUMNS, PAYLOAD_COLUMNS, Accepted, Dialect, NewMessage
from ._store import Store

__all__ = ["SqliteStore"]

T = TypeVar("T")
_FLOOR = (3, 37, 0)  # STRICT tables
# Rows in one statement: each statement lets go of the interpreter's lock, and under load gets it back late.
_AT_ONCE = 50
_STORE_FAULTS = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOTADB,
    }
)


@contextlib.contextmanager
def _closed_unless_well(connection: sqlite3.Connection) -> Generator[None, None, None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


class SqliteStore(Store):
    """
    A store in one SQLite file: WAL, every commit synced, group commit, large bodies as files beside it.

    Use a local disk: WAL does not work on network file systems. No connection crosses a fork; the child opens its own.

    Args:
        path: The database file; made if it does not exist.
        synchronous: ``FULL``, or ``NORMAL``, which may lose the last commits at a power cut.
        inline: Bytes up to which a body is kept in the database.
        busy_timeout: Seconds to wait for another process's transaction.
        poll: Seconds between looks at what other processes did.

    Raises:
        StoreUnavailableError: SQLite is older than 3.37, or the file cannot be opened or written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Literal["FULL", "NORMAL"] = "FULL",
        inline: int = 65_536,
        busy_timeout: float = 10.0,
        poll: float = 0.2,
        clock: Clock | None = None,
    ) -> None:
        if sqlite3.sqlite_version_info < _FLOOR:
            raise StoreUnavailableError(f"SQLite 3.37 is needed for STRICT tables, this is {sqlite3.sqlite_version}")
        self.path = Path(path)
        self.name = "sqlite"
        self.inline = inline
        self.bodies = FileBodies(self.path.with_name(f"{self.path.name}-payloads"))
        self._owner = FileOwner(self.path.with_name(f"{self.path.name}-owners"))
        self.dialect = Dialect(
            lock_lane="",
            lock_rows="",
            lease_over=f"(lease_until <= :now OR lease_token NOT LIKE '{_boot()}:%')",
            insert=self._insert,
            mark=_mark,
            settle=_settle,
            lock_stream=lambda transaction, lane, stream: None,
        )
        self._clock = clock or SYSTEM_CLOCK
        self._synchronous = synchronous
        self._busy_timeout = busy_timeout
        self._poll = poll
        self._open()

    def _open(self) -> None:
        self._pid = os.getpid()
        self._file: tuple[int, int] | None = None
        self._lanes: set[str] = set()  # those whose row is committed
        self._readers: list[sqlite3.Connection] = []
        self._readers_lock = threading.Lock()
        try:
            writer = self._connect_writer()
            try:
                writer.create()
            finally:
                writer.close()
            self._file = self._present()
        except sqlite3.Error as error:
            raise StoreUnavailableError(f"{self.path}: {error}") from error
        self._commits = GroupCommit(self._connect_writer, self._unavailable, name="sqlite-writer")

    def _present(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _check_file(self) -> None:
        # SQLite would go on in a file that has no name any more, and lose all of it in the end.
        if self._file is not None and self._present() != self._file:
            raise StoreUnavailableError(f"{self.path}: the file was removed or replaced while it was in use")

    def _connect(self) -> sqlite3.Connection:
        self._check_file()
        connection = sqlite3.connect(
            self.path,
            timeout=self._busy_timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        with _closed_unless_well(connection):
            connection.execute(f"PRAGMA busy_timeout = {int(self._busy_timeout * 1000)}")
        return connection

    def _connect_writer(self) -> _Writer:
        connection = self._connect()
        with _closed_unless_well(connection):
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise StoreUnavailableError(
                    f"{self.path}: no write-ahead log here (journal mode {mode}); use a local disk"
                )
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA cache_size = -32000")
        return _Writer(connection, self._clock, self._check_file)

    def _insert(self, transaction: Transaction, news: Sequence[NewMessage]) -> dict[str, int]:
        for lane in {new.lane for new in news} - self._lanes:
            transaction.execute(_sql.NEW_LANE, {"lane": lane})
        found: dict[str, int] = {}
        for start in range(0, len(news), _AT_ONCE):
            found |= _insert(transaction, news[start : start + _AT_ONCE])
        return found

    def enqueue(
        self, new: NewMessage, callback: Callable[[Ticket[Accepted]], object] | None = None
    ) -> Ticket[Accepted]:
        """Write a new message; *callback* as for `Ticket.then`."""
        ticket = super().enqueue(new, callback)
        if new.lane not in self._lanes:
            ticket.then(lambda done: self._lanes.add(new.lane) if done.error is None else None)
        return ticket

    def submit(
        self, operation: Callable[[Transaction], T], callback: Callable[[Ticket[T]], object] | None = None
    ) -> Ticket[T]:
        self._after_fork()
        return self._commits.submit(operation, callback)

    def read(self, operation: Callable[[Reader], T]) -> T:
        self._after_fork()
        self._check_file()
        with self._readers_lock:
            connection = self._readers.pop() if self._readers else None
        try:
            if connection is None:
                connection = self._connect()
            return operation(_Cursor(connection, self._clock))
        except sqlite3.Error as error:
            raise StoreUnavailableError(f"{self.path}: {error}") from error
        finally:
            if connection is not None:
                with self._readers_lock:
                    self._readers.append(connection)

    def _after_fork(self) -> None:
        if self._pid != os.getpid():
            # The parent's connections must not even be closed here: that would drop its locks.
            self._abandoned = (self._readers, self._commits)
            self._open()

    def watch(self, changed: Callable[[set[str] | None], object], stop: Callable[[float], bool]) -> None:
        """Look at the file's change counter, which costs no disk access, and at new rows when it moved."""
        connection = self._connect()
        reader = _Cursor(connection, self._clock)
        try:
            seq, entry = _inspection.marks(reader)
            version = -1
            while not stop(self._poll):
                with contextlib.suppress(sqlite3.Error):
                    newest = reader.rows("PRAGMA data_version")[0][0]
                    if newest != version:
                        version = newest
                        lanes, seq, entry = _inspection.changed_lanes(reader, seq, entry)
                        if lanes:
                            changed(lanes)
        finally:
            connection.close()

    def lease_prefix(self) -> str:
        """Leases run on the monotonic clock, which all processes of a machine share until it boots again."""
        return _boot()

    def owner(self) -> str:
        """Name this process by a file that it keeps locked beside the database."""
        return self._owner.name

    def gone(self, owners: frozenset[str]) -> frozenset[str]:
        """Return those whose lock is free."""
        return self._owner.gone(owners)

    def sweep_bodies(self, older_than: float = 3600.0) -> int:
        """Delete stored bodies no row refers to, and the files of processes that died long since."""
        tokens, rounds = self.read(_inspection.claims)
        self._owner.sweep(frozenset(map(owner_of, [*tokens, *rounds.values()])))
        return super().sweep_bodies(older_than)

    def close(self) -> None:
        """Commit what waits and close every connection."""
        if self._pid != os.getpid():
            return
        self._commits.close()
        with contextlib.suppress(StoreUnavailableError):
            # A send that outlasts us is that of a living process: until that ends, others must wait for its lease.
            if not any(owner_of(token) == self._owner.name for token in self.read(_inspection.claims)[0]):
                self._owner.close()
        with self._readers_lock:
            while self._readers:
                self._readers.pop().close()

    def _unavailable(self, error: Exception) -> StoreUnavailableError | None:
        if isinstance(error, StoreUnavailableError):
            return error
        # Full, read-only, locked, damaged, I/O error: none is the operation's fault.
        code = getattr(error, "sqlite_errorcode", None)
        if isinstance(error, sqlite3.DatabaseError) and code is not None and code & 0xFF in _STORE_FAULTS:
            return StoreUnavailableError(f"{self.path}: {error}")
        return None


class _Cursor:
    __slots__ = ("_connection", "lane_lock", "lease_now", "now", "row_lock")

    def __init__(self, connection: sqlite3.Connection, clock: Clock) -> None:
        self._connection = connection
        self.now = clock.wall()
        self.lease_now = clock.monotonic()
        self.row_lock = ""
        self.lane_lock = ""

    def execute(self, sql: str, parameters: Parameters | None = None) -> int:
        return self._connection.execute(sql, parameters or ()).rowcount

    def rows(self, sql: str, parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, parameters or ()).fetchall()

    def notify(self, lane: str) -> None:
        """Other processes see the file change."""


class _Writer:
    def __init__(self, connection: sqlite3.Connection, clock: Clock, check: Callable[[], None]) -> None:
        self._connection = connection
        self._clock = clock
        self._check = check

    def create(self) -> None:
        present = self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'payload_files'").fetchone()
        if present is None:
            self._connection.executescript(f"BEGIN IMMEDIATE; {_sql.schema(_sql.SQLITE_TYPES)} COMMIT;")
        _sql.check_version(self._connection.execute(_sql.WHICH_VERSION).fetchall())

    def begin(self) -> Transaction:
        self._check()
        self._connection.execute("BEGIN IMMEDIATE")
        return _Cursor(self._connection, self._clock)

    def commit(self) -> None:
        self._connection.execute("COMMIT")

    def rollback(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()


def _insert(transaction: Transaction, news: Sequence[NewMessage]) -> dict[str, int]:
    times = (transaction.now, transaction.now)
    rows = list(chain.from_iterable((*new.row, *times) for new in news))
    found = dict(transaction.rows(_new_messages(len(news)), rows))
    payloads = [(found[new.id], *new.payload) for new in news if new.id in found]
    if payloads:
        transaction.execute(_new_payloads(len(payloads)), list(chain.from_iterable(payloads)))
    return found


@lru_cache(maxsize=_AT_ONCE)
def _new_messages(count: int) -> str:
    # Without numbers: to Python 3.12 they are names, which a sequence has not.
    row = f"({', '.join('?' * (len(MESSAGE_COLUMNS) + 2))})"
    return (
        f"INSERT INTO messages ({', '.join(MESSAGE_COLUMNS)}, created, due)"
        f" VALUES {', '.join([row] * count)} ON CONFLICT (id) DO NOTHING RETURNING id, seq"
    )


@lru_cache(maxsize=_AT_ONCE)
def _new_payloads(count: int) -> str:
    row = f"({', '.join('?' * (1 + len(PAYLOAD_COLUMNS)))})"
    return f"INSERT INTO payloads (seq, {', '.join(PAYLOAD_COLUMNS)}) VALUES {', '.join([row] * count)}"


def _mark(transaction: Transaction, seqs: list[int], marks: dict[str, Any]) -> None:
    for seq in seqs:
        transaction.execute(f"{_sql.MARK} WHERE seq = :seq", {**marks, "seq": seq})


def _settle(transaction: Transaction, row: dict[str, Any], entry: dict[str, Any]) -> bool:
    if not transaction.execute(_sql.APPLY_WITH_TOKEN, row):
        return False
    transaction.execute(_sql.HISTORY, entry)
    return True


def _boot() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return "boot"
