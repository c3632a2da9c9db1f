"""`halfopen watch` on a terminal of its own and in a pipe, and what the commands say when something is wrong."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from click.testing import CliRunner

from halfopen.cli import main
from halfopen.cli._remote import clean
from tests.console.support import fail, served, shop, until

NAME = "payments"
SECONDS = 60.0
BARE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def run(*arguments: str, **environment: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, arguments, env={"COLUMNS": "160", **environment})
    return result.exit_code, result.stdout, result.stderr


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, *arguments: str, rows: int = 24, columns: int = 100) -> None:
        self._master, slave = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(slave)
        self._slave = slave
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "halfopen.cli", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**environment, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"},
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509  (one system call)
        )
        self.text = ""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with suppress(OSError):
            while data := os.read(self._master, 65536):
                self.text += data.decode("utf-8", "replace")

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def since(self, mark: int) -> str:
        """Return what was shown after *mark*, without what steers the terminal."""
        return BARE.sub("", self.text[mark:])

    def shows(self, text: str, mark: int = 0) -> None:
        until(lambda: text in self.since(mark), SECONDS)

    @property
    def settings(self) -> list[Any]:
        return termios.tcgetattr(self._slave)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._slave)
        os.close(self._master)


@contextmanager
def terminal(*arguments: str, **options: Any) -> Iterator[Terminal]:
    made = Terminal(*arguments, **options)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.slow
def test_watch_shows_moves_as_they_come_and_ctrl_c_gives_the_terminal_back() -> None:
    registry = shop()

    with served(registry) as server, terminal("watch", server.url) as shown:
        shown.shows("every circuit is closed")
        fail(registry.circuit_breaker(NAME))
        shown.shows("5 of the last 5")
        mark = len(shown.text)
        registry.circuit_breaker(NAME).reset()
        shown.shows("every circuit is closed", mark)
        shown.press(b"\x03")
        code = shown.process.wait(SECONDS)
        until(lambda: "\x1b[?1049l" in shown.text, SECONDS)
        settings = shown.settings

    assert 0 == code
    assert settings == shown.before
    assert shown.text.rindex("\x1b[?1049l") > shown.text.rindex("\x1b[?1049h")
    assert shown.text.rindex("\x1b[?25h") > shown.text.rindex("\x1b[?25l")
    assert "Traceback" not in shown.text


@pytest.mark.slow
def test_sigterm_gives_the_terminal_back_too() -> None:
    with served(shop()) as server, terminal("watch", server.url) as shown:
        shown.shows("every circuit is closed")
        shown.process.send_signal(signal.SIGTERM)
        code = shown.process.wait(SECONDS)
        until(lambda: "\x1b[?1049l" in shown.text, SECONDS)

    assert 0 == code
    assert "\x1b[?25h" in shown.text
    assert "Traceback" not in shown.text


@pytest.mark.slow
def test_watch_fills_the_window_as_it_grows_and_shrinks() -> None:
    names = [f"partner-{number:02}" for number in range(30)]
    registry = shop(*names)
    for name in names:
        fail(registry.circuit_breaker(name))

    with served(registry) as server, terminal("watch", server.url, rows=12) as shown:
        shown.shows("and 22 more")
        shown.resize(20, 100)
        shown.shows("and 14 more")
        mark = len(shown.text)
        shown.resize(3, 40)
        until(lambda: len(shown.text) > mark + 500, SECONDS)
        mark = len(shown.text)
        shown.resize(40, 120)
        shown.shows("partner-29", mark)
        alive = shown.process.poll() is None

    assert alive
    assert "Traceback" not in shown.text


@pytest.mark.slow
def test_watch_says_when_the_console_is_away_and_goes_on_when_it_is_back() -> None:
    registry = shop()
    fail(registry.circuit_breaker(NAME))

    with served(registry) as server, terminal("watch", server.url, columns=160) as shown:
        shown.shows("1 open")
        port = server.port
        server.stop()
        shown.shows("NOT LIVE")
        mark = len(shown.text)
        with served(registry, port=port):
            shown.shows("live, 0.", mark)
            shown.press(b"\x03")
            code = shown.process.wait(SECONDS)

    assert 0 == code


@contextmanager
def piped(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    lines: list[str] = []
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "halfopen.cli", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    reader = threading.Thread(target=lambda: lines.extend(process.stdout), daemon=True)  # type: ignore[arg-type]
    reader.start()
    try:
        yield process, lines
    finally:
        process.kill()
        process.wait()
        reader.join(SECONDS)
        process.stdout.close()


@pytest.mark.slow
def test_in_a_pipe_each_change_is_a_line() -> None:
    registry = shop(NAME, "search")
    breaker = registry.circuit_breaker(NAME)
    fail(breaker)

    with served(registry) as server, piped("watch", server.url) as (process, lines):
        until(lambda: lines, SECONDS)
        breaker.reset(reason="it is\n\x1b[31mwell", by="dana")
        until(lambda: len(lines) == 2, SECONDS)
        server.stop()
        until(lambda: len(lines) == 3, SECONDS)
        with served(registry, port=server.port):
            until(lambda: len(lines) == 4, SECONDS)
        process.send_signal(signal.SIGINT)
        code = process.wait(SECONDS)

    assert 0 == code
    assert re.fullmatch(r"\d\d:\d\d:\d\dZ payments open: open since .* 5 of the last 5 calls failed.*\n", lines[0])
    told = r"\d\d:\d\d:\d\dZ payments closed: closed .* by order of dana: it is\ufffd\ufffd\[31mwell\n"
    assert re.fullmatch(told, lines[1])
    assert lines[2].startswith("the console is away: ")
    assert "the console is back\n" == lines[3]


def test_a_text_cannot_steer_the_terminal() -> None:
    assert "a\ufffd[31mb\ufffdc\ufffdd ü 🔒" == clean("a\x1b[31mb\nc\u202ed ü 🔒")


def test_status_shows_names_that_would_steer_as_text() -> None:
    registry = shop("\x1b]0;owned\x07", "[red]x[/red]", "lone \ud800")
    for breaker in registry.breakers():
        breaker.trip(reason="\x1b[2J")

    with served(registry) as server:
        code, shown, _ = run("status", server.url)
        json_code, as_json, _ = run("status", server.url, "--json")

    assert (1, 1) == (code, json_code)
    assert "\x1b" not in shown
    assert "[red]x[/red]" in shown
    assert "\\ud800" in as_json


# What goes wrong


class _Answers(BaseHTTPRequestHandler):
    answer: Callable[[BaseHTTPRequestHandler], None]

    def do_GET(self) -> None:
        type(self).answer(self)

    do_POST = do_GET

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def answering(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    handler = type("Handler", (_Answers,), {"answer": staticmethod(answer)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _html(request: BaseHTTPRequestHandler) -> None:
    body = b"<html>hello</html>"
    request.send_response(200)
    request.send_header("content-length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


def _list(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.send_header("content-length", "2")
    request.end_headers()
    request.wfile.write(b"[]")


def _elsewhere(request: BaseHTTPRequestHandler) -> None:
    request.send_response(302)
    request.send_header("location", "http://127.0.0.1:9/")
    request.send_header("content-length", "0")
    request.end_headers()


def _nonsense(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"\x00\x01\x02 no http\r\n\r\n")


def _cut_off(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.send_header("content-length", "1000")
    request.end_headers()
    request.wfile.write(b'{"breakers')


COMMANDS = [["status"], ["status", "--json"], ["watch", "--once"], ["order", "reset", NAME, "--reason", "x", "--url"]]


@pytest.mark.parametrize("answer", [_html, _list, _elsewhere, _nonsense, _cut_off])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: one[0])
def test_what_is_no_console_is_one_line_and_exit_code_2(
    answer: Callable[[BaseHTTPRequestHandler], None], command: list[str]
) -> None:
    with answering(answer) as url:
        code, output, error = run(*command, url, HALFOPEN_TOKEN="a long secret")

    assert (2, "") == (code, output)
    assert error.startswith("Error: ")
    assert 1 == error.count("\n")
    assert "secret" not in error


@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: one[0])
@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9", "http://[", "http://a b", "http://127.0.0.1:x", "nowhere.invalid"]
)
def test_nobody_there_is_one_line_and_exit_code_2(url: str, command: list[str]) -> None:
    code, output, error = run(*command, url)

    assert (2, "") == (code, output)
    assert error.startswith("Error: no console answers at ")
    assert 1 == error.count("\n")


@pytest.mark.parametrize("token", ["line\nbreak", "\x00", "ünï"])
def test_a_token_that_cannot_be_one_is_not_shown(token: str) -> None:
    code, output, error = run("status", "http://127.0.0.1:9", "--token", token)

    assert (2, "") == (code, output)
    assert 1 == error.count("\n")
    assert token not in error


def test_a_console_that_lets_nobody_look_says_what_is_missing() -> None:
    with served(shop(), anonymous=False) as server:
        found = [run(*command, server.url) for command in COMMANDS]
        code, _, _ = run("status", server.url, HALFOPEN_TOKEN="vic-secret")

    assert 0 == code
    for code, output, error in found:
        assert (2, "") == (code, output)
        assert "HALFOPEN_TOKEN" in error
        assert 1 == error.count("\n")


ORDERS = [["try-now"], ["trip"], ["force-open"], ["force-closed"], ["observe"], ["reset"]]


@pytest.mark.parametrize("order", ORDERS, ids=lambda one: one[0])
def test_each_order_that_is_refused_is_one_line_with_its_exit_code(order: list[str]) -> None:
    registry = shop()

    with served(registry) as server:
        common = [*order, NAME, "--reason", "INC-1", "--url", server.url]
        wrong = run("order", *common, "--token", "nobody's secret")
        viewer = run("order", *common, "--token", "vic-secret")
        process = run("order", *common, "--token", "dana-secret", "--process", "web-9")
        name = run("order", *order, "paymnets", "--reason", "x", "--url", server.url, "--token", "dana-secret")
    away = run("order", *common, "--token", "dana-secret")

    assert [1, 1, 1, 2, 2] == [code for code, _, _ in (wrong, viewer, process, name, away)]
    assert "no action without an identity" in wrong[2]
    assert "vic is a viewer, and only operators act" in viewer[2]
    assert "web-1" in process[2]
    assert "knows no breaker 'paymnets'" in name[2]
    assert "no console answers" in away[2]
    for _, output, error in (wrong, viewer, process, name, away):
        assert "" == output
        assert error.startswith("Error: ")
        assert 1 == error.count("\n")
    assert "closed" == registry.circuit_breaker(NAME).state


@pytest.mark.parametrize("until_", ["2020-01-01T00:00", "-5m", "soon", "0s", ""])
@pytest.mark.parametrize("order", ["force-open", "trip"])
def test_an_end_that_is_none_is_bad_input(order: str, until_: str) -> None:
    code, output, error = run("order", order, NAME, "--reason", "x", "--until", until_, "--url", "http://127.0.0.1:9")

    assert (2, "") == (code, output)
    assert error.startswith("Error: ")
    assert 1 == error.count("\n")


@pytest.mark.parametrize("order", ORDERS[1:], ids=lambda one: one[0])
def test_no_order_but_a_trial_goes_without_a_reason(order: list[str]) -> None:
    registry = shop()

    with served(registry) as server:
        missing = run("order", *order, NAME, "--url", server.url, "--token", "dana-secret")
        blank = run("order", *order, NAME, "--url", server.url, "--token", "dana-secret", "--reason", " ")

    assert [2, 1] == [missing[0], blank[0]]
    assert "--reason" in missing[2]
    assert "reason" in blank[2]
    assert "closed" == registry.circuit_breaker(NAME).state


def test_a_command_whose_reader_left_ends_quietly() -> None:
    with served(shop()) as server:
        process = subprocess.Popen(
            [sys.executable, "-m", "halfopen.cli", "status", server.url, "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        with process.stderr:
            error = process.stderr.read()
        process.wait(SECONDS)

    assert b"Traceback" not in error


@pytest.mark.parametrize("name", ["..", ".", "a/b", "/", "%2F", "a b?c#d", "ünï"])
def test_an_order_reaches_a_circuit_whatever_its_name(name: str) -> None:
    registry = shop(name)

    with served(registry) as server:
        found = run("order", "trip", name, "--reason", "x", "--url", server.url, "--token", "dana-secret")

    assert (0, f"{name} on web-1: open\n", "") == found
