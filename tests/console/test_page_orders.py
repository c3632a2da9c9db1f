"""Orders given on the page in a real Chromium: each is carried out, and each is seen in the audit log."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from halfopen.console import Member
from halfopen.retry_queue import Report, RetryQueue, Verdict
from tests.console.pages import NAME, REASON, TYPED, audit_of, expect, fill_in, log_of, title_begins
from tests.console.support import fail, served, shop

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("button", "effect", "action", "state", "told"),
    [
        ("Trip…", "Trip on 1 process", "trip", "open", "dana tripped: INC-2291"),
        ("Force open…", "Force open on 1 process", "force_open", "forced_open", "dana forced it open until"),
        ("Force closed…", "Force closed on 1 process", "disable", "disabled", "dana forced it closed until"),
        ("Observe only…", "Observe only on 1 process", "observe", "metrics_only", "dana set it to observe only until"),
        ("Reset…", "Reset on 1 process", "reset", "closed", "dana reset: INC-2291"),
    ],
)
def test_a_dialog_waits_until_it_is_filled_in_and_then_does_what_its_button_says(
    open_page: Any, button: str, effect: str, action: str, state: str, told: str, tmp_path: Path
) -> None:
    registry = shop()
    breaker = registry.circuit_breaker(NAME)
    fail(breaker)

    with served(registry, audit=tmp_path / "audit.jsonl") as server:
        page = open_page(server.url)
        page.get_by_role("button", name=button).click()
        do = page.get_by_role("button", name=effect)
        expect(do).to_be_disabled()
        page.get_by_label(REASON).fill("INC-2291")
        expect(do).to_be_disabled()
        page.get_by_label(TYPED).fill(NAME)
        do.click()
        expect(page.locator(".toast")).to_contain_text("done on 1 process")
        expect(log_of(page)).to_contain_text(told)
        expect(log_of(page)).to_contain_text("INC-2291")
        page.reload()
        expect(log_of(page)).to_contain_text(told)
        (entry,) = audit_of(server.url)

    assert state == breaker.state
    assert (action, "dana", "INC-2291", NAME) == (entry["action"], entry["who"], entry["reason"], entry["target"])
    assert {"web-1": "open"} == entry["before"]
    assert {"web-1": state} == entry["after"]
    assert (entry["ends_at"] is not None) == (state in ("forced_open", "disabled", "metrics_only"))


def test_try_now_asks_nothing_and_stands_in_the_audit_log(open_page: Any) -> None:
    registry = shop()
    fail(registry.circuit_breaker(NAME))

    with served(registry) as server:
        page = open_page(server.url)
        page.get_by_role("button", name="Try now").click()
        title_begins(page, "payments half-open")
        expect(log_of(page)).to_contain_text("dana tried on web-1")
        (entry,) = audit_of(server.url)

    assert ("try_now", "dana", {"web-1": "half_open"}) == (entry["action"], entry["who"], entry["after"])


def test_an_end_is_chosen_and_said(open_page: Any) -> None:
    registry = shop()

    with served(registry) as server:
        page = open_page(server.url)
        page.get_by_role("button", name="Force open…").click()
        page.get_by_label("Ends by itself after").select_option("3600")
        fill_in(page)
        page.get_by_role("button", name="Force open on 1 process").click()
        title_begins(page, "payments forced open")
        expect(page.locator(".why")).to_contain_text(
            re.compile(r"by order of dana: INC-2291\. It ends by itself at [\d:]{8}, in")
        )
        (entry,) = audit_of(server.url)
        page.get_by_role("button", name="Observe only…").click()
        page.get_by_label("Ends by itself after").select_option("until_removed")
        fill_in(page)
        page.get_by_role("button", name="Observe only on 1 process").click()
        title_begins(page, "payments observed only")
        expect(page.locator(".why")).to_contain_text("It stays so until somebody removes it.")

    assert 3500 < entry["ends_at"] - entry["at"] < 3700


def test_the_other_operator_sees_an_order_and_gets_the_conflict(open_page: Any) -> None:
    registry = shop()
    breaker = registry.circuit_breaker(NAME)

    with served(registry) as server:
        dana, lee = open_page(server.url), open_page(server.url, token="lee-secret")
        for page in (dana, lee):
            page.get_by_role("button", name="Force open…").click()
            fill_in(page)
        dana.get_by_role("button", name="Force open on 1 process").click()
        title_begins(lee, "payments forced open")
        expect(lee.get_by_role("alert")).to_contain_text("It changed meanwhile, look again: web-1 is forced open.")
        lee.get_by_role("button", name="Force open on 1 process").click()
        expect(lee.get_by_text("nothing was done")).to_be_visible()
        epoch, by = breaker.snapshot().epoch, breaker.snapshot().by
        lee.get_by_role("button", name="I have looked").click()
        lee.get_by_role("button", name="Force open on 1 process").click()
        expect(log_of(dana)).to_contain_text("lee forced it open")
        told = [(entry["who"], entry["action"]) for entry in audit_of(server.url)]

    assert (2, "dana") == (epoch, by)
    assert "lee" == breaker.snapshot().by
    assert [("lee", "force_open"), ("dana", "force_open")] == told


def test_one_process_of_two_is_steered_alone(open_page: Any, tmp_path: Path) -> None:
    registries = [shop(), shop()]
    members = [Member(registry, tmp_path, name="web", interval=1.0) for registry in registries]
    for member in members:
        member.start()
    with served(None, run_directory=tmp_path) as server:
        page = open_page(server.url)
        page.get_by_label("Actions for web-1").select_option("trip")
        page.get_by_label(REASON).fill("only here")
        page.get_by_role("button", name="Trip on 1 process").click()
        title_begins(page, "payments open on 1 of 2")
        expect(log_of(page)).to_contain_text("dana tripped on web-1: only here")
        page.get_by_role("button", name="Try now").click()
        title_begins(page, "payments half-open on 1 of 2")
        states = [registry.circuit_breaker(NAME).state for registry in registries]
    for member in members:
        member.stop()

    assert ["closed", "half_open"] == states


# Retry queues


def refusing_queue(path: Path, *, orders: int = 1) -> RetryQueue:
    """Return a queue with messages that its partner refused, and which were given up."""
    queue = RetryQueue(path / "queue.db", name="hub")
    queue.lane("acme", sender=lambda _: Report(Verdict.REFUSED, "401 wrong secret=hunter2"))
    for number in range(orders):
        queue.enqueue("acme", b"order %d" % number)
    queue.tick()
    return queue


def test_a_lane_is_paused_and_resumed_and_its_dead_letters_are_resubmitted(open_page: Any, tmp_path: Path) -> None:
    with refusing_queue(tmp_path) as queue, served(None, queues=[queue]) as server:
        page = open_page(server.url)
        page.get_by_role("button", name="Pause lane acme").click()
        page.get_by_role("button", name="Resume lane acme").click()
        page.get_by_role("button", name="Pause lane acme").wait_for()
        expect(log_of(page)).to_contain_text("dana paused lane acme")
        expect(log_of(page)).to_contain_text("dana resumed lane acme")
        page.get_by_role("button", name=re.compile("given up")).click()
        page.get_by_role("button", name="Resubmit all 1…").click()
        page.get_by_label(REASON).fill("secret was rotated")
        do = page.get_by_role("button", name="Resubmit 1 message")
        expect(do).to_be_disabled()
        page.get_by_label("It may arrive twice").check()
        do.click()
        expect(page.locator(".toast")).to_contain_text("resubmit: done")
        page.keyboard.press("Escape")
        expect(log_of(page)).to_contain_text("dana resubmitted 1 of hub: secret was rotated")
        told = [entry["action"] for entry in audit_of(server.url)]

    assert ["queue resubmit", "queue resume", "queue pause"] == told


@pytest.mark.parametrize(
    ("action", "left", "told"),
    [("retry", "waiting", "retried"), ("resubmit", "waiting", "resubmitted"), ("cancel", "cancelled", "cancelled")],
)
def test_one_message_is_inspected_and_an_order_to_it_is_carried_out_and_seen(
    open_page: Any, tmp_path: Path, action: str, left: str, told: str
) -> None:
    with refusing_queue(tmp_path, orders=2) as queue, served(None, queues=[queue]) as server:
        first, second = (message.id for message in queue.list())
        page = open_page(server.url)
        page.get_by_role("button", name="Messages of lane acme").click()
        page.get_by_role("button", name=f"Inspect {first}").click()
        expect(page.get_by_role("dialog")).to_contain_text("401 wrong secret=hunter2")
        page.get_by_role("button", name=f"{action.capitalize()} {first}").click()
        page.get_by_label(REASON).fill("INC-7")
        if action == "resubmit":
            page.get_by_label("It may arrive twice").check()
        page.get_by_role("dialog").get_by_role("button", name=f"{action.capitalize()} 1 message").click()
        expect(page.locator(".toast")).to_contain_text(f"{action}: done")
        page.keyboard.press("Escape")
        expect(log_of(page)).to_contain_text(f"dana {told} {first}: INC-7")
        (entry,) = audit_of(server.url)
        found = {message.id: message.state for message in queue.list()}

    assert (f"queue {action}", first, "INC-7") == (entry["action"], entry["message"], entry["reason"])
    assert "error" == found.pop(second)
    assert left in found.values()


def test_a_viewer_inspects_a_message_without_what_the_partner_answered(open_page: Any, tmp_path: Path) -> None:
    with refusing_queue(tmp_path) as queue, served(None, queues=[queue]) as server:
        page = open_page(server.url, token="vic-secret")
        page.get_by_role("button", name="Messages of lane acme").click()
        page.get_by_role("button", name=re.compile("Inspect")).first.click()
        expect(page.get_by_role("dialog")).to_contain_text("is shown to operators")
        buttons = page.get_by_role("button", name=re.compile("^(Retry|Resubmit|Cancel|Pause)")).count()
        shown = page.content()

    assert 0 == buttons
    assert "hunter2" not in shown
