"""Store and forward: a request becomes a message of the retry queue, and the queue's lanes send it later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from halfopen.retry_queue import (
    Accepted,
    Delivery,
    DuplicateMessageError,
    Message,
    MessageState,
    PayloadTooLargeError,
    Report,
    RetryQueue,
    StoreUnavailableError,
    Ticket,
    Verdict,
)

from ._errors import NoEvidenceError, NotSentError, TooSlowError
from ._headers import KIND, MIC, STREAM, VIA
from ._incoming import SMALL, PulledBody
from ._judging import Receipt, is_plain
from ._problems import Problem, Send, problem, send_json

if TYPE_CHECKING:
    from ._exchange import Exchange
    from ._partner import Partner

__all__ = ["Storing", "address_of", "describe"]

# With the message stands where it goes: method and target, below the partner's URL of the day it is sent.
_REQUEST = "Halfopen-Request"
_PART = 256 * 1024
_DONE_WITH = ("via", _REQUEST.lower())
_AT_REST = frozenset({MessageState.DEAD, MessageState.ERROR, MessageState.CANCELLED})


def address_of(message_id: str) -> str:
    """Return the path under which the gateway answers for a message."""
    return f"/messages/{quote(message_id, safe='')}"


def describe(message: Message) -> dict[str, Any]:
    """Return what programs may know of a message."""
    return {
        "id": message.id,
        "url": address_of(message.id),
        "partner": message.lane,
        "state": message.state.value,
        "size": message.size,
        "created": message.created,
        "deadline": message.deadline,
        "next_try": message.due if message.state.value in ("waiting", "unknown_delivery") else None,
        "attempts": message.attempts,
        "maybe_delivered": message.maybe_delivered,
        "last_outcome": message.last_outcome,
        "last_detail": message.last_detail,
    }


class Storing:
    """Puts requests into the queue, and sends them from there."""

    def __init__(self, queue: RetryQueue) -> None:
        self.queue = queue
        self._threads = ThreadPoolExecutor(32, thread_name_prefix="halfopen-store")

    def add(self, partner: Partner) -> None:
        """Let the queue send the messages of *partner*, driven by the breaker of its pipeline."""
        self.queue.lane(partner.name, sender=Sending(partner), breaker=partner.breaker, profile=partner.profile())

    def change(self, old: Partner, new: Partner) -> None:
        """Send the messages of a partner as it is now."""
        if old.breaker is new.breaker:
            self.queue.change_lane(new.name, sender=Sending(new), profile=new.profile())
        else:
            self.remove(old)
            self.add(new)

    def remove(self, partner: Partner) -> None:
        """Send nothing more to *partner*; its messages stay."""
        self.queue.leave_lane(partner.name)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def store(self, exchange: Exchange, send: Send) -> None:
        """
        Store a request and answer 202 with the message's URL, once it is on disk; or say why it is not.

        Raises:
            NoEvidenceError: The body did not come to its end.
        """
        try:
            accepted = await self._enqueue(exchange)
        except (StoreUnavailableError, DuplicateMessageError, PayloadTooLargeError, ValueError) as error:
            if exchange.incoming.failure is not None:
                raise exchange.incoming.failure from None
            await _refused(error, exchange.partner.name).send(send)
            return
        url = address_of(accepted.message_id)
        if accepted.state in _AT_REST:
            await _given_up(accepted, url, exchange.partner.name).send(send)
            return
        headers = [(b"location", url.encode())]
        if exchange.head.asynchronous:
            headers.append((b"preference-applied", b"respond-async"))
        document = {
            "id": accepted.message_id,
            "url": url,
            "partner": exchange.partner.name,
            "duplicate": accepted.duplicate,
            "state": accepted.state.value,
        }
        await send_json(send, 202, document, headers)

    async def _enqueue(self, exchange: Exchange) -> Accepted:
        incoming, head, partner = exchange.incoming, exchange.head, exchange.partner
        await incoming.settle()
        loop = asyncio.get_running_loop()
        headers = [(name, value) for name, value in head.headers if name != "via"]
        headers.append((_REQUEST, f"{exchange.method} {exchange.target}"))
        options: dict[str, Any] = {
            "headers": headers,
            "mic": head.orders.get(MIC),
            "deadline": partner.settings.deadline if head.deadline is None else head.deadline,
            "document_type": head.orders.get(KIND, ""),
            "stream": head.orders.get(STREAM),
        }
        whole = incoming.whole
        if whole is not None and len(whole) <= min(SMALL, self.queue.store.inline):
            return await _durable(self.queue.submit(partner.name, whole, **options), loop)
        body: Any = whole if whole is not None else PulledBody(incoming, loop)
        return await loop.run_in_executor(self._threads, lambda: self.queue.enqueue(partner.name, body, **options))


async def _durable(ticket: Ticket[Accepted], loop: asyncio.AbstractEventLoop) -> Accepted:
    done = asyncio.Event()
    ticket.then(lambda _: loop.call_soon_threadsafe(done.set))
    await done.wait()
    return ticket.result()


def _given_up(accepted: Accepted, url: str, name: str) -> Problem:
    state = accepted.state.value
    words = f"this very message is stored already, and {state}: it is not sent again by itself; POST to {url}/"
    orders = "resubmit" if accepted.state is MessageState.CANCELLED else "retry, or to resubmit for a new Message-ID"
    members = {"partner": name, "delivery": "none", "id": accepted.message_id, "url": url, "state": state}
    return problem(409, "message-given-up", words + orders, **members)


def _refused(error: Exception, name: str) -> Problem:
    members = {"partner": name, "delivery": "none"}
    if isinstance(error, DuplicateMessageError):
        return problem(409, "duplicate-message", str(error), **members)
    if isinstance(error, PayloadTooLargeError):
        return problem(413, "body-too-large", str(error), **members)
    if isinstance(error, StoreUnavailableError):
        return Problem(503, "store-unavailable", str(error), members, 5.0)
    return problem(400, "bad-message", str(error), **members)


class Sending:
    """Sends one partner's stored messages."""

    def __init__(self, partner: Partner) -> None:
        self._partner = partner

    async def __call__(self, delivery: Delivery) -> Report:
        """Make one attempt."""
        self._partner.begin()
        try:
            return await self._attempt(delivery)
        finally:
            self._partner.end()

    async def _attempt(self, delivery: Delivery) -> Report:
        try:
            async with asyncio.timeout(delivery.timeout):
                return await self._send(delivery)
        except NotSentError as error:
            return Report(Verdict.NOT_DELIVERED, str(error))
        except NoEvidenceError as error:
            return Report(Verdict.LANE_MISCONFIGURED, str(error))
        except TooSlowError as error:
            return Report(Verdict.UNKNOWN, str(error))
        except TimeoutError:
            return Report(Verdict.UNKNOWN, f"no answer within {delivery.timeout:g} s")
        except ConnectionError as error:
            return Report(Verdict.UNKNOWN, str(error))

    async def _send(self, delivery: Delivery) -> Report:
        partner = self._partner
        stored = {name.lower(): value for name, value in delivery.headers}
        method, _, target = stored.get(_REQUEST.lower(), "POST ").partition(" ")
        headers = [
            (name, value)
            for name, value in delivery.headers
            if name.lower() not in _DONE_WITH and name.lower().encode() not in partner.overruled
        ]
        headers += [*partner.settings.headers.items(), ("via", f"1.1 {VIA}")]
        body = delivery.body() if delivery.size <= SMALL else _parts(delivery)
        content_type = stored.get("content-type", "").lower()
        answer = await partner.upstream.send(method, target, headers, body, delivery.size)
        try:
            receipt = Receipt(
                delivery.message_id,
                "disposition-notification-to" in stored,
                "receipt-delivery-option" in stored,
                delivery.mic,
                body if isinstance(body, bytes) and is_plain(content_type) else None,
            )
            report = await partner.judge.report(answer, receipt)
            await answer.read(SMALL)  # so that the connection can be used again
            return report
        finally:
            answer.close()


async def _parts(delivery: Delivery) -> AsyncIterator[bytes]:
    stream = await asyncio.to_thread(delivery.open)
    try:
        while part := await asyncio.to_thread(stream.read, _PART):
            yield part
    finally:
        stream.close()
