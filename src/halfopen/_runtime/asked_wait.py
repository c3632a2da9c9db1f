"""Read from an error or a response how long the dependency asks to be left alone, without knowing its library."""

from __future__ import annotations

import math
import sys
from datetime import UTC, timedelta
from typing import Any, cast

__all__ = ["NEVER", "asked_wait", "parse_retry_after"]

NEVER = math.inf
"""The dependency asks not to be tried again."""

_LONGEST = sys.float_info.max
"""What a number beyond all floats is cut to: a very long wait, but not `NEVER`."""

_PUSHBACK = "grpc-retry-pushback-ms"


def asked_wait(source: object, wall: float) -> float | None:
    """
    Return the seconds that *source* asks to wait, `NEVER` if it asks not to be tried again, None if it does not say.

    Looked at, in this order: gRPC's pushback (``grpc-retry-pushback-ms`` in `trailing_metadata()`; negative or
    unreadable means never, gRFC A6), `source.retry_after`, `source.headers` and `source.response.headers` with
    ``Retry-After`` (RFC 9110, section 10.2.3: seconds or a date).

    Args:
        source: An exception or a response.
        wall: Present Unix time, for dates.
    """
    pushback = _pushback(source)
    if pushback is not None:
        return pushback
    own = parse_retry_after(_attribute(source, "retry_after"), wall)
    if own is not None:
        return own
    for place in (source, _attribute(source, "response")):
        found = parse_retry_after(_header(_attribute(place, "headers")), wall)
        if found is not None:
            return found
    return None


def parse_retry_after(value: object, wall: float) -> float | None:
    """Return a Retry-After (number, text, date or timedelta) as seconds from now, at least 0; None if it is none."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    if isinstance(value, str):
        value = _of_text(value.strip(), wall)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return float(min(max(value, 0), _LONGEST))


def _of_text(text: str, wall: float) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return _of_date(text, wall)
    return _LONGEST if seconds == math.inf and text.isdecimal() else seconds


def _of_date(text: str, wall: float) -> float | None:
    # Costs milliseconds to import, and few servers send dates.
    from email.utils import parsedate_to_datetime

    try:
        date = parsedate_to_datetime(text)
        # The obsolete form that asctime() writes names no zone; it is UTC like the others (RFC 9110, section 5.6.7).
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - wall
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _pushback(source: object) -> float | None:
    read = _attribute(source, "trailing_metadata")
    try:
        metadata: Any = read() if callable(read) else read
        value = cast(dict[str, Any], dict(metadata or ())).get(_PUSHBACK)
    except Exception:
        return None
    if value is None:
        return None
    try:
        milliseconds = int(value)
    except (TypeError, ValueError):
        return NEVER
    return NEVER if milliseconds < 0 else min(milliseconds, int(_LONGEST)) / 1000


def _header(headers: Any) -> object:
    for key in ("Retry-After", "retry-after"):
        try:
            value: object = headers.get(key)
        except Exception:
            return None
        if value is not None:
            return value
    return None


def _attribute(source: object, name: str) -> Any:
    # Properties of foreign errors may raise: httpx's `request` does, for one.
    try:
        return getattr(source, name, None)
    except Exception:
        return None
