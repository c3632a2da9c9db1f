"""Read from an error or a response how long the dependency asks to be left alone, without knowing its library."""

from __future__ import annotations

import math
from typing import Any, cast

from halfopen._runtime.retry_after import LONGEST, attribute, retry_after_of

__all__ = ["NEVER", "asked_wait"]

NEVER = math.inf
"""The dependency asks not to be tried again."""

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
    return retry_after_of(source, wall)


def _pushback(source: object) -> float | None:
    read = attribute(source, "trailing_metadata")
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
    return NEVER if milliseconds < 0 else min(milliseconds, int(LONGEST)) / 1000
