from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from halfopen import Registry, State
from tests.gateway.support import Got, Partner, Reply, Seen, ask, closed_port, reset, until

MESSAGE = {
    "Message-ID": "<4711@hub>",
    "AS2-From": "HUB",
    "AS2-To": "ACME",
    "Disposition-Notification-To": "hub@hub.example",
}
KIND = 'multipart/report; report-type=disposition-notification; boundary="b"'


def mdn(disposition: str, *, to: str = "<4711@hub>", mic: str = "") -> Callable[[Seen], Reply]:
    fields = [f"Original-Message-ID: {to}", f"Disposition: automatic-action/MDN-sent-automatically; {disposition}"]
    fields += [f"Received-Content-MIC: {mic}"] if mic else []
    lines = [
        "--b",
        "Content-Type: text/plain",
        "",
        "words",
        "--b",
        "Content-Type: message/disposition-notification",
        "",
    ]
    body = "\r\n".join([*lines, *fields, "", "--b--", ""]).encode()
    return lambda seen: Reply(200, {"Content-Type": KIND}, body)


@pytest.fixture
def send(partner: Partner, serving: Any) -> Callable[..., Got]:
    port = serving(as2=True)
    return lambda **headers: ask(port, "/to/acme/as2", b"EDI", headers={**MESSAGE, **headers})


def counters(registry: Registry) -> tuple[int, int, int]:
    counted = registry.circuit_breaker("acme").snapshot().counters
    return counted.successes, counted.failures, counted.ignored


@pytest.mark.parametrize(
    ("disposition", "verdict", "outcomes"),
    [
        ("processed", "delivered", (1, 0, 0)),
        ("processed/warning: duplicate-document", "delivered", (1, 0, 0)),
        ("processed/error: decryption-failed", "refused", (0, 0, 1)),
        ("processed/Error: Unknown-Trading-Partner", "refused", (0, 0, 1)),
        ("failed/failure: unsupported format", "refused", (0, 0, 1)),
        ("processed/error: unexpected-processing-error", "back_end_error", (0, 1, 0)),
    ],
)
def test_the_disposition_decides_and_the_mdn_is_passed_on(
    partner: Partner, registry: Registry, send: Any, disposition: str, verdict: str, outcomes: tuple[int, int, int]
) -> None:
    partner.answer = mdn(disposition)

    got = send()

    assert (200, verdict) == (got.status, got.headers["halfopen-verdict"])
    assert disposition.encode() in got.body
    assert outcomes == counters(registry)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, {}, b""),
        Reply(200, {"Content-Type": "text/html"}, b"<html>We are down for maintenance</html>"),
        Reply(204, {}, b""),
        Reply(200, {"Content-Type": KIND}, b"--b\r\nContent-Type: message/disposition-no"),
        Reply(200, {"Content-Type": KIND}, b"x" * 2_000_000),
    ],
    ids=["empty", "html", "204", "cut off", "huge"],
)
def test_a_200_without_an_mdn_is_a_failure(partner: Partner, registry: Registry, send: Any, reply: Reply) -> None:
    partner.answer = lambda seen: reply

    got = send()

    assert (502, "no-receipt", "unknown") == (got.status, got.kind, got.json["delivery"])
    assert (0, 1, 0) == counters(registry)


def test_one_poison_document_fails_the_breaker_once(partner: Partner, registry: Registry, send: Any) -> None:
    partner.answer = mdn("processed/error: unexpected-processing-error")

    for _ in range(3):
        send()

    assert (0, 1, 2) == counters(registry)


def test_the_mic_is_compared_where_the_program_gives_it(partner: Partner, registry: Registry, send: Any) -> None:
    partner.answer = mdn("processed", mic="abc=, SHA-256")

    equal = send(**{"Halfopen-MIC": "abc=, sha256"})
    other = send(**{"Halfopen-MIC": "abd=, sha256"})

    assert ["delivered", "security"] == [each.headers["halfopen-verdict"] for each in (equal, other)]
    assert (1, 0, 1) == counters(registry)
    assert "halfopen-mic" not in partner.seen[0].headers


def test_an_mdn_for_another_message_is_no_success(partner: Partner, registry: Registry, send: Any) -> None:
    partner.answer = mdn("processed", to="<other@hub>")

    assert "security" == send().headers["halfopen-verdict"]
    assert (0, 0, 1) == counters(registry)


def test_where_the_mdn_comes_later_a_200_is_a_success(partner: Partner, registry: Registry, send: Any) -> None:
    got = send(**{"Receipt-Delivery-Option": "http://hub.example/mdn"})

    assert (200, "accepted") == (got.status, got.headers["halfopen-verdict"])
    assert (1, 0, 0) == counters(registry)


@pytest.mark.parametrize(
    ("status", "outcomes"), [(401, (0, 0, 1)), (404, (0, 0, 1)), (503, (0, 1, 0)), (425, (0, 1, 0)), (501, (0, 0, 1))]
)
def test_statuses_count_as_for_the_queue(
    partner: Partner, registry: Registry, send: Any, status: int, outcomes: tuple[int, int, int]
) -> None:
    partner.answer = lambda seen: Reply(status, body=b"told")

    got = send()

    assert (status, b"told") == (got.status, got.body)
    assert outcomes == counters(registry)


def test_without_a_wish_for_a_receipt_the_status_decides(partner: Partner, serving: Any, registry: Registry) -> None:
    got = ask(serving(as2=True), "/to/acme/as2", b"EDI", headers={"Message-ID": "<1@hub>"})

    assert 200 == got.status
    assert (1, 0, 0) == counters(registry)


def test_what_may_have_arrived_is_stored_and_sent_again_under_its_id(
    partner: Partner, serving: Any, registry: Registry
) -> None:
    breaker = registry.circuit_breaker("acme", consecutive_failures=1)
    partner.answer = lambda seen: Reply(act=reset)
    port = serving(as2=True, queue=True, store_and_forward=True)

    got = ask(port, "/to/acme/as2", b"EDI", headers=MESSAGE)
    partner.answer = mdn("processed")
    assert State.OPEN == breaker.state
    breaker.reset()

    assert 202 == got.status
    assert until(lambda: "done" == ask(port, got.headers["location"], method="GET").json["state"])
    assert {("<4711@hub>", b"EDI")} == {(seen.headers["message-id"], seen.body) for seen in partner.seen}
    proof = ask(port, got.headers["location"] + "/receipt", method="GET")
    assert b"Original-Message-ID: <4711@hub>" in proof.body


def test_a_receipt_that_comes_later_is_taken_for_a_stored_message(
    partner: Partner, serving: Any, registry: Registry
) -> None:
    breaker = registry.circuit_breaker("acme", consecutive_failures=1)
    breaker.trip(wait=60)
    port = serving(as2=True, queue=True, store_and_forward=True)
    got = ask(port, "/to/acme/as2", b"EDI", headers={**MESSAGE, "Receipt-Delivery-Option": "http://hub.example"})
    breaker.reset()
    assert until(lambda: "awaiting_receipt" == ask(port, got.headers["location"], method="GET").json["state"])
    receipt = mdn("processed")(partner.seen[0])

    taken = ask(port, "/receipts", receipt.body, headers=receipt.headers)
    no_mdn = ask(port, "/receipts", b"hello")

    assert (200, "done") == (taken.status, taken.json["state"])
    assert 400 == no_mdn.status


def test_an_unreachable_partner_is_told_as_ever(serving: Any) -> None:
    got = ask(serving(as2=True, url=f"http://127.0.0.1:{closed_port()}"), "/to/acme/as2", b"EDI", headers=MESSAGE)

    assert (502, "unreachable", "none") == (got.status, got.kind, got.json["delivery"])


def sha256(body: bytes) -> str:
    return base64.b64encode(hashlib.sha256(body).digest()).decode()


@pytest.mark.parametrize(
    ("content_type", "mic", "verdict"),
    [
        ("application/edi-x12", sha256(b"EDI") + ", sha-256", "delivered"),
        ("application/edi-x12", sha256(b"ODI") + ", SHA256", "security"),
        ("application/edi-x12", "abc, sha3-999", "delivered"),
        ("application/pkcs7-mime; smime-type=enveloped-data", sha256(b"ODI") + ", sha256", "delivered"),
        ('multipart/signed; boundary="x"', sha256(b"ODI") + ", sha256", "delivered"),
    ],
    ids=["equal", "other", "unknown algorithm", "encrypted", "signed"],
)
def test_the_mic_of_a_plain_body_is_our_business(
    partner: Partner, send: Any, content_type: str, mic: str, verdict: str
) -> None:
    partner.answer = mdn("processed", mic=mic)

    assert verdict == send(**{"Content-Type": content_type}).headers["halfopen-verdict"]
