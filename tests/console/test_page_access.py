"""Who can use the page: by keyboard alone, on a phone, in the dark, and with what axe looks for."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from halfopen import Registry
from halfopen.console import Member
from halfopen.retry_queue import Report, RetryQueue, Verdict
from tests.console.pages import NAME, REASON, TYPED, expect, log_of, title_begins, violations, wait_until
from tests.console.support import Served, console_of, fail, served, shop

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]


OVERFLOW = """() => {
    const dialog = document.querySelector("dialog");
    const own = dialog ? dialog.scrollWidth - dialog.clientWidth : 0;
    return Math.max(document.documentElement.scrollWidth - innerWidth, own);
}"""


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


class Judged:
    """What axe found in each situation, and whether the page was ever wider than the screen."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.found: dict[str, list[str]] = {}
        self.too_wide: list[str] = []

    def look(self, situation: str) -> None:
        if found := violations(self.page):
            self.found[situation] = found
        if self.page.evaluate(OVERFLOW) > 0:
            self.too_wide.append(situation)


@pytest.mark.parametrize("width", [1440, 412])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_in_an_outage_and_in_the_dialogs(
    open_page: Any, width: int, dark: bool, tmp_path: Path
) -> None:
    with RetryQueue(tmp_path / "queue.db", name="hub") as queue:
        queue.lane("acme", sender=lambda _: Report(Verdict.REFUSED, "no"))
        queue.enqueue("acme", b"order 1")
        queue.tick()
        with served(ill_shop(), queues=[queue]) as server:
            page = open_page(server.url, width=width, dark=dark)
            judged = Judged(page)
            expect(page.get_by_label("Evidence")).to_contain_text("Failure rate when it opened")
            expect(page.locator(".timeline svg")).to_be_visible()
            judged.look("outage")
            page.get_by_role("button", name="Force open…").click()
            judged.look("order")
            page.keyboard.press("Escape")
            page.get_by_role("button", name="Messages of lane acme").click()
            page.get_by_role("button", name=re.compile("^Inspect")).click()
            expect(page.get_by_role("dialog").get_by_role("list")).to_be_visible()
            judged.look("messages")
            page.get_by_role("button", name=re.compile("^Resubmit <")).click()
            expect(page.get_by_label("It may arrive twice")).to_be_visible()
            judged.look("order to a message")
            page.keyboard.press("Escape")
            for name in ("search", "legacy-tax"):
                page.get_by_role("link", name=name).click()
                expect(page.locator("main h1")).to_contain_text(name)
                expect(page.locator(".timeline svg")).to_be_visible()
                judged.look(name)
            page.get_by_label("Time range").select_option("21600")
            expect(page.locator(".timeline canvas")).to_be_visible()
            judged.look("six hours")

    assert ({}, []) == (judged.found, judged.too_wide)


@pytest.mark.parametrize("width", [1440, 412])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_when_all_is_well_a_process_is_gone_and_the_server_is_silent(
    open_page: Any, width: int, dark: bool, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        for number in range(2):
            member = Member(shop(NAME, "search"), tmp_path, name="web", interval=0.2)
            member.start()
            stack.callback(member.stop)
            if number == 1:
                member.stop()
        server = Served(console_of(None, run_directory=tmp_path))
        page = open_page(server.url, width=width, dark=dark)
        judged = Judged(page)
        if width < 620:
            page.get_by_text("Show the 2 closed").click()
        expect(page.locator(".timeline svg")).to_be_visible()
        judged.look("all well")
        page.get_by_role("button", name="sign out").click()
        page.get_by_role("button", name="sign in").click()
        expect(page.get_by_label("Token")).to_be_visible()
        judged.look("sign in")
        page.keyboard.press("Escape")
        expect(page.locator("td .badge", has_text="Gone")).to_be_visible()
        judged.look("gone")
        server.stop()
        if width < 620:  # both would take twice the ten seconds
            page.wait_for_selector("[data-level=stale]")
            judged.look("silent")

    assert ({}, []) == (judged.found, judged.too_wide)


def focused(page: Any) -> str:
    text: str = page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent")
    return text


def tab_to(page: Any, wanted: str, most: int = 40) -> None:
    """Press Tab until what is wanted has the focus."""
    for _ in range(most):
        if wanted == focused(page):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab never came to {wanted!r}")


def test_an_order_is_given_by_keyboard_alone(open_page: Any) -> None:
    registry = shop(NAME, "search")
    fail(registry.circuit_breaker(NAME))

    with served(registry) as server:
        page = open_page(server.url)
        page.keyboard.press("Tab")
        assert "Skip to the breaker" == focused(page)
        page.keyboard.press("Enter")
        tab_to(page, "Force open…")
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_be_visible()
        for label, text in ((REASON, "INC-2291"), (TYPED, NAME)):
            wait_until(page, lambda label=label: reached(page, label))
            page.keyboard.type(text)
        page.keyboard.press("Enter")
        title_begins(page, "payments forced open")
        expect(log_of(page)).to_contain_text("dana forced it open until")

        # The dialog goes once the order is answered, which may be after the stream has told of it.
        expect(page.get_by_role("button", name="Force open…", exact=True)).to_be_focused()


def reached(page: Any, label: str) -> bool:
    """Press Tab unless the field has the focus."""
    if page.get_by_label(label).evaluate("field => field === document.activeElement"):
        return True
    page.keyboard.press("Tab")
    return False


def test_the_list_and_the_dialogs_are_walked_by_keyboard(open_page: Any) -> None:
    with served(ill_shop()) as server:
        page = open_page(server.url)
        page.keyboard.press("/")
        page.keyboard.type("c")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowUp")
        first = page.evaluate("document.activeElement.querySelector('b').textContent")
        page.keyboard.press("Enter")
        expect(page.locator("main h1")).to_contain_text(first)
        page.get_by_role("button", name="Force open…").focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("dialog[open]")
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="detached")

        expect(page.get_by_role("button", name="Force open…", exact=True)).to_be_focused()
