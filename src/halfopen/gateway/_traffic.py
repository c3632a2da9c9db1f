"""What has gone through a gateway: how the requests to each partner ended, how long they took, who was turned away."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from halfopen._core.histogram import Histogram, HistogramSnapshot
from halfopen.instrumentation.enumerations import GATEWAY_OUTCOMES, GATEWAY_TURNED_AWAY

from ._problems import Send

__all__ = ["GatewayStats", "PartnerStats", "Passage", "Traffic"]

_BY_STATUS = {202: "stored", 429: "refused", 503: "refused", 502: "failed", 504: "failed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartnerStats:
    """
    One partner's requests.

    Attributes:
        requests: By what the program got: the partner's answer (answered), 202 (stored), 503 or 429 (refused), 502 or
            504 (failed), any other problem (invalid), not all of an answer (broken_off).
        in_progress: Those under way.
        durations: Of those that ended, from the request's head to the answer's last byte.
    """

    name: str
    requests: Mapping[str, int]
    in_progress: int
    durations: HistogramSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayStats:
    """All partners, and requests that came to none, by reason."""

    partners: tuple[PartnerStats, ...]
    turned_away: Mapping[str, int]


class _Counts:
    def __init__(self) -> None:
        self.requests: dict[str, int] = dict.fromkeys(GATEWAY_OUTCOMES, 0)
        self.in_progress = 0
        self.durations = Histogram()


class Traffic:
    """Counts on the gateway's own thread; `stats` may be asked from any."""

    def __init__(self) -> None:
        self._partners: dict[str, _Counts] = {}
        self._turned_away: dict[str, int] = dict.fromkeys(GATEWAY_TURNED_AWAY, 0)

    def know(self, names: Iterable[str]) -> None:
        """Begin at 0 with these partners; those known before keep what was counted."""
        for name in names:
            self._partners.setdefault(name, _Counts())

    def turn_away(self, kind: str) -> None:
        """Count a request that came to no partner, by the kind of the problem it got."""
        reason = kind.replace("-", "_")
        self._turned_away[reason if reason in self._turned_away else "other"] += 1

    def begin(self, name: str, send: Send) -> Passage:
        """Begin to count a request to a partner."""
        counts = self._partners.get(name)
        if counts is None:
            counts = self._partners.setdefault(name, _Counts())
        return Passage(counts, send)

    def stats(self) -> GatewayStats:
        """Return what was counted."""
        partners = tuple(
            PartnerStats(
                name=name,
                requests=dict(counts.requests),
                in_progress=counts.in_progress,
                durations=counts.durations.snapshot(),
            )
            for name, counts in list(self._partners.items())
        )
        return GatewayStats(partners=partners, turned_away=dict(self._turned_away))


class Passage:
    """One request on its way, told by what is sent to the program."""

    __slots__ = ("_began", "_complete", "_counts", "_send", "_status")

    def __init__(self, counts: _Counts, send: Send) -> None:
        self._counts = counts
        self._send = send
        self._status = 0
        self._complete = False
        self._began = time.monotonic()
        counts.in_progress += 1

    async def send(self, message: Any) -> None:
        """Send on, and take note."""
        await self._send(message)
        if message["type"] == "http.response.start":
            self._status = message["status"]
        elif not message.get("more_body"):
            self._complete = True

    def end(self, *, answered: bool) -> None:
        """Count it; *answered*: what was sent came from the partner."""
        counts = self._counts
        counts.in_progress -= 1
        if not self._complete:
            outcome = "broken_off"
        else:
            outcome = "answered" if answered else _BY_STATUS.get(self._status, "invalid")
        counts.requests[outcome] += 1
        counts.durations.add(time.monotonic() - self._began)
