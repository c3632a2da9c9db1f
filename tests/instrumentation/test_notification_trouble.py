"""Sinks that hang, leave children behind or drip, odd names, secrets, and moves made in unlucky moments."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from halfopen import ConfigError, Registry, Retry
from halfopen.instrumentation._sinks import SLACK_AT_MOST
from halfopen.instrumentation.notifications import Command, Move, Notification, Notifier, Webhook
from tests.instrumentation.test_notifications import Hook, hook, quick, wait_until  # noqa: F401  (a fixture)

POSIX = pytest.mark.skipif(not hasattr(os, "killpg"), reason="no process groups here")
SECONDS = 60.0


def told(*names: str, sentence: str = "open since 12:00:00") -> Notification:
    moves = tuple(
        Move(
            name=name, old="closed", new="open", reason="failure_rate", at=1.0, epoch=2, step=1, wait=30.0, note=None,
            by=None, tags={}, sentence=sentence,
        )
        for name in names
    )  # fmt: skip
    return Notification(source="shop-1", moves=moves)


def slack_text(hook: Hook, notification: Notification) -> str:  # noqa: F811
    Webhook(hook.url, form="slack").send(notification)
    [body] = hook.bodies
    text: str = body["text"]
    return text


# Chats


@pytest.mark.parametrize("name", ["@everyone", "@here", "@channel", "<!channel>", "<@U123>", "<https://evil|click>"])
def test_no_name_mentions_anybody_in_any_chat(hook: Hook, name: str) -> None:  # noqa: F811
    text = slack_text(hook, told(name))

    assert "<" not in text
    assert name not in text
    assert "@" not in text.replace("@\u200b", "")


def test_a_chat_takes_the_longest_notification(hook: Hook) -> None:  # noqa: F811
    names = [f"{number}<" + "&" * 10_000 for number in range(50)]

    text = slack_text(hook, told(*names))

    assert len(text) <= SLACK_AT_MOST
    assert text.startswith("[shop-1] 50 moves: 50 to open\n0&lt;&amp;")
    assert text.endswith(" more")
    assert "…" in text
    assert not any(part.startswith(("&a", "&l")) and ";" not in part[:5] for part in text.split("…")[:1])


def test_a_chat_gets_every_move_that_has_room(hook: Hook) -> None:  # noqa: F811
    text = slack_text(hook, told(*(f"partner-{number}" for number in range(12))))

    assert 13 == len(text.splitlines())
    assert "more" not in text


def test_a_name_is_one_line(hook: Hook) -> None:  # noqa: F811
    notification = told("one\n[shop-2] two: closed", "\x1b[31mred")

    assert 3 == len(notification.text.splitlines())
    assert "\x1b" not in notification.text
    assert "one\n[shop-2] two: closed" == notification.plain()["moves"][0]["name"]
    assert 3 == len(slack_text(hook, notification).splitlines())


def test_a_name_that_is_no_text_of_any_language_is_told(hook: Hook, tmp_path: Path) -> None:  # noqa: F811
    target = tmp_path / "told.json"
    program = f"import sys; open({str(target)!r}, 'wb').write(sys.stdin.buffer.read())"

    Webhook(hook.url).send(told("lone \ud800"))
    Command([sys.executable, "-c", program]).send(told("lone \ud800"))

    assert "lone \ud800" == hook.bodies[0]["moves"][0]["name"] == json.loads(target.read_text())["moves"][0]["name"]


# Webhooks


@pytest.mark.parametrize(
    "url",
    [
        "https://user:pa55word@host/x", "https://host/pa55 word", "https://host/pa55\nword", "https://host:pa55word/",
        "https://[pa55word/", "http://host/pa55\x00word",
    ],
)  # fmt: skip
def test_an_url_that_cannot_be_posted_to_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Webhook(url)

    assert "pa55" not in str(refused.value)


def test_a_webhook_tells_nothing_of_its_url_and_headers() -> None:
    webhook = Webhook("https://hooks.example/services/secret", headers={"Authorization": "Bearer secret"})

    assert "secret" not in f"{webhook!r} {webhook.name}"


def test_retry_after_is_obeyed(hook: Hook) -> None:  # noqa: F811
    registry = Registry()
    hook.codes = [429]
    hook.retry_after = "1"

    with Notifier(registry, Webhook(hook.url), group_for=0.0, retry=quick) as notifier:
        began = time.monotonic()
        registry.circuit_breaker("bank").trip()
        wait_until(lambda: notifier.stats()[0].delivered, SECONDS)
        took = time.monotonic() - began

    assert took >= 1.0


def test_a_server_that_never_ends_its_answer_does_not_hold_the_next_notification_up() -> None:
    accepted: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            accepted.append(connection)
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            try:
                while True:
                    connection.sendall(b"x" * 1000)
                    time.sleep(0.01)
            except OSError:
                pass

        threading.Thread(target=drip, daemon=True).start()
        done = threading.Event()

        def send() -> None:
            Webhook(f"http://127.0.0.1:{server.getsockname()[1]}/").send(told("bank"))
            done.set()

        threading.Thread(target=send, daemon=True).start()
        ended = done.wait(SECONDS)
        for connection in accepted:
            connection.close()

    assert ended


def test_nothing_secret_is_logged_whatever_happens(hook: Hook, caplog: pytest.LogCaptureFixture) -> None:  # noqa: F811
    caplog.set_level(logging.DEBUG)
    registry = Registry()
    hook.codes = [500, 400]
    sinks = [
        Webhook(hook.url, headers={"X-Key": "secret\n"}),
        Webhook("http://127.0.0.1:9/secret"),
        Webhook("http://nowhere.invalid/secret"),
        Webhook(hook.url),
    ]

    with Notifier(registry, *sinks, group_for=0.0, retry=quick) as notifier:
        registry.circuit_breaker("bank").trip()
        wait_until(lambda: not any(one.waiting for one in notifier.stats()), SECONDS)

    assert 3 <= sum(one.lost for one in notifier.stats())
    assert "secret" not in caplog.text


# Commands


@POSIX
def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pids)!r} + '.new', 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        f"os.replace({str(pids)!r} + '.new', {str(pids)!r})\n"
        "time.sleep(600)\n"
    )
    for timeout in (3.0, 10.0, 30.0):  # the program has to come so far, on a busy machine too
        with pytest.raises(subprocess.TimeoutExpired):
            Command([sys.executable, "-c", program], timeout=timeout).send(told("bank"))
        if pids.exists():
            break

    for pid in map(int, pids.read_text().split()):
        wait_until(lambda: not _runs(pid), SECONDS)  # noqa: B023  (waited for at once)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


@POSIX
def test_commands_leave_no_zombies() -> None:
    others = _children()

    for program in ("exit(0)", "exit(3)", "import os; os.kill(os.getpid(), 9)", "import time; time.sleep(60)"):
        command = Command([sys.executable, "-c", program], timeout=3.0)
        try:
            command.send(told("bank"))
        except Exception:
            continue

    assert [] == [pid for pid in _children() - others if not _runs(pid)]


def _children() -> set[int]:
    listed = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    return set(map(int, listed.read_text().split())) if listed.exists() else set()


def test_a_command_that_reads_nothing_is_no_failure() -> None:
    names = [f"partner-{number}-{'x' * 1000}" for number in range(500)]

    Command([sys.executable, "-c", "import os; os.close(0)"], timeout=SECONDS).send(told(*names))


# Unlucky moments


def test_a_move_made_while_the_line_is_locked_by_the_same_thread_is_told() -> None:
    registry = Registry()
    seen: list[Notification] = []
    breaker = registry.circuit_breaker("bank")
    notifier = Notifier(registry, seen.append, group_for=0.0)
    notifier.start()
    done = threading.Event()

    def interrupted() -> None:
        with notifier._posts[0]._wake:  # as a signal's handler finds it
            breaker.trip()
        done.set()

    threading.Thread(target=interrupted, daemon=True).start()
    ended = done.wait(SECONDS)
    notifier.stop()

    assert ended
    assert ["open"] == [move.new for notification in seen for move in notification.moves]


def test_stop_is_over_in_its_time_though_sinks_hang_and_fail() -> None:
    registry = Registry()
    release = threading.Event()

    def refused(_: Notification) -> None:
        raise OSError

    def patient(name: str) -> Retry:
        return Retry(name, on=Exception, attempts=100, backoff=60.0)

    notifier = Notifier(registry, lambda _: release.wait(SECONDS), refused, group_for=0.0, retry=patient)
    notifier.start()
    registry.circuit_breaker("bank").trip()
    wait_until(lambda: all(one.attempts for one in notifier.stats()), SECONDS)
    began = time.monotonic()
    notifier.stop(grace=0.5)
    took = time.monotonic() - began
    waiting = [one.waiting for one in notifier.stats()]
    release.set()

    assert took < 40.0
    assert [1, 1] == waiting


def test_a_thread_that_outlived_stop_ends_with_its_work() -> None:
    registry = Registry()
    release = threading.Event()
    seen: list[str] = []

    def slow(notification: Notification) -> None:
        release.wait(SECONDS)
        seen.append(notification.moves[0].name)

    notifier = Notifier(registry, slow, group_for=0.0)
    notifier.start()
    registry.circuit_breaker("one").trip()
    wait_until(lambda: notifier.stats()[0].attempts, SECONDS)
    thread = notifier._posts[0]._thread
    notifier.stop(grace=0.0)
    release.set()
    assert thread is not None
    thread.join(SECONDS)
    notifier.start()
    registry.circuit_breaker("two").trip()
    wait_until(lambda: len(seen) == 2, SECONDS)
    notifier.stop()

    assert not thread.is_alive()
    assert ["one", "two"] == seen


def test_a_notifier_started_again_before_its_thread_had_ended_goes_on() -> None:
    registry = Registry()
    release = threading.Event()
    seen: list[str] = []

    def slow(notification: Notification) -> None:
        release.wait(SECONDS)
        seen.extend(move.name for move in notification.moves)

    notifier = Notifier(registry, slow, group_for=0.0)
    notifier.start()
    registry.circuit_breaker("one").trip()
    wait_until(lambda: notifier.stats()[0].attempts, SECONDS)
    notifier.stop(grace=0.0)
    notifier.start()
    registry.circuit_breaker("two").trip()
    release.set()
    wait_until(lambda: len(seen) == 2, SECONDS)
    registry.circuit_breaker("three").trip()
    wait_until(lambda: len(seen) == 3, SECONDS)
    notifier.stop()

    assert ["one", "two", "three"] == seen


def test_a_sink_that_ends_its_thread_loses_only_its_own() -> None:
    registry = Registry()
    seen: list[Notification] = []

    def leaving(notification: Notification) -> None:
        raise SystemExit

    with Notifier(registry, leaving, seen.append, group_for=0.0, retry=quick) as notifier:
        registry.circuit_breaker("one").trip()
        wait_until(lambda: notifier.stats()[0].lost == 1 and seen, SECONDS)
        registry.circuit_breaker("two").trip()
        wait_until(lambda: notifier.stats()[0].lost == 2, SECONDS)

    assert 2 == sum(len(one.moves) for one in seen)


def test_an_only_that_raises_tells_nothing_and_harms_no_call() -> None:
    registry = Registry()
    seen: list[Notification] = []

    def wrong(_: object) -> bool:
        raise RuntimeError("no")

    with Notifier(registry, seen.append, only=wrong, group_for=0.0):
        registry.circuit_breaker("bank").trip()
        state = registry.circuit_breaker("bank").state

    assert ("open", []) == (state, seen)


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no such signal here")
@pytest.mark.timeout(300, method="thread")
def test_moves_from_a_signals_handler_never_block() -> None:
    registry = Registry()
    breaker = registry.circuit_breaker("bank")
    seen: list[Notification] = []
    fired: list[int] = []

    def handler(*_: object) -> None:
        fired.append(1)
        (breaker.reset if breaker.state == "open" else breaker.trip)()

    def interrupting() -> None:
        while len(fired) < 30:
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.005)

    before = signal.signal(signal.SIGUSR1, handler)
    thread = threading.Thread(target=interrupting, daemon=True)
    with Notifier(registry, seen.append, group_for=0.0):
        thread.start()
        while thread.is_alive():
            breaker.trip()
            breaker.reset()
    signal.signal(signal.SIGUSR1, before)

    assert seen
