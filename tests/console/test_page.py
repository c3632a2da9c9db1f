"""The page in a real Chromium: what it shows, what it asks, how it ages, and who can use it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from halfopen import Registry
from halfopen.console import Member
from halfopen.retry_queue import Report, RetryQueue, Verdict
from tests.console.support import Served, console_of, fail, served, shop, until

pytestmark = [pytest.mark.browser, pytest.mark.slow]

NAME = "payments"
AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")
EVIL = '<script>document.title="owned"</script><img src=x onerror=document.title="owned">'


def fill_in(page: Any, name: str = NAME) -> None:
    page.get_by_label("Reason, kept in the audit log").fill("INC-2291")
    page.get_by_label("Type the breaker's name to confirm").fill(name)


def wait_until(page: Any, condition: Callable[[], bool], seconds: float = 15.0) -> None:
    """Wait from outside: the page's policy lets nobody evaluate text in it, playwright's waiting functions included."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, page.title()
        page.wait_for_timeout(30)


def title_begins(page: Any, words: str) -> None:
    wait_until(page, lambda: page.title().startswith(words))


def ill_shop() -> Registry:
    """Return a shop with a breaker in every kind of trouble."""
    registry = shop(NAME, "search", "legacy-tax", "catalog", "cms")
    fail(registry.circuit_breaker(NAME))
    fail(registry.circuit_breaker("search"))
    registry.circuit_breaker("search").try_now()
    registry.circuit_breaker("legacy-tax").force_open(3600.0, reason="CHG-4411", by="lee")
    for _ in range(6):
        registry.circuit_breaker("catalog").call(int)
    return registry


def test_a_trip_changes_the_title_the_list_and_what_is_said_aloud(open_page: Any) -> None:
    registry = shop(NAME, "search")

    with served(registry) as server:
        page = open_page(server.url)
        calm = page.title()
        fail(registry.circuit_breaker(NAME))
        title_begins(page, "payments open")
        heading = page.locator("main h1").inner_text()
        why = page.locator(".why").inner_text()
        spoken = page.locator("[aria-live]").inner_text()

    assert calm.startswith("all closed")
    assert "Open" in heading
    assert "5 of the last 5 calls failed (limit 50 %)" in why
    assert "payments is open" == spoken


def test_an_outage_is_watched_from_the_first_failure_to_recovery(open_page: Any) -> None:
    registry = shop()
    breaker = registry.circuit_breaker(NAME)

    with served(registry) as server:
        page = open_page(server.url)
        fail(breaker)
        page.get_by_text("next trial", exact=False).first.wait_for()
        page.get_by_role("button", name="Try now").click()
        page.locator(".numbers").get_by_text("trial calls are being made").wait_for()
        breaker.call(int)
        page.locator("svg.big").get_by_text("1 ok, 0 failed, 0 running, 2 left").wait_for()
        page.reload()
        page.locator("svg.big").get_by_text("1 ok, 0 failed, 0 running, 2 left").wait_for()
        breaker.call(int)
        breaker.call(int)
        title_begins(page, "all closed")
        page.get_by_text("3 of 3 succeeded").wait_for()
        log = page.get_by_label("Actions and events", exact=True).inner_text()

    assert "dana tried" in log
    assert "went from half-open to closed: trial succeeded" in log


@pytest.mark.parametrize(
    ("button", "effect", "state"),
    [
        ("Trip…", "Trip on 1 process", "open"),
        ("Force open…", "Force open on 1 process", "forced_open"),
        ("Force closed…", "Force closed on 1 process", "disabled"),
        ("Observe only…", "Observe only on 1 process", "metrics_only"),
        ("Reset…", "Reset on 1 process", "closed"),
    ],
)
def test_a_dialog_waits_until_it_is_filled_in_and_then_does_what_its_button_says(
    open_page: Any, button: str, effect: str, state: str
) -> None:
    registry = shop()
    breaker = registry.circuit_breaker(NAME)
    fail(breaker)

    with served(registry) as server:
        page = open_page(server.url)
        page.get_by_role("button", name=button).click()
        do = page.get_by_role("button", name=effect)
        assert do.is_disabled()
        page.get_by_label("Reason, kept in the audit log").fill("INC-2291")
        assert do.is_disabled()
        page.get_by_label("Type the breaker's name to confirm").fill(NAME)
        do.click()
        page.get_by_role("status").get_by_text("done on 1 process").wait_for()
        page.get_by_label("Actions and events", exact=True).get_by_text("INC-2291").first.wait_for()

    assert state == breaker.state


def test_the_other_operator_sees_an_order_within_a_second_and_gets_the_conflict(open_page: Any) -> None:
    registry = shop()
    breaker = registry.circuit_breaker(NAME)

    with served(registry) as server:
        dana, lee = open_page(server.url), open_page(server.url, token="lee-secret")
        for page in (dana, lee):
            page.get_by_role("button", name="Force open…").click()
            fill_in(page)
        dana.get_by_role("button", name="Force open on 1 process").click()
        began = time.monotonic()
        title_begins(lee, "payments forced open")
        took = time.monotonic() - began
        lee.get_by_text("It changed meanwhile").first.wait_for()
        lee.get_by_role("button", name="Force open on 1 process").click()
        lee.get_by_text("nothing was done").wait_for()
        epoch = breaker.snapshot().epoch

    assert took < 1.0
    assert ("dana", 2) == (breaker.snapshot().by, epoch)


def test_a_viewer_has_no_buttons_and_nobody_sees_what_names_contain_as_markup(open_page: Any) -> None:
    registry = shop(EVIL)
    fail(registry.circuit_breaker(EVIL))

    with served(registry) as server:
        page = open_page(server.url, token=None)
        wait_until(page, lambda: "open" in page.title())
        heading = page.locator("main h1").inner_text()
        buttons = page.locator(".actions button").count()
        images = page.locator("main img, nav img").count()

    assert EVIL in heading
    assert (0, 0) == (buttons, images)


@pytest.mark.parametrize("width", [1440, 412])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_and_the_page_does_not_scroll_sideways(open_page: Any, width: int, dark: bool) -> None:
    with served(ill_shop()) as server:
        page = open_page(server.url, width=width, dark=dark)
        page.get_by_text("Failure rate when it opened").wait_for()
        page.wait_for_timeout(400)
        found = {"page": violations(page)}
        page.get_by_role("button", name="Force open…").click()
        page.wait_for_timeout(200)
        found["dialog"] = violations(page)
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")

    assert {"page": [], "dialog": []} == found
    assert overflow <= 0


def violations(page: Any) -> list[str]:
    page.evaluate(AXE)
    result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in result["violations"]]


def test_everything_works_by_keyboard(open_page: Any) -> None:
    with served(ill_shop()) as server:
        page = open_page(server.url)
        page.keyboard.press("/")
        page.keyboard.type("c")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowUp")
        first = page.evaluate("document.activeElement.querySelector('b').textContent")
        page.keyboard.press("Enter")
        wait_until(page, lambda: first in page.locator("main h1").inner_text())
        page.get_by_role("button", name="Force open…").focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("dialog[open]")
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="detached")
        focused = page.evaluate("document.activeElement.textContent")

    assert "Force open…" == focused


def test_a_silent_server_is_amber_after_3_s_dimmed_after_10_and_recovers_by_itself(open_page: Any) -> None:
    registry = shop()
    server = Served(console_of(registry))
    page = open_page(server.url)
    page.wait_for_selector("[data-level=live]")
    server.stop()
    stopped = time.monotonic()
    page.wait_for_selector("[data-level=late]")
    amber = time.monotonic() - stopped
    page.wait_for_selector("[data-level=stale]")
    dimmed = time.monotonic() - stopped
    assert page.locator(".layout.stale").count() == 1
    fail(registry.circuit_breaker(NAME))

    again = Served(console_of(registry), server.port)
    page.wait_for_selector("[data-level=live]")
    title_begins(page, "payments open")
    page.get_by_role("button", name="Reset…").click()
    fill_in(page)
    page.get_by_role("button", name="Reset on 1 process").click()
    title_begins(page, "all closed")
    again.stop()

    assert 2.0 < amber < 5.5
    assert 9.0 < dimmed < 13.0


def test_without_a_stream_the_page_asks_again_and_again_and_says_so(open_page: Any, browser: Any) -> None:
    registry = shop()

    with served(registry) as server:
        context = browser.new_context()
        page = context.new_page()
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
time.sleep(60)
"""


def test_a_killed_process_is_shown_as_gone_not_as_closed(open_page: Any, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    command = [sys.executable, "-c", WORKER, str(tmp_path)]
    with subprocess.Popen(command, env=environment) as process, ExitStack() as stack:
        stack.callback(process.kill)
        until(lambda: list(tmp_path.glob("console-*.json")), 30.0)
        with served(None, run_directory=tmp_path) as server:
            page = open_page(server.url)
            page.locator("td .badge", has_text="Closed").wait_for()
            process.send_signal(signal.SIGKILL)
            page.locator("td .badge", has_text="Gone").wait_for()
            heading = page.locator("main h1").inner_text()
            actions = page.locator(".actions button").count()

    assert "Gone" in heading
    assert 0 == actions


def test_one_process_of_two_is_steered_alone(open_page: Any, tmp_path: Path) -> None:
    registries = [shop(), shop()]
    members = [Member(registry, tmp_path, name="web", interval=0.2) for registry in registries]
    for member in members:
        member.start()
    with served(None, run_directory=tmp_path) as server:
        page = open_page(server.url)
        page.get_by_label("Actions for web-1").select_option("trip")
        page.get_by_label("Reason, kept in the audit log").fill("only here")
        page.get_by_role("button", name="Trip on 1 process").click()
        title_begins(page, "payments open on 1 of 2")
    for member in members:
        member.stop()

    assert ["closed", "open"] == [registry.circuit_breaker(NAME).state for registry in registries]


def test_a_queue_is_paused_resumed_and_its_dead_letters_are_resubmitted(open_page: Any, tmp_path: Path) -> None:
    verdicts = [Report(Verdict.REFUSED, "401 wrong secret=hunter2")]

    with RetryQueue(tmp_path / "queue.db", name="hub") as queue:
        queue.lane("acme", sender=lambda _: verdicts[0])
        queue.enqueue("acme", b"order 1")
        queue.tick()
        with served(None, queues=[queue]) as server:
            page = open_page(server.url)
            page.get_by_role("button", name="Pause lane acme").click()
            page.get_by_role("button", name="Resume lane acme").click()
            page.get_by_role("button", name="Pause lane acme").wait_for()
            page.get_by_role("button", name=re.compile("given up")).click()
            page.get_by_role("button", name="Resubmit all 1…").click()
            page.get_by_label("Reason, kept in the audit log").fill("secret was rotated")
            do = page.get_by_role("button", name="Resubmit 1 message")
            assert do.is_disabled()
            page.get_by_label("It may arrive twice").check()
            do.click()
            page.get_by_role("status").get_by_text("resubmit: done").wait_for()
            viewer = open_page(server.url, token="vic-secret")
            viewer.get_by_role("button", name="Messages of lane acme").click()
            viewer.get_by_role("button", name=re.compile("Inspect")).first.click()
            viewer.get_by_text("is shown to operators").wait_for()
            shown = viewer.content()

    assert "hunter2" not in shown


@pytest.mark.parametrize("seconds", ["120", "3600", "21600"])
def test_longer_and_shorter_ranges_are_drawn(open_page: Any, seconds: str) -> None:
    with served(ill_shop()) as server:
        page = open_page(server.url)
        page.get_by_label("Time range").select_option(seconds)
        page.wait_for_selector(".timeline canvas" if int(seconds) > 900 else ".timeline svg")
