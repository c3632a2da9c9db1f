"""The partner of the demo is a process of its own that keeps books nobody else can touch."""

from __future__ import annotations

import http.client
import os
import socket
import time
from collections.abc import Iterator

import pytest

from halfopen.cli.demo.child import PartnerProcess
from halfopen.cli.demo.errors import BadInput, Broken

HEADERS = {"AS2-From": "HUB", "AS2-To": "PARTNER", "Message-ID": "<1@hub>"}


@pytest.fixture
def partner() -> Iterator[PartnerProcess]:
    process = PartnerProcess(200.0)
    yield process
    process.stop()


def post(partner: PartnerProcess, headers: dict[str, str], body: bytes = b"UNA") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", partner.endpoint.port, timeout=20)
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


@pytest.mark.parametrize("name", sorted(HEADERS))
def test_a_message_without_an_as2_header_is_refused(partner: PartnerProcess, name: str) -> None:
    headers = {key: value for key, value in HEADERS.items() if key != name}

    assert 400 == post(partner, headers)
    assert 0 == partner.books()["arrivals"]


@pytest.mark.parametrize(("length", "status"), [("", 411), ("-1", 411), ("many", 411), (str(1 << 40), 413)])
def test_nonsense_for_a_length_is_refused_without_reading(partner: PartnerProcess, length: str, status: int) -> None:
    with socket.create_connection(("127.0.0.1", partner.endpoint.port), 20) as sock:
        sock.sendall(f"POST /as2 HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode())

        answer = sock.recv(100)

    assert f"HTTP/1.1 {status}".encode() == answer[:12]


def test_the_partner_turns_to_503_in_its_story(partner: PartnerProcess) -> None:
    partner.begin()
    limit = time.monotonic() + 10
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

    assert 0 == process.wait(20)
    with pytest.raises(ProcessLookupError):
        os.kill(partner.pid, 0)
