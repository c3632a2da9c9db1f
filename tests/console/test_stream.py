"""The stream of events on a real server: snapshot, patches, resuming, slow readers, heartbeats, many pages."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import httpx
import pytest

from halfopen.console import _hub, _stream
from tests.console.support import Served, fail, read_events, served, shop, until

NAME = "payments"


@contextmanager
def streaming(url: str, last_id: str | None = None) -> Iterator[Iterator[tuple[str, str, dict[str, object]]]]:
    headers = {} if last_id is None else {"last-event-id": last_id}
    with httpx.stream("GET", f"{url}/api/events", headers=headers, timeout=60.0) as answer:
        assert 200 == answer.status_code
        yield read_events(answer.iter_lines())


def test_a_page_gets_a_snapshot_then_patches_that_fit_on_it() -> None:
    registry = shop()

    with served(registry) as server, streaming(server.url) as events:
        _, first, snapshot = next(events)
        fail(registry.circuit_breaker(NAME))
        versions = [snapshot["version"]]
        for _, name, patch in events:
            assert "patch" == name
            assert versions[-1] == patch["base"]
            versions.append(patch["version"])
            if ["breaker", NAME] in [change[:2] for change in patch["changes"] if change[-1].get("state") == "open"]:
                break

    assert "snapshot" == first


def test_a_trip_is_on_the_page_without_waiting_for_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = shop()

    with served(registry) as server, streaming(server.url) as events:
        next(events)
        next(events)
        monkeypatch.setattr(_hub, "SWEEP", 3600.0)
        monkeypatch.setattr(_hub, "LOOK", 3600.0)
        fail(registry.circuit_breaker(NAME))
        told = next(patch for _, name, patch in events if name == "comment" or _opened(patch))

    assert told, "nothing came until the heartbeat"


def _opened(patch: dict[str, Any]) -> bool:
    return any(change[0] == "breaker" and change[-1].get("state") == "open" for change in patch["changes"])


def test_a_page_that_comes_back_is_told_only_what_it_missed() -> None:
    registry = shop()

    with served(registry) as server:
        with streaming(server.url) as events:
            next(events)
            last, _, seen = next(events)
        fail(registry.circuit_breaker(NAME))
        time.sleep(1.2)
        with streaming(server.url, last) as events:
            _, name, missed = next(events)

    assert ("patch", seen["version"]) == (name, missed["base"])


@pytest.mark.parametrize("last_id", ["1234abcd-7", "nonsense", "-1", "{start}-999999"])
def test_an_id_of_another_run_or_of_the_future_is_answered_with_a_snapshot(last_id: str) -> None:
    with served(shop()) as server:
        start = httpx.get(f"{server.url}/api/snapshot", timeout=60).json()["start"]
        with streaming(server.url, last_id.format(start=start)) as events:
            _, name, _ = next(events)

    assert "snapshot" == name


def test_the_stream_forbids_keeping_and_buffering_and_says_when_to_come_back() -> None:
    with served(shop()) as server, httpx.stream("GET", f"{server.url}/api/events", timeout=60.0) as answer:
        first = next(answer.iter_lines())

    assert "no-store" == answer.headers["cache-control"]
    assert "no" == answer.headers["x-accel-buffering"]
    assert "retry: 2000" == first


def test_a_silent_stream_has_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_stream, "HEARTBEAT", 0.3)

    with served(shop()) as server, streaming(server.url) as events:
        assert any(name == "comment" for _, name, _ in islice(events, 100))


def test_a_page_that_does_not_read_is_let_go_and_the_others_are_not() -> None:
    read: list[int] = []

    def page(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"GET /api/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            while data := connection.recv(1 << 20):
                read.append(len(data))

    with served(shop()) as server:
        hub = server.console._hub
        slow = _slow_reader(server)
        until(lambda: len(hub.clients) == 1)
        threading.Thread(target=page, args=(server.port,), daemon=True).start()
        until(lambda: len(hub.clients) == 2 and read)

        def drive() -> bool:
            # More than the line and the socket's buffers hold, in seconds instead of minutes.
            hub.picture._changes.append(["event", {"id": "big", "filler": "x" * 100_000}])
            hub._wake.set()
            return hub.dropped == 1

        until(drive, 120.0)
        until(lambda: len(hub.clients) == 1)
        before = len(read)
        until(lambda: len(read) > before + 3)
        slow.close()

        def told() -> dict[str, int]:
            pages: dict[str, int] = httpx.get(f"{server.url}/api/snapshot", timeout=60.0).json()["pages"]
            return pages

        until(lambda: told()["watching"] == 1)  # counted with the next patch
        pages = told()
        with streaming(server.url) as events:
            _, again, _ = next(events)

    assert {"watching": 1, "let_go": 1} == pages
    assert "snapshot" == again


def _slow_reader(server: Served) -> socket.socket:
    slow = socket.create_connection(("127.0.0.1", server.port))
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.sendall(b"GET /api/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    return slow


def test_pages_that_leave_are_noticed() -> None:
    with served(shop()) as server:
        hub = server.console._hub
        with streaming(server.url) as events:
            next(events)
            assert 1 == len(hub.clients)

        until(lambda: not hub.clients)


def test_the_server_ends_though_pages_are_watching() -> None:
    server_context = served(shop())
    server = server_context.__enter__()
    ended = threading.Event()

    def watch() -> None:
        with httpx.stream("GET", f"{server.url}/api/events", timeout=60.0) as answer:
            for _ in answer.iter_raw():
                pass
        ended.set()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    until(lambda: server.console._hub.clients)
    server_context.__exit__(None, None, None)

    assert ended.wait(60)


def test_a_hundred_pages_get_the_same_trip() -> None:
    registry = shop()
    told: list[bool] = []
    ready = threading.Barrier(101)

    def page(url: str) -> None:
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
            connection.sendall(b"GET /api/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            lines = connection.makefile("rb")
            while not lines.readline().startswith(b"data: "):
                pass
            ready.wait(60)
            for line in lines:
                if line.startswith(b"data: ") and any(
                    change[0] == "breaker" and change[-1].get("state") == "open"
                    for change in json.loads(line[6:])["changes"]
                ):
                    told.append(True)
                    return

    with served(registry) as server:
        pages = [threading.Thread(target=page, args=(server.url,), daemon=True) for _ in range(100)]
        for one in pages:
            one.start()
        ready.wait(60)
        fail(registry.circuit_breaker(NAME))
        for one in pages:
            one.join(60)

    assert 100 == len(told)
