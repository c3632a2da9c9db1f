"""The road ``/to/PARTNER/path``: from a program's request to the partner's answer, a refusal, or a stored message."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from halfopen._core.states import State
from halfopen.errors import CallTimeoutError, RejectedError
from halfopen.retry_queue import Report, Verdict, judge_status

from ._errors import (
    BrokenOffError,
    ClientGoneError,
    IllAnswerError,
    NoEvidenceError,
    NotSentError,
    TooSlowError,
    UndeliveredError,
)
from ._exchange import Exchange
from ._headers import STREAM, RequestHead
from ._incoming import Incoming
from ._problems import Problem, Send, of_refusal, problem
from ._settings import GatewaySettings
from ._traffic import Traffic
from ._upstream import Answer

if TYPE_CHECKING:
    from ._partner import Partner
    from ._protocol import Connection
    from ._storing import Storing

__all__ = ["PREFIX", "Forwarding"]

PREFIX = b"/to/"
_MAY_REFUSE = frozenset({State.OPEN, State.HALF_OPEN, State.RECOVERING, State.FORCED_OPEN})
_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
# Also as %2e, or with parameters, which some servers take away first: what stands below a partner's URL must not climb
# out of it.
_DOTS = re.compile(rb"(?:^|/|\\|%2f|%5c)(?:\.|%2e){1,2}(?:$|/|\\|;|%2f|%5c|%3b)", re.IGNORECASE)
_ENDING = Problem(503, "ending", "the gateway ended before the answer came", {"delivery": "unknown"}, 1.0)
_ODD = re.compile(rb"[^\x21-\x7e]")


class Forwarding:
    """Sends requests on to configured partners, and to nobody else."""

    def __init__(
        self,
        settings: GatewaySettings,
        partners: Mapping[str, Partner],
        storing: Storing | None,
        traffic: Traffic,
    ) -> None:
        self._storing = storing
        self._traffic = traffic
        self.know(settings, partners)

    def know(self, settings: GatewaySettings, partners: Mapping[str, Partner]) -> None:
        """Let these count from now on."""
        self._settings = settings
        self._partners = {name.encode(): partner for name, partner in partners.items()}
        self._traffic.know(partners)

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        """Answer one request."""
        made = self._exchange(scope, receive, send)
        if isinstance(made, Problem):
            self._traffic.turn_away(made.kind)
            await made.send(send)
            return
        passage = self._traffic.begin(made.partner.name, send)
        made.reply_with(passage.send)
        try:
            await self._pass(made, scope, passage.send)
        finally:
            passage.end(answered=made.started)

    async def _pass(self, made: Exchange, scope: Any, send: Send) -> None:
        connection: Connection = scope["halfopen.connection"]
        task = asyncio.current_task()
        assert task is not None
        gone = False

        def leave() -> None:
            nonlocal gone
            gone = True
            task.cancel()

        connection.on_lost = leave
        made.partner.begin()
        try:
            await self._run(made, connection, send)
        except asyncio.CancelledError:
            if not gone or task.uncancel():
                if connection.silent:
                    await _ENDING.send(send)
                raise
        finally:
            connection.on_lost = None
            made.close()
            made.partner.end()

    def _exchange(self, scope: Any, receive: Any, send: Send) -> Exchange | Problem:
        settings = self._settings
        name, slash, rest = scope["raw_path"][len(PREFIX) :].partition(b"/")
        partner = self._partners.get(name) or self._partners.get(unquote(name.decode("latin-1")).encode())
        if partner is None:
            return problem(404, "unknown-partner", "no partner of this name is configured")
        query = scope["query_string"]
        target = slash + rest + (b"?" + query if query else b"")
        if _DOTS.search(rest) or _ODD.search(target):
            return problem(400, "bad-path", "the path has . or .. segments, or bytes that no URL has")
        head = RequestHead(scope["headers"], partner.overruled)
        if head.looped:
            detail = f"the request came through this gateway already: the url of {partner.name} leads back to it"
            return problem(508, "loop", detail)
        if head.length is not None and head.length > settings.max_body:
            return problem(413, "body-too-large", f"the body of a request is at most {settings.max_body} bytes")
        if head.problem is not None:
            return head.problem
        incoming = Incoming(
            receive, head.length, limit=settings.max_body, idle=settings.idle_timeout, partner=partner.name
        )
        method: str = scope["method"]
        return Exchange(
            partner, method, target.decode("ascii"), head, incoming, send, scope["halfopen.connection"],
            settings.idle_timeout,
        )  # fmt: skip

    async def _run(self, exchange: Exchange, connection: Connection, send: Send) -> None:
        partner, head = exchange.partner, exchange.head
        if STREAM in head.orders:
            # Order is kept by the queue alone: what goes directly could overtake what waits there.
            await self._in_order(exchange, connection, send)
            return
        try:
            breaker = partner.breaker
            if breaker is None or breaker.state not in _MAY_REFUSE:
                # A slow program must not keep a permit; a refusal must not wait for a body.
                await exchange.incoming.settle()
            keyed = any(name == "idempotency-key" for name, _ in head.headers)
            repeatable = exchange.incoming.whole is not None and partner.repeatable(
                exchange.method, head.message_id, keyed=keyed
            )
            await partner.acall(exchange, repeatable=repeatable)
        except ClientGoneError:
            connection.break_off()
        except (RejectedError, CallTimeoutError, ConnectionError, TimeoutError) as error:
            if exchange.started:
                connection.break_off()
            else:
                await self._settle(exchange, error, connection, send)

    async def _settle(self, exchange: Exchange, error: Exception, connection: Connection, send: Send) -> None:
        partner, head = exchange.partner, exchange.head
        wanted = partner.settings.store_and_forward or head.asynchronous
        if wanted and self._storing is not None and self._may_store(exchange, error):
            await self._store(self._storing, exchange, connection, send)
            return
        told = self._told(exchange, error)
        if isinstance(told, Problem):
            await told.send(send)
            return
        try:
            await exchange.relay(told, _report_of(error))
        except ClientGoneError:
            connection.break_off()
        except (ConnectionError, TimeoutError) as broken:
            await self._broken(exchange, broken, connection, send)

    async def _broken(self, exchange: Exchange, error: Exception, connection: Connection, send: Send) -> None:
        """Say that the partner's answer broke off, while there is still somebody to tell."""
        told = self._told(exchange, error)
        if exchange.started or not isinstance(told, Problem):
            connection.break_off()
        else:
            await told.send(send)

    async def _in_order(self, exchange: Exchange, connection: Connection, send: Send) -> None:
        if self._storing is None:
            await problem(501, "no-queue", "to keep order the gateway needs a queue, and it has none").send(send)
        elif exchange.method in _SAFE:
            await problem(400, "bad-header", "a question is no message of a stream").send(send)
        else:
            await self._store(self._storing, exchange, connection, send)

    async def _store(self, storing: Storing, exchange: Exchange, connection: Connection, send: Send) -> None:
        connection.on_lost = None
        exchange.close()
        try:
            await storing.store(exchange, send)
        except ClientGoneError:
            connection.break_off()
        except NoEvidenceError as ended:
            assert ended.problem is not None
            await ended.problem.send(send)

    def _may_store(self, exchange: Exchange, error: Exception) -> bool:
        if exchange.method in _SAFE or not exchange.incoming.again:
            return False
        if isinstance(error, NoEvidenceError):
            return False
        if isinstance(error, (RejectedError, NotSentError)):
            return True
        profile = exchange.partner.settings.profile
        if isinstance(error, IllAnswerError):
            return judge_status(error.response.status_code, profile).verdict is Verdict.NOT_DELIVERED
        if isinstance(error, UndeliveredError) and error.report.verdict is Verdict.NOT_DELIVERED:
            return True
        # Perhaps delivered. Only where a Message-ID makes a second arrival harmless may the queue send it again.
        again = exchange.partner.settings.as2 and exchange.head.message_id is not None
        return again and not (isinstance(error, UndeliveredError) and error.report.verdict is not Verdict.UNKNOWN)

    def _told(self, exchange: Exchange, error: Exception) -> Problem | Answer:
        """Return what the program gets for an error: the partner's answer, or a problem."""
        name = exchange.partner.name
        if isinstance(error, IllAnswerError):
            return error.response
        if isinstance(error, NoEvidenceError):
            return error.problem or error.answer or problem(502, "no-answer", str(error), partner=name)
        if isinstance(error, UndeliveredError):
            if error.report.verdict is not Verdict.UNKNOWN and error.answer is not None:
                return error.answer
            detail = f"{name} answered with {error.report.detail}"
            return problem(502, "no-receipt", detail, partner=name, delivery="unknown")
        if isinstance(error, (RejectedError, CallTimeoutError)):
            return of_refusal(error, name)
        detail = f"{name}: {error}"
        if isinstance(error, NotSentError):
            return problem(502, "unreachable", detail, partner=name, delivery="none")
        if isinstance(error, BrokenOffError):
            return problem(502, "broken-off", detail, partner=name, delivery="unknown")
        kind, status = ("too-slow", 504) if isinstance(error, (TooSlowError, TimeoutError)) else ("broken-off", 502)
        return problem(status, kind, detail, partner=name, delivery="unknown")


def _report_of(error: Exception) -> Report | None:
    return getattr(error, "report", None)
