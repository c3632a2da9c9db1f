"""Full disks, read-only disks, damaged files, a wall clock that jumps: for real where a disk is needed."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from halfopen import State
from halfopen.retry_queue import (
    Delivery,
    MessageState,
    PayloadCorruptError,
    QueueAlert,
    Report,
    RetryQueue,
    SqliteStore,
    Store,
    StoreUnavailableError,
    Verdict,
)
from halfopen.testing import FakeClock
from tests.retry_queue.support import DELIVERED, UNAVAILABLE, Partner, breaker, claim, hub, new, put, states

S = MessageState
ROOT = Path(__file__).parents[2]


SIZE = 3_000_000


class SmallDisk:
    """A tmpfs of 3 MB; without the right to mount one, files that may not grow beyond that and a folder without `w`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.mounted = self._mount("-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(path))
        self.limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        if not self.mounted:
            self.signal = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            self._allow(SIZE)

    def _allow(self, size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, self.limit[1]))

    def _mount(self, *arguments: str) -> bool:
        if os.getuid() != 0:
            return False
        return 0 == subprocess.run(["mount", *arguments], check=False, stderr=subprocess.DEVNULL).returncode

    def fill(self) -> None:
        """Leave no room."""
        if not self.mounted:
            self._allow(0)
            return
        with suppress(OSError), (self.path / "ballast").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)

    def empty(self) -> None:
        """Make room again."""
        if not self.mounted:
            self._allow(SIZE)
            return
        (self.path / "ballast").unlink()

    def read_only(self, flag: bool) -> None:
        """Let nothing be written, or again."""
        if self.mounted:
            assert self._mount("-o", f"remount,{'ro' if flag else 'rw'}", str(self.path))
            return
        for file in [self.path, *self.path.iterdir()]:
            file.chmod(0o500 if flag else 0o700)
        if flag and os.access(self.path, os.W_OK):
            pytest.skip("root writes everywhere, and may not mount a disk that is read-only")

    def close(self) -> None:
        """Take the disk away."""
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.path)], check=True)
            return
        resource.setrlimit(resource.RLIMIT_FSIZE, self.limit)
        signal.signal(signal.SIGXFSZ, self.signal)
        self.read_only(False)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    path = tmp_path / "disk"
    path.mkdir()
    small = SmallDisk(path)
    yield small
    small.close()


def enqueue_until_full(queue: RetryQueue) -> list[str]:
    accepted: list[str] = []
    with pytest.raises(StoreUnavailableError):
        for number in range(2000):
            accepted.append(queue.enqueue("acme", os.urandom(4000), message_id=f"<m{number}>").message_id)
    return accepted


def test_a_full_disk_refuses_new_messages_and_loses_none(disk: SmallDisk, clock: FakeClock) -> None:
    queue, partner = hub(SqliteStore(disk.path / "q.db", clock=clock), clock), Partner()
    queue.lane("acme", sender=partner, breaker=breaker(clock))
    put(queue.store, "first")
    disk.fill()

    accepted = enqueue_until_full(queue)
    during = states(queue.store)
    disk.empty()
    queue.enqueue("acme", b"after", message_id="<after>")
    queue.tick()

    assert {"first", *accepted} == during.keys()
    assert {S.DONE: len(accepted) + 2} == queue.store.books()
    queue.close()


def test_without_a_store_nothing_is_sent_and_permits_go_back(disk: SmallDisk, clock: FakeClock) -> None:
    queue, partner = hub(SqliteStore(disk.path / "q.db", clock=clock), clock), Partner()
    gate = queue.lane("acme", sender=partner, breaker=breaker(clock))
    alerts: list[QueueAlert] = []
    queue.subscribe(alerts.append)
    put(queue.store, "m1")
    disk.fill()
    enqueue_until_full(queue)

    queue.tick()
    seen_without_store = len(partner.seen)
    disk.empty()
    clock.advance(2)
    queue.tick()
    queue.flush_alerts()

    assert (0, 0) == (seen_without_store, gate.snapshot().counters.permits.in_flight)
    assert ["store_unavailable", "store_available"] == [alert.kind for alert in alerts]
    assert {S.DONE} == queue.store.books().keys()
    queue.close()


def test_a_result_the_store_does_not_take_is_told_to_the_breaker_and_written_later(
    disk: SmallDisk, clock: FakeClock
) -> None:
    queue = hub(SqliteStore(disk.path / "q.db", clock=clock), clock)

    def send(_: object) -> Report:
        disk.fill()
        return DELIVERED

    gate = queue.lane("acme", sender=send, breaker=breaker(clock))
    put(queue.store, "m1")
    queue.tick()
    told, without_store = gate.snapshot().calls, states(queue.store)
    disk.empty()
    clock.advance(2)

    queue.tick()
    queue.store.settled()

    assert (1, {"m1": "sending"}) == (told, without_store)
    assert {"m1": "done"} == states(queue.store)
    queue.close()


def test_a_full_disk_leaves_no_half_written_payload(disk: SmallDisk, clock: FakeClock) -> None:
    queue = hub(SqliteStore(disk.path / "q.db", clock=clock), clock)
    queue.enqueue("acme", b"x" * 100_000, message_id="<before>")

    with pytest.raises(StoreUnavailableError):
        queue.enqueue("acme", b"x" * 5_000_000, message_id="<too much>")

    files = sorted(file.suffix for file in (disk.path / "q.db-payloads").iterdir())
    assert ([".body"], ["<before>"]) == (files, list(states(queue.store)))
    queue.close()


def test_a_read_only_disk_is_reported_at_once_and_what_it_holds_is_whole(disk: SmallDisk, clock: FakeClock) -> None:
    store = SqliteStore(disk.path / "q.db", clock=clock)
    put(store, "m1")
    store.close()
    disk.read_only(True)

    with pytest.raises(StoreUnavailableError, match=r"readonly|read-only|unable to open"):
        SqliteStore(disk.path / "q.db", clock=clock).enqueue(new("m2")).result()

    disk.read_only(False)
    again = SqliteStore(disk.path / "q.db", clock=clock)
    assert {"m1": "waiting"} == states(again)
    again.close()


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(b"y" + file.read_bytes()[1:]),
        lambda file: file.write_bytes(file.read_bytes()[:-1]),
        lambda file: file.unlink(),
    ],
    ids=["a byte flipped", "cut short", "missing"],
)
def test_a_damaged_payload_is_never_sent(tmp_path: Path, clock: FakeClock, damage: Callable[[Path], object]) -> None:
    queue, partner = hub(SqliteStore(tmp_path / "q.db", clock=clock), clock), Partner()
    gate = queue.lane("acme", sender=partner, breaker=breaker(clock))
    queue.enqueue("acme", b"x" * 100_000, message_id="<large>")
    queue.enqueue("acme", b"fine", message_id="<small>")
    damage(next((tmp_path / "q.db-payloads").glob("*.body")))

    queue.tick()

    message = queue.get("<large>")
    assert (["<small>"], {"<large>": "error", "<small>": "done"}) == (partner.ids, states(queue.store))
    assert ("payload corrupt", 0) == ((message.last_detail or "")[:15], message.attempts)
    assert (State.CLOSED, 0) == (gate.state, gate.snapshot().failures)
    with pytest.raises((PayloadCorruptError, OSError)):
        queue.resubmit("<large>")
    queue.close()


# The wall clock


def test_a_clock_set_back_keeps_no_message_waiting_beyond_its_schedule(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner([UNAVAILABLE, DELIVERED])
    queue.lane("acme", sender=partner, breaker=breaker(clock))
    put(store, "m1")
    queue.tick()
    clock.step_wall(-7 * 86_400)
    queue.tick()
    clock.advance(3700 * 1.1)

    queue.tick()

    assert {"m1": "done"} == states(store)


def test_a_clock_set_forward_makes_no_dead_letters_at_once_and_says_so(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner()
    alerts: list[str] = []
    queue.subscribe(lambda alert: alerts.append(alert.kind))
    queue.lane("acme", sender=partner, breaker=breaker(clock)).force_open()
    queue.enqueue("acme", b"abc", message_id="m1", deadline=3600.0)
    queue.tick()
    clock.step_wall(7 * 86_400)
    queue.tick()
    stepped = states(store)
    clock.step_wall(-7 * 86_400)
    queue.tick()
    clock.advance(1800)
    queue.tick()
    mended = states(store)
    clock.advance(1801)
    queue.tick()
    queue.flush_alerts()

    assert [{"m1": "waiting"}, {"m1": "waiting"}, {"m1": "dead"}] == [stepped, mended, states(store)]
    assert "clock_stepped" in alerts


def test_a_stepped_clock_frees_no_message_that_is_being_sent(tmp_path: Path, clock: FakeClock) -> None:
    here = hub(SqliteStore(tmp_path / "q.db", clock=clock), clock)
    there, other = hub(SqliteStore(tmp_path / "q.db", clock=clock), clock), Partner()
    there.lane("acme", sender=other, breaker=breaker(clock))

    def slow(_: object) -> Report:
        clock.step_wall(30 * 86_400)
        there.tick()
        clock.step_wall(-60 * 86_400)
        there.tick()
        return Report(Verdict.DELIVERED)

    here.lane("acme", sender=slow, breaker=breaker(clock))
    put(here.store, "m1")

    here.tick()

    assert ([], {"m1": "done"}) == (other.ids, states(here.store))
    here.close()
    there.close()


def test_the_breakers_rhythm_does_not_know_the_wall_clock(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner([UNAVAILABLE])
    gate = queue.lane("acme", sender=partner, breaker=breaker(clock))
    put(store, *(f"m{number}" for number in range(5)))
    queue.tick()
    clock.step_wall(86_400)
    queue.tick()
    clock.step_wall(-3 * 86_400)
    queue.tick()
    seen = len(partner.seen)
    clock.advance(31)

    queue.tick()

    assert (3, 6, State.OPEN) == (seen, len(partner.seen), gate.state)


def test_sqlite_below_its_floor_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlite3.sqlite_version_info", (3, 36, 0))

    with pytest.raises(StoreUnavailableError, match=r"3\.37"):
        SqliteStore(tmp_path / "q.db")


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "q.db").write_bytes(b"not a database" * 100)

    with pytest.raises(StoreUnavailableError, match="not a database"):
        SqliteStore(tmp_path / "q.db")


def test_no_connection_crosses_a_fork(tmp_path: Path) -> None:
    script = """
import os, sys
from halfopen.retry_queue import RetryQueue
queue = RetryQueue(sys.argv[1])
queue.enqueue("acme", b"parent", message_id="parent")
if (child := os.fork()) == 0:
    queue.enqueue("acme", b"child", message_id="child")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
queue.enqueue("acme", b"again", message_id="again")
print(sorted(message.id for message in queue.list()))
queue.close()
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}

    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "q.db")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )

    assert "['again', 'child', 'parent']" == done.stdout.strip()


def test_a_disk_that_cannot_hold_a_write_ahead_log_is_refused() -> None:
    with pytest.raises(StoreUnavailableError, match="write-ahead log"):
        SqliteStore(":memory:")


def test_nobody_gives_up_messages_of_a_lane_he_does_not_know(store: Store, clock: FakeClock) -> None:
    put(store, "m1")
    for _ in range(15):
        claim(store, any_due=True, lease=1.0)
        clock.advance(2)
        hub(store, clock)._caretaker.once()

    assert {"m1": "unknown_delivery"} == states(store)


def test_a_lease_that_could_not_be_renewed_is_tried_again(disk: SmallDisk, clock: FakeClock) -> None:
    queue = hub(SqliteStore(disk.path / "q.db", clock=clock), clock)
    leases: list[float | None] = []

    def send(delivery: Delivery) -> Report:
        clock.advance(40)
        disk.fill()
        queue._caretaker.once()
        disk.empty()
        queue._caretaker.once()
        leases.append(queue.get("m1").lease_until)
        return DELIVERED

    queue.lane("acme", sender=send, breaker=breaker(clock))
    put(queue.store, "m1")

    queue.tick()

    assert [130.0] == leases
    queue.close()
