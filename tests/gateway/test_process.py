"""The command in a process of its own: how it ends, in good order and not, and what it remembers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.support import Got, Partner, Reply, ask, closed_port, until


class Process:
    def __init__(self, config: Path) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "halfopen.cli", "gateway", "--config", str(config), "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        assert line, self.popen.stderr.read() if self.popen.stderr else ""
        self.port = int(json.loads(line)["url"].rpartition(":")[2])

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.popen.send_signal(number)
        return self.popen.wait(60)


@contextmanager
def running(config: Path) -> Iterator[Process]:
    process = Process(config)
    try:
        yield process
    finally:
        if process.popen.poll() is None:
            process.popen.kill()
        process.popen.communicate()


@pytest.fixture
def config(tmp_path: Path, partner: Partner) -> Path:
    path = tmp_path / "halfopen.toml"
    path.write_text(f"""
[gateway]
port = 0
queue = "queue.db"
drain = "10s"

[breaker.acme]
consecutive_failures = 1
wait_in_open = "1s"

[partner.acme]
url = "{partner.url}"
store_and_forward = true
as2 = true
profile = {{ timeout = "3s", trial_timeout = "2s", lease_margin = "1s" }}

[partner.gone]
url = "http://127.0.0.1:{closed_port()}"
""")
    return path


def test_sigterm_lets_the_exchange_in_flight_end_and_the_process_ends_with_0(config: Path, partner: Partner) -> None:
    go_on = threading.Event()
    got: list[Got] = []

    def wait(seen: Any) -> Reply:
        go_on.wait(60)
        return Reply(body=b"in the end")

    partner.answer = wait
    with running(config) as process:
        program = threading.Thread(target=lambda: got.append(ask(process.port, "/to/acme/x", b"x")))
        program.start()
        assert until(lambda: len(partner.seen) == 1)
        process.popen.send_signal(signal.SIGTERM)
        assert until(lambda: _refused(process.port))
        go_on.set()
        program.join(60)

        assert 0 == process.popen.wait(60)
    assert (200, b"in the end") == (got[0].status, got[0].body)


def _refused(port: int) -> bool:
    try:
        ask(port, "/health", method="GET")
    except OSError:
        return True
    return False


def test_a_stored_message_survives_sigterm_and_the_circuit_stays_open(config: Path, partner: Partner) -> None:
    config.write_text(config.read_text().replace('"1s"\n\n[partner', '"600s"\n\n[partner'))
    partner.answer = lambda seen: Reply(503)
    with running(config) as process:
        stored = ask(process.port, "/to/acme/x", b"x")
        assert 0 == process.end()
    with running(config) as process:
        shown = ask(process.port, stored.headers["location"], method="GET").json
        circuit = ask(process.port, "/partners/acme", method="GET").json["state"]
        assert 0 == process.end(signal.SIGINT)

    assert (202, "waiting", "open") == (stored.status, shown["state"], circuit)


def test_after_kill_9_every_message_that_was_accepted_arrives_under_its_own_id(config: Path, partner: Partner) -> None:
    partner.answer = lambda seen: Reply(503)
    accepted: list[str] = []
    with running(config) as process, ExitStack() as stack:

        def program(number: int) -> None:
            for count in range(1000):
                try:
                    got = ask(process.port, "/to/acme/x", b"%d.%d" % (number, count))
                except (OSError, HTTPException):  # killed before its answer, or in the middle of it
                    return
                if got.status == 202:
                    accepted.append(got.json["id"])

        threads = [threading.Thread(target=program, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
            stack.callback(thread.join)
        assert until(lambda: len(accepted) >= 50)
        process.popen.kill()
    partner.answer = lambda seen: Reply(200)

    with running(config) as process:
        assert until(lambda: _all_done(process.port), 120)
        assert 0 == process.end()

    arrived: dict[str, set[bytes]] = {}
    for seen in partner.seen:
        if "message-id" in seen.headers:
            arrived.setdefault(seen.headers["message-id"], set()).add(seen.body)
    assert set(accepted) <= arrived.keys()
    assert {1} == {len(bodies) for bodies in arrived.values()}


def _all_done(port: int) -> bool:
    return set(ask(port, "/partners/acme", method="GET").json["messages"]) <= {"done"}


def test_sighup_reads_the_policies_again(config: Path, partner: Partner) -> None:
    partner.answer = lambda seen: Reply(503)
    never = 'consecutive_failures = 1000000\nwindow = "60s"\nminimum_calls = 1000000'
    at_once = config.read_text().replace("store_and_forward = true", "").replace('wait_in_open = "1s"', "")
    config.write_text(at_once.replace("consecutive_failures = 1", never))
    with running(config) as process:
        before = [_state_after_a_failure(process.port) for _ in range(3)]
        config.write_text(at_once)
        process.popen.send_signal(signal.SIGHUP)

        assert until(lambda: _state_after_a_failure(process.port) == "open")
        assert 0 == process.end()
    assert ["closed"] * 3 == before


def _state_after_a_failure(port: int) -> str:
    ask(port, "/to/acme/x", b"x")
    return str(ask(port, "/partners/acme", method="GET").json["state"])


def test_a_wrong_file_is_told_and_nothing_starts(tmp_path: Path) -> None:
    path = tmp_path / "halfopen.toml"
    path.write_text("[gateway]\nprot = 1\n")

    ran = subprocess.run(
        [sys.executable, "-m", "halfopen.cli", "gateway", "--config", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert 2 == ran.returncode
    assert "did you mean port?" in ran.stderr


def checked(config: Path) -> tuple[int, str]:
    ran = subprocess.run(
        [sys.executable, "-m", "halfopen.cli", "gateway", "--check", "--config", str(config)],
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stdout.strip().partition(": ")[2]


def test_check_only_reads(config: Path) -> None:
    assert (0, "2 partners, no mistakes") == checked(config)


def test_check_counts_a_single_partner(tmp_path: Path) -> None:
    alone = tmp_path / "halfopen.toml"
    alone.write_text('[partner.acme]\nurl = "http://127.0.0.1:9"\n', encoding="utf-8")

    assert (0, "1 partner, no mistakes") == checked(alone)


def _memory(pid: int, what: str) -> float:
    (line,) = [each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith(what)]
    return int(line.split()[1]) / 1024


class _Counter(BaseHTTPRequestHandler):
    """Counts what it is sent, and keeps nothing of it."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        left = int(self.headers["content-length"])
        while left and (part := self.rfile.read(min(left, 1 << 20))):
            left -= len(part)
        self.server.counted.append(int(self.headers["content-length"]) - left)  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("stored", [False, True], ids=["through", "stored"])
def test_a_body_of_200_mb_leaves_memory_flat(config: Path, stored: bool) -> None:
    big = 200 * 1024 * 1024
    with ThreadingHTTPServer(("127.0.0.1", 0), _Counter) as server:
        server.counted = counted = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        config.write_text(config.read_text() + f'[partner.big]\nurl = "http://127.0.0.1:{server.server_port}"\n')
        with running(config) as process:
            before = _memory(process.popen.pid, "VmRSS")
            headers = {"Content-Length": str(big), **({"Halfopen-Stream": "s"} if stored else {})}

            got = ask(process.port, "/to/big/x", (bytes(1 << 20) for _ in range(200)), headers=headers)
            arrived = until(lambda: counted == [big], 120)
            grown = _memory(process.popen.pid, "VmHWM") - before
            ended = process.end()
        server.shutdown()

    assert (202 if stored else 200) == got.status
    assert arrived
    assert grown < 40
    assert 0 == ended
