"""`halfopen status`, `watch`, `order` and `console`, against a console on a real server."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import click
import httpx
import pytest
from click.testing import CliRunner
from rich.console import Console

from halfopen.cli import main
from halfopen.cli._shown import duration, table
from halfopen.cli.order import seconds_until
from halfopen.cli.watch import Picture
from halfopen.console import Member
from tests.console.support import fail, read_events, served, shop

NAME = "payments"


def run(*arguments: str, columns: int = 160) -> tuple[int, str]:
    result = CliRunner().invoke(main, arguments, env={"COLUMNS": str(columns)})
    return result.exit_code, result.output


def test_status_tells_that_all_is_well_by_its_exit_code() -> None:
    with served(shop()) as server:
        code, output = run("status", server.url)

    assert 0 == code
    assert "every circuit is closed" in output


def test_status_shows_what_is_open_and_why() -> None:
    registry = shop(NAME, "[bold]search")
    fail(registry.circuit_breaker(NAME))
    fail(registry.circuit_breaker("[bold]search"))

    with served(registry) as server:
        code, output = run("status", server.url)

    assert 1 == code
    assert "open" in output
    assert "[bold]search" in output
    assert "5 of the last 5 calls failed" in " ".join(output.split())


def test_in_a_narrow_window_the_reasons_stand_below() -> None:
    name = "api:https://api.example.com:443"
    registry = shop(name)
    fail(registry.circuit_breaker(name))

    with served(registry) as server:
        _, output = run("status", server.url, columns=80)

    assert "why" not in output
    assert "…" not in output
    assert "5 of the last 5 calls failed" in " ".join(output.split())


def test_in_a_narrow_window_only_names_are_cut() -> None:
    one = {"gone": False, "state": "forced_open", "next_trial": None, "ends_at": 599.0}
    breaker = {"name": "api:https://api.example.com:443", "state": "forced_open", "why": "forced open"}
    breaker |= {"refused_rate": 12.5, "asked_rate": 12.5, "processes": [one] * 10}
    page = io.StringIO()

    Console(file=page, width=80).print(table({"time": 0.0, "breakers": [breaker]}, width=80))

    heads, row, *_ = page.getvalue().splitlines()
    assert ["circuit", "state", "next", "asked/s", "refused/s"] == heads.split()
    assert "forced open, 10 of 10  ends in 9 min 59 s     12.5       12.5" in row
    assert "api:http" in row
    assert "api:https://api.example.com:443: forced open" in page.getvalue()


@pytest.mark.parametrize(("height", "reasons"), [(9, 3), (5, 1), (4, 0), (2, 0)])
def test_where_lines_are_counted_there_are_never_more(height: int, reasons: int) -> None:
    breaker = {"state": "open", "refused_rate": 1.0, "asked_rate": 1.0, "processes": [], "why": "open " * 40}
    snapshot = {"time": 0.0, "breakers": [{"name": f"b{number}", **breaker} for number in range(3)]}
    page = io.StringIO()

    Console(file=page, width=70).print(table(snapshot, width=70, height=height))

    lines = page.getvalue().splitlines()
    assert reasons == sum("b" in line and "open open" in line for line in lines)
    assert len(lines) <= height + 2


def test_status_as_json_is_the_snapshot() -> None:
    with served(shop()) as server:
        code, output = run("status", server.url, "--json")

    assert 0 == code
    assert [NAME] == [breaker["name"] for breaker in json.loads(output)["breakers"]]


def test_no_console_is_one_line_and_exit_code_2() -> None:
    code, output = run("status", "http://127.0.0.1:9")

    assert 2 == code
    assert "no console answers at http://127.0.0.1:9" in output
    assert 1 == output.count("\n")


@pytest.mark.parametrize(
    ("command", "state"),
    [
        (["try-now", NAME], "half_open"),
        (["trip", NAME, "--reason", "test"], "open"),
        (["force-open", NAME, "--until", "10m", "--reason", "test"], "forced_open"),
        (["force-closed", NAME, "--reason", "test"], "disabled"),
        (["observe", NAME, "--until", "removed", "--reason", "test"], "metrics_only"),
        (["reset", NAME, "--reason", "test", "--process", "web-1"], "closed"),
    ],
)
def test_each_order_is_carried_out_and_written_down_as_one_from_the_command_line(
    command: list[str], state: str
) -> None:
    registry = shop()

    with served(registry) as server:
        code, output = run("order", *command, "--url", server.url, "--token", "dana-secret")
        entries = httpx.get(f"{server.url}/api/audit", timeout=60).json()["entries"]

    assert (0, f"{NAME} on web-1: {state}\n") == (code, output)
    assert state == registry.circuit_breaker(NAME).state
    assert [("dana", "command line")] == [(entry["who"], entry["source"]) for entry in entries]


def test_an_order_without_a_token_is_refused() -> None:
    with served(shop()) as server:
        code, output = run("order", "trip", NAME, "--reason", "x", "--url", server.url)

    assert 1 == code
    assert "identity" in output


def test_an_order_without_a_reason_is_bad_input() -> None:
    code, output = run("order", "force-open", NAME, "--token", "dana-secret")

    assert 2 == code
    assert "--reason" in output


def test_seconds_are_never_sixty() -> None:
    assert ["59 min 59 s", "1 h 00 min", "89 s", "0 s"] == [duration(s) for s in (3599.9, 3600.2, 89.9, -3.0)]


def test_an_order_to_nobody_is_bad_input() -> None:
    with served(shop()) as server:
        code, output = run("order", "trip", "nobody", "--reason", "x", "--url", server.url, "--token", "dana-secret")

    assert 2 == code
    assert "knows no breaker" in output


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90.0), ("15m", 900.0), ("15 min", 900.0), ("1.5h", 5400.0), ("2d", 172800.0), ("13:00", 3600.0),
        ("11:00", 23 * 3600.0), ("2026-05-04T12:30:00+00:00", 1800.0), ("2026-05-04T12:30", 1800.0),
        ("removed", "until_removed"),
    ],
)  # fmt: skip
def test_an_end_is_read_as_people_write_it(text: str, seconds: object) -> None:
    assert seconds == seconds_until(text, datetime(2026, 5, 4, 12, 0, tzinfo=UTC))


@pytest.mark.parametrize("text", ["soon", "15", "-5m", "2020-01-01T00:00", ""])
def test_no_end_is_guessed(text: str) -> None:
    with pytest.raises(click.BadParameter):
        seconds_until(text)


def test_watch_shows_a_picture() -> None:
    registry = shop()
    fail(registry.circuit_breaker(NAME))

    with served(registry) as server:
        code, output = run("watch", server.url, "--once")

    assert 0 == code
    assert "1 open" in output
    assert "live" in output


def test_watchs_picture_under_patches_equals_a_fresh_snapshot() -> None:
    registry = shop("a", "b")
    picture = Picture()

    with served(registry) as server:
        with httpx.stream("GET", f"{server.url}/api/events", timeout=60.0) as answer:
            events = read_events(answer.iter_lines())
            picture.take(*next(events)[1:])
            fail(registry.circuit_breaker("a"))
            registry.circuit_breaker("b").force_open(60.0, by="lee")
            while not {"open", "forced_open"} <= {each["state"] for each in (picture.document or {})["breakers"]}:
                assert picture.take(*next(events)[1:])
        whole = httpx.get(f"{server.url}/api/snapshot", timeout=60).json()

    assert picture.document is not None
    shown = {each["name"]: (each["state"], each["why"]) for each in picture.document["breakers"]}
    assert {each["name"]: (each["state"], each["why"]) for each in whole["breakers"]} == shown


@pytest.mark.slow
def test_the_command_serves_a_run_directory_and_ends_at_sigterm(tmp_path: Path) -> None:
    member = Member(shop(), tmp_path / "run", name="web", interval=2.0)
    member.start()
    command = [
        sys.executable, "-m", "halfopen.cli", "console", "--port", "0",
        "--run-directory", str(tmp_path / "run"), "--audit", str(tmp_path / "audit.jsonl"),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().removeprefix("console at ").strip()
        token = re.search("token=(.+)$", process.stdout.readline())
        assert token is not None
        code, output = run("order", "trip", NAME, "--reason", "x", "--url", url, "--token", token[1])
        process.send_signal(signal.SIGTERM)
        ended = process.wait(60)
    member.stop()

    assert (0, f"{NAME} on web-0: open\n") == (code, output)
    assert ended in (0, -signal.SIGTERM)


def test_a_console_that_nobody_could_look_at_is_bad_input(tmp_path: Path) -> None:
    audit = ["--audit", str(tmp_path / "audit.jsonl")]

    code, output = run("console", "--run-directory", str(tmp_path), *audit, "--host", "0.0.0.0", "--read-only")

    assert 2 == code
    assert "nobody could look" in output


def test_a_token_that_is_easily_guessed_is_bad_input(tmp_path: Path) -> None:
    audit = ["--audit", str(tmp_path / "audit.jsonl")]

    code, output = run("console", "--run-directory", str(tmp_path), *audit, "--token", "guess")

    assert 2 == code
    assert "shorter than 8 characters" in output
    assert "guess" not in output


@pytest.mark.slow
def test_on_another_address_nobody_looks_without_the_token(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "halfopen.cli", "console", "--port", "0", "--host", "0.0.0.0",
        "--run-directory", str(tmp_path / "run"), "--audit", str(tmp_path / "audit.jsonl"),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().removeprefix("console at ").strip().replace("0.0.0.0", "127.0.0.1")
        token = re.search("token=(.+)$", process.stdout.readline())
        assert token is not None
        stranger = [
            httpx.get(url + path, timeout=60.0).status_code for path in ("api/snapshot", "api/events", "api/audit")
        ]
        operator = httpx.get(
            url + "api/snapshot", headers={"authorization": f"Bearer {token[1]}"}, timeout=60.0
        ).status_code
        process.send_signal(signal.SIGTERM)
        process.wait(60)

    assert [401, 401, 401] == stranger
    assert 200 == operator


def test_a_console_of_nothing_is_bad_input() -> None:
    code, output = run("console")

    assert 2 == code
    assert "nothing to show" in output
