"""Orders from the pages and the command line: checked, written down, carried out once, answered."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from halfopen._runtime.late import logger
from halfopen.console._channel import ACTIONS, ENDING, Order, carry_out, write_order
from halfopen.console._hub import Hub
from halfopen.console._identity import Identity
from halfopen.console._queues import BULK, SINGLE, selection_of
from halfopen.console._queues import carry_out as carry_out_for_queue
from halfopen.retry_queue import QueueError, UnknownMessageError

__all__ = ["Answer", "Orders"]

Answer = tuple[int, dict[str, Any]]
"""Status and body."""

UNTIL_REMOVED = "until_removed"
ACK_WAIT = 3.0
"""Seconds to wait for processes that hear through the run directory."""
LONGEST = 30 * 86_400.0
LONGEST_REASON = 1000
"""Characters."""
_SOURCES = frozenset({"console", "command line"})
_QUEUE_ACTIONS = {"pause", "resume", *SINGLE}
_QUIET = frozenset({"pause", "resume", "retry"})
"""Orders to a queue that ask nothing first."""


class Orders:
    """Carries out what operators order; a request id is carried out once."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._answers: OrderedDict[str, asyncio.Future[Answer]] = OrderedDict()

    async def breaker(self, name: str, body: Any, who: Identity) -> Answer:
        """Check an order to a breaker and carry it out."""
        states = self._hub.collector.states(name)
        if not states:
            return 404, {"error": f"there is no breaker {name!r}"}
        refused = _unknown(body, ACTIONS) or _mistakes(body, name, states, self._reachable(states))
        if refused is not None:
            return refused
        return await self._once(body["request_id"], lambda: self._give(name, body, who))

    def _reachable(self, states: Mapping[str, Any]) -> list[str]:
        found = [self._hub.picture.get(("process", process)) or {} for process in states]
        return [process for process, known in zip(states, found, strict=True) if known.get("channel")]

    async def _once(self, request_id: str, give: Callable[[], Any]) -> Answer:
        known = self._answers.get(request_id)
        if known is not None:
            status, told = await asyncio.shield(known)
            return status, {**told, "repeated": True}
        before = self._hub.audit.by_request(request_id)
        if before is not None:
            return 202, {"repeated": True, "entry": before}
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._answers[request_id] = future
        try:
            answer: Answer = await give()
        except BaseException:
            future.cancel()
            del self._answers[request_id]
            raise
        future.set_result(answer)
        if answer[0] != 202:
            del self._answers[request_id]  # nothing was done: it may be tried again
        while len(self._answers) > 1000:
            self._answers.popitem(last=False)
        return answer

    async def _give(self, name: str, body: dict[str, Any], who: Identity) -> Answer:
        hub = self._hub
        self._look_again(name)
        if (conflict := self._conflict(name, body)) is not None:
            return conflict
        order = _order_of(name, body, who)
        scope = self._scope(name, body)
        states = hub.collector.states(name)
        before = {process: states[process]["state"] for process in scope}
        ends_at = None if order.ends_in is None else round(time.time() + order.ends_in, 3)
        try:
            entry = await asyncio.to_thread(
                hub.audit.order, who=who.name, source=body.get("source", "console"), action=order.action, target=name,
                scope=scope, everywhere=body["scope"] == "all", reason=order.reason, ends_at=ends_at, before=before,
                after=None, request_id=order.request_id,
            )  # fmt: skip
        except OSError as error:
            return 503, {"error": f"nothing was done: the audit log cannot be written ({error})"}
        try:
            results = await self._carry_out(order, scope)
        except OSError as error:
            await asyncio.to_thread(hub.audit.result, entry, after={})
            return 503, {"error": f"nothing was done: the run directory cannot be written ({error.strerror})"}
        after = {process: result["state"] for process, result in results.items() if result is not None}
        entry = await asyncio.to_thread(hub.audit.result, entry, after=after)
        hub.collector.happened("audit", breaker=name, entry=entry)
        hub.look_now(name)
        done = [process for process, result in results.items() if result is not None and result["done"]]
        changed = [process for process, result in results.items() if result is not None and not result["done"]]
        if changed and not done and len(changed) == len(scope):
            return self._conflict(name, body) or (409, _changed(hub.collector.states(name)))
        pending = [process for process in scope if results[process] is None]
        for process in pending:
            hub.late(order, process, entry)
        return 202, {"obeyed": done, "pending": pending, "changed": changed, "entry": entry, "after": after}

    def _look_again(self, name: str) -> None:
        # The picture may be a fifth of a second old, and what counts is whether the breaker is as it was seen.
        self._hub.look_now(name)

    def _scope(self, name: str, body: dict[str, Any]) -> list[str]:
        states = self._hub.collector.states(name)
        named = list(states) if body["scope"] == "all" else body["scope"]
        wanted = [process for process in dict.fromkeys(named) if process in states]
        return [process for process in wanted if process in self._reachable(states)]

    def _conflict(self, name: str, body: dict[str, Any]) -> Answer | None:
        states = self._hub.collector.states(name)
        seen = body["seen_epochs"]
        if any(seen.get(process) != states[process]["epoch"] for process in self._scope(name, body)):
            return 409, _changed(states)
        return None

    async def _carry_out(self, order: Order, scope: list[str]) -> dict[str, dict[str, Any] | None]:
        hub = self._hub
        results: dict[str, dict[str, Any] | None] = dict.fromkeys(scope)
        waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}
        failed: OSError | None = None
        for process in scope:
            local = hub.local
            breaker = local.find(order.breaker) if local is not None and process == local.id else None
            if breaker is not None:
                result = results[process] = carry_out(breaker, order, process)
                hub.obeyed(order, process, result)
            elif hub.directory is not None:
                try:
                    await asyncio.to_thread(write_order, hub.directory.directory, order, process)
                except OSError as error:
                    logger().exception("an order for %s cannot be left in the run directory", process)
                    failed = error
                else:
                    waiting[process] = hub.expect(order, process)
        if failed is not None and not waiting and not any(results.values()):
            raise failed
        if waiting:
            await asyncio.wait(waiting.values(), timeout=ACK_WAIT)
        for process, future in waiting.items():
            results[process] = future.result() if future.done() else None
        return results

    # Queues

    async def queue(self, name: str, body: Any, who: Identity) -> Answer:
        """Check an order to a retry queue and carry it out."""
        queue = self._hub.queues.queues.get(name)
        if queue is None:
            return 404, {"error": f"there is no queue {name!r}"}
        refused = _unknown(body, _QUEUE_ACTIONS) or _queue_mistakes(body)
        if refused is not None:
            return refused

        async def give() -> Answer:
            try:
                entry = await asyncio.to_thread(self._hub.audit.order, **_queue_facts(name, body, who))
            except OSError as error:
                return 503, {"error": f"nothing was done: the audit log cannot be written ({error})"}
            try:
                result = await asyncio.to_thread(carry_out_for_queue, queue, body, who.name)
            except (QueueError, LookupError, ValueError, OSError) as error:
                await asyncio.to_thread(self._hub.audit.result, entry, after={"refused": str(error)})
                unknown = isinstance(error, (LookupError, UnknownMessageError))
                return 404 if unknown else 409, {"error": str(error)}
            entry = await asyncio.to_thread(self._hub.audit.result, entry, after=result)
            self._hub.collector.happened("audit", queue=name, entry=entry)
            return 202, {**result, "entry": entry}

        return await self._once(body["request_id"], give)

    # What happened outside

    async def mark(self, sent: Any, who: Identity) -> Answer:
        """Write down a deployment, or something else that belongs on the time axis."""
        body: dict[str, Any] = cast("dict[str, Any]", sent) if isinstance(sent, dict) else {}
        if not isinstance(body.get("text"), str) or not body["text"].strip():
            return 422, {"mistakes": [{"field": "text", "error": "say what happened, such as: deploy shop 2.14"}]}
        at = body.get("at", time.time())
        if not _number(at):
            return 422, {"mistakes": [{"field": "at", "error": "a Unix time"}]}
        facts = {"who": who.name, "source": "api", "action": str(body.get("kind", "deploy"))[:40], "target": None}
        try:
            entry = await asyncio.to_thread(self._hub.audit.order, **facts, reason=body["text"].strip()[:200])
        except OSError as error:
            return 503, {"error": f"the audit log cannot be written ({error})"}
        self._hub.collector.happened(
            "mark", at=round(float(at), 3), text=entry["reason"], what=facts["action"], by=who.name
        )
        return 202, {"entry": entry}


def _queue_facts(name: str, body: dict[str, Any], who: Identity) -> dict[str, Any]:
    facts = {each: body.get(each) for each in ("lane", "message", "selection", "expected", "deadline", "ends_in")}
    return {
        "who": who.name,
        "source": body.get("source", "console"),
        "action": f"queue {body['action']}",
        "target": name,
        "reason": body.get("reason"),
        "request_id": body["request_id"],
        "after": None,
        **{each: value for each, value in facts.items() if value is not None},
    }


def _changed(states: Mapping[str, Any]) -> dict[str, Any]:
    return {"error": "it changed meanwhile, look again; nothing was done", "processes": states}


def _order_of(name: str, body: dict[str, Any], who: Identity) -> Order:
    ends_in = body.get("ends_in")
    return Order(
        request_id=body["request_id"],
        action=body["action"],
        breaker=name,
        reason=(body.get("reason") or "").strip() or None,
        by=who.name,
        ends_in=None if ends_in in (None, UNTIL_REMOVED) else float(ends_in),
        epochs=body["seen_epochs"],
    )


def _unknown(body: Any, actions: Any) -> Answer | None:
    action = cast("dict[str, Any]", body).get("action") if isinstance(body, dict) else None
    if not isinstance(action, str) or action not in actions:
        return 400, {"error": f"unknown action; the actions are {', '.join(sorted(actions))}"}
    return None


def _mistakes(body: dict[str, Any], name: str, states: Mapping[str, Any], reachable: list[str]) -> Answer | None:
    found: list[dict[str, str]] = []

    def wrong(field: str, error: str) -> None:
        found.append({"field": field, "error": error})

    action, reason = body["action"], body.get("reason")
    scope: Any = body.get("scope")
    everywhere = scope == "all"
    if not everywhere and not (
        isinstance(scope, list) and scope and all(one in reachable for one in cast("Iterable[Any]", scope))
    ):
        wrong("scope", f'"all", or some of the processes that can be reached: {", ".join(reachable) or "none"}')
    elif everywhere and not reachable:
        wrong("scope", "no channel leads to the processes of this breaker")
    _check_reason(reason, action != "try_now", wrong)
    _check_source(body, wrong)
    if action in ENDING:
        _check_end(body.get("ends_in"), wrong)
    elif action == "trip" and body.get("ends_in") is not None:
        _check_end(body["ends_in"], wrong)
    if action != "try_now" and everywhere and body.get("typed_name") != name:
        wrong("typed_name", f"type the breaker's name: {name}")
    seen: Any = body.get("seen_epochs")
    if not isinstance(seen, dict) or not _all_whole(cast("Mapping[str, Any]", seen)):
        wrong("seen_epochs", "the epoch that was seen, for each process of the scope")
    _check_request_id(body, wrong)
    return (422, {"mistakes": found}) if found else None


def _check_end(ends_in: Any, wrong: Callable[[str, str], None]) -> None:
    if ends_in != UNTIL_REMOVED and not (_number(ends_in) and 0 < ends_in <= LONGEST):
        wrong("ends_in", f'seconds above 0, at most {LONGEST:.0f}, or "{UNTIL_REMOVED}"')


def _check_reason(reason: Any, needed: bool, wrong: Callable[[str, str], None]) -> None:
    if not isinstance(reason, str) or not reason.strip():
        if needed or not (reason is None or isinstance(reason, str)):
            wrong("reason", "say why: it is kept in the audit log")
    elif len(reason) > LONGEST_REASON:
        wrong("reason", f"at most {LONGEST_REASON} characters")


def _check_source(body: dict[str, Any], wrong: Callable[[str, str], None]) -> None:
    source = body.get("source", "console")
    if not isinstance(source, str) or source not in _SOURCES:
        wrong("source", " or ".join(sorted(_SOURCES)))


def _check_request_id(body: dict[str, Any], wrong: Callable[[str, str], None]) -> None:
    if not isinstance(body.get("request_id"), str) or not 8 <= len(body["request_id"]) <= 100:
        wrong("request_id", "a text of 8 to 100 characters that is yours alone")


def _queue_mistakes(body: dict[str, Any]) -> Answer | None:
    found: list[dict[str, str]] = []

    def wrong(field: str, error: str) -> None:
        found.append({"field": field, "error": error})

    action = body["action"]
    if action in ("pause", "resume"):
        if not isinstance(body.get("lane"), str):
            wrong("lane", "which lane")
        if body.get("ends_in") is not None and not (_number(body["ends_in"]) and 0 < body["ends_in"] <= LONGEST):
            wrong("ends_in", "seconds above 0, or nothing: until it is resumed")
    elif not isinstance(body.get("message"), str):
        selection = body.get("selection")
        if action not in BULK or not isinstance(selection, dict):
            wrong("message", "which message, or a selection")
        else:
            _check_selection(cast("dict[str, Any]", selection), wrong)
            if not _whole(body.get("expected")):
                wrong("expected", "how many messages are meant")
    bulk = "selection" in body
    _check_reason(body.get("reason"), action not in _QUIET or bulk, wrong)
    _check_source(body, wrong)
    deadline = body.get("deadline")
    if deadline is not None and not (_number(deadline) and 0 < deadline <= LONGEST):
        wrong("deadline", f"seconds from now, above 0 and at most {LONGEST:.0f}")
    _check_request_id(body, wrong)
    return (422, {"mistakes": found}) if found else None


def _check_selection(selection: dict[str, Any], wrong: Callable[[str, str], None]) -> None:
    try:
        selection_of(selection)
    except (ValueError, TypeError):
        wrong("selection", "a lane and states of messages")


def _all_whole(seen: Mapping[str, Any]) -> bool:
    return all(map(_whole, seen.values()))


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
