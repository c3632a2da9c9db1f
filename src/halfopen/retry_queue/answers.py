"""From HTTP statuses and exceptions to reports: the outcome table, without the receipt."""

from __future__ import annotations

import socket
import ssl

from halfopen.errors import RejectedError

from ._profile import LaneProfile
from ._reports import Report, Verdict

__all__ = ["judge_exception", "judge_status"]

_AGAIN = frozenset({408, 425, 429})
_NEVER_MENDS = frozenset({501, 505})

# By name, so that no client library is imported: httpx, requests, urllib3, aiohttp.
_NOT_CONNECTED = frozenset(
    {
        "ClientConnectorError",
        "ConnectError",
        "ConnectTimeout",
        "ConnectTimeoutError",
        "NameResolutionError",
        "NewConnectionError",
        "PoolTimeout",
        "ConnectionTimeoutError",
    }
)
_BROKEN_OFF = frozenset({"TransportError", "ClientError", "RequestException", "HTTPException", "HTTPError"})


def judge_status(status: int, profile: LaneProfile, *, retry_after: float | None = None) -> Report:
    """
    Return what an HTTP *status* says about the attempt.

    A 2xx is reported as delivered: where a receipt is wanted, judge that instead (`halfopen.retry_queue.as2`).
    """
    detail = f"HTTP {status}"
    if status in profile.retry_statuses:
        return Report(Verdict.NOT_DELIVERED, detail, retry_after)
    if 200 <= status < 300 and status not in profile.refuse_statuses:
        return Report(Verdict.DELIVERED, detail)
    sick = status in _AGAIN or (status >= 500 and status not in _NEVER_MENDS)
    if sick and status not in profile.refuse_statuses:
        return Report(Verdict.NOT_DELIVERED, detail, retry_after)
    return Report(Verdict.REFUSED, detail)


def judge_exception(error: BaseException, *, body_begun: bool) -> Report:
    """
    Return what an exception from a sender says about the attempt.

    Args:
        error: What the sender raised.
        body_begun: Whether it had begun to read the body. A connection lost before that carried nothing.
    """
    detail = f"{type(error).__name__}: {error}"[:500]
    if not isinstance(error, Exception):
        return Report(Verdict.INTERRUPTED if body_begun else Verdict.NOT_SENT, type(error).__name__)
    if isinstance(error, RejectedError):
        return Report(Verdict.NOT_SENT, detail, error.retry_after)
    chain = _chain(error)
    if any(isinstance(one, ssl.SSLCertVerificationError) for one in chain):
        return Report(Verdict.LANE_MISCONFIGURED, detail)
    if any(isinstance(one, (ConnectionRefusedError, socket.gaierror)) for one in chain) or _named(
        error, _NOT_CONNECTED
    ):
        return Report(Verdict.NOT_DELIVERED, detail)
    if isinstance(error, OSError) or _named(error, _BROKEN_OFF):
        return Report(Verdict.UNKNOWN if body_begun else Verdict.NOT_DELIVERED, detail)
    return Report(Verdict.SENDER_FAILED, detail)


def _chain(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    present: BaseException | None = error
    while present is not None and present not in found:
        found.append(present)
        reason = getattr(present, "reason", None)
        present = present.__cause__ or present.__context__ or (reason if isinstance(reason, BaseException) else None)
    return found


def _named(error: BaseException, names: frozenset[str]) -> bool:
    return any(kind.__name__ in names for kind in type(error).__mro__)
