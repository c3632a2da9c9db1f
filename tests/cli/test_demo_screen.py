"""What the demo shows: plain lines for pipes, a picture that needs no colour for terminals, a table at the end."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from halfopen.cli.demo.account import Account, Books, Keeping
from halfopen.cli.demo.narrator import Line
from halfopen.cli.demo.picture import picture
from halfopen.cli.demo.scene import Rates, Scene
from halfopen.cli.demo.screen import LiveScreen, PlainLines, screen_for
from halfopen.cli.demo.story import Story
from halfopen.cli.demo.summary import Promise, as_json, judge, parted, table

BOOKS = Books(
    condition="well", since=145.0, arrivals=1212, sick_hits=31, falls=0, ill_since=50.0, well_since=145.0,
    rescued=False, delivered=1200, duplicates=0,
)  # fmt: skip
OURS = Account(
    variant="halfopen", now=310.0, circuit="closed", accepted=1200, delivered=1200, given_up=0, outstanding=0,
    sends=1212, failed=12, refused=350, refusal_median=0.000016, last_delivery=310.0, last_error="HTTP 503",
    rounds=(1, 3), books=BOOKS, final=True,
)  # fmt: skip
KEEPING = Keeping(
    stored=500, streams=3, ordered=100, drained=300, drain_time=4.0, kills=(200.0,), restarts=(0.8,)
)  # fmt: skip
NONE = replace(
    OURS, variant="none", circuit="none", rounds=(), refused=0, refusal_median=None, given_up=300, delivered=900,
    books=replace(BOOKS, sick_hits=3000, falls=12, rescued=True, well_since=280.0),
)  # fmt: skip


def scene(**changes: Any) -> Scene:
    values: dict[str, Any] = {
        "title": "a partner's bad day", "speed": 10.0, "now": 64.0, "state": "open", "calls": 20, "failures": 10,
        "window": 20, "limit": 0.5, "trials": ("free",) * 3, "next_trial": 12.0, "wait": 30.0, "step": 1,
        "rates": Rates(refused=40.0), "account": OURS, "others": (("no breaker", NONE), ("naive two-state", None)),
        "lines": (Line(50.0, "the partner turns to 503"),),
    }  # fmt: skip
    return Scene(**{**values, **changes})


def drawn(scene: Scene, width: int = 110, height: int = 40) -> str:
    console = Console(file=io.StringIO(), width=width, height=height, record=True, color_system=None)
    console.print(picture(scene, height))
    return console.export_text()


@pytest.mark.parametrize(("state", "label"), [("closed", "CLOSED"), ("open", "OPEN"), ("half_open", "HALF-OPEN")])
def test_the_present_state_is_told_without_colour(state: str, label: str) -> None:
    lit = [line for line in drawn(scene(state=state)).splitlines() if "┃" in line]

    assert 1 == len(lit)
    assert f"● {label}" in lit[0]


def test_while_the_gateway_is_killed_no_state_is_lit() -> None:
    text = drawn(scene(state="killed", account=replace(OURS, circuit="killed"), next_trial=None))

    assert "┃" not in text
    assert "☠ killed" in text


def test_the_picture_shows_window_countdown_rates_and_every_variant() -> None:
    text = drawn(scene())

    for part in ("10 of 20 failed when it opened", "next in  12 s", "refused   40", "no breaker", "3,000", "503"):
        assert part in text


def test_the_picture_shows_what_became_of_each_trial_call() -> None:
    text = drawn(scene(state="half_open", trials=("succeeded", "running", "free"), next_trial=None))

    assert "trial calls ✓ ◐ ○" in text


def test_the_picture_names_the_console_as_long_as_there_is_one() -> None:
    url = "http://127.0.0.1:8765/"

    assert url in drawn(scene(console=url))
    assert "console" not in drawn(scene())


@pytest.mark.parametrize("console", ["", "http://127.0.0.1:8765/"])
def test_the_picture_fits_a_small_terminal(console: str) -> None:
    lines = drawn(scene(console=console), width=80, height=24).splitlines()

    assert len(lines) <= 24
    assert "…" not in "".join(line for line in lines if "naive two-state" not in line)  # nothing known of that one yet
    assert console in lines[0]


@pytest.mark.parametrize("console", ["", "http://127.0.0.1:8765/"])
def test_a_small_terminal_shows_what_happened_last(console: str) -> None:
    told = (Line(50.0, "the partner turns to 503"), Line(51.0, "CLOSED → OPEN"), Line(80.0, "OPEN → HALF-OPEN"))

    lines = drawn(scene(console=console, lines=told), width=80, height=24).splitlines()

    assert ["0:51  CLOSED → OPEN", "1:20  OPEN → HALF-OPEN"] == [line.strip() for line in lines[-2:]]
    assert len(lines) < 24


def test_the_countdown_after_a_failed_round_fits_a_small_terminal() -> None:
    text = drawn(scene(step=2, next_trial=93.0, wait=124.0), width=80, height=24)

    assert "○ ○ ○  last round failed; next in  93 s ███░░░░░░░░░ of 124 s" in text


def test_plain_lines_say_each_sentence_once() -> None:
    stream = io.StringIO()
    screen = PlainLines(stream)

    for now in (64.0, 65.0, 66.0):
        screen.show(scene(now=now))

    assert 1 == stream.getvalue().count("0:50  the partner turns to 503")
    assert 1 == stream.getvalue().count("next trial in 12 s")


def test_a_pipe_gets_plain_lines() -> None:
    assert isinstance(screen_for(io.StringIO(), plain=False), PlainLines)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_the_picture_and_keeps_the_story(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = _Terminal()

    with screen_for(stream, plain=False) as screen:
        screen.show(scene())

    assert isinstance(screen, LiveScreen)
    assert "● OPEN" in stream.getvalue()
    assert stream.getvalue().endswith(" 0:50  the partner turns to 503\n")


def test_a_terminal_without_rich_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setitem(__import__("sys").modules, "rich.console", None)

    assert isinstance(screen_for(_Terminal(), plain=False), PlainLines)


def test_the_table_has_a_column_for_each_variant_and_marks_a_rescue() -> None:
    lines = table([NONE, OURS]).splitlines()

    assert lines[0].split() == ["no", "breaker", "halfopen"]
    assert ["outage", "3:50*", "1:35"] == next(line.split() for line in lines if line.startswith("outage"))
    assert any("900 of 1,200" in line and "1,200 of 1,200" in line for line in lines)


def test_all_promises_of_a_good_day_are_kept() -> None:
    promises = judge(Story(), OURS, [NONE])

    assert [] == [promise for promise in promises if not promise.kept]
    assert 9 == len(promises)


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (replace(OURS, books=replace(BOOKS, lost=1, delivered=1199)), "1 lost"),
        (replace(OURS, delivered=1199, given_up=1), "1 given up, last error: HTTP 503"),
        (replace(OURS, delivered=1195, outstanding=5), "5 still waiting"),
        (replace(OURS, books=replace(BOOKS, duplicates=2)), "2 came twice"),
        (replace(OURS, books=replace(BOOKS, altered=1)), "1 altered"),
        (replace(OURS, books=replace(BOOKS, arrivals=1213)), "1,213 of 1,212 requests arrived"),
        (replace(OURS, books=replace(BOOKS, falls=1)), "fell 1 times"),
        (replace(OURS, rounds=(1, 4)), "rounds of 1, 4"),
        (replace(OURS, circuit="open"), "now open"),
        (replace(OURS, rounds=()), "after 0 half-open rounds"),
        (replace(OURS, refusal_median=0.0011), "median 1,100 µs"),
        (replace(OURS, books=replace(BOOKS, sick_hits=3000)), "3,000 against 3,000"),
    ],
)
def test_each_promise_can_be_broken(broken: Account, says: str) -> None:
    figures = [promise.figures for promise in judge(Story(), broken, [NONE]) if not promise.kept]

    assert any(says in each for each in figures)


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (replace(KEEPING, needless=1), "1 needless"),
        (replace(KEEPING, overtaken=2), "2 overtaken"),
        (replace(KEEPING, ordered=0), "0 in 3 streams"),
        (replace(KEEPING, restarts=()), "back after never"),
    ],
)
def test_each_promise_of_the_gateway_can_be_broken(broken: Keeping, says: str) -> None:
    promises = judge(Story(), replace(OURS, keeping=broken), [NONE])

    assert [says] == [says for promise in promises if not promise.kept and says in promise.figures]


def test_a_killed_gateways_own_count_of_requests_proves_nothing() -> None:
    killed = replace(OURS, keeping=KEEPING, sends=1000)
    spared = replace(killed, keeping=replace(KEEPING, kills=(), restarts=()))

    assert [] == [promise for promise in judge(Story(), killed, [NONE]) if not promise.kept]
    assert ["1,212 of 1,000 requests arrived"] == [
        promise.figures for promise in judge(Story(), spared, [NONE]) if not promise.kept
    ]


def test_the_table_shows_what_the_gateway_kept_and_how_fast_it_drained() -> None:
    text = table([NONE, replace(OURS, keeping=KEEPING)])

    assert any(line.split()[-2:] == ["–", "500"] for line in text.splitlines() if "kept on disk" in line)
    assert "300 at 75/s" in text


@pytest.mark.parametrize("account", [OURS, replace(OURS, keeping=KEEPING)])
def test_an_account_survives_json(account: Account) -> None:
    assert account == Account.restore(json.loads(json.dumps(account.plain())))


@pytest.mark.parametrize(("width", "between"), [(None, " "), (18, " "), (17, "\n  ")])
def test_figures_that_do_not_fit_beside_their_promise_stand_below_it(width: int | None, between: str) -> None:
    assert between == parted(Promise("nothing lost", True, "0"), width)  # ✓ nothing lost · 0


def test_an_interrupted_story_says_nothing_about_its_promises() -> None:
    told = as_json([OURS], [], speed=10.0, ended="interrupted")

    assert told["kept"] is None
