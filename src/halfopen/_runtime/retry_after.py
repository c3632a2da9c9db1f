"""Retry-After (RFC 9110, section 10.2.3) as seconds, from whatever carries it; the one place that reads it."""

from __future__ import annotations

import math
import re
import sys
from typing import Any

__all__ = ["LONGEST", "attribute", "header_of", "parse_retry_after", "retry_after_of"]

LONGEST = sys.float_info.max
"""What a number beyond all floats is cut to: a very long wait, but a wait."""

# The RFC has whole seconds; some servers send fractions, and mean them.
_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_NAMES = ("Retry-After", "retry-after")


def parse_retry_after(value: object, wall: float) -> float | None:
    """
    Return what a Retry-After says as seconds from now; None if it says nothing that can be read.

    A text is seconds in digits, with a fraction or without, or an HTTP date; a number or a timedelta is seconds. A date
    that has passed, or a number below 0, is 0; a number beyond all floats is `LONGEST`.

    Args:
        value: Text, bytes, a number or a timedelta; all else is None.
        wall: Present Unix time, for dates.
    """
    total = attribute(value, "total_seconds")
    if callable(total):
        value = total()
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    if isinstance(value, str):
        return _of_text(value.strip(), wall)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return _of_number(value)


def _of_text(text: str, wall: float) -> float | None:
    if _SECONDS.fullmatch(text):
        return min(float(text), LONGEST)
    # Cost milliseconds to import, and few servers send dates.
    from datetime import UTC
    from email.utils import parsedate_to_datetime

    try:
        date = parsedate_to_datetime(text)
        # The obsolete form that asctime() writes names no zone; it is UTC like the others (RFC 9110, section 5.6.7).
        return max((date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - wall, 0.0)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _of_number(value: float) -> float | None:
    try:
        seconds = float(value)
    except OverflowError:
        return LONGEST if value > 0 else 0.0
    except Exception:  # a number of a foreign class
        return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def retry_after_of(carrier: object, wall: float) -> float | None:
    """
    Return the seconds that an exception or a response asks to wait, None if it does not say.

    Looked at, in this order: its `retry_after`, its `headers`, the `headers` of its `response`.

    Args:
        carrier: An exception or a response.
        wall: Present Unix time, for dates.
    """
    own = parse_retry_after(attribute(carrier, "retry_after"), wall)
    if own is not None:
        return own
    for place in (carrier, attribute(carrier, "response")):
        found = parse_retry_after(header_of(place), wall)
        if found is not None:
            return found
    return None


def header_of(holder: object) -> object:
    """Return the header Retry-After of what has `headers`, None if there is none."""
    headers = attribute(holder, "headers")
    for name in _NAMES:
        try:
            value: object = headers.get(name)
        except Exception:
            return None
        if value is not None:
            return value
    return None


def attribute(source: object, name: str) -> Any:
    """Return an attribute, None if there is none or it raises: httpx's `request` and `response` do where none is."""
    try:
        return getattr(source, name, None)
    except Exception:
        return None
