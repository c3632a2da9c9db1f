"""What strangers, broken clients, odd names and broken files may try at the console's server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from halfopen import Registry
from halfopen.console import Identity, Member, _app, _orders, app
from halfopen.console._audit import AuditLog
from halfopen.console._channel import Order, read_members, write_order
from halfopen.console._sources import RunDirectory
from halfopen.retry_queue import RetryQueue
from halfopen.testing import FakeClock
from tests.console.support import Operator, audit_lines, operating, read_events, served, shop, until

pytestmark = pytest.mark.anyio

NAME = "payments"
SECONDS = 60.0

OPEN_TO_ALL = {
    ("GET", "/"),
    ("GET", "/static/{path}"),
    ("GET", "/api/session"),
    ("POST", "/api/login"),
    ("POST", "/api/logout"),
}
"""The page itself, and who asks: nothing of what is looked at."""

NAMES = [
    "<script>alert(1)</script>",
    "'\"><img src=x onerror=alert(1)>",
    "a/b",
    "a/actions",
    "/",
    "a/",
    "a//b",
    "%2F",
    "%",
    "a?b=c#d",
    "line one\nline two",
    "carriage\r\nreturn: header",
    "nul\x00",
    "tab\t",
    " ",
    "ünï→🔒",
    "\u202egnp.exe",
    "\u2028",
    "lone \ud800 surrogate",
    "x" * 10_240,
    "{name}",
    "__proto__",
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def encoded(name: str) -> str:
    return quote(name.encode("utf-8", "surrogatepass"), safe="")


# Who may do what


def routes() -> list[tuple[str, str]]:
    console = app(shop())
    return [
        (method, route.path.replace(":path", "").replace(":halfopen_text", ""))
        for route in console._starlette.routes
        for method in route.methods - {"HEAD"}  # type: ignore[attr-defined]
    ]


def test_what_is_open_to_all_is_there() -> None:
    assert set(routes()) >= OPEN_TO_ALL


@pytest.mark.parametrize(("method", "path"), sorted(set(routes()) - OPEN_TO_ALL))
async def test_every_other_route_and_method_asks_who_it_is(method: str, path: str) -> None:
    path = path.format(name=NAME, message="1")

    async with operating(shop(), token=None, anonymous=False) as nobody:
        async with nobody.client.stream(method, path, json={} if method == "POST" else None) as refused:
            status = refused.status_code
        head = await nobody.client.head(path)

    assert (401, True) == (status, head.status_code in (401, 405))


@pytest.mark.parametrize("path", sorted(path for method, path in set(routes()) - OPEN_TO_ALL if method == "POST"))
async def test_every_change_of_state_wants_an_operator_the_csrf_token_and_the_same_origin(path: str) -> None:
    path = path.format(name=NAME)

    async with operating(shop()) as dana:
        vic = Operator(dana.client, "vic-secret")
        statuses = [
            (await vic.post(path, {})).status_code,
            (await dana.client.post(path, json={}, headers=dana.headers)).status_code,
            (
                await dana.client.post(path, json={}, headers={**dana.headers, "halfopen-csrf": "é".encode()})
            ).status_code,
            (await dana.post(path, {}, origin="null")).status_code,
            (await dana.post(path, {}, origin="http://localhost.evil.example")).status_code,
            (await dana.post(path, {}, **{"sec-fetch-site": "same-site"})).status_code,
        ]

    assert [403] * 6 == statuses


async def test_no_other_method_does_anything() -> None:
    found = set()

    async with operating(shop()) as dana:
        for method in ("PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
            for _, path in set(routes()):
                answer = await dana.client.request(method, path.format(name=NAME, path="page.js", message="1"))
                found.add(answer.status_code)

    assert {405} == found


async def test_an_empty_or_short_secret_lets_nobody_in() -> None:
    for token in ("", " ", "short"):
        with pytest.raises(ValueError, match="token"):
            app(shop(), tokens={token: Identity("dana", "operator")})


async def test_a_proxy_header_that_comes_twice_says_nothing() -> None:
    async with operating(shop(), token=None, tokens={}, operators={"dana"}, proxy_header="x-user") as asker:
        twice = [("x-user", "dana"), ("x-user", "vic")]
        session = (await asker.client.get("/api/session", headers=twice)).json()

    assert session["who"] is None


@pytest.mark.parametrize(
    "host", ["evil.example", "[", "[::1", "localhost.evil.example", "evil.example:80@localhost", "localhost@evil", ""]
)
async def test_a_host_that_is_not_ours_is_refused(host: str) -> None:
    console = app(shop())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(console), base_url="http://localhost") as client:
        refused = await client.get("/api/snapshot", headers={"host": host})
    await console.stop()

    assert 400 == refused.status_code


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8765", "[::1]:8765"])
async def test_a_host_that_is_ours_is_served(host: str) -> None:
    console = app(shop())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(console), base_url="http://localhost") as client:
        answer = await client.get("/api/snapshot", headers={"host": host})
    await console.stop()

    assert 200 == answer.status_code


async def test_every_answer_forbids_to_be_run_or_framed() -> None:
    async with operating(shop()) as dana:
        answers = [
            await dana.get(path)
            for path in ("/", "/static/page.js", "/static/nothing", "/api/session", "/api/snapshot", "/nowhere")
        ]

    for answer in answers:
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "nosniff" == answer.headers["x-content-type-options"]


# Odd names and broken requests


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
async def test_a_name_is_only_a_name(name: str, tmp_path: Path) -> None:
    registry = shop(name)

    async with operating(registry, audit=tmp_path / "audit.jsonl") as dana:
        snapshot = await dana.get("/api/snapshot")
        shown = snapshot.json()["breakers"][0]
        body = {
            "action": "trip", "scope": "all", "reason": name.strip() or "x", "typed_name": name,
            "seen_epochs": {"web-1": shown["processes"][0]["epoch"]}, "request_id": "0123456789",
        }  # fmt: skip
        path = f"/api/breakers/{encoded(name)}"
        csrf = {**dana.headers, "halfopen-csrf": await dana.csrf(), "content-type": "application/json"}
        order = await dana.client.post(f"{path}/actions", content=json.dumps(body), headers=csrf)
        detail = await dana.get(path)
        audit = (await dana.get("/api/audit")).json()["entries"]

    assert name == shown["name"]
    if "\ud800" in name:
        return  # no browser can ask for it
    assert 202 == order.status_code or len(name) > 1000
    assert (200, name) == (detail.status_code, detail.json()["name"])
    assert "application/json" == snapshot.headers["content-type"].partition(";")[0]
    assert [name] == [entry["target"] for entry in audit] or len(name) > 1000


@pytest.mark.parametrize("name", ["a/b", "line\nbreak", "%2F", "<b>"])
async def test_a_queues_name_is_only_a_name(name: str, tmp_path: Path) -> None:
    with RetryQueue(tmp_path / "queue.db", name=name) as queue:
        queue.enqueue("acme", b"secret", message_id="<1/messages@hub>")
        async with operating(None, queues=[queue]) as dana:
            listed = (await dana.get(f"/api/queues/{encoded(name)}/messages")).json()
            message = await dana.get(f"/api/queues/{encoded(name)}/messages/{encoded('<1/messages@hub>')}")
            held = await dana.post(
                f"/api/queues/{encoded(name)}/actions", {"action": "pause", "lane": "acme", "request_id": "1234567890"}
            )

    assert ["<1/messages@hub>"] == [one["id"] for one in listed["messages"]]
    assert (200, 202) == (message.status_code, held.status_code)


async def test_viewers_see_neither_payload_nor_headers_nor_the_partners_words(tmp_path: Path) -> None:
    with RetryQueue(tmp_path / "queue.db", name="hub") as queue:
        queue.enqueue("acme", b"the payload", headers={"X-Key": "the header"}, message_id="<1@hub>")
        async with operating(None, queues=[queue]) as dana:
            vic = Operator(dana.client, "vic-secret")
            seen = [
                (await vic.get(path)).text
                for path in (
                    "/api/snapshot", "/api/queues/hub/messages", f"/api/queues/hub/messages/{encoded('<1@hub>')}",
                    "/api/audit", "/api/breakers/acme",
                )
            ]  # fmt: skip
            seen_by_dana = (await dana.get(f"/api/queues/hub/messages/{encoded('<1@hub>')}")).json()

    for text in seen:
        assert "the payload" not in text
        assert "the header" not in text
        assert '"detail"' not in text
    assert "detail" in seen_by_dana["message"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/audit?limit=nan", "/api/audit?limit=inf", "/api/audit?limit=-1e308", "/api/audit?before=nan",
        "/api/breakers/payments?seconds=nan", "/api/breakers/payments?seconds=-inf",
        "/api/queues/hub/messages?after=nan", "/api/queues/hub/messages?after=inf",
        "/api/queues/hub/messages?after=1e30", "/api/queues/hub/messages?after=-1e30",
    ],
)  # fmt: skip
async def test_a_number_that_is_none_is_no_mistake_of_the_server(path: str, tmp_path: Path) -> None:
    with RetryQueue(tmp_path / "queue.db", name="hub") as queue:
        async with operating(shop(), queues=[queue]) as dana:
            answer = await dana.get(path)

    assert 200 == answer.status_code


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[" * 60_000, b'{"a":' * 10_000, b"\xff\xfe", b"null", b"1", b'"x"', b'{"action": {"reset": 1}}'],
    ids=range(9),
)
async def test_a_body_that_is_nonsense_is_bad_input(body: bytes) -> None:
    async with operating(shop()) as dana:
        headers = {**dana.headers, "halfopen-csrf": await dana.csrf()}
        order = await dana.client.post(f"/api/breakers/{NAME}/actions", content=body, headers=headers)
        login = await dana.client.post("/api/login", content=body)
        mark = await dana.client.post("/api/events", content=body, headers=headers)

    assert (400, 401, 422) == (order.status_code, login.status_code, mark.status_code)


async def test_a_token_that_is_no_text_of_any_language_is_nobodys() -> None:
    async with operating(shop(), token=None) as nobody:
        answer = await nobody.client.post("/api/login", content=b'{"token": "\\ud800"}')

    assert 401 == answer.status_code


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reason", "x" * 1001),
        ("source", "code"),
        ("source", {"much": "x"}),
        ("seen_epochs", {"web-1": True}),
        ("typed_name", ["payments"]),
    ],
)
async def test_an_order_holds_only_what_it_may(field: str, value: Any) -> None:
    registry = shop()

    async with operating(registry) as dana:
        answer = await dana.order(NAME, "force_open", **{field: value})

    assert (422, [field]) == (answer.status_code, [one["field"] for one in answer.json()["mistakes"]])
    assert "closed" == registry.circuit_breaker(NAME).state


async def test_a_process_named_twice_obeys_once() -> None:
    registry = shop()

    async with operating(registry) as dana:
        answer = (await dana.order(NAME, "trip", scope=["web-1", "web-1"])).json()

    assert (["web-1"], []) == (answer["obeyed"], answer["changed"])
    assert ["web-1"] == answer["entry"]["scope"]


@pytest.mark.parametrize("deadline", ["soon", [1], {}, True, float("1e400"), -5])
async def test_a_deadline_is_a_number_of_seconds(deadline: Any, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with RetryQueue(tmp_path / "queue.db", name="hub") as queue:
        queue.enqueue("acme", b"x", message_id="<1@hub>")
        async with operating(None, queues=[queue], audit=path) as dana:
            body = {"action": "retry", "message": "<1@hub>", "request_id": "1234567890", "deadline": deadline}
            csrf = {**dana.headers, "halfopen-csrf": await dana.csrf()}
            answer = await dana.client.post("/api/queues/hub/actions", content=json.dumps(body), headers=csrf)

    assert 422 == answer.status_code
    assert [] == audit_lines(path)


# Streams


@pytest.mark.parametrize("counter", ["9" * 5000, "9" * 20, "+1", "1_0", " 1", "\u00b2"])
def test_a_counter_that_is_none_is_answered_with_a_snapshot(counter: str) -> None:
    with served(shop()) as server:
        start = httpx.get(f"{server.url}/api/snapshot", timeout=SECONDS).json()["start"]
        header = {"last-event-id": f"{start}-{counter}".encode("latin-1")}
        with httpx.stream("GET", f"{server.url}/api/events", headers=header, timeout=60.0) as answer:
            _, name, _ = next(read_events(answer.iter_lines()))

    assert "snapshot" == name


def test_to_ask_for_the_head_of_the_stream_is_no_page() -> None:
    with served(shop()) as server:
        answer = httpx.head(f"{server.url}/api/events", timeout=SECONDS)
        pages = len(server.console._hub.clients)

    assert (200, "text/event-stream", 0) == (
        answer.status_code, answer.headers["content-type"].partition(";")[0], pages
    )  # fmt: skip


def test_more_pages_than_there_may_be_are_asked_to_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_app, "MOST_PAGES", 2)

    with served(shop()) as server:
        with (
            httpx.stream("GET", f"{server.url}/api/events", timeout=SECONDS),
            httpx.stream("GET", f"{server.url}/api/events", timeout=SECONDS),
        ):
            until(lambda: len(server.console._hub.clients) == 2)
            refused = httpx.get(f"{server.url}/api/events", timeout=SECONDS)
            snapshot = httpx.get(f"{server.url}/api/snapshot", timeout=SECONDS)
        until(lambda: not server.console._hub.clients)
        with httpx.stream("GET", f"{server.url}/api/events", timeout=SECONDS) as again:
            status = again.status_code

    assert (503, 200, 200) == (refused.status_code, snapshot.status_code, status)
    assert int(refused.headers["retry-after"]) > 0


# The audit log

FILLING = """
import resource, sys
from halfopen.console._audit import AuditLog

log = AuditLog(sys.argv[1])
log.order(who="dana", reason="before")
resource.setrlimit(resource.RLIMIT_FSIZE, (log.size() + 40, resource.RLIM_INFINITY))
try:
    log.order(who="dana", reason="the disk is full")
except OSError:
    pass
else:
    sys.exit("it was taken")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.order(who="dana", reason="after")
"""


def test_a_line_that_a_full_disk_tore_takes_no_other_with_it(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    script = FILLING.replace("log.size()", f"__import__('os').path.getsize({str(path)!r})")

    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], check=False, capture_output=True, text=True, timeout=60
    )

    assert (0, "") == (done.returncode, done.stderr)
    assert ["after", "before"] == [entry["reason"] for entry in AuditLog(path).entries()]


def test_a_log_that_was_rotated_away_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    log.order(who="dana", reason="one")

    path.rename(tmp_path / "audit.jsonl.1")
    log.order(who="dana", reason="two")
    log.close()

    assert ["one"] == [line["reason"] for line in audit_lines(tmp_path / "audit.jsonl.1")]
    assert ["two"] == [line["reason"] for line in audit_lines(path)]


def test_a_closed_log_takes_nothing_in_silence(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    log.close()

    log.order(who="dana", reason="later")
    log.close()

    assert ["later"] == [line["reason"] for line in audit_lines(path)]


def test_two_consoles_may_write_into_one_log(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    program = (
        "import sys; from halfopen.console._audit import AuditLog; log = AuditLog(sys.argv[1])\n"
        "for number in range(100): log.result(log.order(who=sys.argv[2], reason='x' * 500), after={})"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, str(path), who]) for who in ("dana", "lee")]

    codes = [writer.wait(SECONDS) for writer in writers]

    assert [0, 0] == codes
    assert 400 == len(audit_lines(path))
    assert {"dana": 100, "lee": 100} == {
        who: sum(entry["who"] == who for entry in AuditLog(path).entries(limit=500)) for who in ("dana", "lee")
    }


# The run directory


@pytest.mark.parametrize("text", ["[]", "null", "{", '{"format": 1}', '{"format": 1, "at": "x", "id": 1}', "\x00"])
async def test_a_broken_file_in_the_run_directory_hides_nobody(text: str, tmp_path: Path) -> None:
    member = Member(shop(), tmp_path, name="web", worker=0)
    member.publish()
    (tmp_path / "console-1.json").write_text(text)
    (tmp_path / "console-x.json").write_text(text)

    async with operating(None, run_directory=tmp_path) as dana:
        document = await dana.snapshot()

    assert ["web-0"] == [process["id"] for process in document["processes"]]
    assert [0] == [data["slot"] for data in read_members(tmp_path)]


@pytest.mark.parametrize("text", ["[]", "null", "{", '{"at": 1e12}', '{"at": "now"}'])
def test_a_broken_order_in_the_run_directory_is_no_order(text: str, tmp_path: Path) -> None:
    registry = shop()
    member = Member(registry, tmp_path, name="web", worker=0)
    (tmp_path / "order-0.for-web-0.json").write_text(text)
    write_order(
        tmp_path,
        Order(request_id="r", action="trip", breaker=NAME, reason=None, by="dana", ends_in=None, epochs={"web-0": 1}),
        "web-0",
    )

    member.tick()

    assert "open" == registry.circuit_breaker(NAME).state
    assert [] == list(tmp_path.glob("order-*"))


async def test_an_order_that_cannot_be_left_for_anybody_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = Member(shop(), tmp_path / "run", name="web", worker=0)
    member.publish()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async with operating(None, run_directory=tmp_path / "run", audit=tmp_path / "audit.jsonl") as dana:
        await dana.snapshot()
        monkeypatch.setattr(_orders, "write_order", full)
        answer = await dana.order(NAME, "trip")
        audit = (await dana.get("/api/audit")).json()["entries"]

    assert 503 == answer.status_code
    assert "No space left" in answer.json()["error"]
    assert [{}] == [entry["after"] for entry in audit]


async def test_an_order_that_only_some_can_be_told_says_who_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = shop()
    members = [Member(registry, tmp_path, name="web", worker=worker, interval=5.0) for worker in (0, 1)]
    members[0].start()
    members[1].publish()

    def full_for_one(directory: Path, order: Order, process: str) -> None:
        if process == "web-1":
            raise OSError(28, "No space left on device")
        write_order(directory, order, process)

    async with operating(None, run_directory=tmp_path) as dana:
        await dana.snapshot()
        monkeypatch.setattr(_orders, "write_order", full_for_one)
        answer = (await dana.order(NAME, "trip", scope=["web-0", "web-1"])).json()
    members[0].stop()

    assert (["web-0"], ["web-1"]) == (answer["obeyed"], answer["pending"])


@pytest.mark.parametrize(("seconds", "gone"), [(-3600.0, True), (-1.0, False), (1.0, False), (3600.0, True)])
def test_a_process_that_died_before_the_clock_was_set_is_gone(seconds: float, gone: bool, tmp_path: Path) -> None:
    Member(shop(), tmp_path, name="web", worker=0).publish()
    path = tmp_path / "console-0.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "at": data["at"] + seconds, "interval": 60.0}))

    [report] = RunDirectory(tmp_path).read()

    assert gone is report.gone
    assert report.age >= 0.0


async def test_the_end_of_an_order_outlives_the_console(tmp_path: Path) -> None:
    clock = FakeClock()
    registry = Registry(clock=clock)
    breaker = registry.circuit_breaker(NAME)

    async with operating(registry, audit=tmp_path / "audit.jsonl") as dana:
        await dana.order(NAME, "force_open", ends_in=900)
    async with operating(registry, audit=tmp_path / "audit.jsonl") as dana:
        shown = (await dana.snapshot())["breakers"][0]["processes"][0]
        [entry] = (await dana.get("/api/audit")).json()["entries"]
    clock.advance(899.0)
    before = breaker.state
    clock.advance(2.0)

    assert ("forced_open", "dana") == (shown["state"], shown["by"])
    assert 900.0 == pytest.approx(shown["ends_at"] - shown["entered"], abs=1.0)
    assert ("force_open", {"web-1": "forced_open"}) == (entry["action"], entry["after"])
    assert ("forced_open", "closed") == (before, breaker.state)
