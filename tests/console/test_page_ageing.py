"""The page and time: a silent server, a restarted one, a stream that does not get through, processes that vanish."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.console.pages import NAME, PATIENCE, expect, fill_in, log_of, title_begins
from tests.console.support import Served, console_of, fail, served, shop, until

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]


def age_said(page: Any) -> float:
    found = re.search(r"([\d.]+) s old", page.locator(".live").inner_text())
    assert found is not None
    return float(found[1])


def test_a_silent_server_is_amber_after_3_s_dimmed_after_10_and_recovers_by_itself(
    open_page: Any, tmp_path: Path
) -> None:
    registry = shop()
    audit = tmp_path / "audit.jsonl"
    server = Served(console_of(registry, audit=audit))
    page = open_page(server.url)
    page.wait_for_selector("[data-level=live]")
    expect(page.locator(".layout.stale")).to_have_count(0)
    server.stop()
    page.wait_for_selector("[data-level=late]")
    amber = age_said(page)
    page.wait_for_selector("[data-level=stale]")
    dimmed = age_said(page)
    expect(page.locator(".layout.stale")).to_have_count(1)
    expect(page.get_by_role("alert")).to_contain_text("what you see is how it was at")
    fail(registry.circuit_breaker(NAME))

    again = Served(console_of(registry, audit=audit), server.port)
    page.wait_for_selector("[data-level=live]")
    expect(page.locator(".layout.stale")).to_have_count(0)
    title_begins(page, "payments open")
    page.get_by_role("button", name="Reset…").click()
    fill_in(page)
    page.get_by_role("button", name="Reset on 1 process").click()
    title_begins(page, "all closed")
    expect(log_of(page)).to_contain_text("dana reset: INC-2291")
    again.stop()

    assert 3.0 <= amber < dimmed
    assert 10.0 <= dimmed


def test_without_a_stream_the_page_asks_again_and_again_and_says_so(open_page: Any, browser: Any) -> None:
    registry = shop()

    with served(registry) as server:
        context = browser.new_context()
        page = context.new_page()
        page.set_default_timeout(1000 * PATIENCE)
        page.route("**/api/events", lambda route: route.abort())
        page.goto(f"{server.url}/")
        page.get_by_text("asks every two seconds instead").wait_for()
        fail(registry.circuit_breaker(NAME))
        title_begins(page, "payments open")
        context.close()


WORKER = """
import sys, time
from halfopen.console import Member
from tests.console.support import shop
member = Member(shop(), sys.argv[1], name="web", interval=0.2)
member.start()
time.sleep(300)
"""


@contextmanager
def worker(directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    process = subprocess.Popen([sys.executable, "-c", WORKER, str(directory)], env=environment)
    try:
        until(lambda: list(directory.glob("console-*.json")), PATIENCE)
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_killed_process_is_shown_as_gone_not_as_closed(open_page: Any, tmp_path: Path) -> None:
    with worker(tmp_path) as process, served(None, run_directory=tmp_path) as server:
        page = open_page(server.url)
        page.locator("td .badge", has_text="Closed").wait_for()
        process.send_signal(signal.SIGKILL)
        page.locator("td .badge", has_text="Gone").wait_for()
        heading = page.locator("main h1").inner_text()
        actions = page.locator(".actions button").count()
        expect(log_of(page)).to_contain_text("web-0 is gone: nothing was heard of it")

    assert "Gone" in heading
    assert 0 == actions


def test_a_process_that_is_gone_stays_listed_after_the_server_was_restarted(open_page: Any, tmp_path: Path) -> None:
    with worker(tmp_path) as process:
        server = Served(console_of(None, run_directory=tmp_path))
        page = open_page(server.url)
        page.locator("td .badge", has_text="Closed").wait_for()
        server.stop()
        process.send_signal(signal.SIGKILL)
        process.wait()
        page.wait_for_selector("[data-level=late]")
        again = Served(console_of(None, run_directory=tmp_path), server.port)
        page.wait_for_selector("[data-level=live]")
        gone = page.get_by_role("row").filter(has_text="web-0").locator(".badge", has_text="Gone")
        expect(gone).to_be_visible()
        expect(page.locator("main h1")).to_contain_text("Gone")
        again.stop()
