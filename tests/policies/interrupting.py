"""
Come between at each place where CPython looks for signals, one after the other.

It looks when a Python function begins or goes on and after each call of a C function; also at each jump back, where
the next call is near. It does not between two plain instructions. A profiler is told of just these places, and what
it raises is raised there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import copy_context
from types import FrameType
from typing import Any

__all__ = ["Interrupt", "at_place"]


class Interrupt(BaseException):
    """Raised where a signal came."""


def at_place(number: int, action: Callable[[], object], intrude: Callable[[], object]) -> bool:
    """
    Run *action*, and *intrude* at its place of that *number*, from 0; say whether there were so many places.

    What *action* raises passes, but for an `Interrupt`. What is written in this file is no place.
    """
    left = number

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal left
        if event not in ("call", "c_return") or frame.f_code.co_filename == __file__:
            return
        left -= 1
        if left == -1:
            sys.setprofile(None)
            intrude()

    context = copy_context()  # what is left in it ends here, too
    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        context.run(action)
    except Interrupt:
        pass
    finally:
        sys.setprofile(before)
    return left < 0
