"""halfopen's variant of the story with the real hub: programs, a gateway with its queue on disk, and the partner."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import halfopen
from halfopen._core.states import Reason, State
from halfopen._core.windows import Totals
from halfopen.cli.demo.account import Account, Books, Keeping, rounds_of
from halfopen.cli.demo.child import PartnerProcess
from halfopen.cli.demo.errors import BadInput, Broken
from halfopen.cli.demo.gateway import GatewayProcess
from halfopen.cli.demo.guards import Variant
from halfopen.cli.demo.messages import Message
from halfopen.cli.demo.programs import Programs, as2_messages
from halfopen.cli.demo.scene import Circuit
from halfopen.cli.demo.story import Pace, Story, wall_ahead

__all__ = ["GatewayPlay", "overtaken"]

_GRACE = 30.0
_BRIEF = 0.15
_COUNTED = ("successes", "failures", "late_results", "refused")
_DOUBTS = frozenset({"lease ran out", "receipt overdue"})


class GatewayPlay:
    """
    The hub of halfopen's variant and its partner.

    Args:
        gateway: Running already.
        partner: The process of the partner.
        arriving: What the programs send.
        story: The script.
        pace: How fast it passes.
        moved: Told of each move of the gateway's circuit.
        said: Told of what happens to the gateway: a moment of the story, and a sentence.
        kill_at: When to kill the gateway, in seconds of the watch.
        left: Messages that are in the gateway's queue already, with their digests.
        repeat: Send one message twice, to see that the promises notice.
        stays: Leave the gateway running when the story is over.
    """

    variant = Variant.HALFOPEN

    def __init__(
        self, gateway: GatewayProcess, partner: PartnerProcess, arriving: Iterator[Message], story: Story, pace: Pace,
        *, moved: Callable[[halfopen.CircuitTransitioned], None], said: Callable[[float, str], None],
        kill_at: Sequence[float] = (), left: Mapping[str, str] | None = None, repeat: bool = False,
        stays: bool = False,
    ) -> None:  # fmt: skip
        arriving = as2_messages(arriving, story, gateway.receipts)
        self.hub = Programs(gateway.endpoint, arriving, story, pace, repeat=repeat)
        self.hub.carry_over(dict(left or {}))
        self.moves: list[tuple[float, str]] = []
        self._left = len(left or {})
        self._gateway = gateway
        self._stays = stays
        self._partner = partner
        self._story = story
        self._pace = pace
        self._moved = moved
        self._said = said
        self._kill_at = sorted(kill_at)
        self._lock = threading.Lock()
        self._circuit = Circuit(state="closed")
        self._epoch: tuple[int, int] = (0, -1)
        self._counts: dict[int, dict[str, int]] = {}
        self._backlog: dict[str, int] = {}
        self._books: Books | None = None
        self._looked_at = 0.0
        self._wall_ahead = wall_ahead()
        self._kills: list[float] = []
        self._restarts: list[float] = []
        self._draining: tuple[float, int] | None = None
        self._drained: tuple[int, float] | None = None
        self._delivered = 0  # as shown last
        self._killing = threading.Event()
        self._failed_to_return = ""
        self._ended = threading.Event()
        self._last: Account | None = None

    def start(self) -> None:
        """Begin, and let the partner begin."""
        self._pace.start()
        self._partner.begin()
        self.hub.start()
        if self._kill_at:
            self._killing.set()
            threading.Thread(target=self._kill_and_restart, name="demo-killer", daemon=True).start()

    @property
    def over(self) -> bool:
        """Return whether there is nothing left to wait for."""
        if self._last is not None or self._pace.now() > self._story.ends_at + _GRACE * self._pace.speed:
            return True
        return self.hub.handed_over and not self._killing.is_set() and self._all_settled()

    def circuit(self) -> Circuit:
        """Return what the gateway's circuit was like at the last look."""
        return self._circuit

    def look(self, *, fresh: bool = False) -> Account:
        """Take stock now; *fresh* asks everybody even if they were asked just before."""
        if self._last is not None:
            return self._last
        if self._gateway.died or self._failed_to_return:
            raise Broken(self._failed_to_return or "the gateway's process ended in the middle; run the demo again")
        if fresh or time.monotonic() - self._looked_at > _BRIEF:
            self._ask_gateway()
            self._books = Books.read(self._partner.books(brief=True))
            self._looked_at = time.monotonic()
        return self._account()

    def finish(self) -> Account:
        """Stop the programs, compare the books, and return the final account."""
        if self._last is None:
            self._ended.set()
            self.hub.stop()
            self._ask_gateway()
            self._last = self._balance()
            if not self._stays:
                self._gateway.kill()
        return self._last

    def give_up(self) -> Account:
        """Stop, and return what is known, without asking the gateway, which may be gone."""
        if self._last is None:
            self._ended.set()
            self.hub.stop()
            self._last = self._account()
            self._gateway.kill()
        return self._last

    # ── what the gateway says ──

    def _ask_gateway(self) -> None:
        life = self._gateway.lives
        told, backlog = self._gateway.circuit(), self._gateway.backlog()
        if told is None or backlog is None:
            return
        with self._lock:
            self._backlog = backlog
            self._count(life, told["snapshot"])
            for move in told["moves"]:
                self._follow(life, move)
            self._circuit = Circuit.of(told["snapshot"])
            self._measure_drain()

    def _count(self, life: int, snapshot: Mapping[str, Any]) -> None:
        counters = snapshot["counters"]
        refused = sum(counters["rejected"].values())
        self._counts[life] = {"refused": refused, **{name: counters[name] for name in _COUNTED[:3]}}

    def _counted(self, name: str) -> int:
        return sum(counts[name] for counts in self._counts.values())

    def _follow(self, life: int, move: Mapping[str, Any]) -> None:
        if (life, move["epoch"]) <= self._epoch:
            return
        self._epoch = (life, move["epoch"])
        event = _event(move, self._wall_ahead)
        if event.new is State.CLOSED:
            self._draining = (time.monotonic(), self._waiting)
        self.moves.append((event.at, str(event.new)))
        self._moved(event)

    @property
    def _waiting(self) -> int:
        return sum(number for state, number in self._backlog.items() if state in ("waiting", "unknown_delivery"))

    def _measure_drain(self) -> None:
        if self._draining is not None and self._waiting <= self._story.senders:
            began, waiting = self._draining
            self._draining = None
            if self._drained is None or waiting > self._drained[0]:
                self._drained = (waiting, time.monotonic() - began)

    def _all_settled(self) -> bool:
        # Looked at after the programs had handed everything over, so nothing can come after it.
        self._ask_gateway()
        return self._gateway.running and not sum(self._backlog.values())

    # ── kill -9 ──

    def _kill_and_restart(self) -> None:
        try:
            for moment in self._kill_at:
                if self._ended.wait(max(0.0, self._pace.began + moment - time.monotonic())):
                    return
                self._kill_once()
        except (BadInput, Broken) as error:
            self._failed_to_return = str(error)
        finally:
            self._killing.clear()

    def _kill_once(self) -> None:
        self._ask_gateway()
        killed, waiting = time.monotonic(), sum(self._backlog.values())
        self._gateway.kill()
        with self._lock:
            self._kills.append(self._pace.now())
            self.moves.append((killed, "killed"))
            self._circuit = Circuit(state="killed")
        self._said(self._kills[-1], f"kill -9: the gateway is gone; {waiting:,} messages are in its file")
        if self._ended.is_set():
            return
        self._gateway.start()
        self._restarts.append(time.monotonic() - killed)
        self._said(self._pace.now(), f"the gateway is back, after {self._restarts[-1]:.1f} s of yours")

    # ── accounts ──

    def _balance(self) -> Account:
        done = self._gateway.done()
        ledger = self.hub.ledger
        with self.hub._lock:
            ledger.delivered |= done & ledger.accepted.keys()
        page = self._partner.books()
        self._books = Books.read(page, ledger)
        excused = self.hub.doubtful | set(page["unanswered"])
        needless = sum(1 for twice in page["twice"] if twice not in excused and not self._repeated(twice))
        arrivals = [wall - self._wall_ahead for wall in page["times"]]
        keeping = self._keeping(
            needless=needless, overtaken=overtaken(self.hub.streams, list(page["accepted"])), left=self._left
        )
        return self._account(final=True, keeping=keeping, rounds=rounds_of(arrivals, self.moves))

    def _repeated(self, message_id: str) -> bool:
        return any(map(_leaves_doubt, self._gateway.history(message_id)))

    def _keeping(self, **found: int) -> Keeping:
        streams = self.hub.streams
        waiting, took = self._drained or (0, None)
        return Keeping(
            stored=len(self.hub.stored), streams=len(set(streams.values())), ordered=len(streams),
            drained=waiting, drain_time=took, kills=tuple(self._kills), restarts=tuple(self._restarts), **found,
        )  # fmt: skip

    def _account(self, *, final: bool = False, keeping: Keeping | None = None, rounds: tuple[int, ...] = ()) -> Account:
        ledger, books = self.hub.ledger, self._books
        with self._lock, self.hub._lock:
            waiting = sum(self._backlog.values())
            stored = 0 if final else len(self.hub.stored - ledger.delivered) - waiting
            # Two looks taken at different moments: what was delivered stays delivered.
            self._delivered = max(self._delivered, len(ledger.delivered) + max(0, stored))
            return Account.of(
                self.variant, self._pace.now(), self._circuit.state, ledger, books,
                delivered=len(ledger.delivered) if final else self._delivered,
                sends=sum(map(self._counted, _COUNTED[:3])), failed=self._counted("failures"),
                refused=self._counted("refused"), last_delivery=0.0 if books is None else books.last_taken,
                keeping=keeping or self._keeping(), rounds=rounds, final=final,
            )  # fmt: skip


def _leaves_doubt(entry: Mapping[str, Any]) -> bool:
    broken_off = entry["outcome"] == "failure" and not str(entry["detail"]).startswith("HTTP 5")
    return broken_off or entry["what"] in _DOUBTS


def _event(move: Mapping[str, Any], wall_ahead: float) -> halfopen.CircuitTransitioned:
    return halfopen.CircuitTransitioned(
        name="partner", at=move["at"] - wall_ahead, old=State(move["old"]), new=State(move["new"]),
        reason=Reason(move["reason"]), epoch=move["epoch"], step=move["step"], totals=Totals(**move["totals"]),
        wait=move["wait"],
    )  # fmt: skip


def overtaken(streams: Mapping[str, str], arrived: Sequence[str]) -> int:
    """Return how many messages arrived before an earlier one of their stream."""
    position = {message_id: number for number, message_id in enumerate(streams)}
    by_stream: dict[str, list[int]] = {}
    for message_id in arrived:
        if message_id in streams:
            by_stream.setdefault(streams[message_id], []).append(position[message_id])
    return sum(later < earlier for order in by_stream.values() for earlier, later in pairwise(order))
