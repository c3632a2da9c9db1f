"""From what a caller hands in to a message ready for the store."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from itertools import count
from json.encoder import encode_basestring_ascii as _quoted
from typing import BinaryIO, cast

from ._bodies import Body, take
from ._requests import NewMessage
from ._rows import Message, Stream
from ._store import Store

__all__ = ["Deadline", "HeaderSource", "Payload", "message_id_in", "prepare", "prepare_again", "unix_time"]

Payload = bytes | bytearray | memoryview | str | os.PathLike[str] | BinaryIO
HeaderSource = Mapping[str, str] | Iterable[tuple[str, str]]
Deadline = float | timedelta | datetime | None

_MESSAGE_ID = "message-id"
# A line break would let a header smuggle in another.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def prepare(
    store: Store,
    lane: str,
    payload: Payload,
    *,
    headers: HeaderSource,
    message_id: str | None,
    deadline: float | None,
    kind: str,
    stream: Stream | str | None,
    mic: str | None,
    limit: int,
) -> NewMessage:
    """
    Make a message; its body is stored already if it is large.

    Raises:
        ValueError: A header or the ID is none that can be sent, or the two name different IDs.
        PayloadTooLargeError: More than *limit* bytes.
        StoreUnavailableError: The body could not be stored.
    """
    listed, identity = _headers(headers, message_id)
    ordered = Stream(stream) if isinstance(stream, str) else stream
    if not lane:
        raise ValueError("lane is a name, not an empty text")
    body = take(payload, store.inline, limit, store.bodies)
    return NewMessage(
        id=identity,
        lane=lane,
        stream=None if ordered is None else ordered.key,
        stream_mode=0 if ordered is None else ordered.mode,
        kind=kind,
        size=body.size,
        digest=body.digest,
        deadline=deadline,
        headers=_as_json(listed),
        body=body.data,
        file=body.name,
        mic=mic,
    )


def prepare_again(
    store: Store, old: Message, headers: list[tuple[str, str]], body: Body, mic: str | None, deadline: float | None
) -> NewMessage:
    """Make a new message, with a new ID, of an old one's content."""
    identity = new_message_id()
    renamed = [(name, identity if name.lower() == _MESSAGE_ID else value) for name, value in headers]
    return NewMessage(
        id=identity,
        lane=old.lane,
        stream=old.stream,
        stream_mode=old.stream_mode,
        kind=old.kind,
        size=body.size,
        digest=body.digest,
        deadline=deadline,
        headers=_as_json(renamed),
        body=body.data,
        file=body.name,
        mic=mic,
        resubmit_of=old.id,
    )


def _as_json(headers: list[tuple[str, str]]) -> str:
    # As json.dumps does it, in a third of the time.
    return f"[{', '.join([f'[{_quoted(name)}, {_quoted(value)}]' for name, value in headers])}]"


def new_message_id() -> str:
    """Return a Message-ID nobody else has."""
    return f"<{_series.name}.{next(_series.numbers)}@halfopen>"


class _Series:
    """A random name, drawn once per process: drawing one per message would cost more than storing it."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.name = uuid.uuid4().hex
        self.numbers = count(1)


_series = _Series()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_series.renew)


def _headers(headers: HeaderSource, message_id: str | None) -> tuple[list[tuple[str, str]], str]:
    pairs = cast("Mapping[str, str]", headers).items() if isinstance(headers, Mapping) else headers
    listed = [(str(name), str(value)) for name, value in pairs]
    # An empty ID is none: the partner could not know the message again.
    listed = [(name, value) for name, value in listed if name.lower() != _MESSAGE_ID or value.strip()]
    given = message_id_in(listed)
    if sum(name.lower() == _MESSAGE_ID for name, _ in listed) > 1:
        raise ValueError("the headers have more than one Message-ID")
    if message_id is not None and given is not None and message_id != given:
        raise ValueError(f"message_id is {message_id!r}, but the headers say {given!r}")
    for name, value in listed:
        _check_header(name, value)
    identity = message_id or given or new_message_id()
    if given is None:
        if message_id is not None:
            _check_header("Message-ID", identity)
        listed.append(("Message-ID", identity))
    return listed, identity


def _check_header(name: str, value: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"the name of the header {name!r} is none that HTTP has")
    if _CONTROL.search(value):
        raise ValueError(f"the header {name!r} holds control characters")
    if not value.isascii() and not _is_unicode(value):
        raise ValueError(f"the header {name!r} is no Unicode text")


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def message_id_in(headers: Iterable[tuple[str, str]]) -> str | None:
    """Return the Message-ID among *headers*, if any."""
    return next((value for name, value in headers if name.lower() == _MESSAGE_ID), None)


def unix_time(deadline: Deadline, now: float) -> float | None:
    """
    Return a deadline as Unix time: seconds from now, a timedelta, or an aware datetime.

    Raises:
        ValueError: It is no number, or a datetime without a time zone.
    """
    if deadline is None:
        return None
    if isinstance(deadline, timedelta):
        return now + deadline.total_seconds()
    if isinstance(deadline, datetime):
        if deadline.tzinfo is None:
            raise ValueError("deadline is a datetime without a time zone")
        return deadline.timestamp()
    if not deadline == deadline or deadline in (float("inf"), float("-inf")):
        raise ValueError(f"deadline is seconds from now, not {deadline!r}")
    return now + deadline
