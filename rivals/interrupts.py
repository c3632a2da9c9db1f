"""Ctrl-C by timer: a signal that raises KeyboardInterrupt in a guarded call, and nowhere else."""

from __future__ import annotations

import signal

__all__ = ["arm", "disarm", "install"]

_armed = False


def install() -> None:
    """Let the timer's signal raise KeyboardInterrupt on the main thread while it is armed."""
    signal.signal(signal.SIGALRM, _strike)


def arm(seconds: float) -> None:
    """Strike in *seconds*; 0 does nothing."""
    global _armed
    if seconds:
        _armed = True
        signal.setitimer(signal.ITIMER_REAL, seconds)


def disarm() -> None:
    """Let a signal that is still to come pass without effect."""
    global _armed
    _armed = False


def _strike(number: int, frame: object) -> None:
    if _armed:
        raise KeyboardInterrupt
