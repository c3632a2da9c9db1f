"""The end of the story: the variants side by side, and every promise with its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from halfopen.cli.demo.account import Account, Books, Keeping
from halfopen.cli.demo.guards import Variant
from halfopen.cli.demo.story import Story, clock_face

__all__ = ["Promise", "as_json", "judge", "parted", "rows", "table"]

_SLOWEST_REFUSAL = 0.001
_SLOWEST_STORING = 0.25


@dataclass(frozen=True, slots=True)
class Promise:
    """Something the demo claims, whether it held, and the figures."""

    text: str
    kept: bool
    figures: str


def judge(story: Story, ours: Account, others: Sequence[Account] = ()) -> list[Promise]:
    """Return every promise that can be judged from these accounts."""
    promises = [_delivered(ours), *_by_the_books(ours)]
    if ours.rounds or ours.books is not None:
        promises += _half_open(story, ours)
    if ours.keeping is not None:
        promises += _kept(ours, ours.keeping)
    elif ours.refusal_median is not None:
        fast = ours.refusal_median < _SLOWEST_REFUSAL
        promises.append(Promise("a refusal costs less than a millisecond", fast, f"median {_duration(ours)}"))
    if ours.books is not None:
        promises += [_spared(ours, other) for other in others if other.books is not None]
    return promises


def _delivered(ours: Account) -> Promise:
    lost = 0 if ours.books is None else ours.books.lost
    arrived = ours.delivered - lost
    parts = [f"{arrived:,} of {ours.accepted:,}"]
    parts += [f"{lost:,} lost"] if lost else []
    parts += [f"{ours.given_up:,} given up, last error: {ours.last_error}"] if ours.given_up else []
    parts += [f"{ours.outstanding:,} still waiting"] if ours.outstanding else []
    whole = arrived == ours.accepted and (ours.books is None or ours.books.delivered == ours.accepted)
    return Promise("every message the hub accepted was delivered", whole, ", ".join(parts))


def _by_the_books(ours: Account) -> list[Promise]:
    books = ours.books
    if books is None:
        return []
    return [
        _once(books, ours.keeping),
        Promise("every message arrived unchanged", books.altered == 0, f"{books.altered:,} altered"),
        *_requests(ours, books),
        Promise("the returning partner was never knocked over", books.falls == 0, f"fell {books.falls:,} times"),
    ]  # fmt: skip


def _requests(ours: Account, books: Books) -> list[Promise]:
    if ours.keeping is None:
        text, agree = "the partner's books agree with the hub's", books.arrivals == ours.sends
    elif not ours.keeping.kills:
        # A permit that came back unused after its epoch counts as a late result, though nothing was sent.
        text, agree = "the partner saw no request that the breaker does not know", books.arrivals <= ours.sends
    else:
        return []  # what a killed gateway had counted is gone with it; what it had promised is not
    return [Promise(text, agree, f"{books.arrivals:,} of {ours.sends:,} requests arrived")]


def _once(books: Books, keeping: Keeping | None) -> Promise:
    if keeping is None:
        return Promise("no message was sent twice", books.duplicates == 0, f"{books.duplicates:,} came twice")
    known = books.duplicates - keeping.needless
    return Promise(
        "no message was processed twice, and none was sent twice without need",
        keeping.needless == 0,
        f"{keeping.needless:,} needless, {known:,} whose answer was lost: known by Message-ID",
    )


def _kept(ours: Account, keeping: Keeping) -> list[Promise]:
    promises = [
        Promise(
            "messages of ordered streams arrived in order", keeping.overtaken == 0 < keeping.ordered,
            f"{keeping.ordered:,} in {keeping.streams} streams, {keeping.overtaken} overtaken",
        )
    ]  # fmt: skip
    if ours.refusal_median is not None:
        promises.append(
            Promise(
                "a refused message is safe on disk within a quarter of a second",
                ours.refusal_median < _SLOWEST_STORING, f"median {_duration(ours)}, from the POST to the 202",
            )
        )  # fmt: skip
    if keeping.kills:
        promises.append(_same_books(ours, keeping))
    return promises


def _same_books(ours: Account, keeping: Keeping) -> Promise:
    when = ", ".join(clock_face(at) for at in keeping.kills)
    back = ", ".join(f"{seconds:.1f} s" for seconds in keeping.restarts)
    lost = ours.books.lost if ours.books is not None else 0
    whole = ours.delivered - lost == ours.accepted and len(keeping.restarts) == len(keeping.kills)
    return Promise(
        "killed in the middle, the gateway came back to the same books", whole,
        f"kill -9 at {when}, back after {back or 'never'}; {lost:,} lost",
    )  # fmt: skip


def _half_open(story: Story, ours: Account) -> list[Promise]:
    rounds = ", ".join(str(count) for count in ours.rounds) or "none"
    return [
        Promise(
            f"no half-open round let more than {story.trials} requests through",
            max(ours.rounds, default=0) <= story.trials, f"rounds of {rounds}",
        ),
        Promise(
            "the circuit opened and closed again",
            bool(ours.rounds) and ours.circuit == "closed",
            f"now {ours.circuit}, after {len(ours.rounds)} half-open rounds",
        ),
    ]  # fmt: skip


def _spared(ours: Account, other: Account) -> Promise:
    assert ours.books is not None
    assert other.books is not None
    title = Variant(other.variant).shown
    return Promise(
        f"fewer requests hit the sick partner than with {title}" if other.variant != Variant.NONE
        else "fewer requests hit the sick partner than with no breaker",
        ours.books.sick_hits < other.books.sick_hits,
        f"{ours.books.sick_hits:,} against {other.books.sick_hits:,}",
    )  # fmt: skip


def parted(promise: Promise, width: int | None) -> str:
    """Return what parts a promise from its figures: a new line where *width* columns (None: any) do not hold both."""
    columns = len(f"✓ {promise.text} · {promise.figures}")
    return " " if width is None or columns <= width else "\n  "


def rows(accounts: Sequence[Account]) -> list[tuple[str, ...]]:
    """Return the table: a heading row, then a row for each measure."""
    heading = ("", *(Variant(account.variant).shown for account in accounts))
    ours = [account.books for account in accounts]
    cells: list[tuple[str, ...]] = [heading]
    if all(books is not None for books in ours):
        cells += [
            ("requests to the sick partner", *(f"{books.sick_hits:,}" for books in ours if books)),
            ("times it was knocked over again", *(f"{books.falls:,}" for books in ours if books)),
            ("outage", *(_outage(account) for account in accounts)),
        ]
    cells += [
        ("calls refused", *(f"{account.refused:,}" for account in accounts)),
        ("median time of a refusal", *(_duration(account) for account in accounts)),
        ("messages delivered", *(f"{account.delivered:,} of {account.accepted:,}" for account in accounts)),
        ("given up: a person must look", *(f"{account.given_up:,}" for account in accounts)),
        ("last one delivered at", *(clock_face(account.last_delivery) for account in accounts)),
    ]
    kept = [account.keeping for account in accounts]
    if any(kept):
        cells += [
            ("kept on disk by the gateway", *(f"{each.stored:,}" if each else "–" for each in kept)),
            ("sent from it after the outage", *(_drain(each) for each in kept)),
        ]
    if any(account.outstanding for account in accounts):
        title = "still in the hub" if any(kept) else "still in the hub's memory"
        cells.append((title, *(f"{account.outstanding:,}" for account in accounts)))
    return cells


def table(accounts: Sequence[Account]) -> str:
    """Return the rows as aligned text."""
    cells = rows(accounts)
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in cells]
    lines.insert(1, "─" * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join(lines)


def as_json(accounts: Sequence[Account], promises: Sequence[Promise], *, speed: float, ended: str) -> dict[str, Any]:
    """Return the summary as plain data; *ended* is ``done`` or ``interrupted``."""
    return {
        "ended": ended,
        "speed": speed,
        "variants": {account.variant: {**account.plain(), "outage": account.outage} for account in accounts},
        "promises": [{"promise": each.text, "kept": each.kept, "figures": each.figures} for each in promises],
        "kept": all(each.kept for each in promises) if ended == "done" else None,
    }


def _drain(keeping: Keeping | None) -> str:
    if keeping is None or keeping.drain_time is None:
        return "–"
    return f"{keeping.drained:,} at {keeping.drained / max(keeping.drain_time, 1e-3):,.0f}/s"


def _outage(account: Account) -> str:
    length = account.outage
    if length is None or account.books is None:
        return "none"
    if account.books.well_since is None:
        return f"{clock_face(length)} so far"
    return clock_face(length) + ("*" if account.books.rescued else "")


def _duration(account: Account) -> str:
    if account.refusal_median is None:
        return "–"
    if account.keeping is not None:
        return f"{account.refusal_median * 1e3:,.1f} ms"
    return f"{account.refusal_median * 1e6:,.0f} µs"
