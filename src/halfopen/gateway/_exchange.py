"""One request on its way to a partner and the answer on its way back: the call that the partner's policies guard."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from halfopen.retry_queue import Report

from ._errors import BadAnswerError, ClientGoneError, IllAnswerError, NoEvidenceError, UndeliveredError
from ._headers import RequestHead, passed_back, passed_on
from ._incoming import Incoming
from ._judging import Receipt
from ._problems import Send
from ._upstream import Answer

if TYPE_CHECKING:
    from ._partner import Partner
    from ._protocol import Connection

__all__ = ["Exchange"]

_SMALL = 64 * 1024


class Exchange:
    """
    Calls the partner and passes its answer back; the answer's body is a part of the call.

    Attributes:
        started: Whether a part of the answer has gone to the program.
    """

    __slots__ = (
        "_answer", "_connection", "_idle", "_send", "head", "incoming", "method", "partner", "started",
        "target",
    )  # fmt: skip

    def __init__(
        self,
        partner: Partner,
        method: str,
        target: str,
        head: RequestHead,
        incoming: Incoming,
        send: Send,
        connection: Connection,
        idle: float,
    ) -> None:
        self.partner = partner
        self.method = method
        self.target = target
        self.head = head
        self.incoming = incoming
        self.started = False
        self._send = send
        self._connection = connection
        self._idle = idle
        self._answer: Answer | None = None

    def reply_with(self, send: Send) -> None:
        """Send the answer by way of *send*."""
        self._send = send

    async def __call__(self) -> None:
        """
        Call the partner once.

        Raises:
            ConnectionError, TimeoutError: The partner is ill (`halfopen.gateway._errors`).
            NoEvidenceError: The call says nothing about the partner.
        """
        self.close()
        await self.incoming.settle()
        answer = self._answer = await self._ask()
        try:
            receipt = Receipt.of(self.head, self.incoming.whole)
            report = await self.partner.judge.check(answer, receipt)
            await self.relay(answer, report)
        except (IllAnswerError, UndeliveredError, NoEvidenceError) as told:
            if getattr(told, "answer", None) is None and not isinstance(told, IllAnswerError):
                self.close()
            raise
        except BaseException:
            self.close()
            raise
        self._answer = None

    async def _ask(self) -> Answer:
        incoming, partner = self.incoming, self.partner
        headers = passed_on(self.head, partner.settings.headers)
        try:
            return await partner.upstream.send(self.method, self.target, headers, incoming.payload(), incoming.length)
        except (ConnectionError, TimeoutError, ClientGoneError):
            if incoming.failure is not None:
                raise incoming.failure from None
            raise

    def close(self) -> None:
        """Let go of an answer that nobody will read."""
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.close()

    async def relay(self, answer: Answer, report: Report | None) -> None:
        """
        Pass an answer on to the program.

        Raises:
            BadAnswerError: It has headers that no server may send.
            ClientGoneError: The program went away, or takes nothing any more.
        """
        headers = passed_back(answer.raw_headers, answer.status_code)
        if headers is None:
            raise BadAnswerError("the answer has headers with control characters")
        if report is not None:
            headers.append((b"halfopen-verdict", report.verdict.encode()))
        start = {"type": "http.response.start", "status": answer.status_code, "headers": headers}
        if answer.length is not None and answer.length <= _SMALL:
            body = await answer.read(_SMALL) or b""
            self.started = True
            await self._send(start)
            await self._send({"type": "http.response.body", "body": body})
            return
        self.started = True
        await self._send(start)
        async for part in answer.parts():
            await self._pass({"type": "http.response.body", "body": part, "more_body": True})
        await self._pass({"type": "http.response.body"})

    async def _pass(self, message: dict[str, object]) -> None:
        connection = self._connection
        if connection.transport.is_closing():
            raise ClientGoneError(self.partner.name)
        if not connection.flow.write_paused:
            await self._send(message)
            return
        try:
            async with asyncio.timeout(self._idle):
                await self._send(message)
        except TimeoutError:
            raise ClientGoneError(self.partner.name) from None
