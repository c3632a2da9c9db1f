"""Which messages serve as trial calls, and which come next otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ._rows import READY, Message, MessageState

__all__ = ["blocks", "next_messages", "select_trials"]


def select_trials(candidates: Iterable[Message], count: int, size_limit: int) -> list[Message]:
    """
    Choose up to *count* messages for trial calls from *candidates*, the heads of their streams.

    In this order: not `unknown_delivery` (it says little, it may be a slow duplicate), fewest failed trial calls, below
    *size_limit* bytes, one per document type before a second of the same, oldest. Unsuitable ones serve if nothing
    else waits.
    """
    ranked = sorted(candidates, key=lambda message: (*_suitability(message, size_limit), message.seq))
    seen: Counter[tuple[bool, int, bool, str]] = Counter()
    keyed: list[tuple[tuple[bool, int, bool, int, int], Message]] = []
    for message in ranked:
        suitability = _suitability(message, size_limit)
        keyed.append(((*suitability, seen[*suitability, message.kind], message.seq), message))
        seen[*suitability, message.kind] += 1
    keyed.sort(key=lambda pair: pair[0])
    return [message for _, message in keyed[:count]]


def _suitability(message: Message, size_limit: int) -> tuple[bool, int, bool]:
    return message.state is MessageState.UNKNOWN_DELIVERY, message.trial_failures, message.size > size_limit


def next_messages(rows: Sequence[Message], now: float, seats: int, *, trial: bool = False) -> list[Message]:
    """
    Return the messages of one lane that may be sent at *now*, oldest first, at most *seats*.

    The engines say the same in SQL; the contract suite compares the two. With *trial* a message need not be due.
    """
    ready = [
        message
        for message in sorted(rows, key=lambda row: row.seq)
        if message.state in READY
        and (trial or message.due <= now)
        and (message.deadline is None or message.deadline > now)
        and not any(blocks(earlier, message) for earlier in rows)
    ]
    return ready[:seats]


def blocks(earlier: Message, later: Message) -> bool:
    """Tell whether *earlier* keeps *later* waiting, both being in one ordered stream."""
    if later.stream is None or earlier.stream != later.stream or earlier.seq >= later.seq:
        return False
    if earlier.state in (MessageState.ERROR, MessageState.DEAD):
        return not earlier.stream_mode & 1
    if earlier.state is MessageState.AWAITING_RECEIPT:
        return not earlier.stream_mode & 2
    return earlier.state not in (MessageState.DONE, MessageState.CANCELLED)
