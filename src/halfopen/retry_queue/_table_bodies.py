"""Large payloads inside PostgreSQL, in pieces: every machine can read them, and memory stays flat."""

from __future__ import annotations

import hashlib
import io
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, cast

import psycopg

from ._bodies import CHUNK, Body
from ._errors import PayloadCorruptError, PayloadTooLargeError, StoreUnavailableError

__all__ = ["TABLE", "TableBodies"]

TABLE = """
CREATE TABLE IF NOT EXISTS payload_chunks (
    name TEXT NOT NULL, n INTEGER NOT NULL, data BYTEA NOT NULL,
    at TIMESTAMPTZ NOT NULL DEFAULT now(), PRIMARY KEY (name, n)
)"""

Connect = Callable[[], AbstractContextManager[psycopg.Connection[Any]]]


class TableBodies:
    """Payloads as rows of 1 MiB; all pieces of one are committed before its message is."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect

    def write(self, parts: Iterator[bytes], limit: int) -> Body:
        """
        Write *parts* in one transaction.

        Raises:
            PayloadTooLargeError: More than *limit* bytes.
            StoreUnavailableError: The server did not take it.
        """
        name, size, digest = uuid.uuid4().hex, 0, hashlib.sha256()
        try:
            with self._connect() as connection, connection.transaction():
                for number, piece in enumerate(_pieces(parts)):
                    size += len(piece)
                    if size > limit:
                        raise PayloadTooLargeError(f"the payload is larger than {limit} bytes")
                    digest.update(piece)
                    connection.execute(
                        "INSERT INTO payload_chunks (name, n, data) VALUES (%s, %s, %b)", (name, number, piece)
                    )
        except psycopg.Error as error:
            raise StoreUnavailableError(f"cannot store the payload: {error}") from error
        return Body(size=size, digest=digest.hexdigest(), name=name)

    def open(self, name: str) -> BinaryIO:
        """Open one for reading, a piece at a time."""
        return cast(BinaryIO, io.BufferedReader(_Pieces(self._connect, name), CHUNK))

    def delete(self, name: str) -> None:
        """Remove all its pieces."""
        with self._connect() as connection:
            connection.execute("DELETE FROM payload_chunks WHERE name = %s", (name,))

    def names(self, older_than: float) -> Iterator[str]:
        """Name those written more than *older_than* seconds ago."""
        statement = "SELECT name FROM payload_chunks WHERE n = 0 AND at < now() - make_interval(secs => %s)"
        with self._connect() as connection:
            found = connection.execute(statement, (older_than,)).fetchall()
        return iter([name for (name,) in found])


def _pieces(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Cut or join *parts* to pieces of one size."""
    held = bytearray()
    for part in parts:
        held += part
        while len(held) >= CHUNK:
            yield bytes(held[:CHUNK])
            del held[:CHUNK]
    if held:
        yield bytes(held)


class _Pieces(io.RawIOBase):
    def __init__(self, connect: Connect, name: str) -> None:
        self._connect = connect
        self._name = name
        self._number = 0
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            self._left = self._next()
        taken = min(len(buffer), len(self._left))
        buffer[:taken] = self._left[:taken]
        self._left = self._left[taken:]
        return taken

    def _next(self) -> bytes:
        with self._connect() as connection, connection.cursor(binary=True) as cursor:
            row = cursor.execute(
                "SELECT data FROM payload_chunks WHERE name = %s AND n = %s", (self._name, self._number)
            ).fetchone()
        if row is None and self._number == 0:
            raise PayloadCorruptError(f"payload {self._name} is missing")
        self._number += 1
        return b"" if row is None else bytes(row[0])
