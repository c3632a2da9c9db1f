"""The messages of the demo: invented orders, or the files of a directory."""

from __future__ import annotations

import hashlib
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path

from halfopen.cli.demo.errors import BadInput

__all__ = ["Letter", "Message", "files_of", "messages", "orders"]

_LARGEST = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Letter:
    """What a message says."""

    name: str
    body: bytes


@dataclass(slots=True, kw_only=True)
class Message:
    """
    One message on its way. Its `message_id` is the same on every attempt.

    Attributes:
        number: The hub's own count, from 1.
        attempts: How often the partner was asked to take it; refusals are no attempts.
        headers: Sent with it, beside those of every message.
        stream: The ordered stream it belongs to, if any.
    """

    number: int
    message_id: str
    letter: Letter
    digest: str
    attempts: int = field(default=0)
    headers: dict[str, str] = field(default_factory=dict[str, str])
    stream: str | None = None


def messages(letters: Iterator[Letter]) -> Iterator[Message]:
    """Put each letter into a message with an identity that no other run has."""
    run = uuid.uuid4().hex[:12]
    for number in count(1):
        letter = next(letters, None)
        if letter is None:
            return
        yield Message(
            number=number,
            message_id=f"<{run}.{number}@hub.halfopen.example>",
            letter=letter,
            digest=hashlib.sha256(letter.body).hexdigest(),
        )


def orders(seed: int) -> Iterator[Letter]:
    """Write purchase orders (EDIFACT ORDERS) without end."""
    rng = random.Random(seed)
    for number in count(1):
        yield Letter(f"order-{number}.edi", _order(number, rng).encode("ascii"))


def files_of(directory: Path, *, again: bool) -> Iterator[Letter]:
    """
    Return the files of *directory* in the order of their names; *again* goes round for ever.

    Hidden files and directories are left out.

    Raises:
        BadInput: There is no such directory, nothing in it, or a file that cannot be sent.
    """
    letters = _read(directory)
    return cycle(letters) if again else iter(letters)


def _read(directory: Path) -> list[Letter]:
    if not directory.exists():
        raise BadInput(f"there is no directory {directory}; give --messages one that holds the files to send")
    if not directory.is_dir():
        raise BadInput(f"{directory} is a file; give --messages the directory that holds it")
    try:
        paths = sorted(path for path in directory.iterdir() if path.is_file() and not path.name.startswith("."))
        for path in paths:
            if path.stat().st_size > _LARGEST:
                raise BadInput(f"{path} is larger than 16 MiB, the most the demo sends; take it out of {directory}")
        letters = [Letter(path.name, path.read_bytes()) for path in paths]
    except OSError as error:
        raise BadInput(f"cannot read {error.filename or directory}: {error.strerror}; check its permissions") from None
    if not letters:
        raise BadInput(f"{directory} holds no files; put the messages to send into it, one a file")
    return letters


def _order(number: int, rng: random.Random) -> str:
    lines = [
        f"UNB+UNOC:3+HUB:14+PARTNER:14+261129:1200+{number:08d}'",
        f"UNH+{number}+ORDERS:D:96A:UN:EAN008'",
        f"BGM+220+{rng.randrange(10**9):09d}+9'",
    ]
    items = rng.randint(3, 12)
    for item in range(1, items + 1):
        lines.append(f"LIN+{item}++{rng.randrange(10**13):013d}:EN'")
        lines.append(f"QTY+21:{rng.randint(1, 400)}'")
    lines.append("UNS+S'")
    lines.append(f"CNT+2:{items}'")
    lines.append(f"UNT+{2 * items + 4}+{number}'")
    lines.append(f"UNZ+1+{number:08d}'")
    return "\r\n".join(lines) + "\r\n"
