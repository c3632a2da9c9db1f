"""What is known about one variant of the story, as plain data, while it runs and when it has ended."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import Any

from halfopen.cli.demo.hub import Ledger

__all__ = ["Account", "Books", "Keeping", "rounds_of"]


_ENDS = ("half_open", "closed", "killed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """
    What the partner says, compared with what the hub accepted. Times are seconds of the story.

    Attributes:
        condition, since: What it is like, and since when.
        sick_hits: Requests that arrived while it was down or cold.
        falls: How often it fell over after it had come back.
        lost: Messages the hub takes for delivered and the partner does not have.
        duplicates: Messages that it took and was sent again.
        altered: Messages whose content is not what the hub accepted.
    """

    condition: str
    since: float
    arrivals: int
    sick_hits: int
    falls: int
    ill_since: float | None
    well_since: float | None
    rescued: bool
    delivered: int
    duplicates: int
    last_taken: float = 0.0
    lost: int = 0
    altered: int = 0

    @classmethod
    def read(cls, page: dict[str, Any], ledger: Ledger | None = None) -> Books:
        """Read a page of the partner; with a *ledger*, a whole one, compare the two."""
        lost = altered = 0
        if ledger is not None:
            has: dict[str, str] = page["accepted"]
            lost = sum(1 for message_id in ledger.delivered if message_id not in has)
            altered = sum(1 for message_id, digest in has.items() if ledger.accepted.get(message_id) != digest)
        known = {name: page[name] for name in cls.__slots__ if name in page}
        return cls(**known, lost=lost, altered=altered)

    def outage(self, now: float) -> float | None:
        """Return how long the partner was ill, until *now* if it still is; None before it was."""
        if self.ill_since is None:
            return None
        return (now if self.well_since is None else self.well_since) - self.ill_since


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """
    What a gateway with a retry queue adds. Times are seconds of the watch, moments seconds of the story.

    Attributes:
        stored: Messages that were kept on its disk.
        left: Those of them that an earlier run had left there.
        needless: Messages that came twice although their fate was known.
        streams, ordered: The ordered streams, and how many messages they had.
        overtaken: Messages that arrived before an earlier one of their stream.
        drained, drain_time: Messages that waited when the circuit closed, and how long until they were delivered.
        kills: When the gateway was killed.
        restarts: How long it was away each time.
    """

    stored: int
    left: int = 0
    needless: int = 0
    streams: int = 0
    ordered: int = 0
    overtaken: int = 0
    drained: int = 0
    drain_time: float | None = None
    kills: tuple[float, ...] = ()
    restarts: tuple[float, ...] = ()

    @classmethod
    def restore(cls, plain: dict[str, Any]) -> Keeping:
        """Read what JSON made of it."""
        moments: dict[str, Any] = {name: tuple(plain[name]) for name in ("kills", "restarts")}
        return cls(**{**plain, **moments})


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """
    One variant of the story. Times are seconds of the story, refusals excepted: seconds of the watch.

    Attributes:
        delivered: Messages the partner said it took.
        given_up: Messages that ran out of attempts and wait for a person.
        outstanding: Messages that the hub still keeps.
        rounds: Requests made in each half-open round.
        books: The partner's side; None where the partner is not ours.
        keeping: The gateway's side; None where the hub keeps its messages in memory.
    """

    variant: str
    now: float
    circuit: str
    accepted: int
    delivered: int
    given_up: int
    outstanding: int
    sends: int
    failed: int
    refused: int
    refusal_median: float | None
    last_delivery: float
    last_error: str
    rounds: tuple[int, ...]
    books: Books | None
    final: bool
    keeping: Keeping | None = None

    @classmethod
    def of(
        cls, variant: str, now: float, circuit: str, ledger: Ledger, books: Books | None,
        *, rounds: tuple[int, ...] = (), final: bool = False, **better: Any,
    ) -> Account:  # fmt: skip
        """Take stock; what is known *better* goes before the ledger. The refusal median is for final accounts."""
        times = ledger.refusal_times
        accepted, given_up = len(ledger.accepted), len(ledger.given_up)
        known: dict[str, Any] = {
            "delivered": len(ledger.delivered),
            "sends": ledger.sends,
            "failed": ledger.failed,
            "refused": ledger.refused,
            "last_delivery": ledger.last_delivery,
            **better,
        }
        return cls(
            variant=variant,
            now=now,
            circuit=circuit,
            accepted=accepted,
            given_up=given_up,
            outstanding=max(0, accepted - known["delivered"] - given_up),
            refusal_median=statistics.median(times) if final and times else None,
            last_error=ledger.last_error,
            rounds=rounds,
            books=books,
            final=final,
            **known,
        )

    @property
    def outage(self) -> float | None:
        """Return how long the partner was ill, so far."""
        return None if self.books is None else self.books.outage(self.now)

    def plain(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)

    @classmethod
    def restore(cls, plain: dict[str, Any]) -> Account:
        """Read what `plain` wrote."""
        books, keeping = plain["books"], plain.get("keeping")
        rest: dict[str, Any] = {
            **plain,
            "rounds": tuple(plain["rounds"]),
            "books": None if books is None else Books(**books),
            "keeping": None if keeping is None else Keeping.restore(keeping),
        }
        return cls(**rest)


def rounds_of(starts: list[float], moves: list[tuple[float, str]]) -> tuple[int, ...]:
    """
    Return how many requests were started in each half-open round.

    Args:
        starts: When each request began, on the monotonic clock.
        moves: When the circuit moved, on the same clock, and to which state.
    """
    counts: list[int] = []
    for index, (begin, state) in enumerate(moves):
        if state != "half_open":
            continue
        # A straggler of a failed round belongs to it, so a round lasts until the next one or until the circuit closes.
        end = next((at for at, later in moves[index + 1 :] if later in _ENDS), float("inf"))
        counts.append(sum(1 for at in starts if begin <= at < end))
    return tuple(counts)
