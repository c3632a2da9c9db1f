"""What every HTTP client here needs: the key of a host, the time that is left, whether a body follows."""

from __future__ import annotations

from typing import Any, NamedTuple

from halfopen._runtime.deadline import AMBIENT, DeadlinePassedError, Line, remaining

__all__ = ["Request", "bodiless", "host_key", "past", "seconds_left", "shorter"]

_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class Request(NamedTuple):
    """What `HalfOpen.eligible` is shown (as ``call.args[0]``) where the library has no request of its own."""

    method: str
    url: str


def host_key(scheme: str, host: str, port: int | None) -> str:
    """Return ``scheme://host:port``, always with the port and in lower case."""
    scheme, host = scheme.lower(), host.lower().strip("[]")
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{port or _PORTS.get(scheme, 0)}"


def bodiless(method: str, status: int, headers: Any) -> bool:
    """Say whether an answer ends with its headers (RFC 9110, 6.4.1), or becomes another protocol (101)."""
    return method.upper() == "HEAD" or status in (101, 204, 304) or headers.get("content-length") == "0"


def seconds_left() -> float | None:
    """
    Return the seconds until the ambient deadline, None without one.

    Raises:
        DeadlinePassedError: It has passed: the call is not worth making.
    """
    ambient = AMBIENT.get()
    if ambient is None:
        return None
    left = remaining(ambient)
    if left <= 0:
        raise DeadlinePassedError(ambient[2], ambient[3])
    return left


def past(line: Line | None) -> bool:
    """Say whether the deadline that a call was made under has passed."""
    return line is not None and remaining(line) <= 0


def shorter(timeout: float | None, left: float | None) -> float | None:
    """Return the nearer one of a timeout and the time that is left; None is none."""
    if timeout is None or left is None:
        return left if timeout is None else timeout
    return min(timeout, left)
