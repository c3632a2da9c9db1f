"""
Measure the console: python -m benchmarks.console [--pages 100 --breakers 500 --seconds 60 --filled].

With --filled, what is bounded is full from the beginning: 100 moves of each breaker, 2,000 audit entries. What still
grows after a minute, when the patches for pages that come back are full too, would grow for ever.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

SERVER = """
import json, random, resource, sys, threading, time
from halfopen import CountWindow, Registry
from halfopen.console import app
from halfopen.console._server import ConsoleServer, listen

breakers, seconds, filled = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "filled"
registry = Registry()
all_ = [registry.circuit_breaker(f"partner-{n:03}", window=CountWindow(20), minimum_calls=5) for n in range(breakers)]
listening = listen("127.0.0.1", 0)

def traffic():
    chance, began = random.Random(1), time.monotonic()
    while time.monotonic() - began < seconds + 120:
        for breaker in chance.sample(all_, min(50, breakers)):
            if breaker.state == "closed":
                breaker.call(int)
        time.sleep(0.1)

def commands():
    for line in sys.stdin:
        word, _, name = line.strip().partition(" ")
        if word == "trip":
            registry.circuit_breaker(name).trip(3600.0)
        elif word == "reset":
            registry.circuit_breaker(name).reset()
        elif word == "use":
            usage = resource.getrusage(resource.RUSAGE_SELF)
            pages = int(open("/proc/self/statm").read().split()[1])
            print(json.dumps({"cpu": usage.ru_utime + usage.ru_stime, "rss": pages * 4096}), flush=True)
        elif word == "end":
            server.should_exit = True

console = app(registry, hosts=None)
if filled:
    for breaker in all_ * 50:
        breaker.trip(3600.0, reason="filling", by="benchmark")
        breaker.reset(reason="filling", by="benchmark")
    for breaker in all_ * 300:
        breaker.call(int)  # Python shares whole numbers up to 256, and makes an object for each one above
    for number in range(2000):
        console._hub.audit.order(
            who="code", source="code", action="trip", target=f"partner-{number % breakers:03}", reason=None,
            scope=[f"here-{number}"], before={f"here-{number}": "closed"}, after={f"here-{number}": "open"},
            ends_at=None, request_id=None,
        )

server = ConsoleServer(console, ready=lambda: print(listening.getsockname()[1], flush=True))
threading.Thread(target=traffic, daemon=True).start()
threading.Thread(target=commands, daemon=True).start()
server.run(sockets=[listening])
"""


TRIPPED = re.compile(rb'\["member","(partner-\d+)","[^"]+",\{[^{}]*"state":"open"')


class Server:
    """A console in a process of its own, so that its processor time is its own."""

    def __init__(self, breakers: int, seconds: float, filled: bool = False) -> None:
        command = [sys.executable, "-c", SERVER, str(breakers), str(seconds), "filled" if filled else "empty"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def tell(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()

    def use(self) -> dict[str, float]:
        self.tell("use")
        assert self._process.stdout is not None
        found: dict[str, float] = json.loads(self._process.stdout.readline())
        return found

    def end(self) -> None:
        self.tell("end")
        self._process.wait(20)


async def page(port: int, found: list[tuple[str, float]], bytes_: list[int], until: float) -> None:
    """Read a stream, and note when a trip came; only the lines that may tell of one are parsed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    writer.write(b"GET /api/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    while time.monotonic() < until:
        try:
            line = await asyncio.wait_for(reader.readline(), 3.0)
        except TimeoutError:
            continue
        if not line:
            raise RuntimeError("a page was let go")
        bytes_[0] += len(line)
        if b'"state":"open"' in line and line.startswith(b'data: {"version":') and b'"base":' in line[:60]:
            now = time.monotonic()
            found += [(name.decode(), now) for name in TRIPPED.findall(line)]
    writer.close()


async def measure(pages: int, breakers: int, seconds: float, filled: bool = False) -> dict[str, Any]:
    server = Server(breakers, seconds, filled)
    found: list[tuple[str, float]] = []
    bytes_ = [0]
    until = time.monotonic() + seconds + 8
    tasks = [asyncio.create_task(page(server.port, found, bytes_, until)) for _ in range(pages)]
    await asyncio.sleep(5)
    began, before, sent_before = time.monotonic(), server.use(), bytes_[0]
    memory: list[tuple[float, float]] = []
    trips: list[tuple[str, float]] = []
    tripped: deque[str] = deque()
    chance = random.Random(2)
    while (spent := time.monotonic() - began) < seconds:
        name = f"partner-{chance.randrange(breakers):03}"
        if name not in tripped:
            trips.append((name, time.monotonic()))
            tripped.append(name)
            server.tell(f"trip {name}")
        if len(tripped) > breakers // 4:
            server.tell(f"reset {tripped.popleft()}")
        await asyncio.sleep(chance.uniform(0.3, 0.7))
        if len(memory) < spent / 5:
            memory.append((spent, server.use()["rss"]))
    after = server.use()
    spent = time.monotonic() - began
    sent = bytes_[0] - sent_before
    await asyncio.sleep(1)
    await asyncio.gather(*tasks)
    server.end()
    delays = sorted(_delays(trips, found))
    memory = memory if len(memory) > 1 else [(0.0, before["rss"]), (spent, after["rss"])]
    settled = [point for point in memory if point[0] > seconds / 3]
    settled = settled if len(settled) > 1 else memory
    slope = statistics.linear_regression([at for at, _ in settled], [rss for _, rss in settled]).slope
    return {
        "pages": pages,
        "breakers": breakers,
        "seconds": round(spent, 1),
        "updates": len(delays),
        "expected": len(trips) * pages,
        "p50_ms": round(delays[len(delays) // 2], 1),
        "p99_ms": round(delays[int(len(delays) * 0.99)], 1),
        "max_ms": round(delays[-1], 1),
        "cpu_share_of_a_core": round((after["cpu"] - before["cpu"]) / spent, 3),
        "sent_per_page_kb_per_s": round(sent / pages / spent / 1000, 1),
        "filled": filled,
        "rss_mb": round(after["rss"] / 1e6, 1),
        "rss_mb_each_minute": [round(rss / 1e6, 2) for rss in _each_minute(memory)],
        "rss_slope_kb_per_min": round(slope * 60 / 1000, 1),
        "load": os.getloadavg()[0],
    }


def _each_minute(memory: list[tuple[float, float]]) -> list[float]:
    minutes: dict[int, list[float]] = {}
    for at, rss in memory:
        minutes.setdefault(int(at // 60), []).append(rss)
    return [statistics.median(seen) for _, seen in sorted(minutes.items())]


def _delays(trips: list[tuple[str, float]], found: list[tuple[str, float]]) -> list[float]:
    """Return the milliseconds from each trip to each page that told of it."""
    seen: dict[str, list[float]] = {}
    for name, at in found:
        seen.setdefault(name, []).append(at)
    ends: dict[str, float] = {}
    delays: list[float] = []
    for name, at in reversed(trips):
        delays += [1000 * (one - at) for one in seen.get(name, ()) if at <= one < ends.get(name, math.inf)]
        ends[name] = at
    return delays


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=100)
    parser.add_argument("--breakers", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--filled", action="store_true", help="begin with full histories and a full audit log")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    result = asyncio.run(measure(options.pages, options.breakers, options.seconds, options.filled))
    print(json.dumps(result, indent=2))
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
