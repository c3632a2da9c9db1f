"""
A wall clock that can be set.

`install` puts a settable clock in the place of `time.time`, `time.time_ns` and `datetime.datetime`, before any library
is imported, so that `from time import time` gets it too. `time.monotonic` is left as it is.
"""

from __future__ import annotations

import datetime as datetime_module
import time
from typing import Any, Self

__all__ = ["install", "now", "shift"]

_real_time = time.time
_real_datetime = datetime_module.datetime
_offset = 0.0


def install() -> None:
    """Replace the wall clock of this process."""
    time.time = now
    time.time_ns = lambda: int(now() * 1e9)
    datetime_module.datetime = _SettableDateTime  # type: ignore[misc]  # the replacement is the point


def now() -> float:
    """Return Unix time by the clock that can be set."""
    return _real_time() + _offset


def shift(seconds: float) -> None:
    """Set the wall clock forward, or back, by *seconds*."""
    global _offset
    _offset += seconds


class _SettableDateTime(_real_datetime):
    @classmethod
    def now(cls, tz: Any = None) -> Self:
        return cls.fromtimestamp(now(), tz)

    @classmethod
    def utcnow(cls) -> Self:
        return cls.now(datetime_module.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Self:
        return cls.now()
