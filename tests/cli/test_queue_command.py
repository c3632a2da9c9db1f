"""`halfopen queue`: every subcommand, on a queue with messages in every state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from halfopen.cli.queue import queue
from halfopen.retry_queue import LaneProfile, Report, RetryQueue, Verdict


@pytest.fixture
def db(tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "hub.db")
    reports = {
        "<done>": Report(Verdict.DELIVERED, "processed"),
        "<error>": Report(Verdict.REFUSED, "HTTP 401"),
        "<unknown>": Report(Verdict.UNKNOWN, "read timeout"),
        "<awaiting>": Report(Verdict.ACCEPTED, "HTTP 204"),
    }
    with RetryQueue(path) as opened:
        opened.lane("acme", sender=lambda delivery: reports[delivery.message_id], profile=LaneProfile())
        for message_id in reports:
            opened.enqueue("acme", b"ISA*00*", message_id=message_id, document_type="850")
        opened.tick()
        opened.enqueue("globex", b"UNA:+.?", message_id="<waiting>", headers={"AS2-To": "GLOBEX"})
    yield path


def run(db: str, *arguments: str) -> Result:
    return CliRunner().invoke(queue, ["--db", db, *arguments])


def said(db: str, *arguments: str) -> object:
    result = run(db, *arguments, "--json")
    assert 0 == result.exit_code, result.output
    return json.loads(result.output)


def test_list_shows_messages_oldest_first(db: str) -> None:
    listed = said(db, "list")

    assert isinstance(listed, list)
    assert ["<done>", "<error>", "<unknown>", "<awaiting>", "<waiting>"] == [message["id"] for message in listed]
    assert "<unknown>  acme  unknown_delivery (the partner may have it)" in run(db, "list", "--lane", "acme").output


def test_list_goes_on_where_it_stopped(db: str) -> None:
    first = said(db, "list", "--limit", "2")
    assert isinstance(first, list)

    rest = said(db, "list", "--after", str(first[-1]["seq"]))

    assert isinstance(rest, list)
    assert ["<unknown>", "<awaiting>", "<waiting>"] == [message["id"] for message in rest]


def test_show_tells_a_messages_story(db: str) -> None:
    shown = said(db, "show", "<error>")

    assert isinstance(shown, dict)
    assert ("error", "HTTP 401") == (shown["state"], shown["history"][0]["detail"])
    assert "header           AS2-To: GLOBEX" in run(db, "show", "<waiting>").output


def test_show_body_writes_the_bytes_and_nothing_else(db: str) -> None:
    assert b"UNA:+.?" == run(db, "show", "<waiting>", "--body").stdout_bytes


def test_dead_lists_what_needs_a_person(db: str) -> None:
    listed = said(db, "dead")

    assert isinstance(listed, list)
    assert ["<error>"] == [message["id"] for message in listed]


def test_stats_count_in_all_and_per_lane(db: str) -> None:
    counted = said(db, "stats")

    assert isinstance(counted, dict)
    expected = {"ready": 1, "delayed": 1, "error": 1, "awaiting_receipt": 1}
    assert expected == {name: counted["messages"][name] for name in expected}
    assert ["acme", "globex"] == [lane["lane"] for lane in counted["lanes"]]


def test_retry_by_id_is_remembered_with_who_and_why(db: str) -> None:
    result = run(db, "retry", "<error>", "--by", "ann", "--why", "new password")
    shown = said(db, "show", "<error>")

    assert (0, "retry: <error>\n") == (result.exit_code, result.output)
    assert isinstance(shown, dict)
    assert "waiting" == shown["state"]
    assert ("retry", "new password", "ann") == tuple(shown["history"][-1][name] for name in ("what", "detail", "who"))


def test_resubmit_makes_a_new_message_and_asks_where_it_may_be_a_duplicate(db: str) -> None:
    refused = run(db, "resubmit", "<unknown>")
    result = said(db, "resubmit", "<unknown>", "--confirm")

    assert (1, True) == (refused.exit_code, "confirm" in refused.stderr)
    assert isinstance(result, list)
    shown = said(db, "show", result[0]["result"])
    assert isinstance(shown, dict)
    assert "<unknown>" == shown["resubmit_of"]


def test_cancel_in_bulk_wants_the_right_count(db: str) -> None:
    without = run(db, "cancel", "--lane", "acme", "--state", "error")
    wrong = run(db, "cancel", "--lane", "acme", "--state", "error", "--expect", "7")
    right = run(db, "cancel", "--lane", "acme", "--state", "error", "--expect", "1")

    assert (2, True) == (without.exit_code, "--expect 1" in without.stderr)
    assert (1, True) == (wrong.exit_code, "nothing was done" in wrong.stderr)
    assert (0, "cancel: 1 of 1 messages\n") == (right.exit_code, right.output)


def test_an_order_in_bulk_needs_a_selection(db: str) -> None:
    result = run(db, "retry")

    assert (2, True) == (result.exit_code, "which messages" in result.stderr)


def test_resend_makes_an_awaited_message_go_out_again(db: str) -> None:
    run(db, "resend", "<awaiting>")
    shown = said(db, "show", "<awaiting>")

    assert isinstance(shown, dict)
    assert ("unknown_delivery", True) == (shown["state"], shown["maybe_delivered"])


def test_a_lane_is_held_and_released(db: str) -> None:
    run(db, "hold", "globex", "--why", "audit")
    held = said(db, "stats")
    run(db, "release", "globex")
    free = said(db, "stats")

    assert isinstance(held, dict) and isinstance(free, dict)
    assert ("operator", None) == (held["lanes"][1]["hold"], free["lanes"][1]["hold"])


def test_orders_to_a_lane_answer_in_json(db: str) -> None:
    assert {"lane": "globex", "result": "held"} == said(db, "hold", "globex")
    assert {"lane": "globex", "result": "released"} == said(db, "release", "globex")


def test_stats_say_what_the_sending_process_said_of_a_circuit(db: str) -> None:
    with RetryQueue(db) as opened:
        opened.lane("globex", sender=lambda delivery: Report(Verdict.DELIVERED)).trip(wait=600)
        opened.store.settled()

    counted = said(db, "stats")

    assert isinstance(counted, dict)
    assert (0, 2, "open") == (
        counted["messages"]["ready"],
        counted["messages"]["delayed"],
        counted["lanes"][1]["breaker"],
    )
    assert "globex  waiting 1" in run(db, "stats").output
    assert "circuit open" in run(db, "stats").output


@pytest.mark.parametrize("arguments", [("show", "<nobody>"), ("retry", "<nobody>")])
def test_an_unknown_id_is_bad_input_said_in_one_line(db: str, arguments: tuple[str, ...]) -> None:
    result = run(db, *arguments)

    assert (2, "halfopen queue: no message has the ID <nobody>\n") == (result.exit_code, result.stderr)


def test_a_missing_file_is_not_created(tmp_path: Path) -> None:
    result = run(str(tmp_path / "none.db"), "list")

    assert (2, False) == (result.exit_code, (tmp_path / "none.db").exists())
