"""
One variant of the story from beginning to end.

halfopen's is played in the demo's own process; the comparisons each in one of their own
(``python -m halfopen.cli.demo.play --variant none``), so that no variant costs another one time.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from halfopen.cli.demo.account import Account, Books, rounds_of
from halfopen.cli.demo.child import Child, PartnerProcess
from halfopen.cli.demo.errors import Broken
from halfopen.cli.demo.guards import Variant, naive_of
from halfopen.cli.demo.hub import Hub
from halfopen.cli.demo.messages import Letter, Message, files_of, messages, orders
from halfopen.cli.demo.naive import Guard
from halfopen.cli.demo.story import Pace, Story
from halfopen.cli.demo.wire import Endpoint

__all__ = ["Comparison", "Play", "letters_of"]

_GRACE = 30.0
_BRIEF = 0.15


def letters_of(directory: Path | None, seed: int, *, again: bool) -> Iterator[Letter]:
    """Return what to send: the files of *directory* (*again*: round and round), or invented orders."""
    return orders(seed) if directory is None else files_of(directory, again=again)


class Play:
    """
    The hub of one variant and its partner.

    Args:
        variant: Its name.
        guard: What stands between the two.
        endpoint: Where the partner is.
        arriving: What the hub is given.
        story: The script.
        pace: How fast it passes.
        partner: The process of the partner, where it is ours.
        repeat: Send one message twice, to see that the promises notice.
    """

    def __init__(
        self, variant: Variant, guard: Guard, endpoint: Endpoint, arriving: Iterator[Message], story: Story, pace: Pace,
        *, partner: PartnerProcess | None = None, repeat: bool = False,
    ) -> None:  # fmt: skip
        self.variant = variant
        self.hub = Hub(guard, endpoint, arriving, story, pace, repeat=repeat)
        self.moves: list[tuple[float, str]] = []
        self._guard = guard
        self._story = story
        self._pace = pace
        self._partner = partner
        self._books: Books | None = None
        self._books_at = 0.0
        self._last: Account | None = None

    def start(self) -> None:
        """Begin, and let the partner begin."""
        self._pace.start()
        if self._partner is not None:
            self._partner.begin()
        self.hub.start()

    @property
    def over(self) -> bool:
        """Return whether there is nothing left to wait for."""
        late = self._pace.now() > self._story.ends_at + _GRACE * self._pace.speed
        return self._last is not None or self.hub.done or late

    def look(self, *, fresh: bool = False) -> Account:
        """Take stock now; *fresh* asks the partner even if it was asked just before."""
        if self._last is not None:
            return self._last
        if self._partner is not None and (fresh or time.monotonic() - self._books_at > _BRIEF):
            self._books = Books.read(self._partner.books(brief=True))
            self._books_at = time.monotonic()
        return Account.of(self.variant, self._pace.now(), self._circuit(), self.hub.ledger, self._books)

    def finish(self) -> Account:
        """Stop the senders, compare the books, and return the final account."""
        if self._last is None:
            now = self._pace.now()
            circuit = self._circuit()
            self.hub.stop()
            ledger = self.hub.ledger
            books = None if self._partner is None else Books.read(self._partner.books(), ledger)
            rounds = rounds_of(ledger.starts, self.moves)
            self._last = Account.of(self.variant, now, circuit, ledger, books, rounds=rounds, final=True)
        return self._last

    def _circuit(self) -> str:
        return str(getattr(self._guard, "state", "none"))


class Comparison:
    """A variant that is played in a process of its own; its latest account is at hand."""

    def __init__(self, variant: Variant, speed: float, seed: int, directory: Path | None) -> None:
        files = [] if directory is None else ["--messages", str(directory)]
        self.variant = variant
        self._latest: Account | None = None
        self._child = Child(
            __name__, "--variant", str(variant), "--speed", repr(speed), "--seed", str(seed), *files
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._ready = threading.Event()
        self._reader.start()

    def wait_until_ready(self) -> None:
        """
        Return once it can begin.

        Raises:
            Broken: It ended before, or needs more than a minute.
        """
        if not self._ready.wait(60) or not self._reader.is_alive():
            raise Broken(f"the story with {self.variant.shown} did not start; run the demo again, or --no-compare")

    def start(self) -> None:
        """Begin."""
        self._child.begin()

    @property
    def over(self) -> bool:
        """Return whether it has said its last word."""
        return not self._reader.is_alive()

    def look(self) -> Account | None:
        """Return its latest account; None before the first."""
        return self._latest

    def stop(self) -> None:
        """End it, now, and its partner with it."""
        self._child.stop()

    def _read(self) -> None:
        for line in self._child.lines():
            if "ready" not in line:
                self._latest = Account.restore(line)
            self._ready.set()
        self._ready.set()


def _compare(variant: Variant, speed: float, seed: int, directory: Path | None) -> None:
    story, pace = Story(), Pace(speed)
    arriving = messages(letters_of(directory, seed, again=True))
    partner = PartnerProcess(speed)
    try:
        play = Play(variant, naive_of(variant, story, pace), partner.endpoint, arriving, story, pace, partner=partner)
        print(json.dumps({"ready": True}), flush=True)
        if sys.stdin.readline().strip() != "start":
            return
        play.start()
        parent_gone = threading.Thread(target=sys.stdin.read, daemon=True)
        parent_gone.start()
        while not play.over and parent_gone.is_alive():
            print(json.dumps(play.look().plain()), flush=True)
            time.sleep(_BRIEF)
        print(json.dumps(play.finish().plain()), flush=True)
    except BrokenPipeError:
        sys.stdout = None  # nobody is left to flush for at exit
    finally:
        partner.stop()


def main() -> None:
    """Play a comparison; speak JSON lines; end with standard input."""
    import signal

    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", type=Variant, required=True)
    parser.add_argument("--speed", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--messages", type=Path)
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _compare(options.variant, options.speed, options.seed, options.messages)


if __name__ == "__main__":
    main()
