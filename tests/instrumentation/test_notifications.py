"""Moves told to sinks: once, grouped, quietly when a sink is down, and never on the path of a call."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from halfopen import ConfigError, Registry, Retry
from halfopen.instrumentation._claims import Claims
from halfopen.instrumentation.notifications import (
    Command,
    Function,
    Notification,
    Notifier,
    Webhook,
    outages,
)
from halfopen.testing import FakeClock


def wait_until(question: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not question():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.005)


def quick(name: str) -> Retry:
    return Retry(name, on=Exception, attempts=3, backoff=0.001)


class Hook:
    """A server that takes notifications; it answers with the codes it is given, then with 200."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.codes: list[int] = []
        self.delay = 0.0
        self.retry_after: str | None = None
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                time.sleep(hook.delay)
                code = hook.codes.pop(0) if hook.codes else 200
                if code == 200:
                    hook.bodies.append(json.loads(body))
                    hook.headers.append(dict(self.headers))
                self.send_response(code)
                self.send_header("Content-Length", "0")
                if hook.retry_after is not None and code != 200:
                    self.send_header("Retry-After", hook.retry_after)
                if code == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()

            do_GET = do_POST

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/secret"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_each_move_is_told_once_with_its_sentence(hook: Hook) -> None:
    registry = Registry()
    breaker = registry.circuit_breaker("bank", tags={"team": "payments"})

    with Notifier(registry, Webhook(hook.url, headers={"X-Key": "k"}), group_for=0.0, source="shop-1"):
        breaker.trip(wait=30.0, reason="drill", by="ada")
        wait_until(lambda: hook.bodies)
        breaker.reset()

    moves = [move for body in hook.bodies for move in body["moves"]]
    assert [("closed", "open"), ("open", "closed")] == [(move["old"], move["new"]) for move in moves]
    first = moves[0]
    assert ("bank", "manual", "drill", "ada", {"team": "payments"}, 30.0) == tuple(
        first[key] for key in ("name", "reason", "note", "by", "tags", "wait")
    )
    assert first["sentence"].startswith("open since")
    assert abs(first["at"] - time.time()) < 60
    assert ("shop-1", 1) == (hook.bodies[0]["source"], hook.bodies[0]["version"])
    assert "k" == hook.headers[0]["X-Key"]


def test_a_fleet_that_opens_together_is_one_notification() -> None:
    registry = Registry()
    told: list[Notification] = []
    breakers = [registry.circuit_breaker(f"host:{number}") for number in range(100)]

    notifier = Notifier(registry, told.append, group_for=2.0, source="shop")
    notifier.start()
    for breaker in breakers:
        breaker.trip()
    wait_until(lambda: told)
    notifier.stop()

    assert [100] == [len(notification.moves) for notification in told]
    lines = told[0].text.splitlines()
    assert "[shop] 100 moves: 100 to open" == lines[0]
    assert "… and 80 more" == lines[-1]
    assert 22 == len(lines)


def test_slack_gets_escaped_text(hook: Hook) -> None:
    registry = Registry()

    with Notifier(registry, Webhook(hook.url, form="slack"), group_for=0.0, source="s"):
        registry.circuit_breaker("<!channel> & co").trip()

    [body] = hook.bodies
    assert {"text"} == set(body)
    assert body["text"].startswith("[s] &lt;!channel&gt; &amp; co: open since")


def test_a_sink_that_fails_for_a_while_is_retried(hook: Hook) -> None:
    registry = Registry()
    hook.codes = [503, 429]

    with Notifier(registry, Webhook(hook.url), group_for=0.0, retry=quick) as notifier:
        registry.circuit_breaker("bank").trip()
        wait_until(lambda: hook.bodies)

    [stats] = notifier.stats()
    assert (1, 0, 3, True) == (stats.delivered, stats.lost, stats.attempts, stats.up)


def test_a_sink_that_is_down_is_counted_and_logged_once(hook: Hook, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="halfopen")
    registry = Registry()
    breaker = registry.circuit_breaker("bank")
    hook.codes = [500] * 9

    with Notifier(registry, Webhook(hook.url), group_for=0.0, retry=quick) as notifier:
        for number in range(3):
            breaker.trip()
            wait_until(lambda: notifier.stats()[0].lost == number + 1)  # noqa: B023  (waited for at once)
        down = notifier.stats()[0]
        breaker.reset()
        wait_until(lambda: notifier.stats()[0].delivered)

    assert (False, 3, 9) == (down.up, down.lost, down.attempts)
    assert [
        "notifications: 127.0.0.1 is down (HTTPError); what is lost is counted",
        "notifications: 127.0.0.1 is back; 3 moves were lost",
    ] == [message for message in caplog.messages if "127.0.0.1" in message]
    assert "secret" not in caplog.text


@pytest.mark.parametrize("code", [302, 400, 404])
def test_what_will_not_pass_by_itself_is_not_retried(hook: Hook, code: int) -> None:
    registry = Registry()
    hook.codes = [code]

    with Notifier(registry, Webhook(hook.url), group_for=0.0) as notifier:
        registry.circuit_breaker("bank").trip()
        wait_until(lambda: notifier.stats()[0].lost)

    assert (1, []) == (notifier.stats()[0].attempts, hook.bodies)


def test_a_slow_or_raising_sink_costs_the_call_nothing_and_other_sinks_nothing() -> None:
    registry = Registry()
    breaker = registry.circuit_breaker("bank")
    told: list[Notification] = []
    release = threading.Event()
    released: list[bool] = []

    def stuck(notification: Notification) -> None:
        released.append(release.wait(60))

    def raising(notification: Notification) -> None:
        raise RuntimeError("no")

    with Notifier(registry, stuck, raising, told.append, group_for=0.0, retry=quick) as notifier:
        breaker.trip()
        wait_until(lambda: told)
        release.set()

    assert [True] == released  # the call and the other sink came to their ends before
    assert {"raising": 1} == {s.name.rsplit(".", 1)[-1]: s.lost for s in notifier.stats() if s.lost}


def test_only_outages_are_told_where_that_is_wanted() -> None:
    clock = FakeClock()
    registry = Registry(clock=clock)
    told: list[Notification] = []
    breaker = registry.circuit_breaker("bank", consecutive_failures=1, wait_in_open=1.0)

    with Notifier(registry, told.append, only=outages, group_for=0.0):
        breaker.acquire().failure()
        for _ in range(3):
            clock.advance(30)
            breaker.acquire().failure()
        clock.advance(30)
        for _ in range(3):
            breaker.call(str)

    moves = [(move.old, move.new) for notification in told for move in notification.moves]
    assert [("closed", "open"), ("half_open", "closed")] == moves


def test_a_command_finds_the_json_on_its_standard_input(tmp_path: Path) -> None:
    registry = Registry()
    target = tmp_path / "told.json"
    program = f"import sys; open({str(target)!r}, 'wb').write(sys.stdin.buffer.read())"

    with Notifier(registry, Command([sys.executable, "-c", program]), group_for=0.0) as notifier:
        registry.circuit_breaker("$(touch x); `id`").trip()
        wait_until(lambda: notifier.stats()[0].delivered)

    assert "$(touch x); `id`" == json.loads(target.read_text())["moves"][0]["name"]


def test_a_command_that_fails_counts_as_lost() -> None:
    registry = Registry()

    with Notifier(registry, Command([sys.executable, "-c", "exit(3)"]), group_for=0.0, retry=quick) as notifier:
        registry.circuit_breaker("bank").trip()
        wait_until(lambda: notifier.stats()[0].lost)

    assert 3 == notifier.stats()[0].attempts


def test_stop_delivers_what_waits() -> None:
    registry = Registry()
    told: list[Notification] = []
    notifier = Notifier(registry, Function(told.append), group_for=60.0)
    notifier.start()

    registry.circuit_breaker("bank").trip()
    notifier.stop()

    assert 1 == len(told)


def test_too_many_waiting_moves_are_counted_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfopen.instrumentation._post.WAITING_AT_MOST", 5)
    registry = Registry()
    told: list[Notification] = []
    notifier = Notifier(registry, told.append, group_for=60.0)
    notifier.start()

    for number in range(8):
        registry.circuit_breaker(f"b{number}").trip()
    notifier.stop()

    assert (3, 5) == (notifier.stats()[0].lost, notifier.stats()[0].delivered)


def test_processes_of_one_server_tell_a_common_move_once(tmp_path: Path) -> None:
    told: list[Notification] = []
    registries = [Registry() for _ in range(2)]
    notifiers = [Notifier(one, told.append, group_for=0.0, together=tmp_path) for one in registries]
    for notifier in notifiers:
        notifier.start()
    registries[0].circuit_breaker("bank").trip()
    wait_until(lambda: told)
    [claim] = tmp_path.glob("told-*")
    claim.write_text("1")  # as if another process had told it

    registries[1].circuit_breaker("bank").trip()
    registries[1].circuit_breaker("mail").trip()
    for notifier in notifiers:
        notifier.stop()

    assert ["bank", "mail"] == [move.name for notification in told for move in notification.moves]


def test_a_claim_ends_after_a_while(tmp_path: Path) -> None:
    claims = Claims(tmp_path, 60)
    assert claims.take("x")
    [path] = tmp_path.iterdir()
    path.write_text("1")

    fresh = claims.take("x")
    os.utime(path, (time.time() - 61, time.time() - 61))
    stale = claims.take("x")

    assert (False, True) == (fresh, stale)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_tells_its_own_moves_and_not_its_parents(tmp_path: Path) -> None:
    registry = Registry()
    target = tmp_path / "told"

    def tell(one: Notification) -> None:
        with target.open("a") as told:
            told.write(one.moves[0].name)

    notifier = Notifier(registry, tell, group_for=60.0)
    notifier.start()
    registry.circuit_breaker("parents").trip()

    child = os.fork()
    if child == 0:
        registry.circuit_breaker("childs").trip()
        notifier.stop()
        os._exit(0)
    os.waitpid(child, 0)
    told = target.read_text()
    notifier.stop()

    assert "childs" == told


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Webhook("ftp://host/x"),
        lambda: Webhook("https://"),
        lambda: Webhook("https://host", form="xml"),  # type: ignore[arg-type]
        lambda: Command("rm -rf"),
        lambda: Command([]),
        lambda: Notifier(Registry(), group_for=-1),
    ],
)
def test_wrong_settings_are_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(ConfigError) as refused:
        wrong()

    assert "host/x" not in str(refused.value)
