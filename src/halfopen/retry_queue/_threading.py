"""Run a blocking function beside the event loop."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from halfopen._runtime.clock import async_library

__all__ = ["in_thread"]

T = TypeVar("T")


async def in_thread(function: Callable[[], T]) -> T:
    """Run *function* on a thread of asyncio or trio and return its result."""
    if async_library() is sys.modules.get("trio"):
        import trio

        return await trio.to_thread.run_sync(function)
    import asyncio

    return await asyncio.to_thread(function)
