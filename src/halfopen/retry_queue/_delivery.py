"""What a sender is handed, and one attempt from the claim to its result."""

from __future__ import annotations

import hashlib
import hmac
import io
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from ._bodies import chunks
from ._errors import PayloadCorruptError, StoreUnavailableError
from ._reports import Report, Verdict
from ._rows import Message
from .answers import judge_exception

if TYPE_CHECKING:
    from halfopen.circuit_breaker import Permit

    from ._lane import Lane

__all__ = ["AsyncSender", "Attempt", "Delivery", "Sender"]


@dataclass(slots=True, kw_only=True)
class Delivery:
    """
    One message to send, for one attempt.

    Attributes:
        message_id: Send it as it is, on every attempt.
        headers: As they were enqueued, the Message-ID among them.
        attempt: Number of this attempt, from 1.
        trial: Whether this is a trial call.
        timeout: Seconds the send may take.
        maybe_delivered: The partner may have the message already.
        mic: The MIC given at enqueue, to compare with a receipt's.
        body_begun: Whether the body was read; a failure before that carried nothing.
    """

    message_id: str
    lane: str
    headers: list[tuple[str, str]]
    kind: str
    size: int
    digest: str
    attempt: int
    trial: bool
    timeout: float
    maybe_delivered: bool
    mic: str | None
    opener: Callable[[], BinaryIO] = field(repr=False)
    body_begun: bool = False

    def open(self) -> BinaryIO:
        """Open the body for reading from its start."""
        self.body_begun = True
        return self.opener()

    def body(self) -> bytes:
        """Return the whole body; for large ones read `open` or `chunks` instead."""
        with self.open() as stream:
            return stream.read()

    def chunks(self) -> Iterator[bytes]:
        """Yield the body in pieces of constant size."""
        with self.open() as stream:
            yield from chunks(stream)


Sender = Callable[[Delivery], Report]
AsyncSender = Callable[[Delivery], Awaitable[Report]]


@dataclass(slots=True)
class Attempt:
    """A claimed message with its permit: to be sent once and settled once."""

    lane: Lane
    message: Message
    token: str
    permit: Permit
    lease_until: float
    settled: bool = False

    def prepare(self) -> Delivery | Report:
        """Load and verify the payload; return a report instead if nothing can or may be sent."""
        profile = self.lane.profile
        timeout = profile.timeout
        if self.permit.trial:
            # The breaker counts a trial call as failed when its lease is over: do not go on beyond it.
            timeout = min(timeout, profile.trial_timeout, self.lane.breaker.settings.half_open.trial_timeout)
        if self.lease_until - self.lane.clock.monotonic() < timeout:
            return Report(Verdict.NOT_SENT, "too little of the lease is left")
        try:
            return self._load(timeout)
        except PayloadCorruptError as error:
            return Report(Verdict.BROKEN, f"payload corrupt: {error}")
        except StoreUnavailableError as error:
            return Report(Verdict.NOT_SENT, str(error))
        except Exception as error:
            # Whatever it is, it must be settled: an attempt that is not keeps its lease and its permit for ever.
            return Report(Verdict.BROKEN, f"payload unreadable: {type(error).__name__}: {error}")

    def _load(self, timeout: float) -> Delivery:
        message, store = self.message, self.lane.store
        headers, data, name, mic, _ = store.payload(message.seq)
        if name is not None:
            stored = name
            opener: Callable[[], BinaryIO] = lambda: store.bodies.open(stored)  # noqa: E731
        elif data is not None:
            inline = data
            opener = lambda: io.BytesIO(inline)  # noqa: E731
        else:
            raise PayloadCorruptError("its bytes were pruned")
        verify(opener, message)
        return Delivery(
            message_id=message.id,
            lane=message.lane,
            headers=list(headers),
            kind=message.kind,
            size=message.size,
            digest=message.digest,
            attempt=message.attempts,
            trial=self.permit.trial,
            timeout=timeout,
            maybe_delivered=message.maybe_delivered,
            mic=mic,
            opener=opener,
        )

    def run(self) -> None:
        """Send in this thread and settle."""
        delivery = self.prepare()
        if isinstance(delivery, Report):
            self.lane.results.settle(self, delivery)
            return
        try:
            report = checked(self.lane.sender(delivery))
        except BaseException as error:
            self.lane.results.settle(self, judge_exception(error, body_begun=delivery.body_begun))
            if not isinstance(error, Exception):
                raise
            return
        self.lane.results.settle(self, report)

    async def arun(self, delivery: Delivery) -> None:
        """Send in this task and settle; a cancelled send is no evidence about the partner."""
        try:
            report = checked(await self.lane.sender(delivery))  # type: ignore[misc]  # an AsyncSender, checked at start
        except BaseException as error:
            self.lane.results.settle(self, judge_exception(error, body_begun=delivery.body_begun))
            if not isinstance(error, Exception):
                raise
            return
        self.lane.results.settle(self, report)


def checked(report: object) -> Report:
    """
    Return what a sender handed back.

    Raises:
        TypeError: It is no report.
    """
    if not isinstance(report, Report):
        raise TypeError(f"a sender returns a Report, not {type(report).__name__}")
    return report


def verify(opener: Callable[[], BinaryIO], message: Message) -> None:
    """
    Read the stored bytes once and compare them with what was enqueued, in constant memory.

    Raises:
        PayloadCorruptError: They differ.
    """
    digest, size = hashlib.sha256(), 0
    with opener() as stream:
        for part in chunks(stream):
            size += len(part)
            digest.update(part)
    if size != message.size or not hmac.compare_digest(digest.hexdigest(), message.digest):
        raise PayloadCorruptError(f"{size} bytes with another digest than at enqueue, when there were {message.size}")
