"""The partner of the demo is a process of its own that keeps books nobody else can touch."""

from __future__ import annotations

import base64
import hashlib
import http.client
import os
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from halfopen.cli.demo.child import PartnerProcess
from halfopen.cli.demo.errors import BadInput, Broken
from halfopen.cli.demo.partner import Partner, Taken
from halfopen.cli.demo.story import Pace, Story
from halfopen.retry_queue import LaneProfile, Report, Verdict
from halfopen.retry_queue.as2 import judge_answer

HEADERS = {"AS2-From": "HUB", "AS2-To": "PARTNER", "Message-ID": "<1@hub>"}


@pytest.fixture
def partner() -> Iterator[PartnerProcess]:
    process = PartnerProcess(200.0)
    yield process
    process.stop()


def post(partner: PartnerProcess, headers: dict[str, str], body: bytes = b"UNA") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", partner.endpoint.port, timeout=60)
    try:
        connection.request("POST", "/as2", body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_message_is_taken_and_booked_with_its_digest(partner: PartnerProcess) -> None:
    status = post(partner, HEADERS)

    books = partner.books()
    assert 200 == status
    assert ["<1@hub>"] == list(books["accepted"])
    assert 64 == len(books["accepted"]["<1@hub>"])


def test_a_message_id_that_comes_twice_is_noticed(partner: PartnerProcess) -> None:
    statuses = [post(partner, HEADERS), post(partner, HEADERS)]

    books = partner.books()
    assert [200, 200] == statuses
    assert 1 == books["delivered"] == books["duplicates"]
    assert ["<1@hub>"] == books["twice"]


class Inbox:
    """Take what is posted; refuse the first *deaf* connections' posts with 503."""

    def __init__(self, deaf: int = 0) -> None:
        self.posted: list[tuple[str, bytes]] = []
        self.asked = 0
        inbox = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                inbox.asked += 1
                well = inbox.asked > deaf
                if well:
                    inbox.posted.append((self.headers["Content-Type"], body))
                self.send_response(200 if well else 503)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.http = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/receipts"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    made = Inbox(deaf=2)
    yield made
    made.http.shutdown()
    made.http.server_close()


def ask(partner: PartnerProcess, headers: dict[str, str]) -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", partner.endpoint.port, timeout=60)
    try:
        connection.request("POST", "/as2", b"UNA", {**HEADERS, **headers})
        answer = connection.getresponse()
        return answer.status, answer.headers.get("Content-Type", ""), answer.read()
    finally:
        connection.close()


WANTED = {"Disposition-Notification-To": "hub"}


def verdict(kind: str, body: bytes) -> Report:
    mic = base64.b64encode(hashlib.sha256(b"UNA").digest()).decode() + ", sha-256"
    return judge_answer(status=200, content_type=kind, body=body, message_id="<1@hub>", profile=LaneProfile(), mic=mic)


def test_who_asks_for_a_receipt_gets_one_that_fits_the_message(partner: PartnerProcess) -> None:
    status, kind, body = ask(partner, WANTED)

    assert (200, Verdict.DELIVERED, "processed") == (status, verdict(kind, body).verdict, verdict(kind, body).detail)


def test_a_known_message_id_gets_a_warning_and_is_not_processed_again(partner: PartnerProcess) -> None:
    ask(partner, WANTED)
    _, kind, body = ask(partner, WANTED)

    assert (Verdict.DELIVERED, "duplicate-document") == (verdict(kind, body).verdict, verdict(kind, body).detail)
    assert (1, ["<1@hub>"]) == (partner.books()["delivered"], partner.books()["twice"])


def test_a_receipt_for_later_is_posted_until_somebody_takes_it(partner: PartnerProcess, inbox: Inbox) -> None:
    answer = ask(partner, {**WANTED, "Receipt-Delivery-Option": inbox.url})
    limit = time.monotonic() + 60
    while not inbox.posted and time.monotonic() < limit:
        time.sleep(0.02)

    assert (204, "", b"") == answer
    assert Verdict.DELIVERED == verdict(*inbox.posted[0]).verdict
    assert 3 == inbox.asked


def test_an_odd_partner_takes_a_message_without_a_word_and_calls_a_maintenance_page_a_success() -> None:
    odd = Partner(Story(unanswered=1, evasive=3, normal=0.0), Pace(1.0), odd=True)

    ends = [odd.take(f"<{number}@hub>", b"UNA") for number in (1, 1, 2, 2)]

    assert [Taken.UNANSWERED, Taken.KNOWN, Taken.EVADED, Taken.NEW] == ends
    assert (["<1@hub>"], 2) == (odd.books()["unanswered"], odd.books()["delivered"])


@pytest.mark.parametrize("name", sorted(HEADERS))
def test_a_message_without_an_as2_header_is_refused(partner: PartnerProcess, name: str) -> None:
    headers = {key: value for key, value in HEADERS.items() if key != name}

    assert 400 == post(partner, headers)
    assert 0 == partner.books()["arrivals"]


@pytest.mark.parametrize(("length", "status"), [("", 411), ("-1", 411), ("many", 411), (str(1 << 40), 413)])
def test_nonsense_for_a_length_is_refused_without_reading(partner: PartnerProcess, length: str, status: int) -> None:
    with socket.create_connection(("127.0.0.1", partner.endpoint.port), 60) as sock:
        sock.sendall(f"POST /as2 HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode())

        answer = sock.recv(100)

    assert f"HTTP/1.1 {status}".encode() == answer[:12]


@pytest.fixture
def slow_partner() -> Iterator[PartnerProcess]:
    process = PartnerProcess(20.0)  # it is ill for 2.5 s, which a busy machine does not miss
    yield process
    process.stop()


def test_the_partner_turns_to_503_in_its_story(slow_partner: PartnerProcess) -> None:
    partner = slow_partner
    partner.begin()
    limit = time.monotonic() + 60
    while partner.books(brief=True)["condition"] == "well" and time.monotonic() < limit:
        time.sleep(0.02)

    assert 503 == post(partner, HEADERS)
    assert 1 == partner.books()["sick_hits"]


def test_a_taken_port_is_said_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(BadInput, match=rf"port {port} on 127.0.0.1 is taken; choose another with --port"):
            PartnerProcess(10.0, port=port)


def test_a_partner_that_vanished_is_said_in_one_line(partner: PartnerProcess) -> None:
    partner.stop()

    with pytest.raises(Broken, match="does not answer"):
        partner.books()


def test_the_partner_ends_when_the_pipe_to_it_closes(partner: PartnerProcess) -> None:
    process = partner._child._process
    assert process.stdin is not None

    process.stdin.close()

    assert 0 == process.wait(60)
    with pytest.raises(ProcessLookupError):
        os.kill(partner.pid, 0)
