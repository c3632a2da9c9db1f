"""
`python -m benchmarks.retry_queue`: what the durable queue does per second, beside a raw insert loop on the same disk.

Wall-clock time, because the disk is the limit: every figure is durable, synced with `synchronous=FULL`. The digits
belong to the disk; the ratio to the raw loop is the point.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from halfopen.retry_queue import Delivery, LaneProfile, Report, RetryQueue, SqliteStore, Store, Verdict, _sql
from halfopen.retry_queue._requests import ClaimRequest
from halfopen.retry_queue._rows import MessageState
from halfopen.retry_queue._rules import Change

BODY = b"ISA*00*          *00*          *ZZ*SENDER" * 10
DIGEST = hashlib.sha256(BODY).hexdigest()
TARGETS = {
    "enqueue, 8 threads, group commit": 20_000,
    "claim + ack": 5_000,
}


def rate(count: int, work: Callable[[], object]) -> float:
    """Run *work*, which does *count* things; return things per second."""
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


def in_threads(number: int, work: Callable[[int], object]) -> None:
    """Run *work* on so many threads at once."""
    threads = [threading.Thread(target=work, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def raw_loop(path: Path, count: int) -> float:
    """Insert one row per synced transaction into a table without an index: the disk's own speed."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE raw (id INTEGER PRIMARY KEY, body BLOB)")

    def insert() -> None:
        for _ in range(count):
            connection.execute("INSERT INTO raw (body) VALUES (?)", (BODY,))

    speed = rate(count, insert)
    connection.close()
    return speed


def enqueueing(store: Store, each: int) -> dict[str, float]:
    """Measure enqueueing: alone, from 8 threads that wait for each commit, and from 8 that hand in ahead."""
    queue = RetryQueue(store)

    def waiting(index: int) -> None:
        for _ in range(each):
            queue.enqueue(f"lane{index}", BODY)

    def ahead(index: int) -> None:
        tickets = [queue.submit(f"lane{index}", BODY) for _ in range(each * 2)]
        for ticket in tickets:
            ticket.result()

    alone = max(each // 4, 100)
    return {
        "enqueue, one by one": rate(alone, lambda: [queue.enqueue("lane0", BODY) for _ in range(alone)]),
        "enqueue, 8 threads, each waits": rate(8 * each, lambda: in_threads(8, waiting)),
        "enqueue, 8 threads, group commit": rate(16 * each, lambda: in_threads(8, ahead)),
    }


def claiming(store: Store, lanes: Sequence[str], width: int = 16) -> float:
    """Claim and acknowledge everything in *lanes*, so many per claim; return messages per second."""
    done, began = 0, time.perf_counter()
    result = Change(state=MessageState.DONE, what="attempt", due=0.0, outcome="success", detail="processed")
    while True:
        tickets, token = [], f"{store.lease_prefix()}:bench"
        for lane in lanes:
            request = ClaimRequest(lane=lane, limit=width, token=token, lease=90.0, cap=width)
            tickets += [store.finish(message, token, result) for message in store.claim(request) or ()]
        if not tickets:
            return done / (time.perf_counter() - began)
        for ticket in tickets:
            ticket.result()
        done += len(tickets)


def sending(store: Store, count: int) -> float:
    """Send through the whole queue: breaker, pacing, worker threads, a sender that does nothing."""

    def send(_: Delivery) -> Report:
        return Report(Verdict.DELIVERED)

    queue = RetryQueue(store, workers=16)
    for index in range(8):
        queue.lane(f"send{index}", sender=send, profile=LaneProfile(limit=16))
    for ticket in [queue.submit(f"send{number % 8}", BODY) for number in range(count)]:
        ticket.result()
    began = time.perf_counter()
    queue.start()
    while queue._tally.completed < count:
        time.sleep(0.002)
    speed = count / (time.perf_counter() - began)
    queue.stop()
    return speed


def fill(path: Path, lanes: int, per_lane: int) -> None:
    """Put lanes × per_lane waiting messages into a store, past the queue."""
    SqliteStore(path).close()
    connection = sqlite3.connect(path)
    connection.executemany("INSERT INTO lanes (lane) VALUES (?)", ((f"lane{n}",) for n in range(lanes)))
    now = time.time()
    rows = (
        (f"<{lane}-{number}@bench>", f"lane{lane}", len(BODY), DIGEST, now, now)
        for number in range(per_lane)
        for lane in range(lanes)
    )
    connection.executemany(
        "INSERT INTO messages (id, lane, size, digest, created, due) VALUES (?, ?, ?, ?, ?, ?)", rows
    )
    connection.execute("INSERT INTO payloads (seq, headers, body) SELECT seq, '[]', x'00' FROM messages")
    connection.commit()
    connection.close()


def backlog(folder: Path, lanes: int, per_lane: int) -> dict[str, Any]:
    """Measure start-up and claiming with so much waiting."""
    path = folder / f"backlog-{lanes * per_lane}.db"
    fill(path, lanes, per_lane)
    began = time.perf_counter()
    queue = RetryQueue(path)
    for number in range(lanes):
        queue.lane(f"lane{number}", sender=lambda _: Report(Verdict.DELIVERED))
    first = queue._dispatcher.lanes["lane0"].step(1)
    started = time.perf_counter() - began
    for attempt in first.attempts:
        attempt.lane.results.settle(attempt, Report(Verdict.DELIVERED))
    times = []
    token = f"{queue.store.lease_prefix()}:bench"
    for number in range(1, 200):
        lane = f"lane{number % lanes}"
        at = time.perf_counter()
        claimed = queue.store.claim(ClaimRequest(lane=lane, limit=1, token=token, lease=90.0, cap=1_000_000))
        times.append(time.perf_counter() - at)
        assert claimed
    at = time.perf_counter()
    queue.stats()
    counted = time.perf_counter() - at
    queue.close()
    return {
        "waiting": lanes * per_lane,
        "lanes": lanes,
        "start-up incl. first claim, s": started,
        "claim, median ms": statistics.median(times) * 1000,
        "claim, worst ms": max(times) * 1000,
        "stats(), s": counted,
        "plan": plan(path),
    }


def plan(path: Path) -> list[str]:
    """Ask SQLite how it runs the claim."""
    connection = sqlite3.connect(path)
    statement = "EXPLAIN QUERY PLAN " + _sql.CANDIDATES.format(due=_sql.ONLY_DUE)
    rows = connection.execute(statement, {"lane": "lane0", "now": time.time(), "seats": 8}).fetchall()
    connection.close()
    return [str(row[3]) for row in rows]


def run(folder: Path, *, quick: bool, conninfo: str | None) -> dict[str, Any]:
    """Measure everything."""
    each = 300 if quick else 2500
    raw = raw_loop(folder / "raw.db", each)
    figures: dict[str, dict[str, float]] = {"sqlite": _engine(lambda: SqliteStore(folder / "queue.db"), each)}
    if conninfo is not None:
        from halfopen.retry_queue.postgres import PostgresStore

        schema = f"bench{int(time.time())}"
        figures["postgres"] = _engine(lambda: PostgresStore(conninfo, schema=schema), each)
    sizes = [(1000, 1), (1000, 10)] if quick else [(1000, 1), (1000, 10), (1000, 100), (1000, 1000)]
    return {
        "raw loop, one insert per synced transaction": raw,
        "per second": figures,
        "backlog": [backlog(folder, *size) for size in sizes],
    }


def _engine(open_store: Callable[[], Store], each: int) -> dict[str, float]:
    store = open_store()
    figures = enqueueing(store, each)
    figures["claim + ack"] = claiming(store, [f"lane{index}" for index in range(8)])
    store.settled()
    figures["the whole queue, 16 worker threads"] = sending(store, each * 2)
    store.close()
    return figures


def show(result: dict[str, Any]) -> None:
    """Print what was measured beside its target."""
    raw = result["raw loop, one insert per synced transaction"]
    print(f"raw loop, one insert per synced transaction   {raw:>10,.0f}/s")
    for engine, figures in result["per second"].items():
        print(f"\n{engine}")
        for name, speed in figures.items():
            target = f"target {TARGETS[name]:,}" if name in TARGETS else ""
            print(f"  {name:<42} {speed:>10,.0f}/s  {speed / raw:>6.1f} × raw  {target}")
    for one in result["backlog"]:
        print(
            f"\n{one['waiting']:>9,} waiting in {one['lanes']:,} lanes: start-up"
            f" {one['start-up incl. first claim, s']:.2f} s (target 2), claim {one['claim, median ms']:.2f} ms"
            f" (worst {one['claim, worst ms']:.1f}), stats() {one['stats(), s']:.2f} s"
        )
    print("\n" + "\n".join(result["backlog"][-1]["plan"]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retry_queue", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a look, not a result")
    parser.add_argument("--postgres", metavar="CONNINFO", help="measure this server too, in a schema of its own")
    parser.add_argument("--folder", type=Path, help="where the disk to be measured is; default the temporary folder")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        result = run(Path(folder), quick=options.quick, conninfo=options.postgres)
    if options.json:
        json.dump(result, sys.stdout, indent=2)
        return 0
    show(result)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
