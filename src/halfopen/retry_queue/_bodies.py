"""Large payloads: written once, synced, renamed into place, verified before the first byte is sent."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from ._errors import PayloadCorruptError, PayloadTooLargeError, StoreUnavailableError

__all__ = ["CHUNK", "Bodies", "Body", "FileBodies", "chunks", "take"]

CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """
    Bytes that are ready to be enqueued.

    Attributes:
        data: The bytes themselves, for small ones.
        name: Where the bytes are stored, for large ones.
        digest: Hex SHA-256.
    """

    size: int
    digest: str
    data: bytes | None = None
    name: str | None = None


class Bodies(Protocol):
    """Where large payloads are."""

    def write(self, parts: Iterator[bytes], limit: int) -> Body:
        """Store *parts* durably; at most *limit* bytes."""
        ...

    def open(self, name: str) -> BinaryIO:
        """Open one for reading from its start."""
        ...

    def delete(self, name: str) -> None:
        """Forget one; a no-op if it is gone."""

    def names(self, older_than: float) -> Iterator[str]:
        """Name those written more than *older_than* seconds ago."""
        ...


def chunks(stream: BinaryIO) -> Iterator[bytes]:
    """Read *stream* to its end in pieces of constant size."""
    while part := stream.read(CHUNK):
        yield part


def take(
    payload: bytes | bytearray | memoryview | str | os.PathLike[str] | BinaryIO, inline: int, limit: int, bodies: Bodies
) -> Body:
    """
    Make *payload* (bytes, a path, or a readable stream) ready to be enqueued.

    Up to *inline* bytes go into the row; more are streamed to *bodies* in constant memory.

    Raises:
        PayloadTooLargeError: More than *limit* bytes.
    """
    if isinstance(payload, (bytes, bytearray, memoryview)):
        whole = len(payload) > inline
        return _take(io.BytesIO(payload), inline, limit, bodies) if whole else _inline(bytes(payload), limit)
    if isinstance(payload, (str, os.PathLike)):
        with open(payload, "rb") as file:
            return _take(file, inline, limit, bodies)
    return _take(payload, inline, limit, bodies)


def _inline(data: bytes, limit: int) -> Body:
    if len(data) > limit:
        raise _too_large(limit)
    return Body(size=len(data), digest=hashlib.sha256(data).hexdigest(), data=data)


def _take(stream: BinaryIO, inline: int, limit: int, bodies: Bodies) -> Body:
    head = b""
    while len(head) <= inline and (part := stream.read(inline + 1 - len(head))):
        head += part
    if len(head) <= inline:
        return _inline(head, limit)

    def parts() -> Iterator[bytes]:
        yield head
        yield from chunks(stream)

    return bodies.write(parts(), limit)


class FileBodies:
    """
    Payloads as files in *directory*, beside the database.

    A file is complete and on disk before its row is written; a crash in between leaves a file without a row, which
    `names` finds.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, parts: Iterator[bytes], limit: int) -> Body:
        """
        Write *parts*, sync, rename into place, sync the folder.

        Raises:
            PayloadTooLargeError: More than *limit* bytes.
            StoreUnavailableError: The disk is full, read-only or gone.
        """
        name = uuid.uuid4().hex
        temporary = self._directory / f"{name}.part"
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            size, digest = _write_synced(temporary, parts, limit)
            temporary.rename(self._path(name))
            _sync_directory(self._directory)
        except BaseException as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise StoreUnavailableError(f"cannot store the payload: {error}") from error
            raise
        return Body(size=size, digest=digest, name=name)

    def open(self, name: str) -> BinaryIO:
        """
        Open one for reading.

        Raises:
            PayloadCorruptError: The file is missing or unreadable.
        """
        try:
            return self._path(name).open("rb")
        except OSError as error:
            raise PayloadCorruptError(f"payload file {name}: {error.strerror}") from error

    def delete(self, name: str) -> None:
        """Remove the file; a no-op if it is gone."""
        with contextlib.suppress(OSError):
            self._path(name).unlink(missing_ok=True)

    def names(self, older_than: float) -> Iterator[str]:
        """Name the files, finished or not, written more than *older_than* seconds ago."""
        limit = time.time() - older_than
        with contextlib.suppress(OSError):
            for entry in os.scandir(self._directory):
                if entry.name.endswith((".part", ".body")) and entry.stat().st_mtime < limit:
                    yield entry.name.removesuffix(".body")

    def _path(self, name: str) -> Path:
        return self._directory / (name if name.endswith(".part") else f"{name}.body")


def _write_synced(path: Path, parts: Iterator[bytes], limit: int) -> tuple[int, str]:
    size, digest = 0, hashlib.sha256()
    with path.open("xb") as file:
        for part in parts:
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            digest.update(part)
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    return size, digest.hexdigest()


def _too_large(limit: int) -> PayloadTooLargeError:
    return PayloadTooLargeError(f"the payload is larger than {limit} bytes")


def _sync_directory(directory: Path) -> None:
    if os.name == "nt":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
