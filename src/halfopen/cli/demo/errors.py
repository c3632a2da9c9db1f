"""What may go wrong before the story begins, and in the middle of it."""

from __future__ import annotations

__all__ = ["BadInput", "Broken"]


class BadInput(Exception):
    """The demo cannot start; the message is one line that says what to do."""


class Broken(Exception):
    """A process of the demo has gone, so that nothing can be proven; the message is one line."""
