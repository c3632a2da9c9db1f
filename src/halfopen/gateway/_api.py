"""What programs can ask and order beside sending: stored messages, receipts that came later, partners, health."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from halfopen._core.events import CircuitTransitioned
from halfopen.config.values import parse_duration
from halfopen.retry_queue import (
    CommandRefusedError,
    MessageState,
    PayloadCorruptError,
    RetryQueue,
    Selection,
    StoreUnavailableError,
    UnknownMessageError,
)
from halfopen.retry_queue.as2 import judge_mdn, parse_mdn

from ._problems import Problem, problem
from ._storing import address_of, describe

if TYPE_CHECKING:
    from ._partner import Partner

__all__ = ["api"]

_ORDERS = ("retry", "resend", "resubmit", "cancel")
_MOST = 1000
_LAST = 2**63 - 1
_LARGEST_RECEIPT = 1024 * 1024
_RECEIPT_WITHIN = 30.0
Endpoint = Callable[[Request], Awaitable[Response]]


def api(partners: Callable[[], Mapping[str, Partner]], queue: RetryQueue | None) -> Starlette:
    """Make the application for everything but ``/to/``; *partners* returns those that can be reached now."""
    shown = _Shown(partners, queue)
    routes = [
        Route("/health", shown.health),
        Route("/partners", shown.partners),
        Route("/partners/{name}", shown.partner),
        Route("/partners/{name}/circuit", shown.circuit),
        Route("/messages", shown.messages),
        Route("/messages/{id:path}/receipt", shown.proof),
        *[Route(f"/messages/{{id:path}}/{order}", shown.order(order), methods=["POST"]) for order in _ORDERS],
        Route("/messages/{id:path}", shown.message),
        Route("/messages/{id:path}", shown.order("cancel"), methods=["DELETE"]),
        Route("/receipts", shown.receipt, methods=["POST"]),
    ]
    return Starlette(
        routes=routes,
        exception_handlers={
            HTTPException: _http,
            ClientDisconnect: _because(400, "gone"),
            UnknownMessageError: _because(404, "unknown-message"),
            CommandRefusedError: _because(409, "order-refused"),
            PayloadCorruptError: _because(409, "payload-gone"),
            StoreUnavailableError: _because(503, "store-unavailable"),
        },
    )


def _response(told: Problem) -> Response:
    body = told.body()
    response = Response(body, told.status)
    response.raw_headers = told.head(len(body))
    return response


def _because(status: int, kind: str) -> Callable[[Request, Exception], Response]:
    return lambda request, error: _response(problem(status, kind, str(error)))


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kinds = {404: "not-found", 405: "method-not-allowed"}
    told = problem(error.status_code, kinds.get(error.status_code, "bad-request"), str(error.detail))
    response = _response(told)
    for name, value in (error.headers or {}).items():
        response.headers[name] = value
    return response


class _Shown:
    def __init__(self, partners: Callable[[], Mapping[str, Partner]], queue: RetryQueue | None) -> None:
        self._partners = partners
        self._queue = queue

    @property
    def queue(self) -> RetryQueue:
        if self._queue is None:
            raise HTTPException(404, "this gateway stores nothing: [gateway] has no queue")
        return self._queue

    async def health(self, request: Request) -> Response:
        """Say that the gateway is up."""
        return JSONResponse({"status": "ok"})

    async def partners(self, request: Request) -> Response:
        """Show every partner's circuit, and its backlog."""
        backlog = await self._backlog()
        return JSONResponse([_of_partner(partner, backlog) for partner in self._partners().values()])

    async def partner(self, request: Request) -> Response:
        """Show one partner."""
        return JSONResponse(_of_partner(self._named(request), await self._backlog()))

    async def circuit(self, request: Request) -> Response:
        """Show everything about a partner's circuit: its breaker's snapshot, and its last moves, oldest first."""
        breaker = self._named(request).breaker
        if breaker is None:
            raise HTTPException(404, "this partner has no breaker")
        shift = _wall_minus_monotonic()
        moves = [_of_move(move, shift) for move in breaker.history]
        return JSONResponse({"snapshot": breaker.snapshot().plain(), "moves": moves})

    def _named(self, request: Request) -> Partner:
        partner = self._partners().get(request.path_params["name"])
        if partner is None:
            raise HTTPException(404, "no partner of this name is configured")
        return partner

    async def _backlog(self) -> Mapping[str, Any] | None:
        if self._queue is None:
            return None
        return {lane.lane: lane for lane in await asyncio.to_thread(self._queue.lanes)}

    async def messages(self, request: Request) -> Response:
        """List stored messages, oldest first."""
        asked = request.query_params
        try:
            states = frozenset(MessageState(state) for state in asked.getlist("state"))
            after, limit = int(asked.get("after", "0")), int(asked.get("limit", "100"))
            if not 0 <= after <= _LAST:
                raise ValueError(f"after is the place of a message, 0 to {_LAST}")
        except ValueError as error:
            raise HTTPException(400, str(error)) from error
        selection = Selection(lane=asked.get("partner"), states=states)
        found = await asyncio.to_thread(
            lambda: self.queue.list(selection, after=after, limit=max(1, min(limit, _MOST)))
        )
        listed = [describe(message) for message in found]
        return JSONResponse({"messages": listed, "next_after": found[-1].seq if found else None})

    async def message(self, request: Request) -> Response:
        """Show one message with its history."""
        queue, identity = self.queue, request.path_params["id"]
        message = await asyncio.to_thread(queue.get, identity)
        history = await asyncio.to_thread(queue.history, identity)
        entries = [
            {"at": each.at, "attempt": each.attempt, "what": each.what, "outcome": each.outcome, "detail": each.detail}
            for each in history
        ]
        return JSONResponse({**describe(message), "history": entries})

    async def proof(self, request: Request) -> Response:
        """Return the receipt as it came."""
        receipt = await asyncio.to_thread(self.queue.proof, request.path_params["id"])
        if receipt is None:
            raise HTTPException(404, "there is no receipt for this message")
        return Response(receipt, media_type="application/octet-stream")

    def order(self, order: str) -> Endpoint:
        """Return what carries out one kind of order."""

        async def carry_out(request: Request) -> Response:
            queue, identity = self.queue, request.path_params["id"]
            options: dict[str, Any] = {"reason": request.query_params.get("reason", ""), "by": "gateway"}
            if order != "cancel":
                options["deadline"] = _deadline(request)
            if order == "resubmit":
                confirm = request.query_params.get("confirm") == "true"
                accepted = await asyncio.to_thread(lambda: queue.resubmit(identity, confirm=confirm, **options))
                url = address_of(accepted.message_id)
                return JSONResponse({"id": accepted.message_id, "url": url}, 202, headers={"location": url})
            command = getattr(queue, order)
            message = await asyncio.to_thread(lambda: command(identity, **options))
            return JSONResponse(describe(message))

        return carry_out

    async def receipt(self, request: Request) -> Response:
        """Take an MDN that a partner posted to the program behind us."""
        try:
            async with asyncio.timeout(_RECEIPT_WITHIN):
                body = await _read(request)
        except TimeoutError:
            raise HTTPException(408, f"a receipt must be here within {_RECEIPT_WITHIN:g} s") from None
        mdn = parse_mdn(request.headers.get("content-type", ""), body)
        if mdn is None:
            raise HTTPException(400, "this is no MDN")
        return await asyncio.to_thread(self._settle, mdn)

    def _settle(self, mdn: Any) -> Response:
        queue = self.queue
        try:
            message = queue.get(f"<{mdn.original_message_id}>")
        except UnknownMessageError:
            message = queue.get(mdn.original_message_id)
        partner = self._partners().get(message.lane)
        if partner is None:
            raise HTTPException(404, "the message's partner is no longer configured")
        mic = queue.store.payload(message.seq)[3]
        report = judge_mdn(mdn, message_id=message.id, profile=partner.settings.profile, mic=mic)
        return JSONResponse(describe(queue.receipt(message.id, report)))


def _deadline(request: Request) -> float | None:
    given = request.query_params.get("deadline")
    if given is None:
        return None
    seconds = parse_duration(given)
    if seconds is None or seconds <= 0:
        raise HTTPException(400, "deadline is a duration from now, such as 30m or 4h")
    return seconds


async def _read(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _LARGEST_RECEIPT:
            raise HTTPException(413, "a receipt is at most 1 MiB")
    return bytes(body)


def _of_partner(partner: Partner, backlog: Mapping[str, Any] | None) -> dict[str, Any]:
    breaker = partner.breaker
    shown: dict[str, Any] = {"name": partner.name, "url": partner.settings.url}
    if breaker is not None:
        snapshot = breaker.snapshot()
        trial = snapshot.next_trial_at
        shown |= {
            "circuit": breaker.name,
            "state": str(snapshot.state),
            "next_trial_at": None if trial is None else round(trial, 3),
        }
    if backlog is not None:
        lane = backlog.get(partner.name)
        shown["messages"] = {} if lane is None else lane.messages
    return shown


def _wall_minus_monotonic() -> float:
    """Return the difference of the two clocks, from the reading in which least time passed between them."""
    readings = [(time.monotonic(), time.time(), time.monotonic()) for _ in range(5)]
    before, wall, after = min(readings, key=lambda reading: reading[2] - reading[0])
    return wall - (before + after) / 2


def _of_move(move: CircuitTransitioned, shift: float) -> dict[str, Any]:
    return {
        "at": move.at + shift,
        "old": str(move.old),
        "new": str(move.new),
        "reason": str(move.reason),
        "epoch": move.epoch,
        "step": move.step,
        "wait": move.wait,
        "totals": move.totals._asdict(),
        "note": move.note,
        "by": move.by,
    }
