"""
Reading an AS2 receipt (MDN) and judging the answer it came in.

The HTTP status speaks about the transfer only; the MDN speaks about the message. Order of checks: is it an MDN, is it
for our message, is its signature good, then the disposition, then the MIC. The source is RFC 4130; partners vary case,
white space and hyphens.
"""

from __future__ import annotations

import email.policy
import re
from collections.abc import Callable
from dataclasses import dataclass
from email import message_from_bytes
from email.errors import CloseBoundaryNotFoundDefect
from email.message import Message
from typing import Any, cast

from ._profile import LaneProfile
from ._reports import Report, Verdict
from .answers import judge_status

__all__ = ["Disposition", "Mdn", "judge_answer", "judge_mdn", "parse_disposition", "parse_mdn", "same_mic"]

CONFIGURATION = frozenset(
    {
        "authentication-failed",
        "decompression-failed",
        "decryption-failed",
        "duplicate-filename",
        "illegal-filename",
        "insufficient-message-security",
        "integrity-check-failed",
        "invalid-message-id",
        "unknown-trading-partner",
        "unknown-trading-relationship",
    }
)
_VERDICT = re.compile(r"(processed|failed)\s*(/|;|$)")
_DISPOSITION = re.compile(r"^(processed|failed)(?:/(error|warning|failure)(?::(.*))?)?$")


@dataclass(frozen=True, slots=True)
class Disposition:
    """
    The verdict of a receipt.

    Attributes:
        kind: ``processed`` or ``failed``.
        modifier: ``error``, ``warning``, ``failure``, or empty.
        text: Lower case, hyphens for spaces; may be empty.
    """

    kind: str
    modifier: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mdn:
    """What a receipt says."""

    original_message_id: str
    disposition: Disposition
    mic: str | None
    raw: bytes


def parse_disposition(value: str) -> Disposition | None:
    """Read a Disposition field in any spelling; None if it holds no verdict."""
    squeezed = re.sub(r"\s+", " ", value).strip().lower()
    mode, _, verdict = squeezed.partition(";")
    if not verdict or _VERDICT.match(mode):
        verdict = squeezed  # without a mode; semicolons in it belong to the text
    match = _DISPOSITION.match(re.sub(r"\s*([/:])\s*", r"\1", verdict.strip(" ;")))
    if match is None:
        return None
    kind, modifier, text = match.groups()
    return Disposition(kind, modifier or "", re.sub(r"[\s-]+", "-", (text or "").strip()))


def parse_mdn(content_type: str, body: bytes) -> Mdn | None:
    """Read the receipt in an HTTP body; None if there is none: empty, HTML, cut off."""
    flat = re.sub(r"[\r\n]+\s*", " ", content_type)
    parsed = message_from_bytes(
        b"Content-Type: " + flat.encode("latin-1", "replace") + b"\r\n\r\n" + body, policy=email.policy.HTTP
    )
    parts = list(parsed.walk())
    # A field that was cut off looks like a whole one: of "processed/error" may be left "processed".
    if any(isinstance(defect, CloseBoundaryNotFoundDefect) for part in parts for defect in part.defects):
        return None
    for part in parts:
        if part.get_content_type() == "message/disposition-notification":
            return _read(part, body)
    return None


def _read(part: Message[str, str], raw: bytes) -> Mdn | None:
    inner: Any = part.get_payload()
    if not isinstance(inner, list) or not inner:
        return None
    fields = cast("list[Message[str, str]]", inner)[0]
    disposition = parse_disposition(fields.get("Disposition", ""))
    if disposition is None or "Original-Message-ID" not in fields:
        return None
    return Mdn(
        original_message_id=bare_id(fields["Original-Message-ID"]),
        disposition=disposition,
        mic=fields.get("Received-Content-MIC"),
        raw=raw,
    )


def bare_id(message_id: str) -> str:
    """Return a Message-ID without angle brackets and white space."""
    return re.sub(r"[\s<>]", "", message_id)


def same_mic(ours: str, theirs: str) -> bool:
    """Compare two ``digest, algorithm`` values: white space, case and hyphens of the algorithm do not matter."""
    return _mic(ours) == _mic(theirs)


def _mic(value: str) -> tuple[str, str]:
    digest, _, algorithm = re.sub(r"\s", "", value).partition(",")
    return digest, algorithm.lower().replace("-", "")


def judge_answer(
    *,
    status: int,
    content_type: str,
    body: bytes,
    message_id: str,
    profile: LaneProfile,
    mic: str | None = None,
    asynchronous: bool = False,
    retry_after: float | None = None,
    verify: Callable[[Mdn], bool] | None = None,
) -> Report:
    """
    Judge the HTTP answer to an AS2 message.

    Args:
        mic: The MIC stored at enqueue; None: it cannot be compared.
        asynchronous: An async MDN was asked for, so a 2xx without one means: received.
        verify: Checks the receipt's signature, where a signed one was asked for.
    """
    if not 200 <= status < 300:
        return judge_status(status, profile, retry_after=retry_after)
    mdn = parse_mdn(content_type, body)
    if mdn is not None:
        return judge_mdn(mdn, message_id=message_id, profile=profile, mic=mic, verify=verify)
    if asynchronous:
        return Report(Verdict.ACCEPTED, f"HTTP {status}, receipt follows")
    return Report(Verdict.UNKNOWN, f"HTTP {status} without a receipt")


def judge_mdn(
    mdn: Mdn,
    *,
    message_id: str,
    profile: LaneProfile,
    mic: str | None = None,
    verify: Callable[[Mdn], bool] | None = None,
) -> Report:
    """Judge a receipt, whichever way it came."""
    if mdn.original_message_id != bare_id(message_id):
        return Report(Verdict.SECURITY, f"receipt for {mdn.original_message_id}", receipt=mdn.raw)
    if verify is not None and not verify(mdn):
        return Report(Verdict.SECURITY, "bad signature on the receipt", receipt=mdn.raw)
    if mdn.disposition.kind == "processed" and mdn.disposition.modifier in ("", "warning"):
        return _delivered(mdn, mic)
    return _negative(mdn, profile)


def _delivered(mdn: Mdn, mic: str | None) -> Report:
    note = mdn.disposition.text or "processed"
    # A receipt with another digest is no proof, whatever it says; one without is unverifiable, and noted so.
    if mic is not None and mdn.mic is not None and not same_mic(mic, mdn.mic):
        return Report(Verdict.SECURITY, f"MIC differs: {mdn.mic}", receipt=mdn.raw)
    if mic is not None and mdn.mic is None:
        note += "; MIC missing, cannot be verified"
    return Report(Verdict.DELIVERED, note, receipt=mdn.raw)


def _negative(mdn: Mdn, profile: LaneProfile) -> Report:
    disposition = mdn.disposition
    if disposition.text in profile.duplicate_texts:
        return Report(Verdict.DELIVERED, f"duplicate: {disposition.text}", receipt=mdn.raw)
    detail = f"{disposition.kind}/{disposition.modifier}: {disposition.text or 'no text'}"
    mapped = profile.dispositions.get(disposition.text)
    if mapped is not None:
        return Report(Verdict(mapped), detail, receipt=mdn.raw)
    if disposition.kind == "processed" and disposition.text == "unexpected-processing-error":
        return Report(Verdict.BACK_END_ERROR, detail, receipt=mdn.raw)
    return Report(Verdict.REFUSED, detail, receipt=mdn.raw, kind=disposition.text)
