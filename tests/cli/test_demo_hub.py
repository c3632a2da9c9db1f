"""The hub of the demo keeps what was not taken, and gives nothing up that only was refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice

import pytest

from halfopen.cli.demo.account import rounds_of
from halfopen.cli.demo.gateway_play import overtaken
from halfopen.cli.demo.hub import Hub, Outbox
from halfopen.cli.demo.messages import Message, messages, orders
from halfopen.cli.demo.naive import NoBreaker, TwoStateBreaker
from halfopen.cli.demo.story import Pace, Story
from halfopen.cli.demo.wire import Endpoint, NotTaken
from halfopen.errors import CircuitOpenError

SPEED = 100.0


def some(count: int) -> list[Message]:
    return list(islice(messages(orders(7)), count))


class Server:
    """Answer the n-th request with what a function of n says."""

    def __init__(self, status_of: Callable[[int], int]) -> None:
        self.ids: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                server.ids.append(self.headers["Message-ID"])
                self.send_response(status_of(len(server.ids)))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.endpoint = Endpoint("http", "127.0.0.1", self._http.server_port)
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[int], int]], Server]]:
    servers: list[Server] = []

    def start(status_of: Callable[[int], int]) -> Server:
        servers.append(Server(status_of))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def run(hub: Hub, pace: Pace) -> None:
    pace.start()
    hub.start()
    limit = time.monotonic() + 60
    while not hub.done and time.monotonic() < limit:
        time.sleep(0.01)
    hub.stop()


def hub_for(server: Server, count: int, *, threads: int = 2, tasks: int = 2) -> tuple[Hub, Pace]:
    story, pace = Story(threads=threads, tasks=tasks, retry_first=1.0), Pace(SPEED)
    return Hub(NoBreaker(), server.endpoint, iter(some(count)), story, pace), pace


def test_a_fresh_message_is_offered_although_the_kept_ones_rest() -> None:
    outbox = Outbox()
    kept, fresh = some(2)
    outbox.keep(kept, due=1.0)
    outbox.park(until=30.0)
    outbox.accept(fresh)

    taken = [outbox.take(5.0), outbox.take(5.0), outbox.take(30.0)]

    assert [fresh, None, kept] == taken


def test_kept_messages_go_first_and_in_the_order_they_are_due() -> None:
    outbox = Outbox()
    late, early, fresh = some(3)
    outbox.keep(late, due=2.0)
    outbox.keep(early, due=1.0)
    outbox.accept(fresh)

    taken = [outbox.take(2.0) for _ in range(3)]

    assert [early, late, fresh] == taken


@pytest.mark.parametrize(("threads", "tasks"), [(2, 0), (0, 2), (2, 2)])
def test_every_message_is_delivered_once_by_threads_tasks_and_both(
    serve: Callable[[Callable[[int], int]], Server], threads: int, tasks: int
) -> None:
    server = serve(lambda number: 200)
    hub, pace = hub_for(server, 20, threads=threads, tasks=tasks)

    run(hub, pace)

    assert 20 == len(hub.ledger.delivered) == len(server.ids)
    assert hub.ledger.delivered == set(server.ids)


@pytest.mark.parametrize(("threads", "tasks"), [(1, 0), (0, 1)])
def test_a_503_is_repeated_with_the_same_message_id(
    serve: Callable[[Callable[[int], int]], Server], threads: int, tasks: int
) -> None:
    server = serve(lambda number: 503 if number <= 2 else 200)
    hub, pace = hub_for(server, 1, threads=threads, tasks=tasks)

    run(hub, pace)

    assert 3 == len(server.ids)
    assert 1 == len(set(server.ids)) == len(hub.ledger.delivered)


def test_a_message_out_of_attempts_is_left_to_a_person(serve: Callable[[Callable[[int], int]], Server]) -> None:
    server = serve(lambda number: 503)
    hub, pace = hub_for(server, 1)

    run(hub, pace)

    assert Story().max_attempts == len(server.ids)
    assert 1 == len(hub.ledger.given_up)
    assert "HTTP 503" == hub.ledger.last_error


@pytest.mark.parametrize("status", [301, 400, 404, 422, 501])
def test_an_answer_that_will_not_mend_is_not_repeated(
    serve: Callable[[Callable[[int], int]], Server], status: int
) -> None:
    server = serve(lambda number: status)
    hub, pace = hub_for(server, 1)

    run(hub, pace)

    assert 1 == len(server.ids) == len(hub.ledger.given_up)


@pytest.mark.parametrize(("status", "again"), [(408, True), (429, True), (500, True), (503, True), (505, False)])
def test_what_is_worth_repeating_follows_the_standard(status: int, again: bool) -> None:
    assert again == NotTaken(status).worth_repeating


def test_refusals_use_up_no_attempt(serve: Callable[[Callable[[int], int]], Server]) -> None:
    server = serve(lambda number: 200)
    guard = TwoStateBreaker(window=1, failure_rate=0.5, wait=2.0)
    with pytest.raises(ZeroDivisionError):
        guard.call(lambda: 1 / 0)
    pace = Pace(SPEED)
    arriving = some(8)
    hub = Hub(guard, server.endpoint, iter(arriving), Story(rate=2.0, max_attempts=1), pace)

    run(hub, pace)

    assert hub.ledger.refused > 0
    assert 8 == len(hub.ledger.delivered)
    assert [1] * 8 == [message.attempts for message in arriving]


def test_the_naive_breaker_lets_everybody_in_when_its_wait_is_over() -> None:
    guard = TwoStateBreaker(window=2, failure_rate=0.5, wait=2.0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            guard.call(lambda: 1 / 0)
    with pytest.raises(CircuitOpenError):
        guard.call(int)

    time.sleep(2.01)

    assert [0] * 20 == [guard.call(int) for _ in range(20)]


def test_requests_are_counted_into_the_half_open_round_that_let_them_through() -> None:
    moves = [(10.0, "open"), (40.0, "half_open"), (41.0, "open"), (100.0, "half_open"), (103.0, "closed")]
    starts = [1.0, 9.9, 10.1, 40.0, 40.2, 41.1, 100.0, 100.1, 100.2, 103.1, 104.0]

    assert (3, 3) == rounds_of(starts, moves)


def test_a_kill_ends_a_round() -> None:
    moves = [(40.0, "half_open"), (41.0, "killed"), (45.0, "half_open"), (46.0, "closed")]

    assert (2, 3) == rounds_of([40.0, 40.1, 45.0, 45.1, 45.2], moves)


def test_messages_are_overtaken_only_within_their_stream() -> None:
    streams = {"a1": "a", "b1": "b", "a2": "a", "a3": "a", "b2": "b"}

    assert 0 == overtaken(streams, ["b1", "x", "b2", "a1", "a2", "a3"])
    assert 1 == overtaken(streams, ["a1", "a3", "a2", "b1"])
