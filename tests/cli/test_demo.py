"""`halfopen demo`, whole: real processes and sockets, the story hurried."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

COMMAND = [sys.executable, "-m", "halfopen.cli", "demo"]
HURRIED = ["--speed", "50"]
SPEEDS = (100.0, 25.0, 8.0)
"""Where a promise is broken the story is told again more slowly: a busy machine cannot follow the quickest one."""
WITHOUT_STARLETTE = (
    "import sys; sys.modules['starlette'] = None; sys.argv[0] = 'halfopen'; from halfopen.cli import main; main()"
)


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run([*COMMAND, *arguments])


def story(*arguments: str, broken: int = 0) -> subprocess.CompletedProcess[str]:
    """Tell a story in which so many promises are broken."""
    for speed in SPEEDS:
        done = demo(*arguments, "--speed", str(speed))
        if broken == done.stdout.count("✗ "):
            break
    return done


def told_by(done: subprocess.CompletedProcess[str]) -> tuple[int, dict[str, Any]]:
    return done.returncode, json.loads(done.stdout)


def summary(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Tell a story in which every promise is kept, and count."""
    for speed in SPEEDS:
        code, told = told_by(demo(*arguments, "--json", "--speed", str(speed)))
        if code == 0:
            break
    return code, told


def broken(told: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in told["promises"] if not each["kept"]]


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    for number in range(5):
        (tmp_path / f"order-{number}.edi").write_bytes(f"UNH+{number}'".encode())
    (tmp_path / ".hidden").write_bytes(b"no message")
    (tmp_path / "subdirectory").mkdir()
    return tmp_path


class RealPartner:
    """A partner that is nobody's child: 503 for the first *ill* requests, then 200."""

    def __init__(self, ill: int) -> None:
        self.taken: list[tuple[str, bytes]] = []
        self.arrivals = 0
        lock, partner = threading.Lock(), self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with lock:
                    partner.arrivals += 1
                    well = partner.arrivals > ill
                    if well:
                        partner.taken.append((self.headers["Message-ID"], body))
                self.send_response(200 if well else 503)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}/as2"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def real_partner() -> Iterator[Callable[[int], RealPartner]]:
    partners: list[RealPartner] = []

    def start(ill: int) -> RealPartner:
        partners.append(RealPartner(ill))
        return partners[-1]

    yield start
    for partner in partners:
        partner.close()


@pytest.mark.slow
def test_the_story_keeps_every_promise_in_all_three_variants() -> None:
    for speed in SPEEDS:
        code, told = told_by(demo("--json", "--speed", str(speed)))
        if code == 0 and told["variants"]["none"]["given_up"]:
            break

    assert (0, []) == (code, broken(told))
    assert {"none", "naive", "halfopen"} == set(told["variants"])
    assert 11 == len(told["promises"])
    ours, without = told["variants"]["halfopen"], told["variants"]["none"]
    assert ours["books"]["delivered"] == ours["accepted"] > 300
    assert without["given_up"] > 0 == ours["given_up"]


@pytest.mark.slow
def test_the_hub_in_memory_keeps_them_as_well_and_needs_no_library() -> None:
    command = [sys.executable, "-c", WITHOUT_STARLETTE, "demo", "--hub", "memory", "--no-compare", "--json"]
    for speed in SPEEDS:
        code, told = told_by(run([*command, "--speed", str(speed)]))
        if code == 0:
            break

    assert (0, []) == (code, broken(told))
    assert told["variants"]["halfopen"]["keeping"] is None
    assert "a refusal costs less than a millisecond" in [each["promise"] for each in told["promises"]]


def test_without_the_gateways_libraries_one_line_says_what_to_do() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_STARLETTE, "demo"], capture_output=True, text=True, timeout=240, check=False
    )

    says = "the gateway needs starlette; run: pip install 'halfopen[cli,gateway]', or take --hub memory"
    assert (2, "", f"halfopen demo: {says}\n") == (done.returncode, done.stdout, done.stderr)


# Well; at the moment the circuit opens; open; around half-open; draining; and twice.
@pytest.mark.slow
@pytest.mark.parametrize("moments", [["0.5"], ["1.05"], ["2"], ["2.9"], ["3.2"], ["1.2", "4"]])
def test_a_gateway_that_is_killed_comes_back_to_the_same_books(moments: list[str]) -> None:
    for slower in (1, 3, 6):
        arguments = [word for moment in moments for word in ("--kill-at", str(slower * float(moment)))]
        code, told = told_by(demo("--speed", str(50 / slower), "--no-compare", *arguments, "--json"))
        if code == 0:
            break

    ours = told["variants"]["halfopen"]
    assert (0, []) == (code, broken(told))
    assert len(moments) == len(ours["keeping"]["kills"]) == len(ours["keeping"]["restarts"])
    assert ours["accepted"] == ours["delivered"] == ours["books"]["delivered"] > 500


def test_what_is_left_in_a_file_is_delivered_by_the_next_run(tmp_path: Path) -> None:
    for speed in SPEEDS:
        db = tmp_path / f"hub-{speed}.db"
        process = _start("--speed", str(speed / 2), "--no-compare", "--db", str(db))
        assert process.stdout is not None
        while "trial calls may pass" not in process.stdout.readline():
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        interrupted, complaints = process.communicate(timeout=60)
        code, told = told_by(demo("--speed", str(speed), "--no-compare", "--db", str(db), "--json"))
        if code == 0:
            break

    assert (130, "") == (process.returncode, complaints)
    assert f"the gateway's are in {db}: the next run sends them" in interrupted
    assert (0, []) == (code, broken(told))
    assert told["variants"]["halfopen"]["keeping"]["left"] > 20


def test_the_story_is_told_line_by_line_to_a_pipe() -> None:
    done = story("--no-compare")

    assert (0, "") == (done.returncode, done.stderr)
    for sentence in ("the partner turns to 503", "CLOSED → OPEN", "OPEN → HALF-OPEN", "HALF-OPEN → CLOSED"):
        assert sentence in done.stdout
    assert "✗ " not in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(("sabotage", "claim"), [("lose", "was delivered"), ("repeat", "sent twice")])
def test_a_broken_promise_ends_with_code_1(sabotage: str, claim: str) -> None:
    done = story("--no-compare", "--sabotage", sabotage, broken=1)

    assert 1 == done.returncode
    failed = [line for line in done.stdout.splitlines() if line.startswith("✗ ")]
    assert 1 == len(failed)
    assert claim in failed[0]
    assert done.stdout.endswith("a promise was broken\n")


def test_the_files_of_a_directory_can_be_the_messages_of_the_story(letters: Path) -> None:
    code, told = summary("--no-compare", "--messages", str(letters))

    assert (0, []) == (code, broken(told))
    assert told["variants"]["halfopen"]["accepted"] > 300


def test_each_file_goes_to_a_real_partner_once(letters: Path, real_partner: Callable[[int], RealPartner]) -> None:
    partner = real_partner(0)

    code, told = told_by(demo("--partner", partner.url, "--messages", str(letters), *HURRIED, "--json"))

    assert (0, []) == (code, broken(told))
    assert 5 == told["variants"]["halfopen"]["delivered"]
    assert [f"UNH+{number}'".encode() for number in range(5)] == sorted(body for _, body in partner.taken)


def test_a_real_partner_that_is_ill_gets_trial_calls_and_then_everything(
    real_partner: Callable[[int], RealPartner],
) -> None:
    partner = real_partner(21)

    code, told = told_by(demo("--partner", partner.url, "--count", "60", *HURRIED, "--json"))

    ours = told["variants"]["halfopen"]
    assert (0, []) == (code, broken(told))
    assert 60 == ours["delivered"] == len({message_id for message_id, _ in partner.taken}) == len(partner.taken)
    assert ours["refused"] > 0
    assert max(ours["rounds"]) <= 3


def test_a_real_partner_that_never_takes_a_message_is_a_broken_promise(
    letters: Path, real_partner: Callable[[int], RealPartner]
) -> None:
    done = demo("--partner", real_partner(10**6).url, "--messages", str(letters), "--speed", "200")

    assert 1 == done.returncode
    assert "0 of 5, 5 given up, last error: HTTP 503" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--partner", "nonsense"], "is no http or https URL"),
        (["--partner", "http://127.0.0.1:99999/"], "Port out of range"),
        (["--messages", "/no/such/directory"], "there is no directory /no/such/directory"),
        (["--messages", __file__], "is a file; give --messages the directory"),
        (["--speed", "-3"], "--speed is a number above 0 and up to 200, not -3"),
        (["--speed", "nan"], "not nan"),
        (["--speed", "201"], "not 201"),
        (["--realtime", "--speed", "3"], "give one of the two"),
        (["--port", "-1"], "--port is a number from 1 to 65535"),
        (["--count", "3"], "give it with --partner"),
        (["--count", "0", "--partner", "http://127.0.0.1:9/"], "--count is a whole number from 1, not 0"),
        (["--hub", "gateway", "--partner", "http://127.0.0.1:9/"], "--hub gateway is about the demo's story"),
        (["--hub", "memory", "--db", "hub.db"], "--db is about the gateway; it needs --hub gateway"),
        (["--hub", "memory", "--kill-at", "3"], "--kill-at is about the gateway"),
        (["--kill-at", "40"], "--kill-at is within the 31 s of yours that messages are sent, not 40"),
        (["--kill-at", "nan"], "not nan"),
        (["--db", "/no/such/directory/hub.db"], "cannot use /no/such/directory/hub.db as the hub's queue"),
        (["--db", __file__], "as the hub's queue"),
        (["--port", "80", "--partner", "http://127.0.0.1:9/"], "--port is about the demo's own partner"),
        (["--sabotage", "lose", "--partner", "http://127.0.0.1:9/"], "--sabotage is about the demo's own partner"),
    ],
)
def test_bad_input_gets_one_line_and_code_2(arguments: list[str], says: str) -> None:
    done = demo(*arguments)

    assert (2, "") == (done.returncode, done.stdout)
    assert 1 == len(done.stderr.splitlines())
    assert done.stderr.startswith("halfopen demo: ")
    assert says in done.stderr


def test_an_empty_directory_gets_one_line(tmp_path: Path) -> None:
    done = demo("--messages", str(tmp_path))

    assert (2, f"halfopen demo: {tmp_path} holds no files; put the messages to send into it, one a file\n") == (
        done.returncode,
        done.stderr,
    )


def test_an_unreachable_partner_gets_one_line() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))

        done = demo("--partner", f"http://127.0.0.1:{deaf.getsockname()[1]}/as2")

    assert 2 == done.returncode
    assert re.fullmatch(r"halfopen demo: cannot reach http://127.0.0.1:\d+/as2: .* start the partner.*\n", done.stderr)


def test_a_taken_port_gets_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = demo("--port", str(taken.getsockname()[1]), "--no-compare")

    assert 2 == done.returncode
    assert re.fullmatch(r"halfopen demo: port \d+ on 127.0.0.1 is taken; choose another with --port.*\n", done.stderr)


def _start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _wait_until_nobody_is_left(group: int) -> None:
    limit = time.monotonic() + 60
    while _alive(group) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not _alive(group)


def test_ctrl_c_ends_at_once_and_prints_what_is_known() -> None:
    process = _start("--speed", "20")
    assert process.stdout is not None
    first = process.stdout.readline()

    os.killpg(process.pid, signal.SIGINT)
    told, complaints = process.communicate(timeout=60)

    assert re.match(r" \d:\d\d ", first)
    assert (130, "") == (process.returncode, complaints)
    assert "messages delivered" in told
    assert re.search(r"interrupted at \d:\d\d; [\d,]+ messages were not sent", told)
    _wait_until_nobody_is_left(process.pid)


def test_no_process_outlives_a_demo_that_was_killed() -> None:
    process = _start("--speed", "20")
    assert process.stdout is not None
    process.stdout.readline()

    process.kill()
    process.communicate(timeout=60)

    _wait_until_nobody_is_left(process.pid)


@pytest.mark.parametrize(
    ("child", "says"),
    [(0, "the partner's process does not answer"), (1, "the gateway's process ended in the middle")],
)
def test_a_process_that_dies_is_said_in_one_line(child: int, says: str) -> None:
    process = _start("--speed", "20", "--no-compare")
    assert process.stdout is not None
    process.stdout.readline()
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not children.exists():
        process.kill()
        process.communicate()
        pytest.skip("needs /proc to find the partner")

    os.kill(int(children.read_text().split()[child]), signal.SIGKILL)
    _, complaints = process.communicate(timeout=60)

    assert 1 == process.returncode
    assert 1 == len(complaints.splitlines())
    assert says in complaints
