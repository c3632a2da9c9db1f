"""A changed file counts at once for partners and limits; what needs a restart is said; a wrong file changes nothing."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from halfopen import ConfigError
from halfopen.gateway import Gateway, gateway_from_file
from tests.gateway.support import Got, Partner, Reply, ask, gateway_serving, hang, partner_serving, until
from tests.gateway.test_process import running


class Site:
    """A gateway and its file."""

    def __init__(self, path: Path, partner: Partner, other: Partner) -> None:
        self.path = path
        self.partner = partner
        self.other = other
        self.gateway: Gateway
        self.port = 0
        self.end: Callable[[], object] = lambda: None

    def write(self, text: str, gateway: str = "") -> None:
        named = text.replace("PARTNER", self.partner.url).replace("OTHER", self.other.url)
        queue = "" if "queue =" in gateway else 'queue = "queue.db"\n'
        port = "" if "port =" in gateway else "port = 0\n"
        self.path.write_text(f"[gateway]\n{port}{queue}{gateway}\n{named}")

    def reload(self, text: str, gateway: str = "drain = 1\n") -> None:
        self.write(text, gateway)
        self.gateway.registry.reload()


@pytest.fixture
def site(tmp_path: Path, partner: Partner) -> Iterator[Site]:
    with ExitStack() as stack:
        site = Site(tmp_path / "halfopen.toml", partner, stack.enter_context(partner_serving()))
        site.write('[partner.acme]\nurl = "PARTNER"\n', "drain = 1\n")
        site.gateway = gateway_from_file(site.path)
        running_gateway = stack.enter_context(ExitStack())
        site.port = running_gateway.enter_context(gateway_serving(site.gateway))
        site.end = running_gateway.close
        yield site


ACME = '[partner.acme]\nurl = "PARTNER"\n'


def test_a_partner_that_is_added_can_be_reached(site: Site) -> None:
    before = ask(site.port, "/to/globex/x", b"x")

    site.reload(ACME + '[partner.globex]\nurl = "OTHER"\n')

    assert (404, 200) == (before.status, ask(site.port, "/to/globex/x", b"x").status)
    assert ["globex"] == [one["name"] for one in ask(site.port, "/partners", method="GET").json][1:]
    assert 1 == len(site.other.seen)


def test_a_partner_that_is_removed_cannot_be_reached(site: Site) -> None:
    site.reload('[partner.globex]\nurl = "OTHER"\n')

    assert ("unknown-partner", 200) == (
        ask(site.port, "/to/acme/x", b"x").kind,
        ask(site.port, "/to/globex/", b"").status,
    )


def test_an_exchange_with_a_partner_that_is_removed_comes_to_its_end(site: Site) -> None:
    go_on, got = threading.Event(), list[Got]()

    def slow(seen: Any) -> Reply:
        go_on.wait(60)
        return Reply(body=b"in the end")

    site.partner.answer = slow
    program = threading.Thread(target=lambda: got.append(ask(site.port, "/to/acme/x", b"x")))
    program.start()
    assert until(lambda: len(site.partner.seen) == 1, 60)

    site.reload('[partner.globex]\nurl = "OTHER"\n')
    go_on.set()
    program.join(60)

    assert b"in the end" == got[0].body


def test_another_url_counts_and_the_circuit_is_the_same(site: Site) -> None:
    breaker = site.gateway.partners["acme"].breaker

    site.reload('[partner.acme]\nurl = "OTHER"\nheaders = { authorization = "Basic eA==" }\n')
    got = ask(site.port, "/to/acme/x", b"x")

    assert 200 == got.status
    assert (0, "Basic eA==") == (len(site.partner.seen), site.other.seen[0].headers["authorization"])
    assert site.gateway.partners["acme"].breaker is breaker


def test_store_and_forward_can_be_switched_on(site: Site) -> None:
    breaker = site.gateway.partners["acme"].breaker
    assert breaker is not None
    breaker.force_open()
    before = ask(site.port, "/to/acme/x", b"x").status

    site.reload(ACME + "store_and_forward = true\n")

    assert (503, 202) == (before, ask(site.port, "/to/acme/x", b"x").status)


def test_what_is_stored_goes_to_the_new_url_of_its_partner(site: Site) -> None:
    breaker = site.gateway.partners["acme"].breaker
    assert breaker is not None
    breaker.force_open()
    stored = ask(site.port, "/to/acme/x", b"stored", headers={"Prefer": "respond-async"})

    site.reload('[partner.acme]\nurl = "OTHER"\n')
    breaker.reset()

    assert 202 == stored.status
    assert until(lambda: len(site.other.seen) == 1, 60)
    assert [b"stored"] == [seen.body for seen in site.other.seen]


def test_messages_of_a_partner_that_is_removed_wait_until_it_is_there_again(site: Site) -> None:
    breaker = site.gateway.partners["acme"].breaker
    assert breaker is not None
    breaker.force_open()
    stored = ask(site.port, "/to/acme/x", b"stored", headers={"Prefer": "respond-async"})
    site.reload('[partner.globex]\nurl = "OTHER"\n')
    breaker.reset()
    meanwhile = ask(site.port, stored.headers["location"], method="GET").json["state"]

    site.reload(ACME)

    assert "waiting" == meanwhile
    assert until(lambda: len(site.partner.seen) == 1, 60)


def test_another_breaker_of_the_file_drives_the_partner_and_its_lane(site: Site) -> None:
    site.reload('[breaker.own]\nconsecutive_failures = 1\n[partner.acme]\nurl = "PARTNER"\nbreaker = "breaker.own"\n')
    site.partner.answer = lambda seen: Reply(503)

    answers = [ask(site.port, "/to/acme/x", b"x").status for _ in range(2)]

    assert ([503, 503], 1) == (answers, len(site.partner.seen))
    assert "own" == ask(site.port, "/partners/acme", method="GET").json["circuit"]


def test_limits_and_the_token_count_at_once(site: Site) -> None:
    before = ask(site.port, "/to/acme/x", b"x" * 100).status

    site.reload(ACME, 'max_body = 50\ntoken = "secret"\ndrain = 1\n')

    unknown = ask(site.port, "/to/acme/x", b"x")
    known = ask(site.port, "/to/acme/x", b"x" * 100, headers={"Halfopen-Token": "secret"})
    assert (200, "no-token", "body-too-large") == (before, unknown.kind, known.kind)


def test_the_limit_of_a_head_counts_for_connections_that_are_open(site: Site) -> None:
    site.reload(ACME, "max_header = 500\n")

    assert "head-too-large" == ask(site.port, "/to/acme/x", b"x", headers={"X": "x" * 600}).kind


@pytest.mark.parametrize(
    "change", ['host = "::1"', "port = 1", 'queue = "other.db"', 'keep_alive = "5s"', 'drain = "2s"']
)
def test_what_needs_a_restart_is_said(site: Site, change: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "halfopen.gateway"):
        site.reload(ACME, change + "\n" + ("" if "drain" in change else "drain = 1\n"))

    (said,) = [record.getMessage() for record in caplog.records if record.name == "halfopen.gateway"]
    assert "restart" in said
    assert f"gateway.{change.partition(' ')[0]}" in said
    assert 200 == ask(site.port, "/to/acme/x", b"x").status


@pytest.mark.parametrize(
    "text",
    [
        '[partner.acme]\nurl = "ftp://x"\n',
        '[partner.acme]\nurl = "https://x.example"\nca = "missing.pem"\n',
        "",
        '[partner.acme]\nurl = "PARTNER"\n[breaker.b]\nconsecutive_failures = 0\n',
        ACME + 'pipeline = "pipeline.p"\n[hedge.h]\ndelay = "1s"\n[pipeline.p]\npolicies = ["hedge.h"]\n',
    ],
    ids=["url", "certificate", "nobody", "policy", "unfit"],
)
def test_a_wrong_file_changes_nothing(site: Site, text: str) -> None:
    with pytest.raises(ConfigError):
        site.reload(text + '[partner.globex]\nurl = "OTHER"\n' if text else text)

    assert (200, 404) == (ask(site.port, "/to/acme/x", b"x").status, ask(site.port, "/to/globex/x", b"x").status)


def test_sighup_takes_partners_up_and_the_log_says_what_needs_a_restart(site: Site, tmp_path: Path) -> None:
    config = tmp_path / "process.toml"
    site.path = config
    site.write(ACME, 'queue = "process.db"\n')
    with running(config) as process:
        site.write(ACME + '[partner.globex]\nurl = "OTHER"\n', 'queue = "another.db"\n')
        process.popen.send_signal(signal.SIGHUP)

        assert until(lambda: ask(process.port, "/to/globex/x", b"x").status == 200, 60)
        assert 0 == process.end()
        assert process.popen.stderr is not None
        log = process.popen.stderr.read()
    assert "gateway.queue" in log
    assert "restart" in log


def test_reloading_over_and_over_under_traffic_breaks_nothing(site: Site) -> None:
    ended, statuses = threading.Event(), list[int]()

    def ask_on() -> None:
        while not (ended.is_set() and statuses):
            statuses.append(ask(site.port, "/to/acme/x", b"x").status)

    program = threading.Thread(target=ask_on)
    program.start()
    for number in range(20):
        site.reload(f'[partner.acme]\nurl = "{["PARTNER", "OTHER"][number % 2]}"\nconnections = {number + 1}\n')
    ended.set()
    program.join(60)

    assert {200} == set(statuses)


def test_a_gateway_ends_in_good_order_while_a_removed_partner_is_still_asked(site: Site) -> None:
    site.partner.answer = lambda seen: Reply(act=hang)
    got: list[Got] = []
    program = threading.Thread(target=lambda: got.append(ask(site.port, "/to/acme/x", b"x")))
    program.start()
    assert until(lambda: len(site.partner.seen) == 1)
    site.reload('[partner.globex]\nurl = "OTHER"\n')

    site.end()
    program.join(60)

    assert (503, "ending") == (got[0].status, got[0].kind)
