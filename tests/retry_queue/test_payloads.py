"""Payloads of any kind and size: stored once, read back byte for byte, in flat memory."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from halfopen.retry_queue import Delivery, PayloadTooLargeError, Report, SqliteStore, Store, Verdict
from halfopen.testing import FakeClock
from tests.retry_queue.support import DELIVERED, Partner, breaker, hub, states

ROOT = Path(__file__).parents[2]
SIZES = [0, 1, 65_535, 65_536, 65_537, 3_000_000]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["bytes", "path", "stream", "dripping stream"])
def test_what_was_enqueued_is_what_is_sent(
    store: Store, clock: FakeClock, tmp_path: Path, kind: str, size: int
) -> None:
    body = os.urandom(min(size, 1000)) * (size // 1000 + 1)
    body = body[:size]
    (tmp_path / "body").write_bytes(body)
    payloads = {
        "bytes": body,
        "path": tmp_path / "body",
        "stream": io.BytesIO(body),
        "dripping stream": io.BufferedReader(Dripping(body)),
    }
    queue, partner = hub(store, clock), Partner()
    queue.lane("acme", sender=partner, breaker=breaker(clock))

    queue.enqueue("acme", payloads[kind], message_id="m1")
    queue.tick()

    assert [("m1", body, False)] == partner.seen


class Dripping(io.RawIOBase):
    """Gives less than was asked for, as a socket does."""

    def __init__(self, body: bytes) -> None:
        self._left = body

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # what io hands in
        part, self._left = self._left[:7_001], self._left[7_001:]
        taken = min(len(part), len(buffer))
        buffer[:taken] = part[:taken]
        self._left = part[taken:] + self._left
        return taken


def test_a_sender_may_read_in_pieces_and_more_than_once(store: Store, clock: FakeClock) -> None:
    body = os.urandom(1000) * 3000
    digests: list[str] = []

    def send(delivery: Delivery) -> Report:
        for _ in range(2):
            digest = hashlib.sha256()
            for piece in delivery.chunks():
                digest.update(piece)
            digests.append(digest.hexdigest())
        return DELIVERED

    queue = hub(store, clock)
    queue.lane("acme", sender=send, breaker=breaker(clock))
    queue.enqueue("acme", body, message_id="m1")
    queue.tick()

    assert [hashlib.sha256(body).hexdigest()] * 2 == digests


def test_a_payload_above_the_limit_is_refused_and_leaves_nothing(tmp_path: Path, clock: FakeClock) -> None:
    queue = hub(SqliteStore(tmp_path / "q.db", clock=clock), clock, max_size=200_000)

    with pytest.raises(PayloadTooLargeError, match="200000"):
        queue.enqueue("acme", io.BytesIO(b"x" * 200_001))

    assert ({}, []) == (states(queue.store), list((tmp_path / "q.db-payloads").iterdir()))
    queue.close()


def test_a_duplicate_leaves_no_second_file(tmp_path: Path, clock: FakeClock) -> None:
    queue = hub(SqliteStore(tmp_path / "q.db", clock=clock), clock)
    for _ in range(3):
        queue.enqueue("acme", b"x" * 100_000, message_id="m1")
    queue.store.settled()

    assert 1 == len(list((tmp_path / "q.db-payloads").iterdir()))
    queue.close()


def test_resubmitting_copies_the_bytes_and_changes_the_id(store: Store, clock: FakeClock) -> None:
    body = os.urandom(1000) * 200
    queue, partner = hub(store, clock), Partner([Report(Verdict.REFUSED, "HTTP 422"), DELIVERED])
    queue.lane("acme", sender=partner, breaker=breaker(clock))
    queue.enqueue("acme", body, headers={"message-id": "<m1>", "AS2-To": "ACME"}, stream="s", document_type="850")
    queue.tick()

    accepted = queue.resubmit("<m1>", by="ann", reason="they fixed it")
    queue.cancel("<m1>")
    queue.tick()

    again = queue.get(accepted.message_id)
    assert [("<m1>", body, False), (accepted.message_id, body, False)] == partner.seen
    assert ("<m1>", "s", "850", "done") == (again.resubmit_of, again.stream, again.kind, again.state.value)
    assert [("message-id", accepted.message_id), ("AS2-To", "ACME")] == list(queue.headers(accepted.message_id))


MEMORY = """
import resource, sys, hashlib
from halfopen.retry_queue import RetryQueue, Report, Verdict

class Zeros:
    def __init__(self, size): self.left = size
    def read(self, number=-1):
        part = b"z" * min(self.left, number if number > 0 else self.left)
        self.left -= len(part)
        return part

def send(delivery):
    size = sum(len(piece) for piece in delivery.chunks())
    print(size)
    return Report(Verdict.DELIVERED)

queue = RetryQueue(sys.argv[1])
queue.lane("acme", sender=send)
queue.enqueue("acme", Zeros(200_000), message_id="warm")
queue.tick()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
queue.enqueue("acme", Zeros(100 * 1024 * 1024), message_id="large")
queue.tick()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
queue.close()
"""


def test_a_hundred_megabytes_pass_through_in_flat_memory(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}

    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path / "q.db")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )

    _, size, grown = map(int, done.stdout.split())
    assert 100 * 1024 * 1024 == size
    assert grown < 12_000, f"grown by {grown} KiB"
