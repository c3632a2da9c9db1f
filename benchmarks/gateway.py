"""
`python -m benchmarks.gateway`: what the gateway adds to a request, beside nginx and Envoy as plain proxies.

Partner, proxy and load are processes of their own on loopback. Latency: one connection, requests one after another, the
ways interleaved in rounds; reported is the median, and its distance to the direct way. Throughput: 16 connections for a
while; reported are requests per second of CPU time of the proxy, which is what one core can do, and per second of wall
time on this machine, where partner and load want their share of the cores. `--clients` compares client libraries.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BODY = b"x" * 1024
MEGABYTES = 500
TARGETS = {"added latency, ms": 1.5, "requests/s per core": 1500, "refusals/s": 5000, "memory for 500 MB, MB": 20}
TICKS = os.sysconf("SC_CLK_TCK")


# The partner: takes everything, answers at once


class _Partner(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        import httptools

        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)
        self.url = b""

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_begin(self) -> None:
        self.url = b""

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_message_complete(self) -> None:
        if self.url.endswith(b"/large"):
            self.sending = asyncio.ensure_future(self._large())
            return
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\n" + BODY)

    async def _large(self) -> None:
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (MEGABYTES << 20))
        for _ in range(MEGABYTES):
            self.transport.write(bytes(1 << 20))
            while self.transport.get_write_buffer_size() > 1 << 20:
                await asyncio.sleep(0.001)


async def _serve_partner() -> None:
    server = await asyncio.get_running_loop().create_server(_Partner, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# The load


class _Load(asyncio.Protocol):
    """Sends one request after another; every answer must be as long as the first."""

    def __init__(self, request: bytes, until: float) -> None:
        self.request = request
        self.until = until
        self.ended = asyncio.get_running_loop().create_future()
        self.spent: list[float] = []
        self.status = 0
        self._length = self._got = 0
        self._head = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._next()

    def _next(self) -> None:
        self._head, self._length, self._got = b"", 0, 0
        self._began = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        if not self._length:
            self._head += data
            head, end, rest = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            self.status = int(head[9:12])
            lengths = [line[15:] for line in head.split(b"\r\n") if line[:15].lower() == b"content-length:"]
            self._length, data = int(lengths[0]), rest
        self._got += len(data)
        if self._got >= self._length:
            now = time.perf_counter()
            self.spent.append(now - self._began)
            if now < self.until:
                self._next()
            elif not self.ended.done():
                self.ended.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(error or ConnectionError("the connection ended"))


async def load(port: int, path: str, seconds: float, connections: int) -> tuple[list[float], int]:
    """Return how long each request took, and the last status."""
    request = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1024\r\n\r\n" % path.encode() + BODY
    loop = asyncio.get_running_loop()
    until = time.perf_counter() + seconds
    made = [
        (await loop.create_connection(lambda: _Load(request, until), "127.0.0.1", port))[1] for _ in range(connections)
    ]
    for each in made:
        await each.ended
        each.transport.close()
    return [spent for each in made for spent in each.spent], made[0].status


# The ways


@dataclass
class Way:
    """One way to the partner."""

    name: str
    port: int
    path: str
    pid: int | None = None

    def cpu(self) -> float:
        """Return the CPU seconds its process has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory(self, what: str = "VmHWM") -> float:
        """Return MB in memory; the most so far for VmHWM."""
        (line,) = [each for each in Path(f"/proc/{self.pid}/status").read_text().splitlines() if each.startswith(what)]
        return int(line.split()[1]) / 1024


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port


@contextmanager
def process(command: list[str], folder: Path, *, says: bool = False) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with open(folder / "output.txt", "a") as errors:
        out = subprocess.PIPE if says else errors
        with subprocess.Popen(command, stdout=out, stderr=errors, text=True, cwd=folder) as popen:
            try:
                yield popen, popen.stdout.readline() if popen.stdout is not None else ""
            finally:
                popen.terminate()
                with suppress(subprocess.TimeoutExpired):
                    popen.wait(10)
                popen.kill()


def wait_for(port: int) -> None:
    for _ in range(200):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"nobody listens on {port}")


def halfopen(stack: ExitStack, partner: int, folder: Path) -> list[Way]:
    (folder / "halfopen.toml").write_text(f"""
[gateway]
port = 0
max_body = "1 GiB"
queue = "queue.db"
[partner.acme]
url = "http://127.0.0.1:{partner}"
[partner.open]
url = "http://127.0.0.1:{free_port()}"
[breaker.open]
consecutive_failures = 1
wait_in_open = 600
[partner.hold]
url = "http://127.0.0.1:{free_port()}"
breaker = "breaker.open"
store_and_forward = true
""")
    command = [sys.executable, "-m", "halfopen.cli", "gateway", "--json"]
    popen, line = stack.enter_context(process(command, folder, says=True))
    port = int(json.loads(line)["url"].rpartition(":")[2])
    asyncio.run(load(port, "/to/open", 0, 1))  # the first one opens the circuit
    return [
        Way("halfopen", port, "/to/acme", popen.pid),
        Way("halfopen, refusing", port, "/to/open", popen.pid),
        Way("halfopen, storing", port, "/to/hold", popen.pid),
    ]


def nginx(stack: ExitStack, partner: int, folder: Path) -> list[Way]:
    if shutil.which("nginx") is None:
        return []
    port = free_port()
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(f"""
daemon off; master_process off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 100000000; client_max_body_size 0; {temporary}
  proxy_buffering off; proxy_request_buffering off;
  upstream partner {{ server 127.0.0.1:{partner}; keepalive 64; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{port};
    location / {{ proxy_pass http://partner; proxy_http_version 1.1; proxy_set_header Connection ""; }} }}
}}""")
    popen, _ = stack.enter_context(process(["nginx", "-c", str(folder / "nginx.conf")], folder))
    wait_for(port)
    return [Way("nginx", port, "/", popen.pid)]


def envoy(stack: ExitStack, partner: int, folder: Path) -> list[Way]:
    binary = shutil.which("envoy") or shutil.which("envoy", path=str(Path(sys.executable).parent))
    if binary is None:
        return []
    port = free_port()

    def address(number: int) -> dict[str, Any]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": number}}

    route = {"match": {"prefix": "/"}, "route": {"cluster": "partner", "timeout": "0s"}}
    types = "type.googleapis.com/envoy.extensions.filters"
    manager = {
        "@type": f"{types}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [
            {"name": "router", "typed_config": {"@type": f"{types}.http.router.v3.Router"}},
        ],
    }
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": address(partner)}}]}]
    cluster = {
        "name": "partner",
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": {"cluster_name": "partner", "endpoints": endpoints},
    }
    resources = {
        "listeners": [{"name": "in", "address": address(port), "filter_chains": [chain]}],
        "clusters": [cluster],
    }
    (folder / "envoy.json").write_text(json.dumps({"static_resources": resources}))
    command = [binary, "-c", str(folder / "envoy.json"), "--concurrency", "1", "--disable-hot-restart", "-l", "error"]
    popen, _ = stack.enter_context(process(command, folder))
    wait_for(port)
    return [Way("Envoy", port, "/", popen.pid)]


# What is measured


def latencies(ways: list[Way], rounds: int, seconds: float) -> dict[str, float]:
    """Return the median milliseconds of each way, with one request at a time."""
    spent: dict[str, list[float]] = {way.name: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            spent[way.name] += asyncio.run(load(way.port, way.path, seconds, 1))[0]
    return {name: statistics.median(values) * 1000 for name, values in spent.items()}


def throughput(way: Way, seconds: float) -> tuple[float, float, int]:
    """Return requests per CPU second, per second of wall time, and the status."""
    asyncio.run(load(way.port, way.path, 0.3, 16))
    cpu, began = way.cpu(), time.perf_counter()
    spent, status = asyncio.run(load(way.port, way.path, seconds, 16))
    wall = time.perf_counter() - began
    return len(spent) / max(way.cpu() - cpu, 0.01), len(spent) / wall, status


def large(way: Way) -> tuple[float, float, float]:
    """Send 500 MB, then fetch 500 MB; return MB/s of both, and by how many MB the process grew at most."""
    before = way.memory("VmRSS")
    part = bytes(1 << 20)
    rates = []
    with socket.create_connection(("127.0.0.1", way.port), timeout=120) as connection:
        began = time.perf_counter()
        connection.sendall(
            b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (way.path.encode(), MEGABYTES << 20)
        )
        for _ in range(MEGABYTES):
            connection.sendall(part)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        rates.append(MEGABYTES / (time.perf_counter() - began))
    with socket.create_connection(("127.0.0.1", way.port), timeout=120) as connection:
        began, got = time.perf_counter(), 0
        path = way.path.rstrip("/") + "/large"
        connection.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
        while got < MEGABYTES << 20:
            read = len(connection.recv(1 << 20))
            assert read, "the answer broke off"
            got += read
        rates.append(MEGABYTES / (time.perf_counter() - began))
    return rates[0], rates[1], way.memory() - before


def measure(seconds: float, rounds: int) -> dict[str, Any]:
    """Measure everything."""
    figures: dict[str, Any] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        partner = int(_partner(stack, folder)[1])
        ways = [way for start in (halfopen, nginx, envoy) for way in start(stack, partner, folder)]
        through = [way for way in ways if "," not in way.name]
        medians = latencies([Way("direct", partner, "/"), *through], rounds, seconds / rounds)
        for way in ways:
            per_core, per_second, status = throughput(way, seconds)
            figures[way.name] = {"requests/s per core": per_core, "requests/s": per_second, "status": status}
        for way in through:
            sent, fetched, grown = large(way)
            figures[way.name] |= {
                "median latency, ms": medians[way.name],
                "added latency, ms": medians[way.name] - medians["direct"],
                "500 MB sent, MB/s": sent,
                "500 MB fetched, MB/s": fetched,
                "memory for 500 MB, MB": grown,
            }
        figures["direct"] = {"median latency, ms": medians["direct"]}
    return figures


def _partner(stack: ExitStack, folder: Path) -> tuple[subprocess.Popen[str], str]:
    script = [sys.executable, str(Path(__file__).resolve()), "--partner"]
    return stack.enter_context(process(script, folder, says=True))


# Client libraries


async def _spread(one: Callable[[], Any], number: int) -> float:
    async def worker() -> None:
        for _ in range(number // 16):
            await one()

    await one()
    began = time.process_time()
    await asyncio.gather(*[worker() for _ in range(16)])
    return number / (time.process_time() - began)


async def _body() -> Any:
    yield BODY


async def _httpx(port: int, number: int) -> float:
    import httpx

    async with httpx.AsyncClient() as client:

        async def one() -> None:
            headers = {"content-length": "1024"}
            async with client.stream("POST", f"http://127.0.0.1:{port}/", content=_body(), headers=headers) as response:
                assert sum([len(part) async for part in response.aiter_raw()]) == len(BODY)

        return await _spread(one, number)


async def _httpcore(port: int, number: int) -> float:
    import httpcore

    async with httpcore.AsyncConnectionPool() as pool:

        async def one() -> None:
            headers = {"content-length": "1024", "host": "localhost"}
            async with pool.stream("POST", f"http://127.0.0.1:{port}/", content=_body(), headers=headers) as response:
                assert sum([len(part) async for part in response.aiter_stream()]) == len(BODY)

        return await _spread(one, number)


async def _aiohttp(port: int, number: int) -> float:
    import aiohttp

    async with aiohttp.ClientSession(auto_decompress=False) as session:

        async def one() -> None:
            headers = {"content-length": "1024"}
            async with session.post(f"http://127.0.0.1:{port}/", data=_body(), headers=headers) as response:
                assert sum([len(part) async for part in response.content.iter_any()]) == len(BODY)

        return await _spread(one, number)


async def _h11(port: int, number: int) -> float:
    import h11

    idle: list[Any] = []

    async def one() -> None:
        if not idle:
            idle.append((*await asyncio.open_connection("127.0.0.1", port), h11.Connection(h11.CLIENT)))
        reader, writer, connection = idle.pop()
        head = [("host", "localhost"), ("content-length", "1024")]
        writer.write(connection.send(h11.Request(method="POST", target="/", headers=head)))
        writer.write(connection.send(h11.Data(data=BODY)))
        connection.send(h11.EndOfMessage())
        got = 0
        while type(event := connection.next_event()) is not h11.EndOfMessage:
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(65536))
            elif type(event) is h11.Data:
                got += len(event.data)
        assert got == len(BODY)
        connection.start_next_cycle()
        idle.append((reader, writer, connection))

    return await _spread(one, number)


class _Bare(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        import httptools

        self.transport = transport
        self.parser = httptools.HttpResponseParser(self)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self.got += len(body)

    def on_message_complete(self) -> None:
        self.ended.set_result(self.got)

    async def ask(self) -> int:
        self.got, self.ended = 0, asyncio.get_running_loop().create_future()
        self.transport.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1024\r\n\r\n" + BODY)
        return int(await self.ended)


async def _httptools(port: int, number: int) -> float:
    idle: list[_Bare] = []

    async def one() -> None:
        if not idle:
            idle.append((await asyncio.get_running_loop().create_connection(_Bare, "127.0.0.1", port))[1])
        connection = idle.pop()
        assert await connection.ask() == len(BODY)
        idle.append(connection)

    return await _spread(one, number)


CLIENTS = {
    "httpx": _httpx,
    "httpcore": _httpcore,
    "aiohttp": _aiohttp,
    "h11 by hand": _h11,
    "httptools by hand": _httptools,
}


def compare_clients(number: int, rounds: int) -> dict[str, float]:
    """Return requests per CPU second of each client, 1 kB each way, 16 at once, bodies as streams."""
    found: dict[str, list[float]] = {name: [] for name in CLIENTS}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port = int(_partner(stack, folder)[1])
        for _ in range(rounds):
            for name, client in CLIENTS.items():
                with suppress(ModuleNotFoundError):
                    found[name].append(_run(client(port, number)))
    return {name: statistics.median(rates) for name, rates in found.items() if rates}


def _run(work: Any) -> Any:
    with suppress(ModuleNotFoundError):
        import uvloop

        return uvloop.run(work)
    return asyncio.run(work)


def _show(figures: dict[str, Any]) -> None:
    for name, values in figures.items():
        print(name)
        for what, value in values.items():
            target = TARGETS.get("refusals/s" if name.endswith("refusing") and what == "requests/s" else what)
            mark = f"   (target {target:g})" if target is not None and name.startswith("halfopen") else ""
            print(f"  {what:26} {value:12,.2f}{mark}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0, help="for each figure")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--clients", action="store_true", help="compare client libraries instead")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--partner", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.partner:
        _run(_serve_partner())
    elif chosen.clients:
        rates = compare_clients(4000, chosen.rounds)
        print(
            json.dumps(rates)
            if chosen.json
            else "\n".join(f"{n:18} {r:10,.0f} requests/CPU s" for n, r in rates.items())
        )
    else:
        figures = measure(chosen.seconds, chosen.rounds)
        print(json.dumps(figures)) if chosen.json else _show(figures)


if __name__ == "__main__":
    main()
