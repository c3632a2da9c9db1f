"""kill -9 at random moments and at named points: nothing lost, one ID, one body, one worker, and the books balance."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from halfopen.retry_queue import MessageState, RetryQueue, Selection, Store
from halfopen.testing import FakeClock
from tests.retry_queue.children import LANES, TIMEOUT, open_store
from tests.retry_queue.support import Partner, put, states

ROOT = Path(__file__).parents[2]
S = MessageState


class Witness:
    """A partner in a process that is never killed: answers badly on script, and remembers every arrival."""

    def __init__(self) -> None:
        self.arrivals: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        self.down_until: dict[str, float] = {}
        self.kind = True
        self.rng = random.Random(5)
        witness = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                began = time.monotonic()
                body = b""
                length = int(self.headers["Content-Length"])
                with suppress(OSError):
                    body = self.rfile.read(length)
                if len(body) < length:  # the sender was killed in the middle of it
                    witness.note(self.headers, None, began, 0)
                    return
                status, wait = witness.answer(self.headers["X-Lane"])
                time.sleep(wait)
                witness.note(self.headers, body, began, status)
                with suppress(OSError):  # the client was killed or gave up
                    self.send_response(status)
                    self.send_header("Content-Length", "3")
                    self.end_headers()
                    self.wfile.write(b"mdn")

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients are killed on purpose
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, lane: str) -> tuple[int, float]:
        with self.lock:
            chance, now = self.rng.random(), time.monotonic()
            if not self.kind and self.rng.random() < 0.06:
                self.down_until[lane] = now + 0.4
            if now < self.down_until.get(lane, 0.0):
                return 503, 0.0
        if self.kind:
            return 200, 0.0
        if chance < 0.08:
            return 503, 0.0
        return (200, TIMEOUT * 1.5) if chance < 0.10 else (200, chance * 0.02)

    def note(self, headers: Any, body: bytes | None, began: float, status: int) -> None:
        with self.lock:
            self.arrivals.append(
                {
                    "id": headers["Message-ID"],
                    "worker": int(headers["X-Worker"]),
                    "lane": headers["X-Lane"],
                    "trial": headers["X-Trial"] == "True",
                    "digest": None if body is None else hashlib.sha256(body).hexdigest(),
                    "began": began,
                    "ended": time.monotonic(),
                    "status": status,
                }
            )

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@contextmanager
def child(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = start(*arguments)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def start(*arguments: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYTHONWARNINGS": "ignore"}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.retry_queue.children", *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


class Campaign:
    """Two senders and one enqueuer, killed at random and started again."""

    def __init__(self, where: str, folder: Path) -> None:
        self.where = where
        self.journal = folder / "accepted.txt"
        self.journal.touch()
        self.witness = Witness()
        self.killed: dict[int, float] = {}
        self.commands = {
            "enqueuer": ("enqueue", where, str(self.journal)),
            "one": ("send", where, str(self.witness.port)),
            "other": ("send", where, str(self.witness.port)),
        }
        self.processes = {name: start(*command) for name, command in self.commands.items()}

    def kill(self, name: str) -> None:
        process = self.processes[name]
        # Before: once it is dead others take over, and they may be quicker than we are.
        self.killed[process.pid] = time.monotonic()
        process.send_signal(signal.SIGKILL)
        process.wait()

    def round(self, rng: random.Random) -> None:
        self.wait_for(rng.randrange(1, 15))
        time.sleep(rng.random() * 0.02)
        name = rng.choice(["enqueuer", "one", "other", "one", "other"])
        alive = {key: process.poll() for key, process in self.processes.items()}
        assert {None} == set(alive.values()), f"a process died by itself: {alive}"
        self.kill(name)
        self.processes[name] = start(*self.commands[name])

    def wait_for(self, events: int, seconds: float = 60.0) -> None:
        """Let so many messages be accepted or posted: kills hit processes that work, however busy the machine is."""
        target, posted, until = self.events() + events, len(self.witness.arrivals), time.monotonic() + seconds
        while time.monotonic() < until and (self.events() < target or len(self.witness.arrivals) == posted):
            time.sleep(0.005)

    def events(self) -> int:
        return self.journal.read_bytes().count(b"\n") + len(self.witness.arrivals)

    def accepted(self) -> dict[str, tuple[str, str, str]]:
        lines = self.journal.read_text().splitlines()
        return {identity: (lane, digest, stream) for identity, lane, digest, stream in map(str.split, lines)}

    def stop(self) -> None:
        for name in self.processes:
            self.kill(name)
        self.witness.close()


def check_books(store: Store, accepted: dict[str, tuple[str, str, str]]) -> None:
    """Accepted = done + waiting + the other states; a crash may have kept the journal one line short."""
    rows = {message.id: message for message in everything(store)}
    lost = accepted.keys() - rows.keys()
    assert not lost, f"{len(lost)} accepted messages are not in the store"
    books = Counter(rows[identity].state for identity in accepted)
    assert len(accepted) == sum(books.values())
    assert not {S.ERROR, S.DEAD, S.CANCELLED} & books.keys()


def everything(store: Store) -> Iterator[Any]:
    after = 0
    while page := store.select(Selection(), after=after, limit=5000):
        yield from page
        after = page[-1].seq


def check_the_partners_log(campaign: Campaign, store: Store) -> None:
    rows = {message.id: message for message in everything(store)}
    arrivals = defaultdict(list)
    for arrival in campaign.witness.arrivals:
        arrivals[arrival["id"]].append(arrival)
    strangers = arrivals.keys() - rows.keys()
    assert not strangers, "an ID was sent that was never accepted"
    for identity, (_, digest, _) in campaign.accepted().items():
        message, seen = rows[identity], arrivals[identity]
        assert S.DONE is message.state
        assert any(arrival["status"] == 200 for arrival in seen), "done, but the partner never accepted it"
        whole = {arrival["digest"] for arrival in seen if arrival["digest"] is not None}
        assert {digest} == whole, "another body under this ID"
        assert message.attempts >= len(seen), "more POSTs than attempts"
        assert b"mdn" == store.payload(message.seq)[4]
    check_one_worker_at_a_time(campaign, arrivals)
    check_order(campaign, rows)


def check_one_worker_at_a_time(campaign: Campaign, arrivals: dict[str, list[dict[str, Any]]]) -> None:
    for seen in arrivals.values():
        ordered = sorted(seen, key=lambda arrival: arrival["began"])
        for earlier, later in pairwise(ordered):
            # A client that gave up or was killed is at it no more, though its request may still run here.
            until = min(earlier["ended"], earlier["began"] + TIMEOUT * 0.9)
            until = min(until, campaign.killed.get(earlier["worker"], float("inf")))
            assert later["began"] >= until, "two live workers at one message"


def check_order(campaign: Campaign, rows: dict[str, Any]) -> None:
    first: dict[str, float] = {}
    for arrival in campaign.witness.arrivals:
        first[arrival["id"]] = min(first.get(arrival["id"], float("inf")), arrival["began"])
    for lane in LANES:
        stream = sorted(
            (message for message in rows.values() if message.lane == lane and message.stream), key=lambda m: m.seq
        )
        times = [first[message.id] for message in stream if message.id in first]
        assert sorted(times) == times, "an ordered stream was overtaken"


def wait_until_all_done(store: Store, seconds: float = 180.0) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        books = store.books()
        if set(books) <= {S.DONE}:
            return
        time.sleep(0.1)
    pytest.fail(f"not drained within {seconds:.0f} s: {store.books()}")


def run_campaign(where: str, folder: Path, rounds: int, seed: int) -> None:
    rng = random.Random(seed)
    campaign = Campaign(where, folder)
    store = open_store(where)
    try:
        campaign.witness.kind = False
        campaign.wait_for(20)
        for number in range(4 * rounds):
            if number >= rounds and was_half_open(campaign):
                break
            campaign.round(rng)
            check_books(store, campaign.accepted())
        campaign.kill("enqueuer")
        campaign.processes.pop("enqueuer")
        campaign.witness.kind = True
        wait_until_all_done(store)
    finally:
        campaign.stop()
    try:
        check_the_partners_log(campaign, store)
        check_it_was_worth_it(campaign, store, rounds)
    finally:
        store.close()


def was_half_open(campaign: Campaign) -> bool:
    """Say whether a trial call has arrived, which the kills of a busy machine may put off for many rounds."""
    return any(arrival["trial"] for arrival in list(campaign.witness.arrivals))


def check_it_was_worth_it(campaign: Campaign, store: Store, rounds: int) -> None:
    """A campaign that never reached half-open, a resend or a full breaker would prove little."""
    whats = Counter(entry.what for message in list(everything(store))[:3000] for entry in store.history(message.seq))
    assert len(campaign.accepted()) > rounds
    assert whats["lease ran out"] > 0
    assert {503} <= {arrival["status"] for arrival in campaign.witness.arrivals}
    assert was_half_open(campaign)


def integrity(path: Path) -> str:
    connection = sqlite3.connect(path)
    try:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])
    finally:
        connection.close()


def test_killed_at_random_sqlite_keeps_every_promise(tmp_path: Path) -> None:
    run_campaign(str(tmp_path / "queue.db"), tmp_path, rounds=25, seed=1)

    assert "ok" == integrity(tmp_path / "queue.db")


@pytest.mark.postgres
def test_killed_at_random_postgres_keeps_every_promise(tmp_path: Path, postgres: str) -> None:
    run_campaign(f"k{uuid.uuid4().hex}@{postgres}", tmp_path, rounds=15, seed=2)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [11, 12])
def test_two_hundred_and_fifty_rounds_of_kills(tmp_path: Path, seed: int) -> None:
    run_campaign(str(tmp_path / "queue.db"), tmp_path, rounds=125, seed=seed)

    assert "ok" == integrity(tmp_path / "queue.db")


POINTS = {
    # point: (state seen after the crash once its lease is over, POSTs at the partner by the dead process)
    "before the mark": ("waiting", 0),
    "after the mark": ("unknown_delivery", 0),
    "before the body": ("unknown_delivery", 0),
    "after the answer": ("unknown_delivery", 1),
    "before the result": ("unknown_delivery", 1),
    "after the result": ("done", 1),
}


@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_named_point(tmp_path: Path, engine: str, point: str, request: pytest.FixtureRequest) -> None:
    where = str(tmp_path / "queue.db")
    if engine == "postgres":
        where = f"k{uuid.uuid4().hex}@{request.getfixturevalue('postgres')}"
    seen = tmp_path / "seen"
    seen.touch()
    with closing(open_store(where)) as before:
        put(before, "<m1>", body=b"abc")

    with child("fault", where, point, str(seen)) as process:
        process.wait(60)
    later = FakeClock(start=time.monotonic() + 1000, wall=time.time() + 1000)
    store = open_store(where, clock=later)
    queue, partner = RetryQueue(store, clock=later), Partner()
    queue._caretaker.once()
    crashed = states(store)["<m1>"]
    queue.lane("acme", sender=partner)
    queue.tick()

    state, posts = POINTS[point]
    assert -signal.SIGKILL == process.returncode
    assert (state, posts) == (crashed, seen.read_bytes().count(b"<m1> abc\n"))
    assert {"<m1>": "done"} == states(store)
    assert ([] if state == "done" else ["<m1>"]) == partner.ids
    store.close()
