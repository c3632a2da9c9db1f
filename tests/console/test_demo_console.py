"""A whole outage of the demo, watched on its console: first failure, half-open rounds, recovery, drained queue."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import httpx
import pytest

from tests.console.pages import PATIENCE, expect, log_of, title_begins
from tests.console.support import until

COMMAND = [sys.executable, "-m", "halfopen.cli", "demo", "--no-compare", "--plain"]
pytestmark = pytest.mark.timeout(300)

WAITING = ("ready", "delayed", "in_flight", "awaiting")


class Demo:
    """A running demo, and what it has printed."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )  # fmt: skip
        self.lines: Queue[str] = Queue()
        self.said = ""
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)

    def until_it_says(self, words: str) -> str:
        """Return the first line with *words* from now on."""
        while True:
            line = self.lines.get(timeout=60)
            self.said += line
            if words in line:
                return line

    def interrupt(self) -> tuple[int, str]:
        """Press Ctrl-C; return the exit code and the complaints."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)
        assert self.process.stderr is not None
        return self.process.returncode, self.process.stderr.read()


@contextmanager
def demo(*arguments: str) -> Iterator[Demo]:
    running = Demo(*arguments)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()
        for pipe in (running.process.stdout, running.process.stderr):
            if pipe is not None:
                pipe.close()


def url_in(line: str) -> str:
    found = re.search(r"http://127\.0\.0\.1:\d+", line)
    assert found is not None
    return found[0]


def waiting(snapshot: dict[str, Any]) -> int:
    (queue,) = snapshot["queues"]
    return sum(queue[state] for state in WAITING) if queue["up"] else -1


def moves(url: str) -> list[str]:
    told = httpx.get(f"{url}/api/breakers/partner", timeout=60).json()
    return [new for _, _, new, *_ in told["moves"]["gateway"]]


@pytest.mark.slow
def test_the_snapshots_show_the_story_and_the_console_stays_until_ctrl_c() -> None:
    with demo("--speed", "25", "--stay") as running:
        url = url_in(running.until_it_says("watch it on the console"))
        states: list[str] = []
        most = 0
        while not states or states[-1] != "closed" or len(states) < 3:
            snapshot = httpx.get(f"{url}/api/snapshot", timeout=60).json()
            (breaker,) = snapshot["breakers"]
            states += [breaker["state"]] if states[-1:] != [breaker["state"]] else []
            most = max(most, waiting(snapshot))
            time.sleep(0.02)
        assert url == url_in(running.until_it_says("the console stays at"))
        until(lambda: 0 == waiting(httpx.get(f"{url}/api/snapshot", timeout=60).json()), PATIENCE)
        told = moves(url)
        code, complaints = running.interrupt()

    assert ["closed", "open"] == states[:2]
    assert most > 50
    assert ["open", "half_open"] == told[:2]
    assert ["half_open", "closed"] == told[-2:]
    assert (0, "") == (code, complaints)
    assert "✗ " not in running.said


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_shows_the_story_from_the_first_failure_to_the_drained_queue(open_page: Any) -> None:
    with demo("--speed", "4", "--stay") as running:
        url = url_in(running.until_it_says("watch it on the console"))
        page = open_page(url, token=None)
        queue, log = page.get_by_label("Retry queue"), log_of(page)
        expect(page).to_have_title(re.compile("(all closed|partner open) · halfopen demo"))
        expect(page.get_by_label("Timeline").get_by_role("heading")).to_have_text(re.compile("Last (minute|2 minutes)"))
        expect(page.get_by_label("Timeline")).to_contain_text("nothing known before")

        title_begins(page, "partner open")
        expect(page.locator(".why")).to_contain_text(re.compile(r"1\d of the last 20 calls (had )?failed"))
        expect(page.locator(".numbers.six")).to_contain_text("to the next trial")
        expect(queue).to_contain_text("held by this breaker")
        page.reload()
        expect(log).to_contain_text("gateway opened: ")
        expect(page.get_by_label("Timeline").locator("rect", has_text="gateway open from")).not_to_have_count(0)

        title_begins(page, "all closed")
        expect(log).to_contain_text("gateway went half-open: the wait was over")
        expect(log).to_contain_text("gateway closed: 3 of 3 trial calls succeeded")
        running.until_it_says("the console stays at")
        expect(queue).to_contain_text("waiting 0")
        expect(queue.get_by_role("row").get_by_text("empty", exact=True)).to_be_visible()
        expect(page).to_have_title("all closed · halfopen demo")


@pytest.mark.slow
def test_a_killed_gateway_brings_its_console_back_to_the_same_url() -> None:
    with demo("--speed", "40", "--kill-at", "2", "--stay") as running:
        url = url_in(running.until_it_says("watch it on the console"))
        running.until_it_says("the gateway is back")
        snapshot = httpx.get(f"{url}/api/snapshot", timeout=60).json()
        link = running.until_it_says("to give orders")
        token = link.rstrip().rpartition("=")[2]
        who = httpx.get(f"{url}/api/session", timeout=60, headers={"authorization": f"Bearer {token}"}).json()

    assert ["partner"] == [breaker["name"] for breaker in snapshot["breakers"]]
    assert ("visitor", "operator") == (who["who"], who["role"])


def test_without_a_console_the_demo_is_what_it_was() -> None:
    for speed in ("100", "25", "8"):  # a busy machine cannot follow the quickest story
        done = subprocess.run(
            [*COMMAND, "--speed", speed, "--no-console"], capture_output=True, text=True, timeout=240, check=False
        )
        if done.returncode == 0:
            break

    assert (0, "") == (done.returncode, done.stderr)
    assert "console" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--stay", "--no-console"], "--stay keeps the gateway's console, but it is left out by --no-console"),
        (["--stay", "--hub", "memory"], "--stay keeps the gateway's console, but the hub in memory has none"),
        (["--console", "--partner", "http://127.0.0.1:9/"], "--console is about the demo's story"),
    ],
)
def test_bad_input_about_the_console_gets_one_line_and_code_2(arguments: list[str], says: str) -> None:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=240, check=False)

    assert (2, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith("halfopen demo: ")
    assert 1 == len(done.stderr.splitlines())
    assert says in done.stderr


def test_where_the_console_cannot_be_imported_the_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from halfopen.cli.demo.console import ConsoleWish, serve_console
    from halfopen.gateway import Gateway, GatewaySettings

    monkeypatch.setitem(sys.modules, "halfopen.console", None)

    told = serve_console(Gateway(GatewaySettings(), {}), tmp_path, ConsoleWish.new())

    assert {"no_console"} == told.keys()
    assert "it needs halfopen.console; run: pip install" in told["no_console"]
