"""Notes on errors: each policy says what it has to say of the last call, however often one object is raised."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

__all__ = ["write_notes"]


def write_notes(error: BaseException, notes: Iterable[str], is_old: Callable[[str], bool]) -> None:
    """
    Write *notes* on *error* in the place of those that an earlier call left there.

    An exception object may be raised many times, by a mock or a cache of errors; it tells of its last call, not of all.

    Args:
        error: Left as it is where it takes no notes.
        notes: What to say.
        is_old: Says of a note that it is one of the writer's own.
    """
    with suppress(Exception):
        before = [old for old in getattr(error, "__notes__", ()) if not is_old(str(old))]
        error.__notes__ = [*before, *notes]
