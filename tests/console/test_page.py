"""The page in a real Chromium: what it shows of an outage, in which words, and over which time."""

from __future__ import annotations

import math
import re
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import halfopen.console
from halfopen import CircuitBreaker, Registry
from halfopen.console import Member, _hub
from halfopen.retry_queue import Report, RetryQueue, Verdict
from halfopen.testing import FakeClock
from tests.console.pages import NAME, expect, log_of, title_begins, wait_until
from tests.console.support import Sick, fail, served, shop, sick

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]

_SIDES = (("x", "width"), ("y", "height"))
EVIL = '<script>document.title="owned"</script><img src=x onerror=document.title="owned">'
OWN = {path.name for path in (Path(halfopen.console.__file__).parent / "static").glob("*.js")}


class Late(Exception):
    pass


def late() -> None:
    raise Late


def test_every_module_is_loaded_and_none_complains(open_page: Any) -> None:
    with served(shop()) as server:
        page = open_page(server.url)
        page.locator(".timeline svg").wait_for()
        loaded = page.evaluate("performance.getEntriesByType('resource').map(one => one.name)")

    assert OWN <= {url.rpartition("/")[2] for url in loaded}


def test_a_trip_changes_the_title_the_list_and_what_is_said_aloud(open_page: Any) -> None:
    registry = shop(NAME, "search")

    with served(registry, title="The shop") as server:
        page = open_page(server.url)
        calm = page.title()
        fail(registry.circuit_breaker(NAME))
        title_begins(page, "payments open")
        ill = page.title()
        heading = page.locator("main h1").inner_text()
        why = page.locator(".why").inner_text()
        row = page.get_by_role("navigation").get_by_role("link", name=NAME).inner_text()
        spoken = page.locator("[aria-live]")
        expect(spoken).to_have_text("payments is open")

    assert "all closed · The shop" == calm
    assert "payments open · The shop" == ill
    assert "Open" in heading
    assert "Open" in row
    assert re.search(r"^Open since [\d:]{8}, for .* s, because 5 of the last 5 calls failed \(limit 50 %\)\.", why)


def test_an_outage_is_watched_from_the_first_failure_to_recovery(open_page: Any) -> None:
    registry = shop()
    breaker = registry.circuit_breaker(NAME)

    with served(registry) as server:
        page = open_page(server.url)
        fail(breaker)
        numbers, diagram = page.locator(".numbers.six"), page.locator("svg.big")
        expect(numbers).to_contain_text("to the next trial")
        expect(diagram.locator("g:has(> .lit)")).to_contain_text("Open")
        page.get_by_role("button", name="Try now").click()
        expect(numbers).to_contain_text("trial calls are being made")
        breaker.call(int)
        expect(diagram).to_contain_text("1 ok, 0 failed, 0 running, 2 left")
        page.reload()
        expect(diagram).to_contain_text("1 ok, 0 failed, 0 running, 2 left")
        expect(diagram.locator("g:has(> .lit)")).to_contain_text("Half-open")
        breaker.call(int)
        breaker.call(int)
        title_begins(page, "all closed")
        expect(page.get_by_label("Evidence")).to_contain_text("3 of 3 succeeded")
        expect(diagram).to_contain_text("once in 15 min")
        log = log_of(page)
        expect(log).to_contain_text("dana tried")
        expect(log).to_contain_text("web-1 opened: 5 of the last 5 calls failed; it waits 60 s")
        expect(log).to_contain_text("web-1 closed: 3 of 3 trial calls succeeded")


def test_what_happened_before_the_console_began_to_look_is_in_the_log(open_page: Any) -> None:
    registry = shop()
    breaker = registry.circuit_breaker(NAME)
    fail(breaker)
    breaker.force_open(900.0, reason="CHG-4411", by="lee")

    with served(registry) as server:
        page = open_page(server.url)
        expect(log_of(page)).to_contain_text("web-1 opened: 5 of the last 5 calls failed; it waits 60 s")
        expect(log_of(page)).to_contain_text("lee forced it open on web-1: CHG-4411")
        expect(log_of(page).get_by_role("listitem")).to_have_count(2)
        breaker.reset(reason="over", by="lee")
        expect(log_of(page)).to_contain_text("lee reset on web-1: over")
        expect(log_of(page).get_by_role("listitem")).to_have_count(3)


def test_of_two_moves_at_one_moment_the_later_one_stands_first_in_the_log(open_page: Any) -> None:
    clock = FakeClock()
    registry = Registry(clock=clock)
    breaker = registry.circuit_breaker(NAME, consecutive_failures=1, wait_in_open=5.0)
    fail(breaker, 1)
    clock.advance(5.0)
    fail(breaker, 1)  # half-open and open again, before any time has passed

    with served(registry) as server:
        page = open_page(server.url)
        expect(log_of(page).get_by_role("listitem")).to_have_count(3)
        told = log_of(page).get_by_role("listitem").all_inner_texts()

    assert ["opened again", "went half-open", "opened"] == [
        next(word for word in ("opened again", "went half-open", "opened") if word in row) for row in told
    ]


def test_the_errors_of_the_processes_are_named_with_the_commonest_first(open_page: Any, tmp_path: Path) -> None:
    registries = [shop() for _ in range(3)]
    members = [Member(each, tmp_path, name="web", interval=1.0) for each in registries]
    for registry, trouble in zip(registries, (sick, late, late), strict=True):
        for _ in range(5):
            with pytest.raises((Sick, Late)):
                registry.circuit_breaker(NAME).call(trouble)
    for member in members:
        member.start()
    with served(None, run_directory=tmp_path) as server:
        page = open_page(server.url)
        expect(page.locator(".why")).to_contain_text("Last errors: Late on 2 processes, Sick on 1 process.")
    for member in members:
        member.stop()


@pytest.mark.parametrize("order", ["try_now", "force_open"])
def test_ten_processes_have_room_in_the_box_of_their_state(open_page: Any, tmp_path: Path, order: str) -> None:
    registries = [shop() for _ in range(10)]
    members = [Member(each, tmp_path, name="web", interval=60.0) for each in registries]
    for registry, member in zip(registries, members, strict=True):
        registry.circuit_breaker(NAME).trip()
        getattr(registry.circuit_breaker(NAME), order)()
        member.start()

    with served(None, run_directory=tmp_path) as server:
        page = open_page(server.url)
        state = page.locator(".diagram g", has=page.locator("rect.lit")).first
        expect(state.locator("title")).to_have_count(10)
        inside = state.locator("rect.lit").bounding_box()
        circles = [circle.bounding_box() for circle in state.locator("circle").all()]
    for member in members:
        member.stop()

    assert all(one["y"] + one["height"] < inside["y"] + inside["height"] for one in circles)
    assert [] == [(one, other) for one, other in combinations(circles, 2) if _overlap(one, other)]


def _overlap(one: Any, other: Any) -> bool:
    apart = math.hypot(*(one[side] + one[size] / 2 - other[side] - other[size] / 2 for side, size in _SIDES))
    return apart < (one["width"] + other["width"]) / 2


def test_what_is_not_open_cannot_be_tried(open_page: Any) -> None:
    registry = shop()

    with served(registry) as server:
        page = open_page(server.url)
        button = page.get_by_role("button", name="Try now")
        expect(button).to_be_disabled()
        fail(registry.circuit_breaker(NAME))
        expect(button).to_be_enabled()
        registry.circuit_breaker(NAME).force_open(900.0, reason="CHG-1", by="lee")
        expect(button).to_be_disabled()


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


# The queue


def test_the_queue_is_read_anew_when_its_breaker_moves(
    open_page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_hub, "QUEUES_EVERY", 3600.0)
    breaker = CircuitBreaker("acme", wait_in_open=3600.0)

    with RetryQueue(tmp_path / "queue.db", name="hub") as queue:
        queue.lane("acme", sender=lambda _: Report(Verdict.DELIVERED, "ok"), breaker=breaker)
        queue.start()
        with served(None, queues=[queue]) as server:
            page = open_page(server.url)
            expect(page.get_by_label("Retry queue")).to_contain_text("No lane has held a message yet")
            breaker.trip()
            queue.enqueue("acme", b"order 1")
            row = page.get_by_role("row").filter(has_text="open circuit")
            expect(row).to_be_visible()
            expect(page.get_by_label("Retry queue")).to_contain_text("message, all held by this breaker")


# The time axis


def lane_of(page: Any) -> Any:
    """Return the rectangles of the first process on the axis: of each its beginning and its end, 0 to 1."""
    return page.evaluate(
        """() => {
            const axis = document.querySelector('.timeline svg'), wide = axis.viewBox.baseVal.width;
            const named = (rect) => rect.querySelector('title')?.textContent.startsWith('web-1');
            const ends = ({x, width}) => [x.baseVal.value, x.baseVal.value + width.baseVal.value];
            return [...axis.querySelectorAll('rect')].filter(named).map(rect => ends(rect).map(at => at / wide));
        }"""
    )


def test_before_a_process_was_made_nothing_is_known(open_page: Any) -> None:
    registry = shop()

    with served(registry) as server:
        page = open_page(server.url, at="range=900")
        expect(page.get_by_label("Timeline")).to_contain_text("nothing known before")
        ((begin, end),) = lane_of(page)
        fail(registry.circuit_breaker(NAME))
        wait_until(page, lambda: len(lane_of(page)) == 2)
        (closed_from, _), (open_from, open_to) = lane_of(page)

    assert begin > 0.5  # made a moment ago: a quarter of an hour is wide
    assert end - begin < 0.4
    assert closed_from > 0.5
    assert closed_from <= open_from < open_to


def test_the_range_fits_what_is_known_until_somebody_chooses_one(open_page: Any) -> None:
    with served(shop(NAME, "search")) as server:
        page = open_page(server.url)
        heading = page.get_by_label("Timeline").get_by_role("heading")
        expect(heading).to_have_text(re.compile("Last (minute|2 minutes|5 minutes)"))
        choice = page.get_by_label("Time range")
        choice.select_option("3600")
        expect(heading).to_have_text("Last hour")
        page.get_by_role("link", name="search").click()
        expect(page.locator("main h1")).to_contain_text("search")
        expect(heading).to_have_text("Last hour")
        chosen = page.url
        page.reload()
        expect(heading).to_have_text("Last hour")
        page.get_by_label("Time range").select_option("")
        expect(heading).not_to_have_text("Last hour")
        left = page.url

    assert chosen.endswith("#/search&range=3600")
    assert left.endswith("#/search")


@pytest.mark.parametrize("seconds", ["60", "120", "300", "900", "3600", "21600"])
def test_longer_and_shorter_ranges_are_drawn(open_page: Any, seconds: str) -> None:
    registry = shop()
    fail(registry.circuit_breaker(NAME))

    with served(registry) as server:
        page = open_page(server.url, at=f"range={seconds}")
        expect(page.locator(".timeline svg")).to_be_visible()
        canvas = page.locator(".timeline canvas")
        expect(canvas).to_have_count(1 if int(seconds) > 900 else 0)


def test_a_move_reaches_the_page_within_a_second(open_page: Any) -> None:
    registry = shop()
    breaker = registry.circuit_breaker(NAME)
    took: list[float] = []

    with served(registry) as server:
        page = open_page(server.url, token=None)
        for _ in range(8):
            began = time.monotonic()
            breaker.trip()
            title_begins(page, "payments open")
            took.append(time.monotonic() - began)
            breaker.reset()
            title_begins(page, "all closed")

    assert min(took) < 1.0, took  # the best of eight: a busy machine delays some
