from __future__ import annotations

import http.client
import threading
from typing import Any
from urllib.parse import quote

import pytest

from halfopen import Registry, State
from halfopen.retry_queue import LaneProfile, MessageSchedule
from tests.gateway.support import Got, Partner, Reply, ask, closed_port, reset, until

ASYNC = {"Prefer": "respond-async"}


def opened(registry: Registry, seconds: float = 60) -> Any:
    breaker = registry.circuit_breaker("acme", consecutive_failures=1)
    breaker.trip(wait=seconds)
    return breaker


def state(port: int, got: Got) -> str:
    return str(ask(port, got.headers["location"], method="GET").json["state"])


def test_a_refused_message_is_stored_and_sent_once_the_circuit_lets_it(
    partner: Partner, serving: Any, registry: Registry
) -> None:
    breaker = opened(registry)
    port = serving(queue=True, store_and_forward=True)

    got = ask(port, "/to/acme/in?a=1", b"ISA*00", headers={"Content-Type": "application/edi-x12"})

    assert 202 == got.status
    assert got.headers["location"] == got.json["url"]
    assert "waiting" == state(port, got)
    assert [] == partner.seen
    breaker.reset()
    assert until(lambda: state(port, got) == "done")
    (seen,) = partner.seen
    assert ("POST", "/base/in?a=1", b"ISA*00") == (seen.method, seen.path, seen.body)
    assert ("application/edi-x12", got.json["id"]) == (seen.headers["content-type"], seen.headers["message-id"])
    assert "halfopen-request" not in seen.headers


def test_only_who_asks_for_it_gets_a_202_without_store_and_forward(serving: Any, registry: Registry) -> None:
    opened(registry)
    port = serving(queue=True)

    plain = ask(port, "/to/acme/x", b"x")
    asked = ask(port, "/to/acme/x", b"x", headers=ASYNC)

    assert (503, 202) == (plain.status, asked.status)
    assert "respond-async" == asked.headers["preference-applied"]


def test_without_a_queue_nothing_is_stored(serving: Any, registry: Registry) -> None:
    opened(registry)

    assert 503 == ask(serving(), "/to/acme/x", b"x", headers=ASYNC).status


def test_a_question_is_never_stored(serving: Any, registry: Registry) -> None:
    opened(registry)

    assert 503 == ask(serving(queue=True, store_and_forward=True), "/to/acme/x", method="GET").status


def test_while_the_circuit_is_closed_the_answer_comes_directly(partner: Partner, serving: Any) -> None:
    got = ask(serving(queue=True, store_and_forward=True), "/to/acme/x", b"x", headers=ASYNC)

    assert (200, b"taken") == (got.status, got.body)


@pytest.mark.parametrize("body", [b"x" * 3_000_000, iter([b"a" * 100_000, b"b" * 100_000])], ids=["length", "chunked"])
def test_a_large_message_is_streamed_to_disk_and_from_there(
    partner: Partner, serving: Any, registry: Registry, body: Any
) -> None:
    breaker = opened(registry)
    port = serving(queue=True, store_and_forward=True)
    expected = body if isinstance(body, bytes) else b"a" * 100_000 + b"b" * 100_000

    got = ask(port, "/to/acme/x", body)
    breaker.reset()

    assert 202 == got.status
    assert until(lambda: state(port, got) == "done")
    assert expected == partner.seen[0].body


def test_an_upload_that_breaks_off_is_not_stored(serving: Any, registry: Registry) -> None:
    opened(registry)
    port = serving(queue=True, store_and_forward=True)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest("POST", "/to/acme/x")
    connection.putheader("Content-Length", "200000")
    connection.endheaders(b"x" * 1000)
    connection.close()
    threading.Event().wait(0.3)

    assert [] == ask(port, "/messages", method="GET").json["messages"]


def test_a_message_too_large_for_the_store_is_a_413(serving: Any, registry: Registry) -> None:
    opened(registry)
    port = serving(queue=True, store_and_forward=True, gateway={"max_body": 150_000})

    got = ask(port, "/to/acme/x", iter([b"x" * 100_000] * 2))

    assert (413, "body-too-large") == (got.status, got.kind)


def test_a_message_that_surely_was_not_delivered_is_stored(serving: Any) -> None:
    port = serving(queue=True, store_and_forward=True, url=f"http://127.0.0.1:{closed_port()}")

    assert 202 == ask(port, "/to/acme/x", b"x").status


def test_a_503_is_stored_instead_of_passed_on(partner: Partner, serving: Any, registry: Registry) -> None:
    breaker = registry.circuit_breaker("acme", consecutive_failures=1)
    partner.answer = lambda seen: Reply(503)
    port = serving(queue=True, store_and_forward=True)

    got = ask(port, "/to/acme/x", b"x")

    assert (202, State.OPEN) == (got.status, breaker.state)


def test_what_may_have_arrived_is_not_stored_without_an_identity(partner: Partner, serving: Any) -> None:
    partner.answer = lambda seen: Reply(act=reset)

    got = ask(serving(queue=True, store_and_forward=True), "/to/acme/x", b"x")

    assert (502, "broken-off", "unknown") == (got.status, got.kind, got.json["delivery"])


def test_the_same_message_twice_is_one_message_and_another_under_its_id_a_409(serving: Any, registry: Registry) -> None:
    opened(registry)
    port = serving(queue=True, store_and_forward=True)
    headers = {"Message-ID": "<4711@hub>"}

    first = ask(port, "/to/acme/x", b"x", headers=headers)
    second = ask(port, "/to/acme/x", b"x", headers=headers)
    other = ask(port, "/to/acme/x", b"y", headers=headers)

    assert ([202, 202], [False, True]) == (
        [first.status, second.status],
        [first.json["duplicate"], second.json["duplicate"]],
    )
    assert "/messages/%3C4711%40hub%3E" == first.headers["location"] == second.headers["location"]
    assert (409, "duplicate-message") == (other.status, other.kind)


def test_a_stored_message_can_be_cancelled(partner: Partner, serving: Any, registry: Registry) -> None:
    breaker = opened(registry)
    port = serving(queue=True, store_and_forward=True)
    got = ask(port, "/to/acme/x", b"x")

    cancelled = ask(port, got.headers["location"] + "?reason=mistake", method="DELETE")
    again = ask(port, got.headers["location"], method="DELETE")
    breaker.reset()

    assert (200, "cancelled") == (cancelled.status, cancelled.json["state"])
    assert (409, "order-refused") == (again.status, again.kind)
    history = ask(port, got.headers["location"], method="GET").json["history"]
    assert ("cancel", "mistake") == (history[-1]["what"], history[-1]["detail"])
    assert [] == partner.seen


def test_a_message_in_error_can_be_sent_again_under_its_id(partner: Partner, serving: Any, registry: Registry) -> None:
    breaker = opened(registry)
    port = serving(queue=True, store_and_forward=True)
    partner.answer = lambda seen: Reply(401)
    got = ask(port, "/to/acme/x", b"x")
    breaker.reset()
    assert until(lambda: state(port, got) == "error")
    partner.answer = lambda seen: Reply(200)

    sent = ask(port, got.headers["location"] + "/resend")

    assert 200 == sent.status
    assert until(lambda: state(port, got) == "done")
    assert 1 == len({seen.headers["message-id"] for seen in partner.seen})


def test_a_delivered_message_is_resubmitted_only_when_confirmed(
    partner: Partner, serving: Any, registry: Registry
) -> None:
    breaker = opened(registry)
    port = serving(queue=True, store_and_forward=True)
    got = ask(port, "/to/acme/x", b"x")
    breaker.reset()
    assert until(lambda: state(port, got) == "done")

    unconfirmed = ask(port, got.headers["location"] + "/resubmit")
    confirmed = ask(port, got.headers["location"] + "/resubmit?confirm=true")

    assert (409, 202) == (unconfirmed.status, confirmed.status)
    assert until(lambda: state(port, confirmed) == "done")
    assert 2 == len({seen.headers["message-id"] for seen in partner.seen})


def test_messages_are_listed_by_partner_and_state(serving: Any, registry: Registry) -> None:
    opened(registry)
    port = serving(queue=True, store_and_forward=True)
    for number in range(3):
        ask(port, "/to/acme/x", b"x", headers={"Message-ID": f"<{number}@hub>"})

    page = ask(port, "/messages?partner=acme&state=waiting&limit=2", method="GET").json
    rest = ask(port, f"/messages?state=waiting&after={page['next_after']}", method="GET").json

    assert [["<0@hub>", "<1@hub>"], ["<2@hub>"]] == [[m["id"] for m in each["messages"]] for each in (page, rest)]
    assert 400 == ask(port, "/messages?state=lost", method="GET").status
    assert (404, "unknown-message") == ((no := ask(port, "/messages/x", method="GET")).status, no.kind)


def test_an_id_with_a_slash_has_a_url_of_its_own(serving: Any, registry: Registry) -> None:
    opened(registry)
    port = serving(queue=True, store_and_forward=True)
    identity = "<a/b?c#d%2F@hub>"

    got = ask(port, "/to/acme/x", b"x", headers={"Message-ID": identity})

    assert f"/messages/{quote(identity, safe='')}" == got.headers["location"]
    assert identity == ask(port, got.headers["location"], method="GET").json["id"]


def test_messages_of_a_stream_arrive_in_order_though_the_circuit_is_closed(partner: Partner, serving: Any) -> None:
    answers = iter([200, 500, 200, 200])
    partner.answer = lambda seen: Reply(next(answers, 200))
    schedule = MessageSchedule(first=0.1, jitter=0.0)
    port = serving(queue=True, profile=LaneProfile(schedule=schedule))

    got = [ask(port, "/to/acme/x", b"%d" % number, headers={"Halfopen-Stream": "orders"}) for number in range(3)]

    assert [202] * 3 == [each.status for each in got]
    assert until(lambda: all(state(port, each) == "done" for each in got))
    assert [b"0", b"1", b"1", b"2"] == [seen.body for seen in partner.seen]


def test_a_stream_needs_a_queue(serving: Any) -> None:
    got = ask(serving(), "/to/acme/x", b"x", headers={"Halfopen-Stream": "orders"})

    assert (501, "no-queue") == (got.status, got.kind)


def test_a_program_says_when_its_message_is_too_late(serving: Any, registry: Registry) -> None:
    opened(registry)
    port = serving(queue=True, store_and_forward=True, deadline=3600.0)

    usual = ask(port, "/to/acme/x", b"x")
    sooner = ask(port, "/to/acme/x", b"x", headers={"Halfopen-Deadline": "10m"})
    wrong = ask(port, "/to/acme/x", b"x", headers={"Halfopen-Deadline": "soon"})

    def left(got: Got) -> float:
        shown = ask(port, got.headers["location"], method="GET").json
        return float(round(shown["deadline"] - shown["created"], -1))

    assert [3600.0, 600.0] == [left(usual), left(sooner)]
    assert (400, "bad-header") == (wrong.status, wrong.kind)


def test_a_partners_circuit_is_shown_whole_with_its_moves(serving: Any, registry: Registry) -> None:
    breaker = opened(registry)

    shown = ask(serving(), "/partners/acme/circuit", method="GET").json

    assert ("open", 60) == (shown["snapshot"]["state"], round(shown["snapshot"]["wait"]))
    assert [("closed", "open", "manual", breaker.snapshot().epoch)] == [
        (move["old"], move["new"], move["reason"], move["epoch"]) for move in shown["moves"]
    ]
    assert abs(shown["moves"][0]["at"] - shown["snapshot"]["since"]) < 1
    assert 404 == ask(serving(), "/partners/nobody/circuit", method="GET").status


def test_a_receipt_that_breaks_off_or_is_too_large_is_refused(serving: Any) -> None:
    port = serving(queue=True)

    assert 413 == ask(port, "/receipts", b"x" * 1_100_000).status
    assert 400 == ask(port, "/receipts", b"").status


def test_who_hands_in_a_dead_message_again_is_told_that_it_is_dead_and_what_helps(
    partner: Partner, serving: Any, registry: Registry
) -> None:
    breaker = opened(registry)
    port = serving(queue=True, store_and_forward=True)
    headers = {"Message-ID": "<m1@x>", "Halfopen-Deadline": "0.01s"}
    first = ask(port, "/to/acme/x", b"x", headers=headers)
    assert until(lambda: state(port, first) == "dead")

    again = ask(port, "/to/acme/x", b"x", headers=headers)
    late = ask(port, again.json["url"] + "/retry")
    wrong = ask(port, again.json["url"] + "/retry?deadline=soon")
    retried = ask(port, again.json["url"] + "/retry?deadline=1h")
    breaker.reset()

    assert (202, False, "waiting") == (first.status, first.json["duplicate"], first.json["state"])
    assert (409, "message-given-up", "dead") == (again.status, again.kind, again.json["state"])
    assert (409, 400, 200) == (late.status, wrong.status, retried.status)
    assert until(lambda: [seen.headers["message-id"] for seen in partner.seen] == ["<m1@x>"])


def test_who_hands_in_a_waiting_message_again_learns_that_it_waits(serving: Any, registry: Registry) -> None:
    opened(registry)
    port = serving(queue=True, store_and_forward=True)
    ask(port, "/to/acme/x", b"x", headers={"Message-ID": "<m1@x>"})

    again = ask(port, "/to/acme/x", b"x", headers={"Message-ID": "<m1@x>"})

    assert (202, True, "waiting") == (again.status, again.json["duplicate"], again.json["state"])
