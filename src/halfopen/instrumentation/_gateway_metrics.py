"""The metrics of a gateway, read from what counts its traffic: these protocols are all that is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from halfopen._core.histogram import HistogramSnapshot
from halfopen._runtime.keyed import OTHER
from halfopen.instrumentation._family import Family
from halfopen.instrumentation._metric import Metric
from halfopen.instrumentation.enumerations import GATEWAY_OUTCOMES, GATEWAY_TURNED_AWAY

__all__ = ["DOOR_METRICS", "GATEWAY_METRICS", "GatewayLike", "GatewayNumbers", "PartnerNumbers", "bounded", "door_of"]


class PartnerNumbers(Protocol):
    """What is counted of one partner; `halfopen.gateway` counts so."""

    @property
    def name(self) -> str: ...
    @property
    def requests(self) -> Mapping[str, int]: ...
    @property
    def in_progress(self) -> int: ...
    @property
    def durations(self) -> HistogramSnapshot: ...


class GatewayNumbers(Protocol):
    """What a gateway counts."""

    @property
    def partners(self) -> Sequence[PartnerNumbers]: ...
    @property
    def turned_away(self) -> Mapping[str, int]: ...


class GatewayLike(Protocol):
    """What counts a gateway's traffic."""

    def stats(self) -> GatewayNumbers:
        """Return its numbers."""
        ...


@dataclass(frozen=True, slots=True)
class _Sum:
    """Several partners under one name."""

    name: str
    requests: Mapping[str, int]
    in_progress: int
    durations: HistogramSnapshot


def bounded(partners: Iterable[PartnerNumbers], most: int) -> tuple[list[PartnerNumbers], int]:
    """Return the first *most* partners, and the sum of the others as one; and how many those are."""
    listed = list(partners)
    kept, others = listed[:most], listed[most:]
    return ([*kept, _sum(others)] if others else kept), len(others)


def _sum(partners: Sequence[PartnerNumbers]) -> _Sum:
    spread = [partner.durations for partner in partners]
    counts = tuple(sum(column) for column in zip(*(one.counts for one in spread), strict=True))
    return _Sum(
        OTHER,
        {outcome: sum(partner.requests[outcome] for partner in partners) for outcome in GATEWAY_OUTCOMES},
        sum(partner.in_progress for partner in partners),
        HistogramSnapshot(spread[0].bounds, counts, sum(one.sum for one in spread)),
    )


_gateway = Family("gateway", "{request}")

GATEWAY_METRICS: tuple[Metric, ...] = (
    _gateway.counts("requests", "Requests of programs by what they got.", "requests", "outcome", GATEWAY_OUTCOMES),
    _gateway.level("requests_in_progress", "Requests under way.", "in_progress", otel="gateway.requests.in_progress"),
    _gateway.spread("request_duration_seconds", "From a request's head to the last byte of its answer.",
                    "durations", otel="gateway.request.duration"),
)  # fmt: skip
DOOR_METRICS: tuple[Metric, ...] = (
    _gateway.counts("turned_away", "Requests that came to no partner.", "turned_away", "reason", GATEWAY_TURNED_AWAY),
)
"""Without a name: a name that a request asks for and nobody has configured must not become a series."""


def door_of(gateways: Iterable[GatewayNumbers]) -> Any:
    """Return what all gateways of a process have turned away."""
    sums: dict[str, int] = dict.fromkeys(GATEWAY_TURNED_AWAY, 0)
    for gateway in gateways:
        for reason, count in gateway.turned_away.items():
            sums[reason] += count
    return _Door(sums)


@dataclass(frozen=True, slots=True)
class _Door:
    turned_away: Mapping[str, int]
