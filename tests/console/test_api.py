"""Every status of the API: who may do what, what is asked for, what is answered, and what stands in the audit log."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from halfopen.console import Identity, Member, app
from halfopen.console._audit import AuditLog
from halfopen.console._sources import RunDirectory
from halfopen.instrumentation.workers import Workers
from tests.console.support import Operator, audit_lines, console_of, fail, operating, shop, until_async

pytestmark = pytest.mark.anyio

NAME = "payments"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_the_snapshot_tells_state_limits_and_reasons_of_every_breaker() -> None:
    registry = shop(NAME, "search")
    fail(registry.circuit_breaker(NAME))

    async with operating(registry) as dana:
        document = await dana.snapshot()

    payments = next(each for each in document["breakers"] if each["name"] == NAME)
    assert payments["state"] == "open"
    assert "5 of the last 5 calls failed (limit 50 %)" in payments["why"]
    assert payments["settings"]["failure_rate_threshold"] == 0.5
    assert [one["id"] for one in payments["processes"]] == ["web-1"]
    assert payments["processes"][0]["next_trial"] > document["time"]
    assert {"version", "time", "store", "processes", "breakers", "queues", "events"} <= document.keys()


@pytest.mark.parametrize(
    ("action", "state"),
    [
        ("try_now", "half_open"),
        ("trip", "open"),
        ("force_open", "forced_open"),
        ("disable", "disabled"),
        ("observe", "metrics_only"),
        ("reset", "closed"),
    ],
)
async def test_each_order_is_obeyed_and_written_down(action: str, state: str, tmp_path: Path) -> None:
    registry = shop()
    breaker = registry.circuit_breaker(NAME)
    fail(breaker)

    async with operating(registry, audit=tmp_path / "audit.jsonl") as dana:
        answer = await dana.order(NAME, action)
        audit = (await dana.get("/api/audit", params={"breaker": NAME})).json()["entries"]

    assert (202, ["web-1"], []) == (answer.status_code, answer.json()["obeyed"], answer.json()["pending"])
    assert state == breaker.state
    assert len(audit) == 1
    entry = audit[0]
    assert ("dana", action, "INC-1", "console") == (entry["who"], entry["action"], entry["reason"], entry["source"])
    assert ({"web-1": "open"}, {"web-1": state}) == (entry["before"], entry["after"])


async def test_an_order_ends_when_it_was_said_to() -> None:
    registry = shop()

    async with operating(registry) as dana:
        await dana.order(NAME, "disable", ends_in=900)

    ends_at = registry.circuit_breaker(NAME).snapshot().ends_at
    assert ends_at is not None
    assert 890 < ends_at - registry.clock.wall() <= 900


async def test_an_order_may_last_until_it_is_removed_if_that_is_said() -> None:
    registry = shop()

    async with operating(registry) as dana:
        answer = await dana.order(NAME, "force_open", ends_in="until_removed")

    assert 202 == answer.status_code
    assert registry.circuit_breaker(NAME).snapshot().ends_at is None


async def test_nobody_acts_without_an_identity() -> None:
    async with operating(shop(), token=None) as nobody:
        answer = await nobody.order(NAME, "reset")

        assert 401 == answer.status_code
        assert 200 == (await nobody.get("/api/snapshot")).status_code


async def test_a_viewer_sees_and_does_not_act() -> None:
    async with operating(shop(), token="vic-secret") as vic:
        answer = await vic.order(NAME, "reset")

        assert 403 == answer.status_code
        assert "viewer" == (await vic.get("/api/session")).json()["role"]


async def test_strangers_may_be_kept_from_looking_too() -> None:
    async with operating(shop(), token=None, anonymous=False) as nobody:
        statuses = {(await nobody.get(path)).status_code for path in ("/api/snapshot", "/api/events", "/api/audit")}

    assert {401} == statuses


async def test_a_wrong_csrf_token_or_a_foreign_origin_is_refused() -> None:
    registry = shop()

    async with operating(registry) as dana:
        path = f"/api/breakers/{NAME}/actions"
        refused = [
            await dana.client.post(path, json={}, headers=dana.headers),
            await dana.post(path, {}, origin="http://evil.example"),
            await dana.post(path, {}, **{"sec-fetch-site": "cross-site"}),
        ]

    assert [403, 403, 403] == [answer.status_code for answer in refused]


async def test_signing_in_gives_a_cookie_that_scripts_and_other_sites_cannot_use() -> None:
    async with operating(shop(), token=None) as somebody:
        wrong = await somebody.client.post("/api/login", json={"token": "guess"})
        right = await somebody.client.post("/api/login", json={"token": "dana-secret"})
        session = (await somebody.get("/api/session")).json()

    assert 401 == wrong.status_code
    cookie = right.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "dana-secret" not in cookie
    assert ("dana", "operator") == (session["who"], session["role"])


async def test_a_proxys_header_counts_only_when_it_is_named_and_from_the_proxy() -> None:
    header = {"x-forwarded-user": "dana"}
    options: dict[str, Any] = {"tokens": {}, "operators": {"dana"}}

    found = []
    for more in (
        {},
        {"proxy_header": "X-Forwarded-User"},
        {"proxy_header": "X-Forwarded-User", "trusted_proxies": ("10.0.0.9",)},
    ):
        async with operating(shop(), token=None, **options, **more) as asker:
            session = (await asker.client.get("/api/session", headers=header)).json()
            found.append((session["who"], session["role"]))

    assert [(None, "viewer"), ("dana", "operator"), (None, "viewer")] == found


async def test_the_embedding_application_may_say_who_asks() -> None:
    def identify(request: Request) -> Identity | None:
        return Identity(request.headers["x-user"], "operator")

    async with operating(shop(), token=None, identify=identify) as asker:
        session = (await asker.client.get("/api/session", headers={"x-user": "kim"})).json()

    assert ("kim", "operator") == (session["who"], session["role"])


async def test_a_console_is_not_asked_under_a_name_that_is_not_its_own() -> None:
    console = app(shop())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(console), base_url="http://evil.example") as client:
        refused = await client.get("/api/snapshot")
        allowed = await client.get("/api/snapshot", headers={"host": "127.0.0.1:8000"})
    await console.stop()

    assert [400, 200] == [refused.status_code, allowed.status_code]


async def test_an_unknown_action_is_400_and_an_unknown_breaker_404() -> None:
    async with operating(shop()) as dana:
        assert 400 == (await dana.order(NAME, "explode")).status_code
        assert 400 == (await dana.post(f"/api/breakers/{NAME}/actions", ["no", "object"])).status_code
        assert 404 == (await dana.order("nobody", "reset")).status_code


async def test_all_mistakes_are_named_at_once() -> None:
    registry = shop()

    async with operating(registry) as dana:
        answer = await dana.order(
            NAME, "force_open", reason=" ", ends_in=None, typed_name="paymnts", seen_epochs=None, request_id="x"
        )

    assert 422 == answer.status_code
    fields = {mistake["field"] for mistake in answer.json()["mistakes"]}
    assert {"reason", "ends_in", "typed_name", "seen_epochs", "request_id"} == fields
    assert "closed" == registry.circuit_breaker(NAME).state


@pytest.mark.parametrize("ends_in", [0, -5, True, "soon", 1e12, [900]])
async def test_an_end_is_a_number_of_seconds_or_said_to_be_open(ends_in: Any) -> None:
    async with operating(shop()) as dana:
        assert 422 == (await dana.order(NAME, "force_open", ends_in=ends_in)).status_code


async def test_one_process_needs_no_typed_name_and_a_foreign_one_is_no_scope() -> None:
    async with operating(shop()) as dana:
        one = await dana.order(NAME, "reset", scope=["web-1"], typed_name=None)
        foreign = await dana.order(NAME, "reset", scope=["web-9"], typed_name=None)

    assert [202, 422] == [one.status_code, foreign.status_code]


async def test_an_order_from_an_old_look_is_refused_with_the_present_state() -> None:
    registry = shop()
    breaker = registry.circuit_breaker(NAME)

    async with operating(registry) as dana:
        seen = await dana.epochs(NAME)
        fail(breaker)
        answer = await dana.order(NAME, "force_open", seen_epochs=seen)
        audit = (await dana.get("/api/audit")).json()["entries"]

    assert 409 == answer.status_code
    assert "open" == answer.json()["processes"]["web-1"]["state"] == breaker.state
    assert [] == audit


async def test_a_repeated_request_does_nothing_twice_even_after_a_restart(tmp_path: Path) -> None:
    registry = shop()
    order = {"action": "trip", "request_id": "once-and-only-once"}

    for _ in range(2):
        async with operating(registry, audit=tmp_path / "audit.jsonl") as dana:
            answers = [await dana.order(NAME, **order) for _ in range(2)]
    epochs = registry.circuit_breaker(NAME).snapshot().epoch

    assert [202, 202] == [answer.status_code for answer in answers]
    assert answers[0].json()["repeated"]
    assert 2 == epochs


async def test_requests_at_the_same_time_with_one_id_are_one_order(tmp_path: Path) -> None:
    registry = shop()

    async with operating(registry, audit=tmp_path / "audit.jsonl") as dana:
        orders = [dana.order(NAME, "trip", request_id="the same for both") for _ in range(4)]
        answers = await asyncio.gather(*orders)

    assert {202} == {answer.status_code for answer in answers}
    assert 2 == registry.circuit_breaker(NAME).snapshot().epoch


async def test_nothing_is_done_when_the_audit_log_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = shop()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async with operating(registry, audit=tmp_path / "audit.jsonl") as dana:
        monkeypatch.setattr(AuditLog, "_write", full)
        answer = await dana.order(NAME, "force_open")

    assert 503 == answer.status_code
    assert "closed" == registry.circuit_breaker(NAME).state


async def test_the_audit_log_survives_a_restart_and_a_torn_last_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with operating(shop(), audit=path) as dana:
        await dana.order(NAME, "force_open")
    with path.open("a", encoding="utf-8") as torn:
        torn.write('{"id": "half a li')

    async with operating(shop(), audit=path) as dana:
        await dana.order(NAME, "reset", reason="over")
        entries = (await dana.get("/api/audit")).json()["entries"]

    assert [("reset", "closed"), ("force_open", "forced_open")] == [
        (entry["action"], entry["after"]["web-1"]) for entry in entries
    ]
    assert 5 == path.read_text(encoding="utf-8").count("\n")


async def test_an_order_is_on_disk_before_it_is_carried_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = shop()
    path = tmp_path / "audit.jsonl"
    written: list[int] = []
    breaker = registry.circuit_breaker(NAME)
    trip = type(breaker).trip

    def looking(self: Any, *args: Any, **options: Any) -> None:
        written.append(len(audit_lines(path)))
        trip(self, *args, **options)

    monkeypatch.setattr(type(breaker), "trip", looking)
    async with operating(registry, audit=path) as dana:
        await dana.order(NAME, "trip")

    assert [1] == written
    assert 2 == len(audit_lines(path))


async def test_orders_from_code_stand_in_the_audit_log_too(tmp_path: Path) -> None:
    registry = shop()

    async with operating(registry, audit=tmp_path / "audit.jsonl") as dana:
        await dana.snapshot()
        registry.circuit_breaker(NAME).force_open(60.0, reason="maintenance", by="cron")

        async def written() -> Any:
            return (await dana.get("/api/audit")).json()["entries"]

        entries = await until_async(written)

    assert [("cron", "code", "force_open", "maintenance")] == [
        (entry["who"], entry["source"], entry["action"], entry["reason"]) for entry in entries
    ]


async def test_audit_entries_come_in_pages_newest_first() -> None:
    async with operating(shop()) as dana:
        for number in range(5):
            await dana.order(NAME, "trip", reason=f"number {number}")
        first = (await dana.get("/api/audit", params={"limit": 2})).json()["entries"]
        then = (await dana.get("/api/audit", params={"limit": 2, "before": first[-1]["at"]})).json()["entries"]

    assert ["number 4", "number 3", "number 2", "number 1"] == [entry["reason"] for entry in first + then]


async def test_a_deployment_is_marked_by_operators_only() -> None:
    async with operating(shop()) as dana:
        marked = await dana.post("/api/events", {"kind": "deploy", "text": "shop 2.14"})
        empty = await dana.post("/api/events", {"text": " "})
        nobody = await Operator(dana.client, None).post("/api/events", {"text": "shop 2.14"})
        events = (await dana.snapshot())["events"]

    assert [202, 422, 401] == [marked.status_code, empty.status_code, nobody.status_code]
    assert ["shop 2.14"] == [event["text"] for event in events if event["kind"] == "mark"]


async def test_a_name_with_slashes_and_markup_is_only_a_name() -> None:
    name = 'a/b/actions <script>alert("1")</script> %2F'
    registry = shop(name)

    async with operating(registry) as dana:
        answer = await dana.order(name, "trip")

    assert 202 == answer.status_code
    assert "open" == registry.circuit_breaker(name).state


async def test_from_when_on_the_states_of_a_breaker_are_known_is_told() -> None:
    before = time.time()
    registry = shop()
    fail(registry.circuit_breaker("payments"))

    async with operating(registry) as dana:
        (breaker,) = (await dana.snapshot())["breakers"]

    assert before - 1.0 <= breaker["processes"][0]["born"] <= time.time() + 1.0


async def test_the_detail_tells_moves_the_window_call_by_call_and_the_past() -> None:
    registry = shop()
    breaker = registry.circuit_breaker(NAME)
    breaker.call(int)
    fail(breaker, 4)

    async with operating(registry) as dana:
        detail = (await dana.get(f"/api/breakers/{NAME}")).json()

    assert {"live": False, "cells": "offff"} == detail["windows"]["web-1"]
    assert [["closed", "open", "failure_rate"]] == [move[1:4] for move in detail["moves"]["web-1"]]
    assert detail["timeline"]["time"]


async def test_the_page_keeps_everything_foreign_out() -> None:
    async with operating(shop()) as dana:
        page = await dana.get("/")
        module = await dana.get("/static/vendor/preact.mjs")
        outside = await dana.get("/static/../_app.py")

    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "DENY" == page.headers["x-frame-options"]
    assert "text/javascript" in module.headers["content-type"]
    assert 404 == outside.status_code


async def test_a_large_body_is_not_read_to_its_end() -> None:
    async with operating(shop()) as dana:
        answer = await dana.post(f"/api/breakers/{NAME}/actions", {"action": "x" * 100_000})

    assert 400 == answer.status_code


async def test_worker_processes_are_seen_and_steered_through_their_run_directory(tmp_path: Path) -> None:
    registries = [shop(), shop()]
    members = [Member(registry, tmp_path, name="web", interval=5.0) for registry in registries]
    fail(registries[1].circuit_breaker(NAME))
    for member in members:
        member.start()
    try:
        async with operating(None, run_directory=tmp_path) as dana:
            seen = next(each for each in (await dana.snapshot())["breakers"] if each["name"] == NAME)
            answer = await dana.order(NAME, "force_open")
            audit = (await dana.get("/api/audit")).json()["entries"]
    finally:
        for member in members:
            member.stop()

    assert {"web-0": "closed", "web-1": "open"} == {one["id"]: one["state"] for one in seen["processes"]}
    assert ("open", "web-1") == (seen["state"], seen["worst"])
    assert (202, ["web-0", "web-1"]) == (answer.status_code, sorted(answer.json()["obeyed"]))
    assert ["forced_open"] * 2 == [registry.circuit_breaker(NAME).state for registry in registries]
    assert [("dana", {"web-0": "forced_open", "web-1": "forced_open"})] == [(one["who"], one["after"]) for one in audit]


async def test_a_process_that_vanished_stays_listed_as_gone(tmp_path: Path) -> None:
    member = Member(shop(), tmp_path, name="web", interval=0.05)
    member.start()
    async with operating(None, run_directory=tmp_path) as dana:
        await dana.snapshot()
        member.stop()
        (tmp_path / "console-0.json").unlink(missing_ok=True)

        async def gone() -> Any:
            document = await dana.snapshot()
            return document if document["processes"][0]["gone"] else None

        document = await until_async(gone)
        answer = await dana.order(NAME, "reset")

    assert "gone" == document["breakers"][0]["state"]
    assert 422 == answer.status_code


async def test_a_worker_that_only_publishes_metrics_is_seen_and_not_steered(tmp_path: Path) -> None:
    registry = shop()
    fail(registry.circuit_breaker(NAME))
    workers = Workers(registry, tmp_path)
    workers.publish()
    async with operating(None, run_directory=tmp_path) as dana:
        document = await dana.snapshot()
        answer = await dana.order(NAME, "reset")
        member = Member(shop(), tmp_path, name="web", worker=workers.worker)
        member.start()

        async def seen() -> Any:
            processes = [each["id"] for each in (await dana.snapshot())["processes"]]
            return processes if "web-0" in processes else None

        await until_async(seen)
        states = {each["id"]: each["gone"] for each in (await dana.snapshot())["processes"]}
        member.stop()
    workers.stop()

    assert [("worker-0", None)] == [(each["id"], each["channel"]) for each in document["processes"]]
    assert "open" == document["breakers"][0]["state"]
    assert "too many calls failed" in document["breakers"][0]["why"]
    assert 422 == answer.status_code
    assert states["web-0"] is False


def test_a_slot_is_one_process_whoever_saw_it_first(tmp_path: Path) -> None:
    registry = shop()
    workers = Workers(registry, tmp_path, worker=0)
    directory = RunDirectory(tmp_path)
    workers.publish()
    first = [report.id for report in directory.read()]
    Member(registry, tmp_path, name="web", worker=0).publish()

    assert (["worker-0"], ["web-0"]) == (first, [report.id for report in directory.read()])
    workers.stop()


def test_the_audit_log_keeps_strangers_out(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log.order(who="dana")
    log.close()

    assert 0o600 == (tmp_path / "audit.jsonl").stat().st_mode & 0o777


def test_a_console_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to show"):
        app()
    with pytest.raises(ValueError, match="role"):
        Identity("dana", "boss")  # type: ignore[arg-type]


async def test_a_console_works_where_it_is_mounted() -> None:
    console = console_of(shop())
    outer = Starlette(routes=[Mount("/ops/console", console)])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(outer), base_url="http://localhost") as client:
        redirected = await client.get("/ops/console")
        page = await client.get("/ops/console/")
        signed_in = await client.post("/ops/console/api/login", json={"token": "dana-secret"})
        session = (await client.get("/ops/console/api/session")).json()
        snapshot = await client.get("/ops/console/api/snapshot")
        module = await client.get("/ops/console/static/page.js")
    await console.stop()

    assert ("/ops/console/", 200) == (redirected.headers["location"].partition("localhost")[2], page.status_code)
    assert "Path=/ops/console/" in signed_in.headers["set-cookie"]
    assert "dana" == session["who"]
    assert [200, 200] == [snapshot.status_code, module.status_code]
